//! What is seen beside a profile that does not hold, and what it costs.

use super::*;
use crate::agents::{Agents, DeviceSeen};
use crate::context::Settings;
use crate::engine::Engine;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, device, hello, job, member, node, record, start, summary};
use pillion_core::device::{Reading, TenantUse};
use pillion_core::mark::Mark;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples};
use pillion_core::{JobStart, ManualClock, SlurmJobId, UserId, WorkloadKey};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{Job, JobState, NodeAvailability};
use pillion_store::Store;
use pillion_store::prelude::*;
use pillion_store::{Durations, MeasuredRun, NewMember};

const GIB: u64 = 1 << 30;

fn tenant(id: u32, uid: u32, workload: &str, started: u64) -> Member {
    let running = member(MemberState::Running);
    let start = JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 };
    let plan = NewMember {
        start,
        uid: UserId(uid),
        workload: WorkloadKey::new(workload),
        memory_bytes: Some(GIB),
        ..running.plan.clone()
    };
    Member { plan, started_at: Some(at(started)), ..running }
}

fn profile(workload: &str, run_count: u32, sm_active: f64) -> StoredProfile {
    let profile = WorkloadProfile {
        metrics: Metrics::from([(Metric::SmActiveFraction, sm_active)]),
        run_count,
        ..WorkloadProfile::empty(WorkloadKey::new(workload), "h100")
    };
    StoredProfile { profile, durations: Durations::default(), run_counts_at_cap: [0; 9], updated_at: at(NOW) }
}

fn sample_of(sm_active: f64, memory: [u64; 2]) -> DeviceSeen {
    let used = |(job, bytes): (u32, u64)| TenantUse {
        job_id: SlurmJobId::plain(job),
        restart_count: 0,
        memory_bytes: Some(bytes),
        process_count: 1,
        progress: None,
    };
    DeviceSeen {
        at: at(NOW),
        reading: Reading::from([(Metric::SmActiveFraction, sm_active)]),
        tenants: [(7, memory[0]), (8, memory[1])].map(used).into(),
    }
}

/// As it was tried: a joiner at 90 % of the compute units who was let in as 1 %.
#[test]
fn who_does_far_more_than_his_profile_says_is_seen() {
    let (host, joiner) = (tenant(7, 1000, "alice/known", NOW), tenant(8, 1001, "bob/light", NOW + 10));
    let (known, light) = (profile("alice/known", 30, 0.3), profile("bob/light", 1, 0.01));
    let seen = [
        Seen { member: &host, profile: Some(&known.profile) },
        Seen { member: &joiner, profile: Some(&light.profile) },
    ];
    let of = |sm_active: f64, memory: [u64; 2]| {
        look(&seen, &sample_of(sm_active, memory)).excess.map(|beyond| beyond.uid)
    };
    assert_eq!(of(0.93, [GIB, GIB]), Some(UserId(1001)));
    assert_eq!(of(0.6, [GIB, GIB]), None, "profiles are means");
    assert_eq!(of(0.3, [GIB, 2 * GIB]), Some(UserId(1001)), "memory is read of each");
    assert_eq!(of(0.3, [2 * GIB, GIB]), Some(UserId(1000)));
    let blind = [Seen { profile: None, ..seen[0] }, seen[1]];
    let unknown = look(&blind, &sample_of(1.0, [GIB, GIB]));
    assert_eq!((unknown.excess, unknown.surplus), (None, None), "of whom nothing is known, nothing is said");
    let dense = profile("alice/known", 30, 0.9);
    let full = [Seen { profile: Some(&dense.profile), ..seen[0] }, seen[1]];
    assert_eq!(look(&full, &sample_of(1.0, [GIB, GIB])).excess, None, "no device does more than all");
}

struct World {
    context: Arc<Context>,
    store: Arc<MemoryStore>,
    credit: Credit,
    orders: tokio::sync::mpsc::Receiver<pillion_core::report::ToAgent>,
}

impl World {
    /// Two tenants on g1 of n1: alice's, who is known, and bob's, who came under a new name.
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let agents = Agents::default();
        let hello = AgentHello { devices: vec![device(1)], ..hello("n1") };
        let (_, orders) = agents.connect(&hello, at(NOW));
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW));
        let context = Context::new(
            Arc::new(ManualClock::new(at(NOW))),
            Arc::new(slurm),
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::new(agents),
            Settings::default(),
        );
        let context = Arc::new(context);
        let host = tenant(7, 1000, "alice/known", NOW);
        let shared = Decision {
            members: vec![host.clone(), tenant(8, 1001, "bob/light", NOW + 10)],
            ..decision(&host)
        };
        context.board_mut().active = Arc::new(vec![shared]);
        for known in [profile("alice/known", 30, 0.3), profile("bob/light", 1, 0.01)] {
            store.know(&known);
        }
        Self { credit: Credit::new(Arc::clone(&context)), context, store, orders }
    }

    async fn sample(&self, seconds: u64, sm_active: f64) {
        let DeviceSeen { reading, tenants, .. } = sample_of(sm_active, [GIB, GIB]);
        let sample = DeviceSample { gres_type: GresType::new("g1"), reading, tenants };
        let samples = DeviceSamples { recorded_at: at(NOW + seconds), samples: vec![sample] };
        self.context.agents.set_readings(&NodeName::new("n1"), &samples);
        self.credit.tick().await.unwrap();
    }

    async fn debtors(&self) -> Vec<UserId> {
        let owed = self.store.atonements(30.0, 10).await.unwrap();
        owed.into_iter().map(|one| one.uid).collect()
    }
}

#[tokio::test]
async fn within_seconds_it_is_told_and_nobody_joins_there_and_its_user_owes() {
    let world = World::new();
    for seconds in 1..=4 {
        world.sample(seconds, 0.95).await;
        world.credit.tick().await.unwrap();
    }
    world.sample(5, 0.3).await;
    assert_eq!(world.debtors().await, [], "a burst is none");
    for seconds in 6..=10 {
        world.sample(seconds, 0.95).await;
    }
    assert_eq!(world.debtors().await, [UserId(1001)], "his, and not his neighbour's");
    let place = (NodeName::new("n1"), GresType::new("g1"));
    assert!(world.context.board().amiss.overrun.contains_key(&place), "the device takes nobody new");
    for seconds in 11..=30 {
        world.sample(seconds, 0.95).await;
    }
    let events = world.store.events(SlurmJobId::plain(8)).await.unwrap();
    assert_eq!(events.iter().map(|event| &event.kind).collect::<Vec<_>>(), [&EventKind::ProfileExceeded]);
    assert!(!events[0].detail.contains('%'), "nothing of a neighbour is told: {}", events[0].detail);
    world.context.board_mut().active = Arc::default();
    world.credit.tick().await.unwrap();
    assert!(world.context.board().amiss.overrun.is_empty(), "it is open again when they are gone");
    assert!(!world.orders.is_closed());
}

/// As it was tried: heavy for four seconds, idle for one, for ever.
#[tokio::test]
async fn who_makes_a_pause_now_and_then_is_found_out_too() {
    let world = World::new();
    for seconds in 1..=20 {
        world.sample(seconds, if seconds % 5 == 0 { 0.1 } else { 0.95 }).await;
    }
    assert_eq!(world.debtors().await, [UserId(1001)]);
}

#[tokio::test]
async fn a_burst_in_ten_seconds_costs_nobody_anything() {
    let world = World::new();
    for seconds in 1..=60 {
        world.sample(seconds, if seconds % 10 < 4 { 0.95 } else { 0.3 }).await;
    }
    assert_eq!(world.debtors().await, []);
}

#[test]
fn newcomers_of_another_user_answer_for_a_broken_promise() {
    let own = tenant(7, 1000, "alice/known", NOW);
    let run = MeasuredRun {
        summary: summary(start()),
        node: NodeName::new("n1"),
        device_model: "h100".into(),
        device_memory_bytes: GIB,
        job: record(start()),
        requeue: None,
        decision: Some(decision(&own)),
    };
    let profiles = [profile("alice/known", 30, 0.3), profile("bob/old", 40, 0.3)];
    let (newcomer, old) = (tenant(8, 1001, "bob/light", NOW), tenant(9, 1002, "bob/old", NOW));
    let own_new = tenant(10, 1000, "alice/new", NOW);
    let of = |speed: Option<f64>| {
        let beside = [&newcomer, &old, &own_new];
        let losses = culprits(&run, speed, &beside, &profiles, at(NOW));
        losses.into_iter().map(|loss| loss.uid).collect::<Vec<_>>()
    };
    assert_eq!(of(Some(0.34)), [UserId(1001)], "neither who is known nor her own");
    assert_eq!((of(Some(0.8)), of(None)), (Vec::new(), Vec::new()), "the promise was 1.25");
}

/// A fifth of the device more than he is known for: too little to be called a cheat, and what he is charged for.
#[tokio::test]
async fn what_a_tenant_uses_beyond_his_profile_is_measured_over_his_whole_sharing() {
    let world = World::new();
    for seconds in 1..=29 {
        world.sample(seconds, 0.51).await;
    }
    let use_beyond = |job: u32| {
        let start = JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 };
        world.context.board().strains[&start].use_beyond()
    };
    assert_eq!(use_beyond(8), None, "too few samples");
    for seconds in 30..=60 {
        world.sample(seconds, 0.51).await;
    }
    assert!(use_beyond(8).is_some_and(|beyond| (beyond - 0.2).abs() < 1e-6), "{:?}", use_beyond(8));
    assert_eq!(use_beyond(7), None, "hers is known better");
    assert_eq!(world.debtors().await, []);
}

/// Whoever is found out within seconds goes on for hours: he is told once, and charged for all of it.
#[tokio::test]
async fn what_a_cheat_uses_is_measured_after_he_was_found_out() {
    let world = World::new();
    for seconds in 1..=60 {
        world.sample(seconds, 0.95).await;
    }
    assert_eq!(world.debtors().await, [UserId(1001)]);
    let start = JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 };
    let beyond = world.context.board().strains[&start].use_beyond();
    assert!(beyond.is_some_and(|beyond| (beyond - 0.64).abs() < 1e-6), "{beyond:?}");
}

/// Under whatever name: the next job of the same user is planned alone, and says why; it is the users' and not the workload's.
#[tokio::test]
async fn the_next_jobs_of_that_user_are_planned_alone() {
    let world = World::new();
    for seconds in 1..=5 {
        world.sample(seconds, 0.95).await;
    }
    let waiting = |id: u32, uid: u32| Job {
        id: SlurmJobId::plain(id),
        uid: UserId(uid),
        mark: Ok(Some(Mark { workload_digest: format!("new{id}").into(), ..Mark::default() })),
        ..job(JobState::Pending)
    };
    let nodes = vec![node(NodeAvailability::Up)];
    let scan = Scan::new(
        at(NOW),
        vec![waiting(20, 1001).into(), waiting(21, 1000).into()],
        nodes,
        &["shared".to_owned()],
        0,
    );
    world.context.board_mut().scan = Some(Arc::new(scan));
    let (view, _) = Engine::new(Arc::clone(&world.context)).dry_run().await.unwrap().unwrap();
    let owes: Vec<_> = view.waiting.iter().map(|job| (job.uid, job.owes_runs)).collect();
    assert_eq!(owes, [(UserId(1001), 10), (UserId(1000), 0)]);
}
