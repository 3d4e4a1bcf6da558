//! A job that runs out of device memory, on the strict double of Slurm: who is started again, and what comes of it when somebody
//! acts between two of our steps.

use super::*;
use crate::failure::requeue::Requeuer;
use crate::release::Release;
use crate::watch::Watch;
use pillion_core::UserId;
use pillion_core::mark::Mark;
use pillion_core::restart::RestartConsent;
use pillion_core::share::Sharing;
use pillion_fake_slurm::{FakeCall, FakeJob};
use std::time::Duration;

const GIB: u64 = 1 << 30;

struct Failing {
    world: World,
    job: SlurmJobId,
}

impl Failing {
    /// A job that was released under a limit of 8 GiB, runs and fails, and says that device memory ran out.
    async fn new(restart: RestartConsent, requeue: bool, settings: Settings) -> Self {
        let failing = Self::released(restart, requeue, settings);
        failing.run_under_a_limit().await;
        failing
    }

    /// It runs, and grows: it is intended to be ended, as `trend` does it.
    async fn growing() -> Self {
        let growing = Self::released(RestartConsent::Early, true, Settings::default());
        growing.begin().await;
        let start = JobStart { job_id: growing.job, restart_count: 0 };
        let (node, decided_at) = (NodeName::new("n1"), at(ENDED - 40));
        let (cause, reason) = (RequeueCause::Growing { memory_bytes: 12 * GIB }, "it grows".to_owned());
        let requeue = Requeue { cause, start, node, decided_at, reason };
        let (kind, job_id, detail) = (EventKind::MemoryGrowing, Some(growing.job), String::new());
        let event = Event { at: decided_at, kind, job_id, node: None, detail };
        assert!(growing.world.store.intend_requeue(&requeue, &event).await.unwrap());
        growing
    }

    /// A job that was released, and that nobody has looked at since.
    fn released(restart: RestartConsent, requeue: bool, settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(at(ENDED - 60)));
        let nodes = vec![FakeNode::pool("n1", 1)];
        let partitions = vec![FakePartition::new("shared", &["n1"])];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(ENDED - 60)));
        let store = Arc::new(MemoryStore::new());
        let agents = Arc::new(Agents::default());
        let context = Context::new(clock.clone(), slurm.clone(), store.clone(), agents, settings);
        let world = World { context: Arc::new(context), store, clock, slurm };
        let mark =
            Mark { workload_digest: "w".into(), original_gres: "gpu:1".into(), restart, ..Mark::default() };
        let job = world.slurm.submit(FakeJob {
            uid: UserId(1000),
            gres: "shard:g0:40".to_owned(),
            required_nodes: vec![NodeName::new("n1")],
            admin_comment: mark.leased(at(ENDED - 60), 0).to_string(),
            requeue,
            ..FakeJob::default()
        });
        Self { world, job }
    }

    async fn consenting() -> Self {
        Self::new(RestartConsent::Yes, true, Settings::default()).await
    }

    async fn run_under_a_limit(&self) {
        self.begin().await;
        self.fail().await;
    }

    /// It runs under its limit.
    async fn begin(&self) {
        use MemberState::{Planned, Released, Running};
        let Self { world, job } = self;
        self.scan(ENDED - 50).await;
        assert_eq!(world.slurm.state(*job), Some(JobState::Running));
        let start = JobStart { job_id: *job, restart_count: 0 };
        let mut plan = member(Planned).plan;
        plan.start = start;
        plan.sharing = Sharing::Mps { cap: None, memory_limit_bytes: Some(8 * GIB) };
        let new = NewDecision { gres_types: GresType::new("g0").into(), ..new_decision(vec![plan]) };
        let id = world.store.commit_plan(Revision(0), &[new], at(ENDED - 60)).await.unwrap()[0];
        for (from, to) in [(Planned, Released), (Released, Running)] {
            let step = pillion_store::MemberStep { decision_id: id, start, from, to, at: at(ENDED) };
            assert!(world.store.step_member(&step).await.unwrap());
        }
    }

    /// It fails, and says why.
    async fn fail(&self) {
        let Self { world, job } = self;
        let start = JobStart { job_id: *job, restart_count: 0 };
        let decision_id = world.store.active_decisions().await.unwrap()[0].id;
        let (from, to) = (MemberState::Running, MemberState::Ended);
        let step = pillion_store::MemberStep { decision_id, start, from, to, at: at(ENDED) };
        assert!(world.store.step_member(&step).await.unwrap());
        let gres_type = GresType::new("g0");
        let device = DeviceDescription { gres_type: gres_type.clone(), ..pillion_test_kit::device(1) };
        world.store.record_devices(&NodeName::new("n1"), &[device], at(ENDED)).await.unwrap();
        assert!(world.slurm.finish(*job, JobEnding::Failed));
        self.scan(ENDED + 2).await;
        let signs = FaultSigns { stderr: Some(StderrWords::Sure), ..FaultSigns::default() };
        let ended = JobSummary { start, gres_type, signs: Some(signs), neighbours: Vec::new(), ..summary() };
        let report = Report { sequence: 1, body: ReportBody::JobSummary(Box::new(ended)) };
        world.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
        Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
    }

    async fn scan(&self, epoch: u64) {
        self.world.clock.set(at(epoch));
        self.world.slurm.tick(at(epoch));
        Watch::new(Arc::clone(&self.world.context)).tick().await.unwrap();
    }

    /// What a scheduler does in a second that has just been started: it remembers nothing but what is stored.
    async fn second(&self, epoch: u64) {
        self.scan(epoch).await;
        Requeuer::new(Arc::clone(&self.world.context)).tick().await.unwrap();
        Release::new(Arc::clone(&self.world.context)).tick().await.unwrap();
    }

    async fn seconds(&self, from: u64) {
        for epoch in from..from + 6 {
            self.second(epoch).await;
        }
    }

    async fn kinds(&self) -> Vec<String> {
        let events = self.world.store.events(self.job).await.unwrap();
        events.into_iter().map(|event| event.kind.to_string()).collect()
    }

    fn our_requeues(&self) -> usize {
        let journal = self.world.slurm.journal();
        journal.iter().filter(|call| matches!(call, FakeCall::Requeue { .. })).count()
    }

    fn mark(&self) -> Mark {
        self.world.slurm.job(self.job).unwrap().mark.unwrap().unwrap()
    }

    /// It waits for a decision like any other, with half as much again, and Slurm starts it alone one bound later.
    fn waits_for_more(&self) {
        let job = self.world.slurm.job(self.job).unwrap();
        assert_eq!((job.state.clone(), job.restart_count), (JobState::Pending, 1));
        assert!(
            !pillion_slurm::updates::is_pinned(&job, job.mark.as_ref().unwrap().as_ref().unwrap()),
            "{} {:?}",
            job.gres,
            job.required_nodes
        );
        let mark = self.mark();
        let expected = (None, false, Some(ENDED - 60), Some(12 * 1024));
        let found = (mark.lease_epoch, mark.alone, mark.again_lease_epoch, mark.memory_mib);
        assert_eq!(found, expected);
        let begins_at = job.eligible_at.expect("it has a begin time");
        assert!(
            begins_at.epoch() > ENDED + 500
                && begins_at <= self.world.context.now() + Duration::from_mins(10)
        );
    }
}

#[tokio::test]
async fn who_consented_is_started_again_once_with_more_memory() {
    let failing = Failing::consenting().await;
    let intended = failing.world.store.open_requeues().await.unwrap();
    assert_eq!(
        intended[0].cause,
        RequeueCause::OutOfMemory { memory_bytes: 12 * GIB },
        "before anything is done"
    );
    assert_eq!(failing.our_requeues(), 0);
    failing.seconds(ENDED + 10).await;
    failing.waits_for_more();
    assert_eq!(failing.our_requeues(), 1);
    assert_eq!(failing.kinds().await, ["out-of-memory", "requeued", "restarted"]);
    let details: Vec<String> = failing
        .world
        .store
        .events(failing.job)
        .await
        .unwrap()
        .into_iter()
        .map(|event| event.detail)
        .collect();
    assert!(details.iter().all(|detail| detail.contains("at least 12.0 GiB")), "{details:?}");
}

#[tokio::test]
async fn without_consent_or_against_the_site_nothing_is_done() {
    let never = Settings { restarts_by_consent: false, ..Settings::default() };
    for (restart, settings) in [(RestartConsent::No, Settings::default()), (RestartConsent::Yes, never)] {
        let failing = Failing::new(restart, true, settings).await;
        failing.seconds(ENDED + 10).await;
        assert_eq!(failing.our_requeues(), 0);
        assert_eq!(failing.world.slurm.state(failing.job), Some(JobState::Ended(JobEnding::Failed)));
        assert_eq!(failing.kinds().await, ["out-of-memory"]);
        assert_eq!(failing.world.store.last_requeue(failing.job).await.unwrap(), None);
    }
}

#[tokio::test]
async fn no_requeue_is_never_overruled() {
    let failing = Failing::new(RestartConsent::Yes, false, Settings::default()).await;
    let requeuer = Requeuer::new(Arc::clone(&failing.world.context));
    for epoch in ENDED + 10..ENDED + 16 {
        failing.scan(epoch).await;
        requeuer.tick().await.unwrap();
    }
    assert_eq!(failing.our_requeues(), 1, "Slurm is asked once");
    assert_eq!(failing.world.slurm.state(failing.job), Some(JobState::Ended(JobEnding::Failed)));
    assert_eq!(failing.kinds().await, ["out-of-memory", "requeue-refused"]);
}

#[tokio::test]
async fn its_user_may_be_faster_and_then_it_has_more_memory_too() {
    let failing = Failing::consenting().await;
    assert!(failing.world.slurm.user_requeue(failing.job));
    failing.seconds(ENDED + 10).await;
    failing.waits_for_more();
    assert_eq!(failing.our_requeues(), 0);
}

#[tokio::test]
async fn a_hold_stays_and_a_cancelled_job_stays_cancelled() {
    for is_held in [true, false] {
        let failing = Failing::consenting().await;
        failing.scan(ENDED + 10).await;
        Requeuer::new(Arc::clone(&failing.world.context)).tick().await.unwrap();
        assert_eq!(failing.our_requeues(), 1);
        // It waits with its old pin, and we have not looked since.
        let slurm = &failing.world.slurm;
        assert!(if is_held { slurm.hold(failing.job) } else { slurm.cancel(failing.job) });
        failing.seconds(ENDED + 11).await;
        if is_held {
            failing.waits_for_more();
            assert_eq!(slurm.job(failing.job).unwrap().priority, 0);
        } else {
            assert_eq!(slurm.state(failing.job), Some(JobState::Ended(JobEnding::Cancelled)));
        }
        assert_eq!(failing.our_requeues(), 1);
    }
}

#[tokio::test]
async fn whoever_dies_between_two_steps_is_followed_by_one_who_finds_them() {
    let failing = Failing::consenting().await;
    // Slurm is away, and then the answer is lost: each second is another scheduler's.
    failing.world.slurm.set_down(true);
    failing.world.clock.set(at(ENDED + 10));
    let tick = Requeuer::new(Arc::clone(&failing.world.context)).tick().await;
    assert!(tick.is_ok() || failing.our_requeues() == 1, "it is told, or not even asked");
    failing.world.slurm.set_down(false);
    failing.scan(ENDED + 11).await;
    Requeuer::new(Arc::clone(&failing.world.context)).tick().await.unwrap();
    failing.world.slurm.lose_update_answers(1);
    failing.scan(ENDED + 12).await;
    let lost = Release::new(Arc::clone(&failing.world.context)).tick().await;
    assert!(lost.is_err(), "the answer was lost");
    failing.seconds(ENDED + 13).await;
    failing.waits_for_more();
    let calls = failing.world.slurm.journal();
    let carried_out = calls.iter().filter(|call| matches!(call, FakeCall::Requeue { ok: true, .. })).count();
    assert_eq!(carried_out, 1);
}

#[tokio::test]
async fn who_will_run_out_is_ended_and_started_again_once_with_more_memory() {
    let growing = Failing::growing().await;
    growing.seconds(ENDED - 30).await;
    growing.waits_for_more();
    growing.seconds(ENDED - 20).await;
    assert_eq!(growing.our_requeues(), 1);
    assert_eq!(growing.kinds().await, ["memory-growing", "requeued", "restarted"]);
}

#[tokio::test]
async fn who_is_cancelled_or_held_before_he_is_ended_is_so_afterwards() {
    let cancelled = Failing::growing().await;
    assert!(cancelled.world.slurm.cancel(cancelled.job));
    cancelled.seconds(ENDED - 30).await;
    assert_eq!(cancelled.world.slurm.state(cancelled.job), Some(JobState::Ended(JobEnding::Cancelled)));
    assert_eq!(cancelled.our_requeues(), 0);
    // Requeued and held by its user, who is faster.
    let held = Failing::growing().await;
    assert!(held.world.slurm.user_requeue(held.job));
    held.world.slurm.tick(at(ENDED - 35));
    assert!(held.world.slurm.hold(held.job));
    held.seconds(ENDED - 30).await;
    held.waits_for_more();
    assert_eq!((held.our_requeues(), held.world.slurm.job(held.job).unwrap().priority), (0, 0));
}

#[tokio::test]
async fn who_forbids_it_before_he_is_ended_goes_on() {
    let growing = Failing::growing().await;
    assert!(growing.world.slurm.forbid_requeue(growing.job));
    // One scheduler, which remembers what Slurm refused.
    let requeuer = Requeuer::new(Arc::clone(&growing.world.context));
    for epoch in ENDED - 30..ENDED - 24 {
        growing.scan(epoch).await;
        requeuer.tick().await.unwrap();
    }
    assert_eq!(growing.world.slurm.state(growing.job), Some(JobState::Running));
    assert_eq!(growing.our_requeues(), 1, "Slurm is asked once");
    assert_eq!(growing.kinds().await, ["memory-growing", "requeue-refused"]);
}

#[tokio::test]
async fn who_fails_before_he_is_ended_is_started_again_for_that() {
    let growing = Failing::growing().await;
    growing.fail().await;
    let judge = Judge::new(Arc::clone(&growing.world.context));
    let open = growing.world.store.open_requeues().await.unwrap();
    assert!(matches!(open[0].cause, RequeueCause::Growing { .. }), "not judged yet: {open:?}");
    growing.second(ENDED + 10).await;
    judge.tick().await.unwrap();
    growing.seconds(ENDED + 11).await;
    growing.waits_for_more();
    assert_eq!(growing.our_requeues(), 1);
    let kinds = growing.kinds().await;
    assert_eq!(kinds, ["memory-growing", "requeue-refused", "out-of-memory", "requeued", "restarted"]);
}

#[tokio::test]
async fn whoever_dies_between_the_intent_and_the_requeue_is_followed_by_one_who_finds_it() {
    let growing = Failing::growing().await;
    growing.world.slurm.set_down(true);
    growing.world.clock.set(at(ENDED - 35));
    let tick = Requeuer::new(Arc::clone(&growing.world.context)).tick().await;
    assert!(tick.is_ok() || growing.our_requeues() == 1, "it is told, or not even asked");
    growing.world.slurm.set_down(false);
    growing.seconds(ENDED - 30).await;
    growing.waits_for_more();
    // Nobody led for longer than the ground holds: it goes on.
    let late = Failing::growing().await;
    late.seconds(ENDED + 100).await;
    assert_eq!(late.world.slurm.state(late.job), Some(JobState::Running));
    assert_eq!((late.our_requeues(), late.kinds().await.last().unwrap().as_str()), (0, "requeue-refused"));
}
