//! Of an array as many tasks are let through as may run at once.

use super::*;

#[test]
fn an_array_is_let_through_up_to_its_throttle() {
    let task = |task: u32, state: JobState| Job {
        id: SlurmJobId::array_task(9, task),
        array_throttle: Some(2),
        ..job(state)
    };
    let jobs = vec![task(1, JobState::Running), task(2, JobState::Pending), task(3, JobState::Pending)];
    let view = view_of(&World { jobs, ..World::default() });
    let held: Vec<bool> = view.waiting.iter().map(|job| job.held.is_some()).collect();
    assert_eq!(held, [false, true]);
}

/// As it was: each plan between a release and its start let one more through.
#[test]
fn a_task_that_is_about_to_start_counts_for_its_throttle() {
    let task = |task: u32| Job {
        id: SlurmJobId::array_task(9, task),
        array_throttle: Some(1),
        ..job(JobState::Pending)
    };
    let mut planned = member(MemberState::Planned);
    planned.plan.start.job_id = SlurmJobId::array_task(9, 1);
    let decisions = vec![decision(&planned)];
    let view = view_of(&World { jobs: vec![task(1), task(2)], decisions, ..World::default() });
    let held: Vec<_> = view.waiting.iter().map(|job| (job.start.job_id.task, job.held.is_some())).collect();
    assert_eq!(held, [(Some(2), true)]);
}
