mod more_memory;

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::testing::{at, decision, job, leased, member, new_decision, node, start};
use pillion_core::decision::MemberState;
use pillion_core::device::DeviceDescription;
use pillion_core::fault::{FaultSigns, MemorySample, StderrWords, XidSeen};
use pillion_core::report::{JobSummary, Report, ReportBody};
use pillion_core::{GresType, ManualClock, NodeName, Revision, SlurmJobId};
use pillion_fake_slurm::{FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{Job, NodeAvailability};
use pillion_store::prelude::*;
use pillion_store::{JobRecord, NewDecision};

/// When the run of job 7 ended.
pub(super) const ENDED: u64 = 1_000_000;

fn neighbour() -> JobStart {
    JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 }
}

fn summary() -> JobSummary {
    JobSummary {
        started_at: at(ENDED - 100),
        ended_at: at(ENDED),
        shared_seconds: 90.0,
        shared_device_seconds: None,
        neighbours: vec![neighbour()],
        signs: Some(FaultSigns::default()),
        ..crate::testing::summary(start())
    }
}

fn record(start: JobStart, ending: JobEnding, ended_at: u64) -> JobRecord {
    JobRecord {
        submitted_at: at(ENDED - 200),
        started_at: Some(at(ENDED - 100)),
        ended_at: Some(at(ended_at)),
        ending: Some(ending),
        exit: Some(if ending == JobEnding::Failed { (1, 0) } else { (0, 15) }),
        ..crate::testing::record(start)
    }
}

/// A run under MPS beside another that failed, for no reason that shows.
pub(super) fn failed_run() -> MeasuredRun {
    MeasuredRun {
        summary: summary(),
        node: NodeName::new("n1"),
        device_model: "h100".into(),
        device_memory_bytes: 100,
        job: record(start(), JobEnding::Failed, ENDED),
        requeue: None,
        decision: Some(decision(&member(MemberState::Ended))),
    }
}

#[test]
fn slurms_words_for_an_end_are_told_apart() {
    let of = |ending, exit| {
        let mut run = failed_run();
        (run.job.ending, run.job.exit) = (Some(ending), exit);
        ending_of(&run)
    };
    assert_eq!(of(JobEnding::Completed, Some((0, 0))), Some(Ending::Exited(0)));
    assert_eq!(of(JobEnding::Failed, Some((139, 0))), Some(Ending::Exited(139)));
    assert_eq!(of(JobEnding::Failed, Some((0, 11))), Some(Ending::Signalled(11)));
    assert_eq!(of(JobEnding::Failed, None), None, "nobody says with what");
    assert_eq!(of(JobEnding::OutOfMemory, Some((0, 125))), Some(Ending::EndedBySlurm), "the host's memory");
    let mut run = failed_run();
    run.job.restart_count = 1;
    assert_eq!(ending_of(&run), None, "it was started again meanwhile");
}

#[test]
fn a_failure_that_explains_itself_is_nobody_elses_doing() {
    let mut run = failed_run();
    assert_eq!(candidate(&run, verdict(&run).as_ref()), Some(Ending::Exited(1)));
    run.summary.signs = Some(FaultSigns { stderr: Some(StderrWords::Sure), ..FaultSigns::default() });
    assert_eq!(candidate(&run, verdict(&run).as_ref()), None);
    let mut killed = failed_run();
    killed.job.exit = Some((0, 9));
    assert_eq!(candidate(&killed, None), None, "killed from outside");
    for ending in [JobEnding::Cancelled, JobEnding::Timeout, JobEnding::Completed, JobEnding::OutOfMemory] {
        killed.job.ending = Some(ending);
        assert_eq!(candidate(&killed, None), None, "{ending:?}");
    }
}

struct World {
    context: Arc<Context>,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    slurm: Arc<FakeSlurm>,
}

impl World {
    /// Job 7 has ended on the device that it shared with job 8; `signs` is what its agent saw.
    async fn new(own: JobEnding, other: (JobEnding, u64), signs: FaultSigns) -> Self {
        let clock = Arc::new(ManualClock::new(at(ENDED + 10)));
        let store = Arc::new(MemoryStore::new());
        let nodes = vec![FakeNode::pool("n1", 1)];
        let partitions = vec![FakePartition::new("shared", &["n1"])];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(ENDED + 10)));
        let context = Arc::new(Context::new(
            clock.clone(),
            slurm.clone(),
            store.clone(),
            Arc::new(Agents::default()),
            Settings::default(),
        ));
        let device =
            DeviceDescription { model: "h100".into(), memory_bytes: 100, ..pillion_test_kit::device(1) };
        store.record_devices(&NodeName::new("n1"), &[device], at(ENDED)).await.unwrap();
        let world = Self { context, store, clock, slurm };
        world.run_under_a_decision().await;
        let records = [record(start(), own, ENDED), record(neighbour(), other.0, other.1)];
        world.store.record_jobs(&records, at(ENDED)).await.unwrap();
        let ended = JobSummary { signs: Some(signs), ..summary() };
        let report = Report { sequence: 1, body: ReportBody::JobSummary(Box::new(ended)) };
        world.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
        world.see(leased(job(JobState::Ended(own)), ENDED - 101), 9);
        world
    }

    async fn run_under_a_decision(&self) {
        use MemberState::{Ended, Planned, Released, Running};
        let members = vec![member(MemberState::Planned).plan];
        let new = NewDecision { gres_types: GresType::new("g1").into(), ..new_decision(members) };
        let id = self.store.commit_plan(Revision(0), &[new], at(ENDED - 110)).await.unwrap()[0];
        for (from, to) in [(Planned, Released), (Released, Running), (Running, Ended)] {
            let step = pillion_store::MemberStep { decision_id: id, start: start(), from, to, at: at(ENDED) };
            assert!(self.store.step_member(&step).await.unwrap());
        }
    }

    fn see(&self, job: Job, later_seconds: u64) {
        let now = at(ENDED + later_seconds);
        self.clock.set(now);
        let scan =
            Scan::new(now, vec![job.into()], vec![node(NodeAvailability::Up)], &["shared".to_owned()], 0);
        self.context.board_mut().scan = Some(Arc::new(scan));
    }

    async fn kinds(&self) -> Vec<String> {
        let events = self.store.events(start().job_id).await.unwrap();
        events.into_iter().map(|event| event.kind.to_string()).collect()
    }
}

#[tokio::test]
async fn a_start_that_ran_out_of_memory_gets_one_event_and_no_requeue() {
    let full = MemorySample { at: at(ENDED - 1), bytes: 100, bytes_used: Some(99), process_bytes_max: None };
    let signs = FaultSigns { memory: vec![full], stderr: Some(StderrWords::Sure), ..FaultSigns::default() };
    let world = World::new(JobEnding::Failed, (JobEnding::Cancelled, ENDED - 2), signs).await;
    for _ in 0..2 {
        Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
    }
    assert_eq!(world.kinds().await, ["out-of-memory"]);
    let event = world.store.events(start().job_id).await.unwrap().remove(0);
    assert!(
        event.detail.contains("said-out-of-memory") && event.detail.contains("memory was full"),
        "{}",
        event.detail
    );
    assert!(world.store.open_requeues().await.unwrap().is_empty(), "it would fail again");
}

#[tokio::test]
async fn a_victim_gets_an_intent_before_anything_is_done() {
    let world = World::new(JobEnding::Failed, (JobEnding::Cancelled, ENDED - 2), FaultSigns::default()).await;
    Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert_eq!(world.kinds().await, ["victim"]);
    let open = world.store.open_requeues().await.unwrap();
    assert_eq!(open.iter().map(|requeue| requeue.start).collect::<Vec<_>>(), [start()]);
    assert!(world.slurm.journal().is_empty(), "the judge asks nothing of Slurm");
}

#[tokio::test]
async fn of_two_that_fail_in_one_second_the_driver_tells_which_was_the_cause() {
    for (is_own, kinds) in
        [(Some(true), vec!["program-fault"]), (Some(false), vec!["victim"]), (None, Vec::new())]
    {
        let xids = vec![XidSeen { at: at(ENDED - 1), code: 31, is_own }];
        let signs = FaultSigns { xids, ..FaultSigns::default() };
        let world = World::new(JobEnding::Failed, (JobEnding::Failed, ENDED), signs).await;
        Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
        assert_eq!(world.kinds().await, kinds, "{is_own:?}");
        let events = world.store.events(start().job_id).await.unwrap();
        assert!(events.iter().all(|event| event.detail.contains("Xid 31")), "{events:?}");
    }
}

#[tokio::test]
async fn a_culprit_is_no_victim_of_the_one_that_was_started_again_for_it() {
    for (by_us, kinds) in [(false, vec!["victim"]), (true, vec![])] {
        let world =
            World::new(JobEnding::Failed, (JobEnding::Failed, ENDED + 1), FaultSigns::default()).await;
        let again = JobStart { restart_count: 1, ..neighbour() };
        let waits = JobRecord { ended_at: None, ending: None, ..record(again, JobEnding::Failed, ENDED) };
        world.store.record_jobs(&[waits], at(ENDED + 5)).await.unwrap();
        let its = JobSummary { start: neighbour(), neighbours: vec![start()], ..summary() };
        let report = Report { sequence: 2, body: ReportBody::JobSummary(Box::new(its)) };
        world.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
        if by_us {
            let event = Event {
                at: at(ENDED + 3),
                kind: EventKind::Victim,
                job_id: Some(neighbour().job_id),
                node: None,
                detail: String::new(),
            };
            world.store.record_event(&event).await.unwrap();
        }
        Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
        assert_eq!(world.kinds().await, kinds, "started again by us: {by_us}");
    }
}

#[tokio::test]
async fn who_was_cancelled_succeeded_or_ended_long_ago_is_not_requeued() {
    for own in [JobEnding::Cancelled, JobEnding::Timeout, JobEnding::Completed] {
        let world = World::new(own, (JobEnding::Cancelled, ENDED - 2), FaultSigns::default()).await;
        Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
        assert_eq!(world.kinds().await, [""; 0], "{own:?}");
        assert!(world.store.unjudged_runs(9).await.unwrap().is_empty());
    }
    let world = World::new(JobEnding::Failed, (JobEnding::Cancelled, ENDED - 2), FaultSigns::default()).await;
    world.see(leased(job(JobState::Ended(JobEnding::Failed)), ENDED - 101), 241);
    Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert_eq!(world.kinds().await, ["victim"], "operators hear of it");
    assert!(world.store.open_requeues().await.unwrap().is_empty());
}
