//! The page of a small cluster on which everything has happened.

use super::*;
use crate::metrics::Tally;
use crate::metrics::tally::SlurmFailure;
use crate::testing::{NOW, at, decision, job, member, node, start};
use pillion_core::decision::MemberState;
use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, GresType, JobStart, Shards, SlurmJobId, WorkloadKey};
use pillion_metrics::Durations;
use pillion_pairing::{Explanation, Pairing, Role};
use pillion_slurm::{Job, JobState, Node};
use pillion_store::Sums;
use pillion_store::postgres::CallFigures;
use std::time::Duration;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/metrics/page/golden.txt");

fn millisecond() -> Duration {
    Duration::from_millis(1)
}

fn starting(mechanism: Mechanism) -> pillion_pairing::Member {
    let explanation = Explanation {
        job_id: start().job_id,
        reason: Reason::Paired,
        text: "".into(),
        model: "".into(),
        candidates: [].into(),
    };
    pillion_pairing::Member {
        start: start(),
        workload: WorkloadKey::new("alice/w"),
        role: Role::Host,
        sharing: Sharing::by(mechanism, None, None),
        shards: Shards::ALL,
        memory_bytes: None,
        estimate: None,
        explanation,
    }
}

fn counts() -> Counts {
    let tally = Tally::default();
    let pairing = |joins: Option<u64>, mechanism| Pairing {
        node: NodeName::new("n1"),
        gres_types: GresType::new("g1").into(),
        device_model: "h100".into(),
        joins: joins.map(DecisionId),
        members: vec![starting(mechanism)],
        gain: 0.5,
        trial: None,
    };
    tally.planned(2 * millisecond());
    let pairings = [pairing(Some(1), Mechanism::Mps), pairing(None, Mechanism::TimeSliced)];
    tally.committed(&pairings, 20 * millisecond());
    tally.plan_refused();
    tally.released();
    tally.started();
    for kind in [
        EventKind::Undone,
        EventKind::Requeued,
        EventKind::Victim,
        EventKind::ShareFailed,
        EventKind::Restarted,
    ] {
        tally.event(&kind);
    }
    tally.ticked("engine", 30 * millisecond(), Some(at(NOW - 1)));
    tally.ticked("engine", 30 * millisecond(), None);
    tally.missed(Miss::NotResponding);
    tally.missed(Miss::NoDecision);
    let run = |saved: f64, broken: u32| Sums {
        run_count: 1,
        shared_run_count: 1,
        gpu_seconds: 100.0,
        shared_seconds: 80.0,
        gpu_seconds_saved: saved,
        energy_joules: 1000.0,
        energy_joules_saved: 10.0 * saved,
        promises_kept: 1 - broken,
        promises_broken: broken,
        ..Sums::default()
    };
    tally.ran(&run(32.0, 0), 40.0);
    tally.ran(&run(-8.0, 1), 40.0);
    tally.observed();
    tally.trained("promoted");
    tally.slurm_called("jobs", 30 * millisecond(), None);
    tally.slurm_called("update", 30 * millisecond(), Some(SlurmFailure::Refused));
    tally.counts()
}

fn agents() -> BTreeMap<NodeName, AgentState> {
    let fault =
        DeviceFault { kind: FaultKind::MpsFault, detail: "client of job 4711 died".into(), since: at(NOW) };
    let condition = DeviceCondition {
        gres_type: GresType::new("g0"),
        faults: vec![fault],
        sources: BTreeMap::default(),
        instances_empty: Vec::new(),
    };
    let device =
        DeviceDescription { model: "h100".into(), memory_bytes: 80 << 30, ..pillion_test_kit::device(0) };
    let agent = AgentState {
        devices: vec![device],
        version: "0".into(),
        is_connected: true,
        observes: false,
        last_seen_at: at(NOW - 3),
        clock_skew_seconds: 0.25,
        conditions: BTreeMap::from([(condition.gres_type.clone(), condition)]),
    };
    BTreeMap::from([(NodeName::new("n1"), agent)])
}

fn scan() -> Scan {
    let waiting = Job { submitted_at: at(NOW - 600), ..job(JobState::Pending) };
    let running = Job { id: SlurmJobId::plain(8), ..job(JobState::Running) };
    let up = node(NodeAvailability::Up);
    let down = Node { name: NodeName::new("n2"), ..node(NodeAvailability::Unavailable("DRAIN".into())) };
    Scan::new(at(NOW - 1), vec![waiting.into(), running.into()], vec![up, down], &["shared".to_owned()], 0)
}

/// A pair that runs.
fn active() -> Vec<Decision> {
    let mut pair = decision(&member(MemberState::Running));
    let mut joiner = pair.members[0].clone();
    joiner.plan.start = JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 };
    pair.members[0].plan.start.job_id = SlurmJobId::plain(9);
    pair.members.push(joiner);
    vec![pair]
}

fn snapshot() -> Snapshot {
    let mut durations = Durations::default();
    durations.add(4 * millisecond());
    let calls = |errors| CallFigures { durations: durations.clone(), errors };
    Snapshot {
        mode: Mode::Active,
        objective: Objective::ThroughputPerWatt,
        broken_budget_fraction: 0.02,
        is_leading: true,
        is_acting: true,
        scan: Some(Arc::new(scan())),
        active: Arc::new(active()),
        reasons: BTreeMap::from([(Reason::PromiseAtRisk, 1)]),
        stopped: 1,
        violation_count: 1,
        dropped_line_count: 2,
        held: Some(HeldCounts { working: 5, idle: 2, unseen: 1 }),
        heartbeat_at: Some(at(NOW - 2)),
        reported_at: Some(at(NOW - 1)),
        model: Some(ModelSeen {
            version: Some(3),
            is_stand_in: false,
            trained_at: Some(at(NOW - 3600)),
            observation_count: Some(42),
            error_mean: Some(0.04),
            waiting_count: 2,
        }),
        agents: agents(),
        turned_away: [("unproven", 3), ("address", 0), ("guest", 1), ("line", 0)],
        counts: counts(),
        store: Some(StoreFigures {
            unreadable: [("job_run", 2)].into(),
            is_up: true,
            reads: calls(0),
            writes: calls(1),
        }),
    }
}

/// With `PILLION_BLESS=1` it is written anew.
#[test]
fn the_page_is_as_it_was() {
    let text = page(&snapshot()).open_metrics();
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(GOLDEN).unwrap(), "PILLION_BLESS=1 writes {GOLDEN} anew");
}

#[test]
fn every_family_is_on_the_page_of_a_cluster_on_which_everything_happened() {
    let text = page(&snapshot()).plain_text();
    for of in super::super::ALL {
        assert!(text.contains(&format!("# HELP {} ", of.name)), "{} is nowhere", of.name);
    }
}

#[test]
fn neither_a_job_nor_a_user_nor_a_workload_is_told_of() {
    let text = page(&snapshot()).plain_text();
    for secret in ["alice", "4711", "1000\"", "GPU-0", "\"w\"", "client of"] {
        assert!(!text.contains(secret), "{secret} is on the page");
    }
}

#[test]
fn a_scheduler_that_knows_nothing_yet_claims_nothing() {
    let empty = Snapshot {
        scan: None,
        heartbeat_at: None,
        reported_at: None,
        model: None,
        agents: BTreeMap::new(),
        counts: Counts::default(),
        store: None,
        reasons: BTreeMap::new(),
        ..snapshot()
    };
    let text = page(&empty).plain_text();
    for name in
        ["pillion_jobs{", "_timestamp_seconds", "pillion_model_version", "pillion_store_", "pillion_agent_"]
    {
        assert!(!text.contains(name), "{name} is not known");
    }
    assert!(text.contains("pillion_promises_total{result=\"broken\"} 0.0\n"), "counters begin at 0");
}
