//! What speeds under caps are said to mean, and the whole answer.

use super::super::campaign::Subject;
use super::*;
use crate::output::{Format, Output};
use pillion_core::{SlurmJobId, UnixTime, WorkloadKey};

fn speeds(of: &[(u8, f64)]) -> Vec<(CapStep, f64)> {
    of.iter().map(|(tenths, speed)| (CapStep::from_tenths(*tenths).unwrap(), *speed)).collect()
}

#[test]
fn what_was_learnt_is_one_sentence() {
    let learnt = |of: &[(u8, f64)]| learnt(&speeds(of)).unwrap_or_default();
    assert_eq!(learnt(&[]), "");
    assert_eq!(
        learnt(&[(2, 0.97), (6, 1.0)]),
        "With 20 % of the GPU it is still at 97 % of its speed: it leaves most of a GPU to a neighbour"
    );
    assert_eq!(
        learnt(&[(2, 0.4), (4, 0.8), (6, 0.96), (8, 0.99)]),
        "It keeps 96 % of its speed with 60 % of the GPU, and 40 % with 20 %: that much it needs beside a neighbour"
    );
    assert_eq!(
        learnt(&[(4, 0.5), (8, 0.9)]),
        "Every cap that was measured slows it, down to 50 % of its speed with 40 % of the GPU: it uses all of it"
    );
}

#[test]
fn runs_speeds_and_what_they_mean_stand_below_each_other() {
    let run = |tenths: u8, outcome: Option<Outcome>| Run {
        cap: CapStep::from_tenths(tenths).unwrap(),
        job_id: SlurmJobId::plain(40 + u32::from(tenths)),
        submitted_at: UnixTime::from_epoch(1),
        outcome,
    };
    let failed = Outcome::Failed("it ended as failed; see what it printed".to_owned());
    let runs = vec![
        run(10, Some(Outcome::Taught)),
        run(2, Some(failed)),
        run(4, Some(Outcome::Taught)),
        run(6, None),
    ];
    let (script, text) = ("/x.sh".to_owned(), String::new());
    let subject = Subject { script, text, arguments: Vec::new(), options: Vec::new() };
    let mut profile = WorkloadProfile::empty(WorkloadKey::new("alice/aa710d1a65607725"), "h100");
    profile.duration_seconds = Some(100.0);
    profile.throughput_per_second_at_cap[3] = Some(0.008);
    let open = RunStatus::Open { state: "waiting", detail: "no device is wholly free".to_owned() };
    let known = Known {
        statuses: vec![None, None, None, Some(open)],
        profile: Some(profile),
        workload_name: Some("alice/bert".to_owned()),
    };
    let answer = answer(&Campaign { subject, runs, intent: None }, &known);
    let text = Output::new(Format::Table, true).render(&answer);
    insta::assert_snapshot!(text);
    let json: serde_json::Value = serde_json::from_str(&answer.json).unwrap();
    assert_eq!(json["speeds"][0]["speed_fraction"], 0.8);
    assert_eq!(
        (&json["runs"][3]["state"], &json["runs"][3]["cap_fraction"]),
        (&"waiting".into(), &0.6.into())
    );
}
