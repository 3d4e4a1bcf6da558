//! Releases and renewals both move begin times: whichever is overtaken by the other is refused by the fence.

use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::release::Release;
use crate::renew::Renew;
use crate::scan::{Scan, mark_of};
use crate::testing::{NOW, at, device, member, new_decision};
use crate::watch::Watch;
use async_trait::async_trait;
use pillion_core::decision::MemberState;
use pillion_core::mark::Mark;
use pillion_core::report::{AgentHello, ToAgent};
use pillion_core::{DecisionId, GresType, JobStart, ManualClock, NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::{FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::updates;
use pillion_slurm::{
    JobUpdate, JobsScan, Node, Partition, Privacy, Requeued, Reservation, Slurm, SlurmError, SlurmVersion,
};
use pillion_store::NewMember;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Slurm's double behind a slow line: an update may be kept on its way, so that others overtake it.
struct SlowSlurm {
    slurm: FakeSlurm,
    kept: Mutex<VecDeque<Option<oneshot::Receiver<()>>>>,
}

impl SlowSlurm {
    /// After `skip` more updates, one is kept until the sender is used; a sender that is dropped has it refused.
    fn keep_update(&self, skip: usize) -> oneshot::Sender<()> {
        let (let_go, kept) = oneshot::channel();
        let mut updates = self.kept.lock().unwrap();
        updates.extend(std::iter::repeat_with(|| None).take(skip));
        updates.push_back(Some(kept));
        let_go
    }
}

#[async_trait]
impl Slurm for SlowSlurm {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        self.slurm.version().await
    }
    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        self.slurm.privacy().await
    }
    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError> {
        self.slurm.jobs(partitions).await
    }
    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        self.slurm.nodes().await
    }
    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        self.slurm.reservations().await
    }
    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        self.slurm.partitions().await
    }
    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        let kept = self.kept.lock().unwrap().pop_front().flatten();
        if let Some(kept) = kept {
            kept.await.map_err(|_| refused())?;
        }
        self.slurm.update(jobs, update).await
    }
    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError> {
        self.slurm.allows_requeue(job).await
    }
    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        self.slurm.job_names(jobs).await
    }
    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError> {
        self.slurm.requeue(job, which).await
    }
}

/// A job that waits, whose renewal is due, and which is planned on a node whose agent is ready for it.
pub(super) struct World {
    pub(super) context: Arc<Context>,
    clock: Arc<ManualClock>,
    slurm: Arc<SlowSlurm>,
    pub(super) job: SlurmJobId,
    decision: DecisionId,
    /// While it is open, the agent is there.
    _inbox: mpsc::Receiver<ToAgent>,
}

impl World {
    async fn new() -> Self {
        Self::with(FakeSettings::default()).await
    }

    async fn with(settings: FakeSettings) -> Self {
        Self::under(settings, Settings::default()).await
    }

    pub(super) async fn under(settings: FakeSettings, own: Settings) -> Self {
        let partitions = vec![FakePartition::new("shared", &["n1"]), FakePartition::new("everyday", &["n1"])];
        let nodes = vec![FakeNode::pool("n1", 1)];
        let slurm = FakeSlurm::new(settings, nodes, partitions, at(NOW));
        let mark = Mark { workload_digest: "w".into(), ..Mark::default() };
        let begin = Some(at(NOW + 60));
        let uid = member(MemberState::Planned).plan.uid;
        let job = slurm.submit(FakeJob { uid, admin_comment: mark.to_string(), begin, ..FakeJob::default() });
        let slurm = Arc::new(SlowSlurm { slurm, kept: Mutex::default() });
        let agents = Agents::default();
        let (_, inbox) = agents.connect(&hello(), at(NOW));
        let (clock, store) = (Arc::new(ManualClock::new(at(NOW))), Arc::new(MemoryStore::new()));
        let foreign = Arc::clone(&slurm) as Arc<dyn Slurm>;
        let context = Arc::new(Context::new(Arc::clone(&clock) as _, foreign, store, Arc::new(agents), own));
        Watch::new(Arc::clone(&context)).tick().await.unwrap();
        let decision = plan(&context, job).await;
        Self { context, clock, slurm, job, decision, _inbox: inbox }
    }

    fn renew(&self) -> Renew {
        Renew::new(Arc::clone(&self.context))
    }

    pub(super) fn slurm(&self) -> &FakeSlurm {
        &self.slurm.slurm
    }

    pub(super) fn release(&self) -> Release {
        Release::new(Arc::clone(&self.context))
    }

    pub(super) async fn look_a_second_later(&self) {
        self.clock.advance(Duration::from_secs(1));
        Watch::new(Arc::clone(&self.context)).tick().await.unwrap();
    }

    /// When Slurm may start the job by itself.
    fn begins_at(&self) -> Option<UnixTime> {
        self.slurm.slurm.job(self.job).unwrap().eligible_at
    }

    /// The begin times that Slurm took, in order.
    fn begin_times(&self) -> Vec<UnixTime> {
        let begin_time = |call| {
            if let FakeCall::Update { ok: true, update, .. } = call { update.start_time } else { None }
        };
        self.slurm.slurm.journal().into_iter().filter_map(begin_time).collect()
    }

    pub(super) async fn member_state(&self) -> MemberState {
        self.context.store.decision(self.decision).await.unwrap().unwrap().members[0].state
    }
}

fn refused() -> SlurmError {
    SlurmError::Failed { program: "scontrol".into(), status: 1, detail: "refused".into() }
}

fn hello() -> AgentHello {
    AgentHello { devices: vec![device(0)], ..crate::testing::hello("n1") }
}

async fn plan(context: &Context, job: SlurmJobId) -> DecisionId {
    let start = JobStart { job_id: job, restart_count: 0 };
    let plan = new_decision(vec![NewMember { start, ..member(MemberState::Planned).plan }]);
    let store = &context.store;
    let revision = store.revision().await.unwrap();
    let ids = store.commit_plan(revision, &[plan], at(NOW)).await.unwrap();
    store.member_prepared(ids[0], start, at(NOW)).await.unwrap();
    ids[0]
}

#[tokio::test]
async fn a_renewal_that_a_release_overtakes_does_nothing() {
    let world = World::new().await;
    let (renew, release) = (world.renew(), world.release());
    // Behind the update that finds the fence.
    let let_go = world.slurm.keep_update(1);
    let (renewed, released, ()) = tokio::join!(
        biased;
        renew.tick(),
        // The renewal is on its way to Slurm.
        release.tick(),
        async { let_go.send(()).unwrap() },
    );
    renewed.and(released).unwrap();
    assert_eq!(world.begin_times(), [at(NOW)]);
    assert_eq!(world.member_state().await, MemberState::Released);
    assert_eq!(world.begins_at(), Some(at(NOW)), "the released job was held back");
}

#[tokio::test]
async fn a_job_that_was_put_back_since_the_scan_is_not_renewed() {
    let world = World::new().await;
    // The release itself is refused, and the job is to run alone, in a moment.
    drop(world.slurm.keep_update(1));
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Undone);
    // No decision has it any more, and the last scan shows it as it waited before.
    world.renew().tick().await.unwrap();
    assert_eq!(world.begin_times(), [at(NOW + 3)]);
    assert_eq!(world.begins_at(), Some(at(NOW + 3)), "a job that is to start was held back");
}

#[tokio::test]
async fn a_job_that_its_user_held_or_moved_since_the_scan_is_left_alone() {
    for change in [Change::Held, Change::Moved] {
        let world = World::new().await;
        let before = |world: &World| world.slurm.slurm.job(world.job).unwrap();
        match change {
            Change::Held => assert!(world.slurm.slurm.hold(world.job)),
            Change::Moved => {
                let update = JobUpdate { partition: Some("everyday".into()), ..JobUpdate::default() };
                world.slurm.slurm.foreign_update(&[world.job], &update).unwrap();
            }
        }
        let changed = before(&world);
        world.release().tick().await.unwrap();
        world.renew().tick().await.unwrap();
        assert_eq!(before(&world), changed, "{change:?}");
        assert_eq!(world.member_state().await, MemberState::Undone, "{change:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Held,
    Moved,
}

#[tokio::test]
async fn who_does_not_lead_carries_nothing_on_and_gives_nothing_up() {
    let world = World::new().await;
    world.context.set_leading(false);
    // By a scan in which nothing is there any more.
    let empty = Scan::new(at(NOW + 1), Vec::new(), Vec::new(), &["shared".to_owned()], 0);
    let seen = world.context.board().scan.clone().unwrap();
    for scan in [seen, Arc::new(empty)] {
        world.context.board_mut().scan = Some(scan);
        world.release().tick().await.unwrap();
        assert_eq!((world.begin_times(), world.member_state().await), (Vec::new(), MemberState::Planned));
    }
    assert_eq!(world.context.board().active.len(), 1, "it is told of all the same");
}

#[tokio::test(start_paused = true)]
async fn who_was_frozen_for_so_long_that_another_may_lead_does_nothing_when_he_wakes() {
    let world = World::new().await;
    world.context.set_leads_until(Instant::now() + Duration::from_secs(8));
    tokio::time::advance(Duration::from_secs(8)).await;
    world.release().tick().await.unwrap();
    assert_eq!((world.begin_times(), world.member_state().await), (Vec::new(), MemberState::Planned));
    // He still leads, and knows it now.
    world.context.set_leads_until(Instant::now() + Duration::from_secs(8));
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Released);
}

#[tokio::test]
async fn a_release_that_came_before_ours_is_adopted() {
    let world = World::new().await;
    let seen = world.slurm().job(world.job).unwrap();
    let mark = mark_of(&seen).unwrap();
    let plan = member(MemberState::Planned).plan;
    let gres_types = GresType::new("g0").into();
    let release = updates::release(&seen, mark, &NodeName::new("n1"), &gres_types, plan.shards, at(NOW));
    world.slurm().update(&[world.job], &release).await.unwrap();
    // Ours is refused: the job has a lease.
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Planned, "it was given up, and runs");
    world.look_a_second_later().await;
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Released);
}

#[tokio::test]
async fn without_a_fence_nothing_is_released_or_renewed() {
    let world = World::with(FakeSettings { is_fenced: false, ..FakeSettings::default() }).await;
    world.release().tick().await.unwrap();
    world.renew().tick().await.unwrap();
    assert_eq!(world.begin_times(), []);
    assert_eq!(world.member_state().await, MemberState::Planned);
    assert_eq!(world.context.refusal().as_deref(), Some("the pillion.lua of this release is not in use"));
}
