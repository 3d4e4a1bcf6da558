//! What is open, what was seen, how it fared, and who is left out.

use super::*;
use crate::context::Settings;
use crate::pace::settings::PaceSettings;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, member, node};
use crate::view::{TrialHistory, Watched};
use pillion_core::decision::MemberState;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, JobStart, Revision, SlowdownRatio, UserId, WorkloadKey};
use pillion_pairing::{Observation, ObservedTenant};
use pillion_slurm::NodeAvailability;
use pillion_store::StoredObservation;

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn workload(id: u32) -> WorkloadKey {
    WorkloadKey::new(format!("alice/{id}"))
}

/// Two who run, the second one in a decision of its own: tried, or not.
fn company(is_trial: bool, seconds_ago: u64) -> Vec<Decision> {
    let two = [2, 1].map(|id| {
        let mut one = member(MemberState::Running);
        one.plan.start = start(id);
        one.plan.workload = workload(id);
        let one = Member { started_at: Some(at(NOW - seconds_ago)), ..one };
        Decision { trial: (is_trial && id == 1).then(|| Fraction::clamped(0.5)), ..decision(&one) }
    });
    two.into()
}

fn made(
    decisions: &[Decision],
    speeds: &[(u32, f64)],
    history: &TrialHistory,
    waiting: &[WaitingJob],
) -> TrialBook {
    let scan = Scan::new(at(NOW), Vec::new(), vec![node(NodeAvailability::Up)], &["shared".to_owned()], 0);
    let place = (NodeName::new("n1"), GresType::new("g1"));
    let speeds: BTreeMap<JobStart, f64> = speeds.iter().map(|(id, speed)| (start(*id), *speed)).collect();
    let members: Vec<_> = active_members(decisions).collect();
    let seen = Watched::of(&members, &speeds, at(NOW));
    let settings = PaceSettings {
        watch: Watch::Act,
        by_partition: [("calm".to_owned(), Watch::Advise)].into(),
        ..PaceSettings::default()
    };
    let own = TrialSources {
        is_parting_unsafe: false,
        pace: &settings,
        speeds: &[(place, speeds)].into(),
        history,
    };
    let site = Settings::default();
    let sources = Sources {
        revision: Revision(1),
        scan: &scan,
        decisions,
        agents: &BTreeMap::new(),
        stopped: &BTreeMap::new(),
        drains: &[],
        cooling: &BTreeMap::new(),
        profiles: &[],
        policy: &site.policy,
        by_job: site.by_job(),
        owed: &BTreeMap::new(),
        charged: &crate::view::Charged::default(),
        amiss: &crate::device_status::Amiss::default(),
        first_runs: &BTreeMap::new(),
        idle_sessions: &BTreeSet::new(),
        alone_devices_max: 2,
        gpu_types: &BTreeMap::new(),
        room_asked: &BTreeMap::new(),
        steadfast: &[start(9)].into(),
        watched: &seen.into_iter().map(|seen| (seen.combination(), seen)).collect(),
        restarts_by_consent: true,
        copies: &pillion_pairing::CopyBook::default(),
        trials: Some(own),
    };
    book(waiting, own, sources)
}

fn kind() -> TrialKind {
    TrialKind::new("h100", decision(&member(MemberState::Running)).mechanism(), [workload(1), workload(2)])
}

#[test]
fn what_is_tried_is_open_until_the_watch_has_judged_both() {
    let nothing = TrialHistory::default();
    let open =
        |is_trial, ago, speeds: &[(u32, f64)]| made(&company(is_trial, ago), speeds, &nothing, &[]).open;
    assert_eq!(open(true, 5, &[]), [kind()]);
    assert_eq!(open(true, 5, &[(1, 0.9)]), [kind()], "only one was judged");
    assert_eq!(open(true, 5, &[(1, 0.9), (2, 0.7)]), []);
    assert_eq!(open(false, 5, &[]), [], "no trial");
    assert_eq!(open(true, 1_000, &[]), [], "its watch will not speak any more");
    assert_eq!(made(&company(true, 5)[..1], &[], &nothing, &[]).open, [], "one alone");
}

#[test]
fn what_the_watch_saw_is_a_verdict_in_the_order_of_the_workloads() {
    let seen = made(&company(true, 5), &[(1, 0.9), (2, 0.7)], &TrialHistory::default(), &[]);
    assert_eq!(seen.verdicts.len(), 1);
    let verdict = &seen.verdicts[0];
    assert_eq!((&verdict.kind, verdict.speed_fractions), (&kind(), Some([0.9, 0.7])));
    assert_eq!(seen.watched, seen.verdicts, "and it is told as what the watch sees now");
    // A promise of 1.25 asks for 0.8 of both.
    assert_eq!((seen.records[0].seen_count, seen.records[0].held_count), (1, 0));
}

fn stored(number: u64, speeds: [Option<f64>; 2], cap: Option<f64>, fits: bool) -> StoredObservation {
    let mechanism = kind().mechanism;
    let tenants =
        [(3, speeds[0], cap), (4, speeds[1], None)].map(|(id, speed_fraction, cap)| ObservedTenant {
            workload: workload(id),
            sharing: Sharing::by(mechanism, cap.map(Fraction::clamped), None),
            speed_fraction,
            is_self_reported: true,
        });
    StoredObservation {
        number,
        starts: vec![start(3), start(4)],
        recorded_at: at(NOW),
        observation: Observation {
            device_model: "h100".into(),
            tenants: tenants.into(),
            power_watts: None,
            fits,
            run_count: 1.0,
            speed_fraction_deviation: None,
        },
    }
}

/// Of two users the slower one says that it broke.
#[test]
fn a_sharing_is_the_word_of_whoever_was_slower() {
    let verdict = |speeds| {
        let tenants = ["alice/a", "bob/b"].map(|workload| (WorkloadKey::new(workload), None));
        TrialVerdict::new("h100", Mechanism::Mps, tenants, speeds)
    };
    let verdicts = [verdict(Some([0.9, 0.3])), verdict(Some([0.3, 0.9])), verdict(Some([0.9, 0.9]))];
    let records = records(verdicts.iter(), 0.8);
    let counts = records.iter().map(|record| (record.user.as_str(), record.seen_count, record.held_count));
    assert_eq!(counts.collect::<Vec<_>>(), [("alice", 2, 1), ("bob", 1, 0)]);
}

#[test]
fn each_combination_counts_once_as_it_was_seen_last() {
    let mut history = TrialHistory::default();
    history.learn(&[
        stored(1, [Some(0.9), Some(0.9)], None, true),
        stored(2, [Some(0.5), Some(0.9)], None, true),
        stored(3, [Some(0.9), Some(0.85)], Some(0.5), true),
        stored(4, [Some(0.9), None], Some(0.7), true),
    ]);
    assert_eq!(history.horizon(), 4);
    let count = |history: &TrialHistory| {
        let record = made(&[], &[], history, &[]).records[0].clone();
        (record.seen_count, record.held_count)
    };
    assert_eq!(count(&history), (2, 1), "one broke at last, one held, one is not over");
    history.learn(&[stored(7, [None, None], Some(0.7), false)]);
    assert_eq!(count(&history), (3, 1), "they did not fit");
    assert!(made(&[], &[], &history, &[]).verdicts.iter().any(|verdict| verdict.speed_fractions.is_none()));
}

#[test]
fn whom_nothing_would_take_apart_again_is_not_tried() {
    let waits = |id: u32, partition: &str| WaitingJob {
        start: start(id),
        uid: UserId(1000),
        account: "".into(),
        partition: partition.into(),
        workload: workload(id),
        submitted_at: at(NOW),
        starts_alone_at: at(NOW),
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
        memory_bytes_declared: None,
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: pillion_core::isolation::Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: 1,
        memory_mib: 1,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: None,
        duration_seconds_expected: None,
        held: None,
    };
    let waiting = [waits(7, "shared"), waits(8, "calm"), waits(9, "shared"), waits(10, "shared,calm")];
    let excluded = made(&[], &[], &TrialHistory::default(), &waiting).excluded;
    assert_eq!(excluded.into_iter().map(|id| id.id).collect::<Vec<_>>(), [8, 9, 10]);
}

#[test]
fn what_the_watch_saw_counts_while_one_of_them_runs_and_some_time_longer() {
    let two = company(true, 5);
    let members: Vec<_> = active_members(&two).collect();
    let seen = Watched::of(&members, &[(start(1), 0.9), (start(2), 0.7)].into(), at(NOW)).unwrap();
    assert!(Watched::of(&members, &[(start(1), 0.9)].into(), at(NOW)).is_none(), "one was not judged");
    assert!(Watched::of(&members[..1], &[(start(1), 0.9)].into(), at(NOW)).is_none(), "one alone");
    for (running, later, is_needed) in [(vec![1], 90_000, true), (vec![], 500, true), (vec![9], 700, false)] {
        let running = running.into_iter().map(start).collect();
        assert_eq!(seen.is_needed(&running, at(NOW + later)), is_needed, "{later} s later");
    }
}
