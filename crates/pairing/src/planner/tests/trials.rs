//! What is tried outside the bounds, what is not, and who waits for a verdict.

use super::*;
use crate::model::{InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use crate::trials::{TrialBook, TrialKind, TrialPolicy, TrialRecord, TrialVerdict};
use pillion_core::{SlurmJobId, WorkloadKey};
use std::sync::Arc;

/// Any two are fast or far too slow: nobody can say.
struct Doubt {
    speed: f64,
    deviation: f64,
}

const DOUBT: Doubt = Doubt { speed: 0.85, deviation: 0.12 };

impl InterferenceModel for Doubt {
    fn name(&self) -> &'static str {
        "doubt"
    }

    fn predict(&self, tenants: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
        let (speed, deviation) = if tenants.len() == 1 { (1.0, 0.0) } else { (self.speed, self.deviation) };
        let estimate = SpeedEstimate {
            speed_fraction: speed,
            speed_fraction_deviation: deviation,
            has_heavy_tail: false,
            speed_fraction_low: speed - 1.28 * deviation,
            speed_fraction_high: 1.0,
            terms: Arc::default(),
        };
        Ok(vec![estimate; tenants.len()])
    }

    fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
        None
    }
}

fn daring() -> Policy {
    Policy { caps: false, trials: Some(TrialPolicy::default()), ..Policy::default() }
}

/// So many jobs of `light`, which count their progress and run for an hour, and a device for each.
fn alike(count: u32) -> ClusterView {
    let devices = (0..count).map(|index| device(&format!("g{index}"), Mps)).collect();
    let mut cluster = view(devices, (1..=count).map(|id| job(id, "light")).collect());
    let mut light = profile("light", 0.1, 0.05, 8);
    light.throughput_per_second = Some(10.0);
    light.duration_seconds = Some(3600.0);
    cluster.profiles = ProfileBook::from(vec![light]);
    cluster
}

fn kind() -> TrialKind {
    TrialKind::new("h100", Mps, [WorkloadKey::new("light"), WorkloadKey::new("light")])
}

fn trials(plan: &Plan) -> usize {
    plan.pairings.iter().filter(|pairing| pairing.trial.is_some()).count()
}

fn tried(cluster: &ClusterView) -> usize {
    trials(&plan(cluster, &DOUBT, &daring()))
}

#[test]
fn nothing_is_tried_where_the_site_has_not_said_so() {
    let careful = Policy { trials: None, ..daring() };
    let plan = plan(&alike(2), &DOUBT, &careful);
    assert_eq!((groups(&plan), trials(&plan)), (vec![vec![1], vec![2]], 0));
    assert_eq!(exclusion(&plan, 1, 2), Some(Reason::PromiseAtRisk));
}

#[test]
fn two_outside_the_bounds_are_tried_and_say_so() {
    let plan = plan(&alike(2), &DOUBT, &daring());
    assert_eq!(groups(&plan), [[1, 2]]);
    let keep = plan.pairings[0].trial.expect("a trial").value();
    // Each is above 1.02 / 1.25 = 0.816, 0.283 deviations below the mean, with a probability of 0.611.
    assert!((keep - 0.611 * 0.611).abs() < 0.002, "{keep}");
    assert_eq!((reason(&plan, 1), reason(&plan, 2)), (Reason::Trial, Reason::Trial));
    let text = &plan.pairings[0].members[0].explanation.text;
    assert!(text.starts_with("a trial: ") && text.contains(" 37 %"), "{text}");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap().pairings[0].trial, plan.pairings[0].trial);
}

#[test]
fn whoever_counts_no_progress_is_not_tried() {
    let mut cluster = alike(2);
    let mut blind = profile("light", 0.1, 0.05, 8);
    blind.duration_seconds = Some(3600.0);
    cluster.profiles = ProfileBook::from(vec![blind]);
    assert_eq!(tried(&cluster), 0);
}

#[test]
fn of_each_kind_one_pair_is_tried_at_a_time() {
    let plan = plan(&alike(8), &DOUBT, &daring());
    assert_eq!(trials(&plan), 1);
    let mut open = alike(8);
    open.trials.open = vec![kind()];
    assert_eq!(tried(&open), 0);
}

#[test]
fn whoever_is_nearly_sure_is_not_waited_for() {
    let sure = Doubt { speed: 0.97, deviation: 0.14 };
    // The bound is 0.79, and a promise of 1.25 asks for 0.8.
    let plan = plan(&alike(8), &sure, &Policy { broken_budget_fraction: 1.0, ..daring() });
    let keep = plan.pairings[0].trial.expect("a trial").value();
    assert!((keep - 0.864 * 0.864).abs() < 0.01 || keep > 0.7, "{keep}");
    let surer = Doubt { speed: 0.97, deviation: 0.09 };
    let risky = Policy { broken_budget_fraction: 0.0, ..daring() };
    assert_eq!(trials(&super::plan(&alike(8), &surer, &risky)), 4);
}

#[test]
fn one_of_two_starts_and_the_other_waits_for_the_verdict_within_its_bound() {
    let plan = plan(&alike(6), &DOUBT, &daring());
    let waits: Vec<u32> = (1..=6).filter(|id| reason(&plan, *id) == Reason::AwaitsVerdict).collect();
    assert_eq!((trials(&plan), waits.len(), plan.pairings.len()), (1, 2, 3));
    let mut late = alike(6);
    for job in &mut late.waiting {
        job.starts_alone_at = late.taken_at;
    }
    let plan = super::plan(&late, &DOUBT, &daring());
    assert!(plan.left_waiting.is_empty(), "nobody waits beyond its bound: {:?}", plan.left_waiting);
}

#[test]
fn nobody_waits_where_no_verdict_is_to_come() {
    let mut cluster = alike(6);
    cluster.trials.records = vec![record(100, 0)];
    let plan = plan(&cluster, &DOUBT, &daring());
    assert_eq!((trials(&plan), plan.left_waiting.len(), plan.pairings.len()), (0, 0, 6));
}

fn record(seen_count: u32, held_count: u32) -> TrialRecord {
    let (user, device_model) = (String::new(), "h100".to_owned());
    TrialRecord { user, device_model, mechanism: Mps, seen_count, held_count }
}

#[test]
fn devices_where_sharing_does_not_pay_are_left_alone() {
    let with = |records| {
        let trials = TrialBook { records, ..TrialBook::default() };
        tried(&ClusterView { trials, ..alike(2) })
    };
    assert_eq!([with(vec![record(100, 1)]), with(vec![record(100, 10)]), with(Vec::new())], [0, 1, 1]);
    let elsewhere = TrialRecord { device_model: "k80".to_owned(), ..record(100, 0) };
    assert_eq!(with(vec![elsewhere]), 1);
}

/// How fast a job goes its user says: with a hundred names and a counter that he writes slower in company, one user would end all
/// trials of everybody.
#[test]
fn one_users_word_stops_his_own_trials_and_nobody_elses() {
    let with = |records: Vec<TrialRecord>| {
        let mut cluster = ClusterView { trials: TrialBook { records, ..TrialBook::default() }, ..alike(2) };
        let mut light = cluster.profiles.iter().next().expect("one").clone();
        light.workload = WorkloadKey::new("alice/light");
        for job in &mut cluster.waiting {
            job.workload = light.workload.clone();
        }
        cluster.profiles = ProfileBook::from(vec![light]);
        tried(&cluster)
    };
    let of = |user: &str, seen_count| TrialRecord { user: user.to_owned(), ..record(seen_count, 0) };
    assert_eq!([with(vec![of("mallory", 100)]), with(vec![of("alice", 100)])], [1, 0]);
    let many = ["bob", "carol", "dave", "erin"].map(|user| of(user, 100));
    assert_eq!(with(many.to_vec()), 0, "several together say something of the device");
}

#[test]
fn what_was_seen_to_break_is_not_tried_again_and_what_held_is_not_waited_for() {
    let seen = |speed_fractions| {
        let verdict = TrialVerdict { kind: kind(), cap_fractions: [None, None], speed_fractions };
        let trials = TrialBook { verdicts: vec![verdict], ..TrialBook::default() };
        tried(&ClusterView { trials, ..alike(8) })
    };
    assert_eq!(seen(Some([0.81, 0.9])), 0, "above the promise by less than the margin");
    assert_eq!(seen(None), 0, "they did not fit");
    assert_eq!(seen(Some([0.9, 0.9])), 4);
}

/// The model still thinks well of them, and learns of it when one of them is over.
#[test]
fn what_the_watch_sees_break_is_not_put_together_again_also_where_nothing_is_tried() {
    let shared = |caps: &[(Option<f64>, [f64; 2])], promise| {
        let verdict = |(cap, speeds): &(Option<f64>, [f64; 2])| TrialVerdict {
            kind: kind(),
            cap_fractions: [cap.map(pillion_core::Fraction::clamped), None],
            speed_fractions: Some(*speeds),
        };
        let watched = caps.iter().map(verdict).collect();
        let mut cluster = ClusterView { trials: TrialBook { watched, ..TrialBook::default() }, ..alike(2) };
        for job in &mut cluster.waiting {
            job.slowdown_ratio_max = SlowdownRatio::try_promise(promise).unwrap();
        }
        let plan = planned(&cluster);
        (plan.pairings.len() == 1, plan)
    };
    assert!(shared(&[(None, [0.9, 0.79])], 1.25).0, "missed by less than the watch's margin");
    let (together, plan) = shared(&[(None, [0.9, 0.6])], 1.25);
    assert!(!together);
    assert_eq!(exclusion(&plan, 1, 2), Some(Reason::PromiseAtRisk));
    assert!(shared(&[(None, [0.9, 0.6])], 2.0).0, "nobody promised more");
    assert!(
        !shared(&[(Some(0.5), [0.9, 0.6])], 1.25).0,
        "under other caps: the model is wrong about the two"
    );
    assert!(
        shared(&[(Some(0.5), [0.9, 0.6]), (None, [0.9, 0.9])], 1.25).0,
        "without caps it was seen to hold"
    );
}

#[test]
fn whoever_went_back_is_not_made_to_go_back_again() {
    let mut cluster = alike(2);
    cluster.waiting[1].start.restart_count = 1;
    assert_eq!(tried(&cluster), 0);
}

#[test]
fn a_job_is_tried_beside_one_that_runs_and_never_as_a_third() {
    let mut cluster = alike(1);
    cluster.devices = vec![device_with("g0", Mps, tenant(50, "light", 7200))];
    let policy = Policy { tenants_max: 3, ..daring() };
    let plan = plan(&cluster, &DOUBT, &policy);
    assert_eq!((plan.pairings[0].joins.map(|group| group.0), reason(&plan, 1)), (Some(50), Reason::Trial));
    cluster.devices[0]
        .tenants
        .push(crate::view::Tenant { group: Some(pillion_core::DecisionId(50)), ..tenant(51, "light", 7200) });
    assert_eq!(trials(&super::plan(&cluster, &DOUBT, &policy)), 0);
}

#[test]
fn whoever_could_not_be_taken_apart_again_is_not_tried() {
    let mut excluded = alike(2);
    excluded.trials.excluded = [SlurmJobId::plain(2)].into();
    assert_eq!(tried(&excluded), 0);
    excluded.waiting.push(job(3, "light"));
    excluded.devices.push(device("g2", Mps));
    let plan = plan(&excluded, &DOUBT, &daring());
    assert!(groups(&plan).contains(&vec![1, 3]) && trials(&plan) == 1, "{:?}", groups(&plan));
    let mut strangers = alike(2);
    strangers.waiting[1].uid = UserId(4_242);
    let any = Policy { users: UserPolicy::Any, ..daring() };
    assert_eq!(trials(&super::plan(&strangers, &DOUBT, &any)), 0);
    let believing = Policy { watch_believes: UserPolicy::Any, ..any };
    assert_eq!(trials(&super::plan(&strangers, &DOUBT, &believing)), 1, "the site believes its users");
}

#[test]
fn whose_own_promise_would_not_outlast_going_back_is_no_guest() {
    // A minute of trial and a minute to start again, of a promise of 1.25.
    for (seconds, is_tried) in [(470.0, 0), (490.0, 1)] {
        let mut cluster = alike(2);
        let mut short = profile("light", 0.1, 0.05, 8);
        short.throughput_per_second = Some(10.0);
        short.duration_seconds = Some(seconds);
        cluster.profiles = ProfileBook::from(vec![short]);
        assert_eq!(tried(&cluster), is_tried, "of {seconds} s");
    }
}
