//! A job on several nodes is let go at its turn, with the devices that are free by then.

use super::*;
use crate::context::LetGoTurns;
use crate::scan::is_waiting;
use pillion_pairing::LetGo;
use pillion_slurm::JobState;
use pillion_slurm::Slurm as _;

/// Two nodes of four devices, and a job of two of each that waits with the first ones.
struct World {
    context: Arc<Context>,
    clock: Arc<ManualClock>,
    slurm: Arc<FakeSlurm>,
    job: SlurmJobId,
}

impl World {
    fn new(change: impl FnOnce(&mut FakeJob)) -> Self {
        let clock = Arc::new(ManualClock::new(UnixTime::from_epoch(1_795_000_000)));
        let partitions =
            vec![FakePartition::new("shared", &["n1", "n2"]), FakePartition::new("gpu", &["n1", "n2"])];
        let nodes = ["n1", "n2"].map(|name| FakeNode::pool(name, 4)).to_vec();
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, clock.now()));
        let mark = Mark {
            original_gres: "gpu:2".into(),
            fallback: "g0,g1".parse().ok(),
            nodes: Some(2),
            ..Mark::default()
        };
        let mut job = FakeJob {
            gres: mark.fallback_shards(),
            node_count: 2,
            begin: Some(clock.now() + Duration::from_mins(10)),
            admin_comment: mark.to_string(),
            ..FakeJob::default()
        };
        change(&mut job);
        let job = slurm.submit(job);
        let store = Arc::new(MemoryStore::new());
        let settings = Settings::default();
        let agents = Arc::new(Agents::default());
        let context = Context::new(Arc::clone(&clock) as _, Arc::clone(&slurm) as _, store, agents, settings);
        Self { context: Arc::new(context), clock, slurm, job }
    }

    /// A plan says that these are free of two nodes; `between`: what happens before anybody acts on it.
    async fn let_go(&self, gres_types: &str, between: impl FnOnce(&Self)) {
        Watch::new(Arc::clone(&self.context)).tick().await.unwrap();
        let start = JobStart { job_id: self.job, restart_count: 0 };
        let turn = LetGo { start, gres_types: gres_types.parse().ok(), devices: Vec::new(), at_once: true };
        let planned_at = Some(self.clock.now());
        self.context.board_mut().let_go = LetGoTurns { planned_at, all: vec![turn] };
        self.pass(200);
        between(self);
        Release::new(Arc::clone(&self.context)).tick().await.unwrap();
    }

    fn pass(&self, milliseconds: u64) {
        self.clock.advance(Duration::from_millis(milliseconds));
        self.slurm.tick(self.clock.now());
    }

    fn now(&self) -> Job {
        self.slurm.job(self.job).expect("Slurm knows it")
    }

    async fn events(&self) -> Vec<EventKind> {
        let events = self.context.store.events(self.job).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }
}

#[tokio::test]
async fn it_starts_at_once_on_the_devices_that_are_free() {
    let world = World::new(|_| ());
    let other = world.slurm.submit(FakeJob { gres: "shard:g0:100".to_owned(), ..FakeJob::default() });
    world.pass(1000);
    assert_eq!(world.slurm.state(other), Some(JobState::Running));
    world.let_go("g2,g3", |_| ()).await;
    world.pass(1500);
    let job = world.now();
    assert_eq!((job.state.clone(), job.nodes.len()), (JobState::Running, 2), "{job:?}");
    assert_eq!(job.gres, "shard:g2:100,shard:g3:100");
    let mark = mark_of(&job).unwrap();
    assert!(mark.alone && mark.fallback == "g2,g3".parse().ok() && mark.nodes == Some(2), "{mark}");
    assert_eq!(mark.let_go, Some((1_795_000_001, 0)));
    assert!(job.required_nodes.is_empty(), "nothing has to be undone");
    assert_eq!(world.events().await, [EventKind::LetGo]);
    let nodes = world.slurm.nodes().await.unwrap();
    assert!(
        nodes.iter().all(|node| node.shards[&pillion_core::GresType::new("g3")] == (100, 100)),
        "{nodes:?}"
    );
}

#[tokio::test]
async fn where_its_user_holds_it_meanwhile_it_keeps_its_turn() {
    let world = World::new(|_| ());
    world.let_go("g1,g2", |world| assert!(world.slurm.hold(world.job))).await;
    world.pass(5000);
    assert_eq!((world.now().state, world.now().priority), (JobState::Pending, 0));
    assert!(is_waiting(&world.now()) && world.events().await.is_empty(), "it was not let go");
    assert!(world.context.board().cooling.contains_key(&world.job), "it is not asked again at once");
    assert!(world.slurm.release_hold(world.job));
    world.let_go("g1,g2", |_| ()).await;
    world.pass(5000);
    assert_eq!(
        (world.now().state, world.now().gres.as_str()),
        (JobState::Running, "shard:g1:100,shard:g2:100")
    );
}

#[tokio::test]
async fn whoever_left_the_pool_or_is_cancelled_meanwhile_is_left_alone() {
    let world = World::new(|_| ());
    let moved = JobUpdate {
        partition: Some("gpu".to_owned()),
        gres: Some("gpu:2".to_owned()),
        ..JobUpdate::default()
    };
    world.let_go("g1,g2", |world| world.slurm.foreign_update(&[world.job], &moved).unwrap()).await;
    assert_eq!((world.now().partition.as_str(), world.now().gres.as_str()), ("gpu", "gpu:2"));
    assert!(world.events().await.is_empty());
    let world = World::new(|_| ());
    world.let_go("g1,g2", |world| assert!(world.slurm.cancel(world.job))).await;
    assert!(world.events().await.is_empty());
}

#[tokio::test]
async fn before_its_own_begin_time_nothing_is_done_and_a_restarted_one_waits_until_its_nodes_take_it() {
    let own = UnixTime::from_epoch(1_795_000_000 + 900);
    let world = World::new(|job| {
        job.admin_comment = job.admin_comment.replace("begin=0", &format!("begin={}", own.epoch()));
    });
    world.let_go("g1,g2", |_| ()).await;
    assert!(is_waiting(&world.now()) && world.events().await.is_empty());
    let job = Job { restart_count: 1, ..world.now() };
    let mark = mark_of(&job).unwrap();
    let now = world.clock.now();
    assert_eq!(updates::let_go(&job, mark, None, true, now).start_time, Some(own));
    let mark = Mark { original_begin_epoch: 0, ..mark.clone() };
    let begin = |job: &Job, at_once| updates::let_go(job, &mark, None, at_once, now).start_time.unwrap();
    assert_eq!(begin(&job, true), now + updates::RESTART_PAUSE);
    let first = Job { restart_count: 0, ..job };
    assert_eq!((begin(&first, true), begin(&first, false)), (now, now + Duration::from_secs(3)));
}

#[tokio::test]
async fn a_turn_that_is_over_is_not_acted_on() {
    // Slurm has given one of its devices to somebody meanwhile, by a scan that came after the plan.
    let world = World::new(|_| ());
    let watch = Watch::new(Arc::clone(&world.context));
    watch.tick().await.unwrap();
    let start = JobStart { job_id: world.job, restart_count: 0 };
    let turn = |gres_types: &str, planned_at| {
        let gres_types = gres_types.parse().ok();
        let turn = LetGo { start, gres_types, devices: Vec::new(), at_once: true };
        LetGoTurns { planned_at: Some(planned_at), all: vec![turn] }
    };
    let planned_at = world.clock.now();
    let pinned = vec![NodeName::new("n2")];
    world.slurm.submit(FakeJob {
        gres: "shard:g1:100".to_owned(),
        required_nodes: pinned,
        ..FakeJob::default()
    });
    world.pass(1000);
    watch.tick().await.unwrap();
    let release = Release::new(Arc::clone(&world.context));
    world.context.board_mut().let_go = turn("g1,g2", planned_at);
    release.tick().await.unwrap();
    assert!(is_waiting(&world.now()), "g1 of n2 is another's");
    // Nor one of long ago.
    world.context.board_mut().let_go = turn("g2,g3", UnixTime::from_epoch(planned_at.epoch() - 11));
    release.tick().await.unwrap();
    assert!(is_waiting(&world.now()));
    world.context.board_mut().let_go = turn("g2,g3", planned_at);
    release.tick().await.unwrap();
    assert_eq!(mark_of(&world.now()).unwrap().fallback, "g2,g3".parse().ok());
}

#[tokio::test]
async fn a_plan_that_was_made_while_it_was_let_go_moves_it_no_more() {
    let world = World::new(|_| ());
    let watch = Watch::new(Arc::clone(&world.context));
    watch.tick().await.unwrap();
    let planned_at = world.clock.now();
    world.let_go("g0,g1", |_| ()).await;
    assert!(world.slurm.hold(world.job));
    world.pass(1000);
    watch.tick().await.unwrap();
    assert!(world.slurm.release_hold(world.job));
    watch.tick().await.unwrap();
    let start = JobStart { job_id: world.job, restart_count: 0 };
    let turn = LetGo { start, gres_types: "g2,g3".parse().ok(), devices: Vec::new(), at_once: true };
    world.context.board_mut().let_go = LetGoTurns { planned_at: Some(planned_at), all: vec![turn] };
    Release::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert_eq!(mark_of(&world.now()).unwrap().fallback, "g0,g1".parse().ok());
    assert_eq!(world.events().await, [EventKind::LetGo]);
}

#[tokio::test]
async fn one_that_was_let_go_and_lost_its_devices_is_let_go_with_others() {
    let world = World::new(|_| ());
    world.let_go("g0,g1", |_| ()).await;
    // Before Slurm has looked, somebody whom nobody expected.
    world
        .slurm
        .foreign_update(
            &[world.job],
            &JobUpdate {
                start_time: Some(world.clock.now() + Duration::from_secs(2)),
                ..JobUpdate::default()
            },
        )
        .unwrap();
    world.slurm.submit(FakeJob { gres: "shard:g0:100".to_owned(), ..FakeJob::default() });
    world.pass(5000);
    assert_eq!(world.now().state, JobState::Pending);
    world.let_go("g2,g3", |_| ()).await;
    world.pass(5000);
    assert_eq!(
        (world.now().state, world.now().gres.as_str()),
        (JobState::Running, "shard:g2:100,shard:g3:100")
    );
}
