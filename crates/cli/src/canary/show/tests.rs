use super::super::plan::{About, Run, Script};
use super::*;
use crate::characterize::campaign::Subject;
use crate::output::table;
use pillion_core::{SlowdownRatio, SlurmJobId, UnixTime};

fn run(work: Work, job: u32, outcome: Option<Outcome>) -> Run {
    Run {
        work,
        job_name: format!("pillion-canary-1-{job}"),
        begin: None,
        job_id: (job > 0).then(|| SlurmJobId::plain(job)),
        submitted_at: UnixTime::from_epoch(1),
        has_sbatch_ended: true,
        outcome,
    }
}

fn speed(group_id: u64, speed_fraction: Option<f64>, reason: &str) -> Outcome {
    Outcome::Beside(Measured {
        group_id: Some(group_id),
        expected_speed_fraction: Some(0.91),
        bound_speed_fraction: Some(0.84),
        speed_fraction,
        slowdown_ratio_max: Some(1.25),
        reason: reason.to_owned(),
    })
}

fn canary() -> (Canary, Wanted) {
    let script = |name: &str| Script {
        name: name.to_owned(),
        subject: Subject {
            script: format!("/home/alice/{name}.sh"),
            text: "#!/bin/sh\n#SBATCH -t 10\n".to_owned(),
            arguments: Vec::new(),
            options: Vec::new(),
        },
    };
    let about = About {
        node: "n1".to_owned(),
        partition: "canary".to_owned(),
        scripts: ["solver", "training", "broken"].map(script).into(),
        promise: SlowdownRatio::try_promise(1.25).unwrap(),
    };
    let pairs = vec![[0, 1], [0, 0], [1, 1], [0, 2]];
    let beside = |pair, slot, job, outcome| run(Work::Beside { pair, slot }, job, outcome);
    let failed = Outcome::Failed("it ended as failed; see what it printed".to_owned());
    let mut canary = Canary::new(about, UnixTime::from_epoch(1));
    canary.runs = vec![
        run(Work::Alone { script: 0 }, 11, Some(Outcome::Alone)),
        run(Work::Alone { script: 1 }, 12, Some(Outcome::Alone)),
        run(Work::Alone { script: 2 }, 13, Some(failed)),
        beside([0, 1], 0, 14, Some(speed(1, Some(0.93), ""))),
        beside([0, 1], 1, 15, Some(speed(1, Some(0.78), ""))),
        beside([0, 0], 0, 16, Some(speed(2, None, "alone: beside 17 its promise would be at risk"))),
        beside([0, 0], 1, 17, Some(speed(3, None, ""))),
        beside([1, 1], 0, 18, None),
        beside([1, 1], 1, 0, None),
    ];
    canary.before = Some(Bound {
        speed_count: 8,
        above_bound_count: 8,
        stretch_ratio: None,
        saved_gpu_hours_low_without: 12.5,
        saved_gpu_hours_low_with: None,
    });
    (canary, Wanted { runs_each: 1, pairs })
}

#[test]
fn what_was_foretold_and_what_was_measured_stand_side_by_side() {
    let (canary, wanted) = canary();
    let now = Bound {
        speed_count: 10,
        above_bound_count: 9,
        stretch_ratio: Some(1.86),
        saved_gpu_hours_low_without: 12.5,
        saved_gpu_hours_low_with: Some(9.25),
    };
    let told = answer(&canary, &wanted, Some(&now), Some(1.25));
    let text = table::render(&told.blocks, true);
    for expected in [
        "1.25x BROKEN",
        "it ended as failed; see what it printed",
        "they were not put together: 16: alone: beside 17 its promise would be at risk",
        "it is not known how broken runs alone",
        "1.25x kept",
        "Beside another 2 jobs took 1.28x as long as alone at the median, 1.28x at the most",
        "Their speeds were foretold wrongly by 13 % of the speed alone at the median, 13 % at the most",
        "Under this site's own promise (1.25x) 1 of 1 pair would be together by their bounds, with 1 promise broken\n",
        "1 of 2 speeds at or above their bounds (nine of ten are meant to be)",
        "In the pool before it: 8 of 8 speeds at or above their bounds; no bounds can be set by them, and 12.50 GPU-hours saved (low)",
        "bounds 1.86 times as far down, and 9.25 GPU-hours saved (low), without that 12.50",
    ] {
        assert!(text.contains(expected), "no '{expected}' in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&told.json).unwrap();
    assert_eq!((&json["speed_count"], &json["above_bound_count"]), (&2.into(), &1.into()));
    assert_eq!((&json["promises_broken"], &json["pairs"][0]["state"]), (&1.into(), &"together".into()));
    assert_eq!(json["pairs"][1]["jobs"][0]["expected_speed_fraction"], serde_json::Value::Null);
    let without = answer(&canary, &wanted, None, None);
    assert!(table::render(&without.blocks, true).contains("tells operators: pillion shadow report"));
}
