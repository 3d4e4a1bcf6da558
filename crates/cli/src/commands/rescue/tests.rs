//! Rescue against the strict double of Slurm, and its plan on single jobs.

use super::{Outcome, Why, carry_out, plan};
use pillion_core::mark::Mark;
use pillion_core::{Clock as _, ManualClock, NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_slurm::{Job, JobState, JobUpdate, Slurm as _, SlurmError};

const BEGIN: u64 = 1_795_000_000;
const LIMIT: f64 = 120.0;

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(BEGIN + seconds)
}

fn pools() -> Vec<String> {
    vec!["shared".to_owned()]
}

fn mark() -> Mark {
    Mark {
        workload_digest: "4f1c09aa12bc77de".into(),
        original_partition: "gpu".into(),
        original_field: "node".into(),
        original_gres: "gpu:1".into(),
        other_gres: "lscratch:100".into(),
        ..Mark::default()
    }
}

/// Two pool nodes with two devices each, and a clock that the fake follows.
struct World {
    slurm: FakeSlurm,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        let node = |name| {
            let mut node = FakeNode::pool(name, 2);
            node.other_gres.insert("lscratch".to_owned(), 1000);
            node
        };
        let partitions =
            vec![FakePartition::new("shared", &["n1", "n2"]), FakePartition::new("everyday", &["w1"])];
        let slurm = FakeSlurm::new(
            FakeSettings::default(),
            vec![node("n1"), node("n2"), node("w1")],
            partitions,
            at(0),
        );
        Self { slurm, clock: ManualClock::new(at(0)) }
    }

    fn go(&self, seconds: u64) {
        self.clock.set(at(seconds));
        self.slurm.tick(at(seconds));
    }

    /// A managed job that waits by begin time.
    fn waiting(&self, job: FakeJob) -> SlurmJobId {
        self.slurm.submit(FakeJob {
            gres: "shard:100,lscratch:100".to_owned(),
            admin_comment: mark().to_string(),
            begin: Some(at(100_000)),
            ..job
        })
    }

    /// Releases it to a device of n1, as the scheduler does; n1 is drained, so that it cannot start.
    async fn release_to_drained(&self, job: SlurmJobId) {
        self.slurm.set_node_flag(&NodeName::new("n1"), Some("DRAIN"));
        let update = JobUpdate {
            gres: Some("shard:g1:40,lscratch:100".to_owned()),
            required_nodes: Some("n1".to_owned()),
            partition: None,
            admin_comment: Some(mark().leased(self.clock.now(), 0).to_string()),
            start_time: Some(self.clock.now()),
        };
        self.slurm.update(&[job], &update).await.expect("Slurm takes it");
    }

    async fn rescue(&self) -> Vec<Outcome> {
        carry_out(&self.slurm, &self.clock, &pools(), LIMIT, false).await.expect("Slurm answers").0
    }

    fn job(&self, job: SlurmJobId) -> Job {
        self.slurm.job(job).expect("it is known")
    }
}

#[tokio::test]
async fn a_release_that_never_started_is_given_back_and_runs_alone() {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    world.go(119);
    assert_eq!(world.rescue().await, [], "a lease of two minutes is not old yet");
    world.go(121);
    let outcomes = world.rescue().await;
    assert_eq!((outcomes.len(), outcomes[0].result.as_str()), (1, "undone"));
    world.go(130);
    let after = world.job(job);
    assert_eq!(after.state, JobState::Running);
    assert_eq!(after.gres, "shard:100");
    assert_eq!(after.nodes, [NodeName::new("n2")]);
    assert!(after.gres.contains("lscratch:100"), "its other GRES are kept: {}", after.gres);
    assert_eq!(after.mark, Ok(Some(mark().leased(at(0), 0).undone())));
    assert_eq!(world.rescue().await, [], "the second run finds nothing");
    assert_eq!(world.slurm.overbooked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pin_that_sets_the_priority_to_zero_is_lifted() {
    let world = World::new();
    let excluded = FakeJob { excluded_nodes: vec![NodeName::new("n1")], ..FakeJob::default() };
    let job = world.waiting(excluded);
    world.release_to_drained(job).await;
    world.go(121);
    assert_eq!(world.job(job).priority, 0, "the pin against -x set it aside");
    let outcomes = world.rescue().await;
    assert!(!outcomes[0].is_left(), "{outcomes:?}");
    world.go(130);
    assert_eq!(world.job(job).state, JobState::Running);
    assert_eq!(world.job(job).mark, Ok(Some(mark().leased(at(0), 0).undone())));
}

#[tokio::test]
async fn a_hold_of_a_user_or_an_admin_is_never_lifted() {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    assert!(world.slurm.hold(job));
    world.go(121);
    let outcomes = world.rescue().await;
    assert_eq!(outcomes[0].result, "undone");
    world.go(300);
    let after = world.job(job);
    assert_eq!((&after.state, after.priority), (&JobState::Pending, 0));
    assert_eq!(after.gres, "shard:100", "given back all the same");
}

#[tokio::test]
async fn a_requeued_job_is_given_back_at_once() {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    let update = JobUpdate {
        gres: Some("shard:g0:40,lscratch:100".to_owned()),
        required_nodes: Some("n1".to_owned()),
        partition: None,
        admin_comment: Some(mark().leased(at(0), 0).to_string()),
        start_time: Some(at(0)),
    };
    world.slurm.update(&[job], &update).await.expect("taken");
    world.go(10);
    assert_eq!(world.job(job).state, JobState::Running);
    assert!(world.slurm.user_requeue(job));
    world.go(20);
    assert_eq!(world.job(job).state, JobState::Pending);
    let outcomes = world.rescue().await;
    assert!(outcomes[0].why.contains("requeued since"), "{outcomes:?}");
    world.go(30);
    assert_eq!((world.job(job).state, world.job(job).gres.as_str()), (JobState::Running, "shard:100"));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_read_back_and_a_dead_controller_is_said() {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    world.go(121);
    world.slurm.lose_update_answers(1);
    assert_eq!(
        world.rescue().await[0].result,
        "undone",
        "the update was carried out, whatever scontrol said"
    );
    world.slurm.set_down(true);
    let error =
        carry_out(&world.slurm, &world.clock, &pools(), LIMIT, false).await.expect_err("nobody answers");
    assert_eq!(error.exit_status().code(), 75);
}

#[tokio::test]
async fn a_dry_run_says_and_does_nothing() {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    world.go(500);
    let before = world.job(job);
    let (outcomes, _) =
        carry_out(&world.slurm, &world.clock, &pools(), LIMIT, true).await.expect("Slurm answers");
    assert_eq!(outcomes[0].result, "would be undone");
    assert_eq!(world.job(job), before);
}

/// A released job that waits, as Slurm shows it.
async fn released() -> Job {
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    world.job(job)
}

#[tokio::test]
async fn only_waiting_jobs_of_ours_with_a_lease_are_touched() {
    let job = released().await;
    let due = |job: Job| plan(&[job], &pools(), at(500), LIMIT).len();
    assert_eq!(due(job.clone()), 1);
    assert_eq!(due(Job { state: JobState::Running, ..job.clone() }), 0);
    assert_eq!(due(Job { state: JobState::Completing, ..job.clone() }), 0);
    assert_eq!(due(Job { mark: Ok(None), ..job.clone() }), 0, "not ours");
    assert_eq!(
        due(Job { mark: Mark::parse("pillion1;?"), ..job.clone() }),
        0,
        "an unreadable mark is not trusted"
    );
    assert_eq!(due(Job { mark: Ok(Some(mark())), ..job.clone() }), 0, "waiting for its decision");
}

#[tokio::test]
async fn every_way_to_be_stranded_has_its_reason() {
    let job = released().await;
    let why = |job: &Job, now: UnixTime| {
        plan(std::slice::from_ref(job), &pools(), now, LIMIT).first().map(|undo| undo.why)
    };
    assert_eq!(why(&job, at(200)), Some(Why::LeaseOld { seconds: 200.0 }));
    let requeued = Job { restart_count: 2, ..job.clone() };
    assert_eq!(why(&requeued, at(1)), Some(Why::Restarted { leased: 0, now: 2 }));
    let future = Job { mark: Ok(Some(mark().leased(at(9000), 0))), ..job.clone() };
    assert_eq!(why(&future, at(0)), Some(Why::LeaseInFuture));
    let cut_short = Job { mark: Ok(Some(mark().undone())), ..job.clone() };
    assert_eq!(why(&cut_short, at(0)), Some(Why::HalfUndone));
}

#[tokio::test]
async fn nobody_begins_before_his_user_said() {
    let own_begin = Mark { original_begin_epoch: at(900).epoch(), ..mark().leased(at(0), 0) };
    let later = Job { mark: Ok(Some(own_begin)), ..released().await };
    assert_eq!(plan(&[later], &pools(), at(500), LIMIT)[0].update.start_time, Some(at(900)));
}

#[tokio::test]
async fn what_is_outside_the_pool_gets_its_own_request_back() {
    let world = World::new();
    let job = world.waiting(FakeJob { partition: "everyday".to_owned(), ..FakeJob::default() });
    let outcomes = world.rescue().await;
    assert_eq!(outcomes[0].result, "undone", "{outcomes:?}");
    let after = world.job(job);
    assert_eq!(
        (after.gres.as_str(), after.mark.as_ref().map(|mark| mark.as_ref().is_some_and(|mark| mark.left))),
        ("gpu:1,lscratch:100", Ok(true))
    );
    assert_eq!(after.eligible_at, Some(at(100_000)), "its begin time may be its user's");
    assert_eq!(world.rescue().await, [], "once");
}

#[tokio::test]
async fn a_job_that_left_the_pool_whole_is_not_touched() {
    let world = World::new();
    for leased in [mark(), mark().leased(at(0), 0), mark().undone()] {
        world.slurm.submit(FakeJob {
            gres: "gpu:1,lscratch:100".to_owned(),
            admin_comment: leased.to_string(),
            partition: "everyday".to_owned(),
            begin: Some(at(100_000)),
            ..FakeJob::default()
        });
    }
    world.go(500);
    assert_eq!(world.rescue().await, []);
}

#[test]
fn an_error_that_may_pass_ends_in_try_later() {
    let error = SlurmError::Timeout { program: "squeue".to_owned(), seconds: 10 };
    assert_eq!(crate::CliError::Slurm(error).exit_status().code(), 75);
}

#[tokio::test]
async fn it_prints_one_line_a_job_and_nothing_where_nothing_is_to_be_done() {
    use crate::output::{Format, Output};
    let world = World::new();
    let job = world.waiting(FakeJob::default());
    world.release_to_drained(job).await;
    world.go(121);
    let outcomes = world.rescue().await;
    let text =
        |format, outcomes: &[Outcome]| Output::new(format, true).render(&super::show(outcomes, 0, false));
    assert_eq!(
        text(Format::Table, &outcomes),
        format!("job {job}: undone (released 121 s ago and not started)\n")
    );
    assert_eq!(text(Format::Table, &[]), "");
    let json: serde_json::Value = serde_json::from_str(&text(Format::Json, &outcomes)).expect("one object");
    let expected = serde_json::json!({
        "version": 1, "dry_run": false, "dropped_line_count": 0,
        "jobs": [{"job_id": job.to_string(), "why": "released 121 s ago and not started", "result": "undone"}]
    });
    assert_eq!(json, expected);
}
