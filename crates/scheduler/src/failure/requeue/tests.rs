//! What comes next for a requeue, whoever acted meanwhile.

use super::*;
use crate::testing::{NOW, at, decision, job, leased, member, scan, start};
use pillion_core::NodeName;
use pillion_slurm::NodeAvailability;

fn requeue() -> Requeue {
    let (node, reason) = (NodeName::new("n1"), "it died".to_owned());
    Requeue { cause: RequeueCause::Victim, start: start(), node, decided_at: at(NOW - 10), reason }
}

fn failed() -> Job {
    Job { ended_at: Some(at(NOW - 12)), ..leased(job(JobState::Ended(Ending::Failed)), NOW - 100) }
}

fn next_of(job: Option<Job>, asked: Option<(u64, Option<&str>)>) -> Next {
    let asked = asked.map(|(epoch, refusal)| (at(epoch), refusal.map(str::to_owned)));
    next(&requeue(), &scan(job, NodeAvailability::Up), &[], asked.as_ref())
}

fn outcome(next: &Next) -> Option<RequeueOutcome> {
    if let Next::Settle(outcome, _) = next { Some(*outcome) } else { None }
}

#[test]
fn a_job_that_lies_there_failed_is_requeued() {
    assert_eq!(next_of(Some(failed()), None), Next::Ask);
    assert_eq!(next_of(Some(failed()), Some((NOW + 1, None))), Next::Wait, "the scan is older than the call");
    assert_eq!(next_of(Some(failed()), Some((NOW - 1, None))), Next::Ask, "the call was lost");
}

#[test]
fn it_is_done_when_the_job_is_not_over_any_more() {
    let again = Job { restart_count: 1, ..failed() };
    for job in
        [again, Job { state: JobState::Pending, ..failed() }, Job { state: JobState::Running, ..failed() }]
    {
        for asked in [None, Some((NOW - 1, Some("Job is pending execution")))] {
            assert_eq!(outcome(&next_of(Some(job.clone()), asked)), Some(RequeueOutcome::Requeued));
        }
    }
}

#[test]
fn a_refusal_and_every_doubt_leave_the_job_as_it_is() {
    let refused = next_of(Some(failed()), Some((NOW - 1, Some("disabled"))));
    assert_eq!(outcome(&refused), Some(RequeueOutcome::Refused));
    let no_mark = Job { mark: Ok(None), ..failed() };
    let of_another_start = leased(Job { restart_count: 3, ..failed() }, NOW - 100).mark;
    let cancelled = Job { state: JobState::Ended(Ending::Cancelled), ..failed() };
    let jobs = [None, Some(no_mark), Some(Job { mark: of_another_start, ..failed() }), Some(cancelled)];
    for job in jobs {
        assert_eq!(outcome(&next_of(job, None)), Some(RequeueOutcome::Refused));
    }
    let late = Job { ended_at: Some(at(NOW - 241)), ..failed() };
    assert_eq!(outcome(&next_of(Some(late), None)), Some(RequeueOutcome::Refused));
}

#[test]
fn a_job_that_has_a_successor_is_left_alone() {
    let mut scan = scan(Some(failed()), NodeAvailability::Up);
    let id = pillion_core::SlurmJobId::plain(99);
    let with = |scan: &mut Scan, other: Job| {
        scan.jobs.insert(Job { id, ..other });
        outcome(&next(&requeue(), scan, &[], None))
    };
    let before =
        Job { submitted_at: at(NOW - 100), started_at: Some(at(NOW - 50)), ..job(JobState::Running) };
    assert_eq!(with(&mut scan, before.clone()), None, "it ran before");
    let followed = Job { started_at: Some(at(NOW - 11)), ..before.clone() };
    assert_eq!(with(&mut scan, followed.clone()), Some(RequeueOutcome::Refused));
    let of_another = Job { uid: pillion_core::UserId(4711), ..followed };
    assert_eq!(with(&mut scan, of_another), None);
}

#[test]
fn a_later_start_is_not_touched() {
    let other = Requeue { start: JobStart { restart_count: 2, ..start() }, ..requeue() };
    let next = next(&other, &scan(Some(failed()), NodeAvailability::Up), &[], None);
    assert_ne!(next, Next::Ask);
}

fn evicted() -> Requeue {
    let reason = "evicted by root: too noisy".to_owned();
    Requeue { cause: RequeueCause::Evicted, reason, ..requeue() }
}

/// The job on its device, beside another that stands at `state`.
fn beside(state: MemberState) -> Vec<Decision> {
    let mut other = member(state);
    other.plan.start.job_id = pillion_core::SlurmJobId::plain(8);
    let mut shared = decision(&member(MemberState::Running));
    shared.members.push(other);
    vec![shared]
}

fn next_of_evicted(job: Job, decisions: &[Decision], asked: Option<(u64, Option<&str>)>) -> Next {
    let asked = asked.map(|(epoch, refusal)| (at(epoch), refusal.map(str::to_owned)));
    next(&evicted(), &scan(Some(job), NodeAvailability::Up), decisions, asked.as_ref())
}

#[test]
fn an_evicted_job_is_ended_while_it_runs_beside_others() {
    let running = || leased(job(JobState::Running), NOW - 100);
    let company = beside(MemberState::Running);
    assert_eq!(next_of_evicted(running(), &company, None), Next::Ask);
    assert_eq!(next_of_evicted(running(), &company, Some((NOW - 1, None))), Next::Ask, "the call was lost");
    assert_eq!(next_of_evicted(running(), &company, Some((NOW + 1, None))), Next::Wait);
    let ending = Job { state: JobState::Completing, ..running() };
    assert_eq!(next_of_evicted(ending, &company, Some((NOW - 1, None))), Next::Wait);
    let waits = Job { state: JobState::Pending, restart_count: 1, ..running() };
    let done = Next::Settle(
        RequeueOutcome::Requeued,
        "it is started again, alone: evicted by root: too noisy".to_owned(),
    );
    assert_eq!(next_of_evicted(waits, &company, Some((NOW - 1, None))), done);
}

fn sent_back(decided: u64) -> Requeue {
    let reason = "a promise was being broken".to_owned();
    Requeue { cause: RequeueCause::SentBack, decided_at: at(decided), reason, ..requeue() }
}

fn next_of_sent_back(job: Job, decided: u64) -> Next {
    let company = beside(MemberState::Running);
    next(&sent_back(decided), &scan(Some(job), NodeAvailability::Up), &company, None)
}

/// Whoever acts between the intent and the requeue is heard: Slurm is asked of a job that runs, and of no other.
#[test]
fn a_guest_goes_back_while_it_runs_beside_others_and_the_ground_is_fresh() {
    let running = || leased(job(JobState::Running), NOW - 100);
    assert_eq!(next_of_sent_back(running(), NOW - 10), Next::Ask);
    assert_eq!(which(RequeueCause::SentBack), Requeued::Running);
    assert_eq!(next_of_sent_back(running(), NOW + 1), Next::Wait, "the scan is older than the intent");
    assert_eq!(outcome(&next_of_sent_back(running(), NOW - 121)), Some(RequeueOutcome::Refused));
    let ending = Job { state: JobState::Completing, ..running() };
    assert_eq!(next_of_sent_back(ending, NOW - 10), Next::Wait, "somebody ends it");
    for ending in [Ending::Cancelled, Ending::Completed, Ending::Failed, Ending::Timeout] {
        let over = Job { state: JobState::Ended(ending), ..running() };
        assert_eq!(outcome(&next_of_sent_back(over, NOW - 10)), Some(RequeueOutcome::Refused));
    }
    let no_mark = Job { mark: Ok(None), ..running() };
    assert_eq!(outcome(&next_of_sent_back(no_mark, NOW - 10)), Some(RequeueOutcome::Refused));
    let alone = [decision(&member(MemberState::Running))];
    let next = next(&sent_back(NOW - 10), &scan(Some(running()), NodeAvailability::Up), &alone, None);
    assert_eq!(outcome(&next), Some(RequeueOutcome::Refused), "its neighbour is gone");
}

/// Of a job that was submitted as a guest.
fn guest(state: JobState) -> Job {
    let job = leased(job(state), NOW - 100);
    let mark = job.mark.clone().unwrap().unwrap();
    Job { mark: Ok(Some(pillion_core::mark::Mark { as_guest: true, ..mark })), ..job }
}

fn made_room(decided: u64) -> Requeue {
    let reason = "somebody else needs its GPU".to_owned();
    Requeue { cause: RequeueCause::MadeRoom, decided_at: at(decided), reason, ..requeue() }
}

fn next_of_guest(job: Option<Job>, decided: u64, asked: Option<(u64, Option<&str>)>) -> Next {
    let asked = asked.map(|(epoch, refusal)| (at(epoch), refusal.map(str::to_owned)));
    next(&made_room(decided), &scan(job, NodeAvailability::Up), &[], asked.as_ref())
}

/// Whoever acts between the intent and the requeue is heard here too.
#[test]
fn a_guest_makes_room_while_it_runs_and_the_ground_is_fresh() {
    let running = || Some(guest(JobState::Running));
    assert_eq!(which(RequeueCause::MadeRoom), Requeued::Running);
    assert_eq!(next_of_guest(running(), NOW - 10, None), Next::Ask, "it need not be beside anybody");
    assert_eq!(next_of_guest(running(), NOW - 10, Some((NOW - 1, None))), Next::Ask, "the call was lost");
    assert_eq!(next_of_guest(running(), NOW + 1, None), Next::Wait, "the scan is older than the intent");
    assert_eq!(next_of_guest(Some(guest(JobState::Completing)), NOW - 10, None), Next::Wait);
    let refused =
        |job, decided, asked| outcome(&next_of_guest(job, decided, asked)) == Some(RequeueOutcome::Refused);
    assert!(refused(running(), NOW - 121, None), "nobody was there to do it");
    assert!(refused(None, NOW - 10, None), "Slurm has forgotten it");
    assert!(refused(running(), NOW - 10, Some((NOW - 1, Some("disabled")))), "an admin set Requeue=0");
    for ending in [Ending::Cancelled, Ending::Completed, Ending::Failed, Ending::Timeout] {
        assert!(refused(Some(guest(JobState::Ended(ending))), NOW - 10, None), "{ending:?}");
    }
    assert!(refused(Some(Job { mark: Ok(None), ..guest(JobState::Running) }), NOW - 10, None), "overwritten");
    let again = Job { restart_count: 1, ..guest(JobState::Pending) };
    let done = "it is started again, as a guest, when nobody else needs a GPU: somebody else needs its GPU";
    assert_eq!(
        next_of_guest(Some(again), NOW - 10, None),
        Next::Settle(RequeueOutcome::Requeued, done.to_owned())
    );
}

#[test]
fn a_guest_must_not_take_those_along_who_stay() {
    let with = |job: Job| {
        let mut scan = scan(Some(guest(JobState::Running)), NodeAvailability::Up);
        scan.jobs.insert(Job { id: pillion_core::SlurmJobId::plain(8), ..job });
        is_ordered(&made_room(NOW), &scan, &beside(MemberState::Running))
    };
    assert!(with(guest(JobState::Running)), "its neighbour goes with it");
    assert!(!with(leased(job(JobState::Running), NOW - 100)));
    let alone = [decision(&member(MemberState::Running))];
    assert!(is_ordered(&made_room(NOW), &scan(None, NodeAvailability::Up), &alone));
}

#[test]
fn an_evicted_job_goes_on_where_there_is_no_ground_any_more() {
    let running = || leased(job(JobState::Running), NOW - 100);
    let alone = vec![decision(&member(MemberState::Running))];
    for gone in [alone, beside(MemberState::Ended), beside(MemberState::Undone), Vec::new()] {
        assert_eq!(outcome(&next_of_evicted(running(), &gone, None)), Some(RequeueOutcome::Refused));
    }
    let company = beside(MemberState::Released);
    assert_eq!(next_of_evicted(running(), &company, None), Next::Ask, "one that is about to start counts");
    let over = Job { state: JobState::Ended(Ending::Completed), ..running() };
    assert_eq!(outcome(&next_of_evicted(over, &company, None)), Some(RequeueOutcome::Refused));
    let no_mark = Job { mark: Ok(None), ..running() };
    assert_eq!(outcome(&next_of_evicted(no_mark, &company, None)), Some(RequeueOutcome::Refused));
    let refused = next_of_evicted(running(), &company, Some((NOW - 1, Some("disabled"))));
    assert_eq!(outcome(&refused), Some(RequeueOutcome::Refused));
}

fn more_memory() -> Requeue {
    let reason = "it ran out of device memory with 8.0 GiB".to_owned();
    Requeue { cause: RequeueCause::OutOfMemory { memory_bytes: 12 << 30 }, reason, ..requeue() }
}

fn next_of_more(job: Option<Job>, asked: Option<(u64, Option<&str>)>) -> Next {
    let asked = asked.map(|(epoch, refusal)| (at(epoch), refusal.map(str::to_owned)));
    next(&more_memory(), &scan(job, NodeAvailability::Up), &[], asked.as_ref())
}

#[test]
fn who_ran_out_of_memory_is_requeued_while_it_lies_there_failed() {
    assert_eq!(which(more_memory().cause), Requeued::Over, "one that runs is not ended for it");
    assert_eq!(next_of_more(Some(failed()), None), Next::Ask);
    assert_eq!(next_of_more(Some(failed()), Some((NOW - 1, None))), Next::Ask, "the call was lost");
    // Its user was faster, and it comes to the same.
    for state in [JobState::Pending, JobState::Running] {
        let again = Job { state, restart_count: 1, priority: 0, ..failed() };
        let done = "it is started again, with at least 12.0 GiB: it ran out of device memory with 8.0 GiB";
        assert_eq!(next_of_more(Some(again), None), Next::Settle(RequeueOutcome::Requeued, done.to_owned()));
    }
}

fn growing(decided: u64) -> Requeue {
    let reason = "it was about to run out of device memory with 8.0 GiB".to_owned();
    let cause = RequeueCause::Growing { memory_bytes: 12 << 30 };
    Requeue { cause, decided_at: at(decided), reason, ..requeue() }
}

/// Of a job whose user lets it be ended before it runs out of memory.
fn consenting(state: JobState) -> Job {
    let job = leased(job(state), NOW - 100);
    let mark = job.mark.clone().unwrap().unwrap();
    let restart = pillion_core::restart::RestartConsent::Early;
    Job { mark: Ok(Some(pillion_core::mark::Mark { restart, ..mark })), ..job }
}

fn next_of_growing(job: Option<Job>, decided: u64, asked: Option<(u64, Option<&str>)>) -> Next {
    let asked = asked.map(|(epoch, refusal)| (at(epoch), refusal.map(str::to_owned)));
    next(&growing(decided), &scan(job, NodeAvailability::Up), &[], asked.as_ref())
}

#[test]
fn who_will_run_out_of_memory_is_requeued_while_it_runs_and_the_ground_is_fresh() {
    let running = || consenting(JobState::Running);
    assert_eq!(which(growing(NOW).cause), Requeued::Running);
    assert_eq!(next_of_growing(Some(running()), NOW - 10, None), Next::Ask, "it need not be beside anybody");
    assert_eq!(next_of_growing(Some(running()), NOW - 10, Some((NOW - 1, None))), Next::Ask, "it was lost");
    assert_eq!(next_of_growing(Some(running()), NOW + 1, None), Next::Wait, "the scan is older");
    let ending = consenting(JobState::Completing);
    assert_eq!(next_of_growing(Some(ending), NOW - 10, None), Next::Wait, "somebody ends it");
    let again = Job { restart_count: 1, ..consenting(JobState::Pending) };
    let done =
        "it is started again, with at least 12.0 GiB: it was about to run out of device memory with 8.0 GiB";
    let done = Next::Settle(RequeueOutcome::Requeued, done.to_owned());
    assert_eq!(next_of_growing(Some(again), NOW - 10, Some((NOW - 1, None))), done);
}

#[test]
fn whoever_acts_before_it_runs_out_of_memory_is_heard() {
    let refused =
        |job, decided, asked| outcome(&next_of_growing(job, decided, asked)) == Some(RequeueOutcome::Refused);
    let running = || consenting(JobState::Running);
    assert!(refused(None, NOW - 10, None), "Slurm has forgotten it");
    assert!(refused(Some(running()), NOW - 10, Some((NOW - 1, Some("disabled")))), "Requeue=0");
    assert!(refused(Some(running()), NOW - 121, None), "nobody was there to do it");
    for ending in [Ending::Cancelled, Ending::Completed, Ending::Failed, Ending::Timeout] {
        assert!(refused(Some(consenting(JobState::Ended(ending))), NOW - 10, None), "{ending:?}");
    }
    let with = |change: fn(&mut pillion_core::mark::Mark)| {
        let job = running();
        let mut mark = job.mark.clone().unwrap().unwrap();
        change(&mut mark);
        Some(Job { mark: Ok(Some(mark)), ..job })
    };
    assert!(refused(with(|mark| mark.again_lease_epoch = Some(1)), NOW - 10, None), "never twice");
    let late =
        |mark: &mut pillion_core::mark::Mark| mark.restart = pillion_core::restart::RestartConsent::Yes;
    assert!(refused(with(late), NOW - 10, None), "not with this consent");
    assert!(refused(with(|mark| mark.lease_epoch = None), NOW - 10, None), "it would not come back");
    assert!(refused(Some(Job { mark: Ok(None), ..running() }), NOW - 10, None));
}

#[test]
fn whoever_acts_after_it_ran_out_of_memory_is_heard() {
    let refused = |job, asked| outcome(&next_of_more(job, asked)) == Some(RequeueOutcome::Refused);
    assert!(refused(None, None), "Slurm has forgotten it");
    assert!(refused(Some(failed()), Some((NOW - 1, Some("disabled")))), "--no-requeue");
    let given = |mark: pillion_core::mark::Mark| Job { mark: Ok(Some(mark)), ..failed() };
    let leased = failed().mark.unwrap().unwrap();
    let again = pillion_core::mark::Mark { again_lease_epoch: Some(1), ..leased };
    assert!(refused(Some(given(again)), None), "it was given more before, whatever the store remembers");
    for ending in [Ending::Cancelled, Ending::Completed, Ending::Timeout] {
        assert!(refused(Some(Job { state: JobState::Ended(ending), ..failed() }), None), "{ending:?}");
    }
    assert!(refused(Some(Job { mark: Ok(None), ..failed() }), None), "its mark was overwritten");
    assert!(refused(Some(Job { ended_at: Some(at(NOW - 241)), ..failed() }), None), "too late");
}
