//! A device that is cut, from the agents' word to their orders and Slurm's books: each tenant by a decision of his own.

use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::credit::shared_devices;
use crate::engine::Engine;
use crate::release::Release;
use crate::testing::{NOW, at, device, hello};
use crate::watch::Watch;
use pillion_core::decision::MemberState;
use pillion_core::device::DeviceDescription;
use pillion_core::isolation::Isolation;
use pillion_core::mark::Mark;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{AgentHello, ToAgent};
use pillion_core::share::Share;
use pillion_core::{Clock, ManualClock, SlurmJobId, UserId, WorkloadKey};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::{Policy, UserPolicy};
use pillion_slurm::Slurm;
use pillion_store::{Durations, StoredProfile};
use std::sync::Arc;
use tokio::sync::mpsc;

const JOBS: u32 = 3;

pub(super) fn geometry() -> &'static Geometry {
    Geometry::of_model("h200").expect("it is known")
}

/// Light jobs of as many users wait for one device that can be cut, where users are kept apart by walls.
pub(super) struct World {
    pub(super) context: Arc<Context>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) slurm: Arc<FakeSlurm>,
    inbox: mpsc::Receiver<ToAgent>,
    jobs: Vec<SlurmJobId>,
}

impl World {
    fn new() -> Self {
        let policy = Policy { users: UserPolicy::Any, isolation: Isolation::Hard, ..Policy::default() };
        let users: Vec<u32> = (1..=JOBS).collect();
        Self::of(&users, policy, &light, None)
    }

    /// Two jobs of each of two users, who may share instances; patient, and with work that fills a good part of one.
    pub(super) fn of_two_users() -> Self {
        let policy = Policy {
            users: UserPolicy::Any,
            isolation: Isolation::Hard,
            share_instances: true,
            ..Policy::default()
        };
        Self::of(&[1, 1, 2, 2], policy, &middling, Some(2.5))
    }

    /// A job of each of these users.
    fn of(
        users: &[u32],
        policy: Policy,
        profile: &dyn Fn(&str) -> StoredProfile,
        slowdown_ratio_max: Option<f64>,
    ) -> Self {
        let partitions = vec![FakePartition::new("shared", &["n1"])];
        let nodes = vec![FakeNode::pool("n1", 1)];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
        let store = Arc::new(MemoryStore::new());
        let mark = Mark { workload_digest: "w".into(), slowdown_ratio_max, ..Mark::default() };
        let submit = |number: &u32| {
            let user = format!("user{number}");
            store.know(&profile(&user));
            let (uid, admin_comment) = (UserId(2000 + number), mark.to_string());
            slurm.submit(FakeJob {
                uid,
                user,
                admin_comment,
                begin: Some(at(NOW + 600)),
                ..FakeJob::default()
            })
        };
        let jobs = users.iter().map(submit).collect();
        let agents = Agents::default();
        let cuttable = DeviceDescription { geometry: Some(geometry().clone()), ..device(0) };
        let (_, inbox) = agents.connect(&AgentHello { devices: vec![cuttable], ..hello("n1") }, at(NOW));
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let context = Arc::new(Context::new(
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::clone(&slurm) as Arc<dyn Slurm>,
            store,
            Arc::new(agents),
            Settings { policy, ..Settings::default() },
        ));
        Self { context, clock, slurm, inbox, jobs }
    }

    pub(super) async fn scan(&self) {
        Watch::new(Arc::clone(&self.context)).tick().await.expect("a scan");
    }

    /// What the agent is asked to prepare.
    pub(super) fn prepared(&mut self) -> Vec<Share> {
        let orders = std::iter::from_fn(|| self.inbox.try_recv().ok());
        orders
            .filter_map(|order| if let ToAgent::Prepare(share) = order { Some(share) } else { None })
            .collect()
    }
}

fn light(user: &str) -> StoredProfile {
    busy(user, 0.1)
}

fn middling(user: &str) -> StoredProfile {
    busy(user, 0.3)
}

fn busy(user: &str, active: f64) -> StoredProfile {
    let profile = WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, active),
            (Metric::MemoryBandwidthFraction, active / 2.0),
        ]),
        run_count: 9,
        duration_seconds: Some(600.0),
        memory_bytes_peak: Some(8 << 30),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(WorkloadKey::new(format!("{user}/w")), "h200")
    };
    StoredProfile { profile, durations: Durations::default(), run_counts_at_cap: [0; 9], updated_at: at(NOW) }
}

#[tokio::test]
async fn each_tenant_of_an_instance_is_released_when_his_is_ready_and_not_before() {
    let mut world = World::new();
    world.scan().await;
    Engine::new(Arc::clone(&world.context)).tick().await.expect("a plan");
    let decisions = world.context.store.active_decisions().await.expect("read");
    assert_eq!(decisions.len(), JOBS as usize, "each by a decision of his own");
    let slots: Vec<Slot> =
        decisions.iter().filter_map(|decision| decision.members[0].plan.sharing.mig_slot()).collect();
    assert_eq!((slots.len(), geometry().check(&slots)), (JOBS as usize, Ok(())), "{slots:?}");

    // The agent is told of all of them, and has got two of them ready.
    let release = Release::new(Arc::clone(&world.context));
    release.tick().await.expect("asked");
    let shares = world.prepared();
    assert_eq!(shares.iter().filter_map(|share| share.sharing.mig_slot()).collect::<Vec<_>>(), slots);
    assert!(
        shares
            .iter()
            .all(|share| share.shards == geometry().shards(share.sharing.mig_slot().unwrap().profile))
    );
    for share in &shares[1..] {
        let store = &world.context.store;
        store.member_prepared(share.decision_id, share.start, at(NOW)).await.expect("kept");
    }
    release.tick().await.expect("released");
    let gres = |share: &Share| world.slurm.job(share.start.job_id).expect("it waits").gres.to_string();
    let booked: Vec<String> = shares.iter().map(gres).collect();
    assert_eq!(booked[0], "shard:100", "he waits for his instance");
    for (share, booked) in shares[1..].iter().zip(&booked[1..]) {
        assert_eq!(*booked, format!("shard:g0:{}", share.shards));
    }

    // They run side by side, and nobody takes them for a pair.
    world.clock.set(at(NOW + 2));
    world.slurm.tick(at(NOW + 2));
    world.scan().await;
    release.tick().await.expect("started");
    let (stopped, active) = {
        let board = world.context.board();
        (board.stopped.clone(), Arc::clone(&board.active))
    };
    assert!(stopped.is_empty(), "{stopped:?}");
    assert_eq!(shared_devices(&active).len(), 0);
    let now = world.context.store.active_decisions().await.expect("read");
    let running = now.iter().filter(|decision| decision.members[0].state == MemberState::Running).count();
    assert_eq!((running, world.jobs.len()), (2, 3));
}

/// An agent that cannot make one instance keeps nobody from the others.
#[tokio::test]
async fn an_instance_that_cannot_be_made_is_one_jobs_matter() {
    let mut world = World::new();
    world.scan().await;
    Engine::new(Arc::clone(&world.context)).tick().await.expect("a plan");
    Release::new(Arc::clone(&world.context)).tick().await.expect("asked");
    let refused = world.prepared()[0].decision_id;
    let store = &world.context.store;
    assert!(store.abandon(refused, "node n1 could not set up the share", at(NOW)).await.expect("abandoned"));
    let left = store.active_decisions().await.expect("read");
    assert_eq!(left.len(), JOBS as usize - 1);
    assert!(left.iter().all(|decision| decision.id != refused));
}
