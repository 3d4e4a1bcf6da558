//! What the table of behaviours cannot ask of a real cluster: time, failures, and the journal.

mod fidelity;

use super::*;
use pillion_slurm::{JobState, ReasonKind};
use std::time::Duration;

const NOON: u64 = 1_800_000_000;

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(NOON + seconds)
}

fn pool() -> FakeSlurm {
    let nodes = vec![FakeNode::pool("n1", 2), FakeNode::pool("n2", 2)];
    FakeSlurm::new(FakeSettings::default(), nodes, vec![FakePartition::new("shared", &["n1", "n2"])], at(0))
}

fn job(gres: &str) -> FakeJob {
    FakeJob { gres: gres.to_owned(), ..FakeJob::default() }
}

fn state(slurm: &FakeSlurm, id: SlurmJobId) -> Option<JobState> {
    slurm.job(id).map(|job| job.state)
}

#[test]
fn a_job_lives_its_life_however_coarse_the_ticks_are() {
    for step in [1, 7, 1000] {
        let slurm = pool();
        let id =
            slurm.submit(FakeJob { begin: Some(at(60)), run_seconds: Some(120.0), ..job("shard:g0:40") });
        for now in (0..=200).step_by(step).chain([200]) {
            slurm.tick(at(now));
        }
        let job = slurm.job(id).unwrap();
        assert_eq!(job.state, JobState::Ended(Ending::Completed));
        assert_eq!((job.started_at, job.ended_at, job.exit), (Some(at(60)), Some(at(180)), Some((0, 0))));
        slurm.tick(at(479));
        assert!(slurm.job(id).is_some());
        slurm.tick(at(481));
        assert_eq!(slurm.job(id), None);
    }
}

#[test]
fn a_time_limit_ends_a_job_and_its_shards_are_free_after_it_has_cleaned_up() {
    let slurm = pool();
    let pin = vec![NodeName::new("n1")];
    let first = slurm.submit(FakeJob {
        time_limit_seconds: Some(60),
        required_nodes: pin.clone(),
        ..job("shard:g0:100")
    });
    let second = slurm.submit(FakeJob { required_nodes: pin, ..job("shard:g0:1") });
    slurm.tick(at(1));
    assert_eq!(state(&slurm, second), Some(JobState::Pending));
    slurm.tick(UnixTime::from_seconds(at(60).seconds() + 0.4));
    assert_eq!(state(&slurm, first), Some(JobState::Completing));
    assert_eq!(state(&slurm, second), Some(JobState::Pending));
    slurm.tick(at(62));
    assert_eq!(state(&slurm, first), Some(JobState::Ended(Ending::Timeout)));
    assert_eq!(state(&slurm, second), Some(JobState::Running));
    assert_eq!(slurm.overbooked(), Vec::<String>::new());
}

#[tokio::test]
async fn while_the_controller_does_not_respond_calls_time_out_and_jobs_run_on() {
    let slurm = pool();
    let runs = slurm.submit(FakeJob { run_seconds: Some(30.0), ..job("shard:100") });
    let waits = slurm.submit(FakeJob { begin: Some(at(20)), ..job("shard:100") });
    slurm.tick(at(1));
    slurm.set_down(true);
    slurm.tick(at(50));
    assert!(matches!(slurm.jobs(&[]).await, Err(SlurmError::Timeout { .. })));
    assert!(matches!(slurm.update(&[waits], &JobUpdate::default()).await, Err(SlurmError::Timeout { .. })));
    slurm.set_down(false);
    slurm.tick(at(52));
    assert_eq!(slurm.job(runs).unwrap().ended_at.map(UnixTime::epoch), Some(at(30).epoch()));
    assert_eq!(state(&slurm, waits), Some(JobState::Running));
    let ok: Vec<bool> = slurm
        .journal()
        .iter()
        .map(|call| match call {
            FakeCall::Jobs { ok, .. } | FakeCall::Update { ok, .. } => *ok,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ok, [false, false]);
}

#[tokio::test]
async fn a_lost_answer_is_a_timeout_of_an_update_that_was_made() {
    let slurm = pool();
    let id = slurm.submit(FakeJob { begin: Some(at(600)), ..job("shard:100") });
    slurm.lose_update_answers(1);
    let update = JobUpdate { start_time: Some(at(0)), ..JobUpdate::default() };
    let error = slurm.update(&[id], &update).await.unwrap_err();
    assert!(error.is_transient());
    slurm.tick(at(1));
    assert_eq!(state(&slurm, id), Some(JobState::Running));
    assert_eq!(slurm.journal(), [FakeCall::Update { at: at(0), ok: false, jobs: vec![id], update }]);
}

#[tokio::test]
async fn a_partition_update_may_be_refused_for_a_moment_and_changes_nothing() {
    let slurm = pool();
    let id = slurm.submit(FakeJob { begin: Some(at(600)), ..job("shard:100") });
    slurm.refuse_partition_updates(1);
    let update = JobUpdate {
        partition: Some("shared".into()),
        gres: Some("shard:g0:1".into()),
        ..JobUpdate::default()
    };
    assert!(matches!(slurm.update(&[id], &update).await, Err(SlurmError::Unavailable { .. })));
    assert_eq!(slurm.job(id).unwrap().gres, "shard:100");
    slurm.update(&[id], &update).await.unwrap();
    assert_eq!(slurm.job(id).unwrap().gres, "shard:g0:1");
}

#[test]
fn a_dead_node_requeues_its_jobs_with_their_old_shards() {
    let slurm = pool();
    let pin = vec![NodeName::new("n2")];
    let again = slurm.submit(FakeJob { required_nodes: pin.clone(), ..job("shard:g1:40") });
    let once = slurm.submit(FakeJob { required_nodes: pin, requeue: false, ..job("shard:g1:60") });
    slurm.tick(at(1));
    slurm.fail_node(&NodeName::new("n2"));
    let job = slurm.job(again).unwrap();
    assert_eq!((job.state, job.restart_count, job.gres.as_str()), (JobState::Pending, 1, "shard:g1:40"));
    assert_eq!(job.eligible_at, Some(at(122)));
    assert_eq!(state(&slurm, once), Some(JobState::Ended(Ending::NodeFail)));
    slurm.tick(at(200));
    assert!(matches!(slurm.job(again).unwrap().reason, ReasonKind::Resources(_)));
    slurm.set_node_flag(&NodeName::new("n2"), None);
    slurm.tick(at(201));
    assert_eq!(state(&slurm, again), Some(JobState::Running));
}

#[test]
fn a_preempted_job_comes_back_or_is_over() {
    let slurm = pool();
    let again = slurm.submit(job("shard:g1:40"));
    let once = slurm.submit(FakeJob { requeue: false, ..job("shard:g1:40") });
    slurm.tick(at(1));
    assert!(slurm.preempt(again) && slurm.preempt(once));
    slurm.tick(at(2));
    assert_eq!(slurm.job(again).unwrap().restart_count, 1);
    assert_eq!(state(&slurm, again), Some(JobState::Pending));
    assert_eq!(state(&slurm, once), Some(JobState::Ended(Ending::Preempted)));
    assert!(!slurm.preempt(again));
}

#[test]
fn a_user_limit_holds_back_what_would_fit() {
    let slurm = pool();
    slurm.set_user_jobs_max(Some(1));
    let first = slurm.submit(job("shard:100"));
    let second = slurm.submit(job("shard:100"));
    let other = slurm.submit(FakeJob { uid: pillion_core::UserId(2002), ..job("shard:100") });
    slurm.tick(at(1));
    assert_eq!(state(&slurm, first), Some(JobState::Running));
    assert_eq!(state(&slurm, other), Some(JobState::Running));
    assert!(matches!(slurm.job(second).unwrap().reason, ReasonKind::Limit(_)));
    slurm.set_user_jobs_max(None);
    slurm.tick(at(2));
    assert_eq!(state(&slurm, second), Some(JobState::Running));
}

#[test]
fn priority_then_age_and_a_higher_tier_first() {
    let mut urgent = FakePartition::new("urgent", &["n1"]);
    urgent.tier = 10;
    let partitions = vec![FakePartition::new("shared", &["n1"]), urgent];
    let slurm = FakeSlurm::new(FakeSettings::default(), vec![FakeNode::pool("n1", 1)], partitions, at(0));
    let late = slurm.submit(job("shard:100"));
    let later = slurm.submit(job("shard:100"));
    let first = slurm.submit(FakeJob { partition: "urgent".to_owned(), ..job("shard:100") });
    slurm.tick(at(1));
    assert_eq!(state(&slurm, first), Some(JobState::Running));
    slurm.finish(first, Ending::Failed);
    slurm.tick(at(2));
    assert_eq!(
        (state(&slurm, late), state(&slurm, later)),
        (Some(JobState::Running), Some(JobState::Pending))
    );
    assert_eq!(slurm.job(first).unwrap().exit, Some((1, 0)));
}

#[tokio::test]
async fn two_runs_of_the_same_script_are_the_same() {
    async fn run() -> (Vec<std::sync::Arc<Job>>, Vec<FakeCall>) {
        let slurm = pool();
        for index in 0..40_u32 {
            let array = (index % 5 == 0).then(|| FakeArray { tasks: vec![1, 2, 3], throttle: Some(2) });
            let gres = if index % 3 == 0 { "shard:100" } else { "shard:40" };
            let begin = Some(at(u64::from(index % 7)));
            slurm.submit(FakeJob { array, begin, run_seconds: Some(f64::from(index)), ..job(gres) });
        }
        for second in 0..100 {
            slurm.tick(at(second));
            assert_eq!(slurm.overbooked(), Vec::<String>::new());
            slurm.jobs(&[]).await.unwrap();
        }
        (slurm.jobs(&["shared".to_owned()]).await.unwrap().jobs, slurm.journal())
    }
    let (jobs, journal) = run().await;
    assert!(jobs.iter().any(|job| matches!(job.state, JobState::Ended(_))));
    assert_eq!((jobs, journal), run().await);
    assert_eq!(pool().jobs(&["other".to_owned()]).await.unwrap().jobs, []);
}

#[test]
fn a_cancelled_job_ends_wherever_it_is() {
    let slurm = pool();
    let waits = slurm.submit(FakeJob { begin: Some(at(600)), ..job("shard:100") });
    let runs = slurm.submit(job("shard:100"));
    let requeued = slurm.submit(job("shard:100"));
    slurm.tick(at(1));
    assert!(slurm.user_requeue(requeued));
    assert!(slurm.cancel(waits) && slurm.cancel(runs) && slurm.cancel(requeued));
    slurm.tick(at(1) + Duration::from_secs(1));
    for id in [waits, runs, requeued] {
        assert_eq!(state(&slurm, id), Some(JobState::Ended(Ending::Cancelled)), "{id}");
        assert!(!slurm.cancel(id));
    }
}
