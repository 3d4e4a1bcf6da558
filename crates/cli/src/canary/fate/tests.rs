use super::*;
use pillion_api::{Decision, Member, QueueJob};

fn at(seconds: f64) -> UnixTime {
    UnixTime::from_seconds(1000.0 + seconds)
}

fn run(work: Work) -> Run {
    Run {
        work,
        job_name: "pillion-canary-n1-1-0".to_owned(),
        begin: Some(at(10.0)),
        job_id: Some(SlurmJobId::plain(1)),
        submitted_at: at(0.0),
        has_sbatch_ended: true,
        outcome: None,
    }
}

fn job(ending: &str, lesson: Option<&str>, speed: Option<f64>) -> JobStatus {
    let member = Member {
        predicted_speed_fraction: Some(0.9),
        predicted_speed_fraction_low: Some(0.8),
        measured_speed_fraction: speed,
        slowdown_ratio_max: Some(10.0),
        ..Member::default()
    };
    JobStatus {
        job: Some(QueueJob { reason: "paired".to_owned(), ..QueueJob::default() }),
        started_at_seconds: Some(1000.0),
        ended_at_seconds: Some(1060.0),
        now_seconds: 1065.0,
        ending: Some(ending.to_owned()),
        lesson_kind: lesson.map(str::to_owned),
        decision: Some(Decision { group_id: 7, members: vec![member], ..Decision::default() }),
        ..JobStatus::default()
    }
}

#[test]
fn one_of_two_is_over_when_its_speed_is_told_or_cannot_be() {
    let run = run(Work::Beside { pair: [0, 0], slot: 0 });
    let how = |job: Option<&JobStatus>| stands(&run, SlurmJobId::plain(1), job, at(20.0));
    assert!(matches!(how(None), Stands::Open("waiting", _)));
    assert!(matches!(how(Some(&job("completed", None, None))), Stands::Open("ended", _)));
    assert!(matches!(how(Some(&job("completed", Some("shared"), None))), Stands::Open("ended", _)));
    let late = JobStatus { now_seconds: 1100.0, ..job("completed", Some("shared"), None) };
    assert!(matches!(how(Some(&late)), Stands::Over(Outcome::Beside(Measured { speed_fraction: None, .. }))));
    let Stands::Over(Outcome::Beside(told)) = how(Some(&job("completed", Some("shared"), Some(0.85)))) else {
        panic!("it is told")
    };
    assert_eq!(
        (told.group_id, told.bound_speed_fraction, told.speed_fraction),
        (Some(7), Some(0.8), Some(0.85))
    );
    assert!(matches!(how(Some(&job("failed", None, None))), Stands::Over(Outcome::Failed(_))));
    let crowded = JobStatus { neighbour_count: 2, ..job("completed", Some("shared"), Some(0.85)) };
    assert!(matches!(how(Some(&crowded)), Stands::Over(Outcome::Failed(why)) if why.contains("a third job")));
    let again = |lesson| JobStatus { restart_count: 1, ..job("completed", Some(lesson), Some(0.85)) };
    assert!(
        matches!(how(Some(&again("alone"))), Stands::Over(Outcome::Failed(why)) if why.contains("started again"))
    );
    assert!(
        matches!(how(Some(&again("shared"))), Stands::Over(Outcome::Beside(_))),
        "beside its other all the same"
    );
    // Put on a device of its own, it has taught how it runs alone; no speed beside anybody will come.
    assert!(matches!(how(Some(&job("completed", Some("alone"), None))), Stands::Over(Outcome::Beside(_))));
}

#[test]
fn a_job_counts_as_over_only_when_slurm_does_not_hold_it() {
    let alone = run(Work::Alone { script: 0 });
    let by_scheduler =
        |job: Option<&JobStatus>, seconds: f64| stands(&alone, SlurmJobId::plain(1), job, at(seconds));
    let by_both =
        |job: Option<&JobStatus>, slurm: InSlurm| judged(by_scheduler(job, 500.0), job.is_some(), &slurm);
    let requeued = job("node-fail", None, None);
    let taught = job("completed", Some("alone"), None);
    for job in [None, Some(&requeued), Some(&taught)] {
        assert!(matches!(by_both(job, InSlurm::Held("waiting")), Stands::Open("waiting", _)), "{job:?}");
    }
    assert_eq!(by_both(Some(&taught), InSlurm::Over("completed")), Stands::Over(Outcome::Alone));
    let failed = |stands: Stands| match stands {
        Stands::Over(Outcome::Failed(why)) => why,
        other => panic!("{other:?}"),
    };
    let ended = failed(by_both(Some(&requeued), InSlurm::Over("node-fail")));
    assert_eq!(ended, "it ended as node-fail; see what it printed");
    let cancelled = failed(by_both(None, InSlurm::Over("cancelled")));
    assert!(cancelled.ends_with("Slurm says that it ended as cancelled"), "{cancelled}");
    // Two minutes it may be on its way to the scheduler: until then Slurm is not asked.
    assert!(matches!(by_scheduler(None, 100.0), Stands::Open("waiting", _)));
}
