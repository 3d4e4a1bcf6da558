//! Who is told that he will run out of memory, over the memory store.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, device, hello, job, leased, member, node, start};
use pillion_core::ManualClock;
use pillion_core::device::Reading;
use pillion_core::mark::Mark;
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples, ToAgent};
use pillion_core::restart::RestartConsent;
use pillion_core::share::Sharing;
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{JobState, NodeAvailability, SlurmVersion};
use pillion_store::NewMember;
use pillion_store::prelude::*;

const LIMIT_MIB: u64 = 10_000;
const BYTES_A_MIB: u64 = 1 << 20;

struct World {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    context: Arc<Context>,
    trend: Trend,
    restart: RestartConsent,
    _orders: tokio::sync::mpsc::Receiver<ToAgent>,
}

impl World {
    /// One tenant, who shares the device so.
    fn new(sharing: Sharing) -> Self {
        Self::of(sharing, RestartConsent::No, true)
    }

    /// One who lets so much be done. `requeue`: whether Slurm would.
    fn of(sharing: Sharing, restart: RestartConsent, requeue: bool) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(ManualClock::new(at(NOW))));
        let agents = Agents::default();
        let (_, orders) = agents.connect(&AgentHello { devices: vec![device(1)], ..hello("n1") }, at(NOW));
        let partitions = vec![FakePartition::new("shared", &["n1"])];
        let slurm =
            FakeSlurm::new(FakeSettings::default(), vec![FakeNode::pool("n1", 2)], partitions, at(NOW));
        while slurm.submit(FakeJob { requeue, ..FakeJob::default() }) != start().job_id {}
        let context = Arc::new(Context::new(
            Arc::clone(&clock) as _,
            Arc::new(slurm),
            Arc::clone(&store) as _,
            Arc::new(agents),
            Settings::default(),
        ));
        let running = member(MemberState::Running);
        let plan = NewMember { sharing, memory_bytes: Some(LIMIT_MIB * BYTES_A_MIB), ..running.plan.clone() };
        context.board_mut().slurm_version = Some(SlurmVersion { major: 24, minor: 11, patch: 5 });
        context.board_mut().active = Arc::new(vec![decision(&Member { plan, ..running })]);
        let trend = Trend::new(Arc::clone(&context));
        Self { clock, store, context, trend, restart, _orders: orders }
    }

    /// It is seen with so much, and so many processes.
    async fn see(&self, second: u64, memory_mib: u64, process_count: u32) {
        self.clock.set(at(NOW + second));
        let running = leased(job(JobState::Running), NOW);
        let mark = Mark { restart: self.restart, ..running.mark.clone().unwrap().unwrap() };
        let mark = Ok(Some(mark));
        let running = Job { started_at: Some(at(NOW)), time_limit_seconds: Some(86_400), mark, ..running };
        let nodes = vec![node(NodeAvailability::Up)];
        let scan = Scan::new(at(NOW + second), vec![running.into()], nodes, &["shared".to_owned()], 0);
        self.context.board_mut().scan = Some(Arc::new(scan));
        let JobStart { job_id, restart_count } = start();
        let memory_bytes = Some(memory_mib * BYTES_A_MIB);
        let own = TenantUse { job_id, restart_count, memory_bytes, process_count, progress: None };
        let (gres_type, reading) = (GresType::new("g1"), Reading::default());
        let samples = vec![DeviceSample { gres_type, reading, tenants: vec![own] }];
        let samples = DeviceSamples { recorded_at: self.context.now(), samples };
        self.context.agents.set_readings(&NodeName::new("n1"), &samples);
        self.trend.tick().await.unwrap();
    }

    /// It grows by 50 MiB every five seconds, for so many of them.
    async fn grow(&self, from: u64, looks: std::ops::Range<u64>, process_count: u32) {
        for look in looks {
            self.see(5 * look, from + 50 * look, process_count).await;
        }
    }

    async fn told(&self) -> Vec<Event> {
        let mut events = self.store.events(start().job_id).await.unwrap();
        events.retain(|event| event.kind == EventKind::MemoryGrowing);
        events
    }
}

fn instance() -> Sharing {
    let slot: pillion_core::mig::Slot = "1g.10gb@3".parse().unwrap();
    Sharing::Mig { profile: slot.profile, start: slot.start }
}

fn limited() -> Sharing {
    Sharing::Mps { cap: None, memory_limit_bytes: Some(LIMIT_MIB * BYTES_A_MIB) }
}

#[tokio::test]
async fn who_grows_toward_the_end_of_his_memory_is_told_once() {
    for sharing in [instance(), limited()] {
        let world = World::new(sharing);
        world.grow(8_600, 0..12, 1).await;
        assert_eq!(world.told().await, [], "a minute has not passed");
        world.grow(8_600, 12..20, 1).await;
        let [event] = &world.told().await[..] else { panic!("{:?}", world.told().await) };
        assert_eq!(
            event.detail,
            "it holds 9.0 of the 9.8 GiB of GPU memory that it has, and 600 MiB more each minute: at this pace it runs out in 1 min; \
             write memory= with what it needs for the next one"
        );
        // Whoever leads next does not tell it again.
        let next = World { trend: Trend::new(Arc::clone(&world.context)), ..world };
        next.grow(8_600, 20..40, 1).await;
        assert_eq!(next.told().await.len(), 1);
    }
}

#[tokio::test]
async fn nobody_is_told_whose_memory_is_not_bounded_as_a_whole() {
    let world = World::new(Sharing::Mps { cap: None, memory_limit_bytes: None });
    world.grow(8_600, 0..20, 1).await;
    assert_eq!(world.told().await, []);
    let world = World::new(limited());
    world.grow(8_600, 0..20, 2).await;
    assert_eq!(world.told().await, [], "the limit holds for each of its processes");
    let world = World::new(instance());
    world.grow(8_600, 0..20, 2).await;
    assert_eq!(world.told().await.len(), 1, "an instance for all together");
}

/// It grows by 10 MiB every five seconds: near its limit for minutes before it runs out.
async fn grow_slowly(world: &World) {
    for look in 0..20 {
        world.see(5 * look, 8_500 + 10 * look, 1).await;
    }
}

#[tokio::test]
async fn who_lets_it_is_started_again_with_more_once_it_is_all_but_certain() {
    for sharing in [instance(), limited()] {
        let world = World::of(sharing, RestartConsent::Early, true);
        grow_slowly(&world).await;
        let intended = world.store.open_requeues().await.unwrap();
        let [requeue] = &intended[..] else { panic!("{intended:?}") };
        let memory_bytes = LIMIT_MIB / 2 * 3 * BYTES_A_MIB;
        assert_eq!((requeue.cause, requeue.start), (RequeueCause::Growing { memory_bytes }, start()));
        let [event] = &world.told().await[..] else { panic!("{:?}", world.told().await) };
        let end = "; it is to be ended and started again once, with at least 14.6 GiB";
        assert!(event.detail.ends_with(end), "{}", event.detail);
        // Whoever leads next finds that it was intended.
        let next = World { trend: Trend::new(Arc::clone(&world.context)), ..world };
        grow_slowly(&next).await;
        assert_eq!((next.told().await.len(), next.store.open_requeues().await.unwrap().len()), (1, 1));
    }
}

#[tokio::test]
async fn who_does_not_let_it_or_is_not_requeued_is_told_and_goes_on() {
    use RestartConsent::{Early, No, Yes};
    for (restart, requeue) in [(No, true), (Yes, true), (Early, false)] {
        let world = World::of(limited(), restart, requeue);
        grow_slowly(&world).await;
        assert_eq!(world.store.open_requeues().await.unwrap(), [], "{restart} {requeue}");
        assert_eq!(world.told().await.len(), 1, "{restart} {requeue}");
    }
}

#[tokio::test]
async fn who_runs_out_in_a_moment_is_left_to_it() {
    let world = World::of(limited(), RestartConsent::Early, true);
    world.grow(8_600, 0..20, 1).await;
    assert_eq!((world.store.open_requeues().await.unwrap(), world.told().await.len()), (vec![], 1));
}
