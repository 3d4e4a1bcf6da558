//! What is seen of a run while it has its device to itself, and when others may join it.

use super::*;
use crate::agents::{Agents, DeviceSeen};
use crate::context::Settings;
use crate::testing::{NOW, at, decision, device, hello, member};
use pillion_core::device::{Reading, TenantUse};
use pillion_core::metric::Metric;
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples};
use pillion_core::{ManualClock, SlurmJobId, WorkloadKey};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::{FirstRun, Policy, Reason, Role};
use pillion_store::{NewMember, Store};

const GIB: u64 = 1 << 30;

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn usage(id: u32, gib: u64, progress: Option<f64>) -> TenantUse {
    TenantUse {
        job_id: SlurmJobId::plain(id),
        restart_count: 0,
        memory_bytes: Some(gib * GIB),
        process_count: 1,
        progress,
    }
}

fn seen(second: u64, active: f64, tenants: Vec<TenantUse>) -> DeviceSeen {
    DeviceSeen { at: at(NOW + second), reading: Reading::from([(Metric::SmActiveFraction, active)]), tenants }
}

/// So many seconds of job 7, a sample each two; how busy and how large it is, by second.
fn watched(seconds: u64, of: impl Fn(u64) -> (f64, u64)) -> FirstRun {
    let mut so_far = SoFar::new(300.0);
    for second in (0..seconds).step_by(2) {
        let (active, gib) = of(second);
        let used = usage(7, gib, Some(100.0 + 3.0 * f64::from(u32::try_from(second).unwrap())));
        assert!(so_far.add(start(7), &seen(second, active, vec![used])));
    }
    so_far.first_run(&WorkloadKey::new("alice/new"), "h100")
}

fn verdict(first: &FirstRun) -> Result<(), Reason> {
    may_join_first_run(first, &host_policy())
}

fn host_policy() -> Policy {
    Policy { first_runs: pillion_pairing::FirstRuns::Host, ..Policy::default() }
}

/// Up and down by a tenth within each ten seconds, as an iteration does.
fn steady(second: u64) -> (f64, u64) {
    (if second % 10 < 5 { 0.5 } else { 0.6 }, 8)
}

#[test]
fn a_steady_run_may_be_joined_after_its_minutes_and_not_before() {
    assert_eq!(verdict(&watched(298, steady)), Err(Reason::FirstRunUnsettled));
    let first = watched(304, steady);
    assert_eq!(verdict(&first), Ok(()));
    assert!((first.measured_seconds - 302.0).abs() < 1e-9, "{first:?}");
    assert_eq!((first.sample_count, first.profile.run_count), (152, 0));
    let active = first.profile.metrics.get(Metric::SmActiveFraction).unwrap();
    assert!((active - 0.54).abs() < 0.01, "{active}");
    assert_eq!(first.profile.memory_bytes_peak, Some(8 * GIB));
    assert!((first.profile.throughput_per_second.unwrap() - 3.0).abs() < 1e-9);
}

#[test]
fn who_loads_his_data_first_is_joined_once_that_is_behind_him() {
    let loading = |second: u64| if second < 240 { (0.0, 1) } else { steady(second) };
    assert_eq!(verdict(&watched(400, loading)), Err(Reason::FirstRunUnsettled));
    assert_eq!(
        verdict(&watched(900, loading)),
        Ok(()),
        "what is older than ten minutes is another part of the run"
    );
}

#[test]
fn who_does_nothing_yet_or_goes_up_and_down_or_grows_is_not_steady() {
    assert_eq!(verdict(&watched(600, |_| (0.0, 8))), Err(Reason::FirstRunUnsettled));
    let phases = |second: u64| (if (second / 120).is_multiple_of(2) { 0.1 } else { 0.9 }, 8);
    assert_eq!(verdict(&watched(500, phases)), Err(Reason::FirstRunUnsettled));
    let growing = |second: u64| (0.5, 8 + second / 60);
    assert_eq!(verdict(&watched(600, growing)), Err(Reason::FirstRunUnsettled));
}

#[test]
fn a_sample_counts_once_and_only_where_nobody_else_is() {
    let mut so_far = SoFar::new(300.0);
    let own = || usage(7, 8, None);
    assert!(so_far.add(start(7), &seen(2, 0.5, vec![own()])));
    assert!(!so_far.add(start(7), &seen(2, 0.5, vec![own()])), "the same once more");
    assert!(!so_far.add(start(7), &seen(1, 0.5, vec![own()])), "an older one");
    assert!(!so_far.add(start(7), &seen(4, 0.5, Vec::new())), "it has not begun");
    assert!(!so_far.add(start(7), &seen(4, 0.9, vec![own(), usage(8, 1, None)])), "somebody else is there");
    let again = TenantUse { restart_count: 1, ..own() };
    assert!(!so_far.add(start(7), &seen(4, 0.5, vec![again])), "another start of it");
    assert!(so_far.add(start(7), &seen(100, 0.5, vec![own()])));
    let first = so_far.first_run(&WorkloadKey::new("alice/new"), "h100");
    assert!(first.measured_seconds < 1e-9, "what nobody saw between two samples was not measured: {first:?}");
}

#[test]
fn a_counter_that_stands_or_goes_back_is_no_rate() {
    for step in [0.0, -5.0, f64::NAN] {
        let mut so_far = SoFar::new(300.0);
        for second in 0..200_u32 {
            let used = usage(7, 8, Some(1000.0 + step * f64::from(second)));
            so_far.add(start(7), &seen(u64::from(second), 0.5, vec![used]));
        }
        assert_eq!(so_far.first_run(&WorkloadKey::new("w"), "h100").profile.throughput_per_second, None);
    }
}

struct World {
    context: Arc<Context>,
    agents: Arc<Agents>,
    first_runs: FirstRuns,
    _orders: tokio::sync::mpsc::Receiver<pillion_core::report::ToAgent>,
}

fn running(id: u32, role: Role, memory_bytes: Option<u64>) -> Member {
    let running = member(MemberState::Running);
    let workload = WorkloadKey::new("alice/new");
    let plan =
        NewMember { start: start(id), workload, role, memory_bytes, estimate: None, ..running.plan.clone() };
    Member { plan, started_at: Some(at(NOW)), ..running }
}

impl World {
    /// Job 7 runs on g1 of n1 as a first run.
    fn new(policy: Policy) -> Self {
        let agents = Arc::new(Agents::default());
        let (_, orders) = agents.connect(&AgentHello { devices: vec![device(1)], ..hello("n1") }, at(NOW));
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW));
        let context = Arc::new(Context::new(
            Arc::new(ManualClock::new(at(NOW))),
            Arc::new(slurm),
            Arc::new(MemoryStore::new()) as Arc<dyn Store>,
            Arc::clone(&agents),
            Settings { policy, ..Settings::default() },
        ));
        let host = running(7, Role::Host, None);
        context.board_mut().active = Arc::new(vec![decision(&host)]);
        Self { first_runs: FirstRuns::new(Arc::clone(&context)), context, agents, _orders: orders }
    }

    async fn look(&self, second: u64, tenants: Vec<TenantUse>) {
        let (active, _) = steady(second);
        let sample = DeviceSample {
            gres_type: pillion_core::GresType::new("g1"),
            reading: Reading::from([(Metric::SmActiveFraction, active)]),
            tenants,
        };
        let samples = DeviceSamples { recorded_at: at(NOW + second), samples: vec![sample] };
        self.agents.set_readings(&NodeName::new("n1"), &samples);
        self.first_runs.tick().await.unwrap();
    }

    fn joinable_since(&self) -> Option<UnixTime> {
        self.first_runs.joinable_since(start(7))
    }
}

#[tokio::test]
async fn the_board_says_since_when_it_may_be_joined_and_forgets_it_when_it_is_over() {
    let world = World::new(host_policy());
    for second in (0..400_u32).step_by(2) {
        world.look(u64::from(second), vec![usage(7, 8, Some(f64::from(second)))]).await;
    }
    assert_eq!(world.joinable_since(), Some(at(NOW + 300)));
    let before = world.context.board().first_runs[&start(7)].clone();
    // Somebody has joined: what was seen of it alone stands.
    for second in (400..500).step_by(2) {
        world.look(second, vec![usage(7, 8, None), usage(8, 30, None)]).await;
    }
    assert_eq!(world.context.board().first_runs[&start(7)], before);
    world.context.board_mut().active = Arc::default();
    world.look(502, Vec::new()).await;
    assert!(world.context.board().first_runs.is_empty() && world.first_runs.lock().is_empty());
}

#[tokio::test]
async fn of_one_that_was_joined_the_joiners_decision_remembers_what_was_seen() {
    let world = World::new(host_policy());
    let first = FirstRun::unseen(WorkloadKey::new("alice/new"), "h100");
    let joined = |state| {
        let guest = Member { state, ..running(8, Role::Joiner, Some(GIB)) };
        let joined = Decision { first_run: Some(Box::new(first.clone())), ..decision(&guest) };
        Arc::new(vec![decision(&running(7, Role::Host, None)), joined])
    };
    for (state, is_known) in [(MemberState::Released, false), (MemberState::Running, true)] {
        world.context.board_mut().active = joined(state);
        world.first_runs.tick().await.unwrap();
        let board = world.context.board();
        assert_eq!(
            board.first_runs.get(&start(7)).map(|seen| &seen.first),
            is_known.then_some(&first),
            "{state:?}"
        );
    }
}

#[tokio::test]
async fn where_first_runs_are_alone_nothing_is_kept() {
    let world = World::new(Policy::default());
    for second in (0..400).step_by(2) {
        world.look(second, vec![usage(7, 8, None)]).await;
    }
    assert!(world.context.board().first_runs.is_empty());
}

#[test]
fn a_host_that_is_known_is_no_first_run() {
    assert!(is_first_run(&running(7, Role::Host, None)));
    assert!(!is_first_run(&running(7, Role::Host, Some(GIB))), "it was admitted with what it needs");
    assert!(!is_first_run(&running(7, Role::Alone, None)), "it has the whole device");
    assert!(!is_first_run(&running(7, Role::Joiner, None)));
}

#[tokio::test]
async fn it_is_of_the_family_of_its_earlier_versions() {
    let world = World::new(host_policy());
    let name = pillion_core::WorkloadName::safe("train_v3.py").unwrap();
    let (workload, uid) = (WorkloadKey::new("alice/new"), pillion_core::UserId(2001));
    let naming = pillion_store::Naming { workload, uid, name, source: pillion_core::name::NameSource::Job };
    world.context.store.name_workloads(&[naming], at(NOW)).await.unwrap();
    world.look(2, vec![usage(7, 8, None)]).await;
    let family = world.context.board().first_runs[&start(7)].first.profile.family.clone();
    assert_eq!(family.as_deref(), Some("alice/train"));
}
