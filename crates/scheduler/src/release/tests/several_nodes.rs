//! A job on several nodes is let go at its turn, with the devices that are free by then.

use super::*;
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
        self.context.board_mut().let_go = vec![LetGo { start, gres_types: gres_types.parse().ok() }];
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
    assert!(job.required_nodes.is_empty(), "nothing has to be undone");
    assert_eq!(world.events().await, [EventKind::LetGo]);
    let nodes = world.slurm.nodes().await.unwrap();
    assert!(
        nodes.iter().all(|node| node.shards[&pillion_core::GresType::new("g3")] == (100, 100)),
        "{nodes:?}"
    );
}

#[tokio::test]
async fn a_hold_of_its_user_stays_and_it_starts_there_when_he_lets_it() {
    let world = World::new(|_| ());
    world.let_go("g1,g2", |world| assert!(world.slurm.hold(world.job))).await;
    world.pass(5000);
    assert_eq!((world.now().state, world.now().priority), (JobState::Pending, 0));
    assert!(world.slurm.release_hold(world.job));
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
async fn its_own_begin_time_counts_and_a_restarted_one_waits_until_its_nodes_take_it() {
    let own = UnixTime::from_epoch(1_795_000_000 + 900);
    let world = World::new(|job| {
        job.admin_comment = job.admin_comment.replace("begin=0", &format!("begin={}", own.epoch()));
    });
    world.let_go("g1,g2", |_| ()).await;
    assert_eq!(world.now().eligible_at, Some(own));
    let job = Job { restart_count: 1, ..world.now() };
    let mark = Mark { original_begin_epoch: 0, ..mark_of(&job).unwrap().clone() };
    let now = world.clock.now();
    let begin = |job: &Job| updates::let_go(job, &mark, None, now).start_time.unwrap();
    assert_eq!(begin(&job), now + updates::RESTART_PAUSE);
    assert_eq!(begin(&Job { restart_count: 0, ..job }), now);
}
