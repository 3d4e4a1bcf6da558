//! What a campaign does next, and how it reads the status of its jobs.

use super::*;
use pillion_api::{Decision, JobStatus, QueueJob};
use pillion_core::SlurmJobId;

fn cap(tenths: u8) -> CapStep {
    CapStep::from_tenths(tenths).unwrap()
}

fn run(tenths: u8, outcome: Option<Outcome>) -> Run {
    let job_id = SlurmJobId::plain(u32::from(tenths));
    Run { cap: cap(tenths), job_id, submitted_at: UnixTime::from_epoch(1000), outcome }
}

fn failed() -> Outcome {
    Outcome::Failed("it did not complete".to_owned())
}

const TAUGHT: Option<Outcome> = Some(Outcome::Taught);

fn next(runs: Vec<Run>, runs_each: usize) -> Next {
    let subject = Subject {
        script: "/x.sh".to_owned(),
        text: String::new(),
        arguments: Vec::new(),
        options: Vec::new(),
    };
    Campaign { subject, runs, intent: None }.next(&Wanted { caps: vec![cap(2), cap(6)], runs_each })
}

#[test]
fn the_run_without_a_cap_comes_first_and_the_others_together() {
    assert_eq!(next(vec![], 1), Next::Submit(vec![cap(10)]));
    assert_eq!(next(vec![run(10, None)], 1), Next::Wait);
    assert_eq!(next(vec![run(10, TAUGHT)], 1), Next::Submit(vec![cap(2), cap(6)]));
    assert_eq!(next(vec![run(10, TAUGHT), run(2, None)], 1), Next::Submit(vec![cap(6)]), "we were cut off");
    assert_eq!(next(vec![run(10, TAUGHT), run(2, TAUGHT), run(6, None)], 1), Next::Wait);
    assert_eq!(next(vec![run(10, TAUGHT), run(2, TAUGHT), run(6, TAUGHT)], 1), Next::Done);
}

#[test]
fn each_is_run_as_often_as_was_asked_for() {
    assert_eq!(next(vec![run(10, TAUGHT)], 2), Next::Submit(vec![cap(10)]));
    let twice = vec![run(10, TAUGHT), run(10, TAUGHT), run(2, TAUGHT)];
    assert_eq!(next(twice, 2), Next::Submit(vec![cap(2), cap(6), cap(6)]));
}

#[test]
fn what_failed_is_left_until_the_command_is_given_again() {
    assert_eq!(next(vec![run(10, Some(failed()))], 1), Next::Done, "nothing is begun without it");
    assert_eq!(next(vec![run(10, TAUGHT), run(2, Some(failed()))], 1), Next::Submit(vec![cap(6)]));
    assert_eq!(next(vec![run(10, TAUGHT), run(2, Some(failed())), run(6, None)], 1), Next::Wait);
    let subject =
        Subject { script: String::new(), text: String::new(), arguments: Vec::new(), options: Vec::new() };
    let mut again = Campaign {
        subject,
        runs: vec![run(10, TAUGHT), run(2, Some(failed())), run(6, TAUGHT)],
        intent: None,
    };
    let wanted = Wanted { caps: vec![cap(2), cap(6)], runs_each: 1 };
    assert!(!again.is_complete(&wanted));
    again.retry();
    assert_eq!(again.next(&wanted), Next::Submit(vec![cap(2)]));
    again.runs.push(run(2, TAUGHT));
    assert!(again.is_complete(&wanted));
}

/// A job that ended at 1100 after it had run on an h100.
fn ended() -> JobStatus {
    let queue = QueueJob { reason: "no device is wholly free".to_owned(), ..QueueJob::default() };
    let decision = Decision { device_model: "h100".to_owned(), ..Decision::default() };
    JobStatus {
        job: Some(queue),
        started_at_seconds: Some(1010.0),
        ended_at_seconds: Some(1100.0),
        ending: Some("completed".to_owned()),
        decision: Some(decision),
        now_seconds: 1101.0,
        ..JobStatus::default()
    }
}

fn status_of(tenths: u8, job: &JobStatus) -> RunStatus {
    status(&run(tenths, None), Some(job), Some("h100"), UnixTime::from_epoch(1101))
}

fn why(tenths: u8, job: &JobStatus) -> String {
    match status_of(tenths, job) {
        RunStatus::Over(Outcome::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_is_followed_until_it_taught_something() {
    let open = |job: Option<&JobStatus>| match status(&run(10, None), job, None, UnixTime::from_epoch(1101)) {
        RunStatus::Open { state, detail } => (state, detail),
        other @ RunStatus::Over(_) => panic!("{other:?}"),
    };
    assert_eq!(open(None), ("waiting", "the scheduler has not seen it yet".to_owned()));
    let waiting = JobStatus { started_at_seconds: None, ending: None, ..ended() };
    assert_eq!(open(Some(&waiting)), ("waiting", "no device is wholly free".to_owned()));
    assert_eq!(open(Some(&JobStatus { ending: None, ..ended() })).0, "running");
    assert_eq!(open(Some(&ended())).0, "ended");
    let taught = |kind: &str| JobStatus { lesson_kind: Some(kind.to_owned()), ..ended() };
    assert_eq!(status_of(10, &taught("alone")), RunStatus::Over(Outcome::Taught));
    assert_eq!(status_of(3, &taught("capped")), RunStatus::Over(Outcome::Taught));
}

#[test]
fn a_run_that_taught_nothing_says_why() {
    let with = |kind: &str| JobStatus { lesson_kind: Some(kind.to_owned()), ..ended() };
    assert_eq!(why(3, &with("alone")), "it ran without its cap: Slurm started it by itself");
    let detail = "it was too short for enough samples".to_owned();
    assert_eq!(why(3, &JobStatus { lesson_detail: Some(detail.clone()), ..with("nothing") }), detail);
    assert_eq!(
        why(3, &JobStatus { ending: Some("failed".into()), ..with("nothing") }),
        "it ended as failed; see what it printed"
    );
    assert!(why(3, &JobStatus { now_seconds: 1400.0, ..ended() }).starts_with("nothing was measured of it"));
    let elsewhere = Decision { device_model: "a100".to_owned(), ..Decision::default() };
    let elsewhere = JobStatus { decision: Some(elsewhere), ..with("capped") };
    assert!(why(3, &elsewhere).starts_with("it ran on another GPU model (a100)"));
    let late = status(&run(3, None), None, None, UnixTime::from_epoch(1200));
    assert!(matches!(late, RunStatus::Over(Outcome::Failed(why)) if why.contains("sacct")));
}
