//! One case for each arrow of the life of a member, and for each crash.

use super::*;
use crate::testing::{NOW, at, decision, job, leased, member, scan};
use pillion_core::mark::Mark;
use pillion_core::{GresType, NodeName, UserId};
use pillion_slurm::{Ending, ReasonKind};
use pillion_store::DrainPlace;

fn step(member: &Member, job: Option<Job>) -> Next {
    step_with(member, job, NodeAvailability::Up, |_| {})
}

fn step_with(
    member: &Member,
    job: Option<Job>,
    availability: NodeAvailability,
    change: impl FnOnce(&mut Surroundings<'_>),
) -> Next {
    let scan = scan(job, availability);
    let mut around = nothing_else(&scan);
    change(&mut around);
    next(&decision(member), member, around, Timeouts::default())
}

#[test]
fn a_planned_member_is_prepared_then_released() {
    let mut planned = member(MemberState::Planned);
    assert_eq!(step(&planned, Some(job(JobState::Pending))), Next::Prepare);
    planned.prepared_at = Some(at(NOW - 1));
    assert_eq!(step(&planned, Some(job(JobState::Pending))), Next::Release);
}

#[test]
fn a_planned_member_is_dropped_when_its_ground_is_gone() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let up = NodeAvailability::Up;
    let pending = || Some(job(JobState::Pending));
    let other = Mark::default().leased(at(NOW - 5), 3);
    let is_drop = |next: Next| matches!(next, Next::Drop { is_refused: false, .. });
    assert!(is_drop(step(&planned, None)), "cancelled");
    assert!(is_drop(step(&planned, Some(job(JobState::Running)))), "started by itself");
    assert!(is_drop(step(&planned, Some(Job { restart_count: 1, ..job(JobState::Pending) }))), "restarted");
    assert!(
        is_drop(step(&planned, Some(Job { mark: Ok(None), ..job(JobState::Pending) }))),
        "left management"
    );
    assert!(
        is_drop(step(&planned, Some(Job { mark: Ok(Some(other)), ..job(JobState::Pending) }))),
        "released for another start"
    );
    let [waiting, other_users] = [1000, 1001].map(|uid| Job { uid: UserId(uid), ..job(JobState::Pending) });
    let mut other_work = waiting.clone();
    if let Ok(Some(mark)) = &mut other_work.mark {
        mark.workload_digest = "5eed".into();
    }
    assert!(!is_drop(step(&planned, Some(waiting))));
    assert!(is_drop(step(&planned, Some(other_users))), "its number was given to another user's job");
    assert!(is_drop(step(&planned, Some(other_work))), "its number was given to another job of its user");
    assert!(is_drop(step_with(&planned, pending(), NodeAvailability::Unavailable("DRAIN".into()), |_| {})));
    assert!(is_drop(step_with(&planned, pending(), up.clone(), |around| around.agent_connected = false)));
    assert!(is_drop(step_with(&planned, pending(), up, |around| around.host = Host::Gone)));
}

#[test]
fn nothing_is_released_on_a_stale_scan_or_while_releases_are_stopped() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let pending = || Some(job(JobState::Pending));
    assert_eq!(
        step_with(&planned, pending(), NodeAvailability::Up, |around| around.scan_is_stale = true),
        Next::Wait
    );
    assert_eq!(
        step_with(&planned, pending(), NodeAvailability::Up, |around| around.releases_allowed = false),
        Next::Wait
    );
}

#[test]
fn a_joiner_waits_for_its_host_and_goes_when_it_runs() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let with_host = |host| {
        step_with(&planned, Some(job(JobState::Pending)), NodeAvailability::Up, move |around| {
            around.host = host;
        })
    };
    assert_eq!(with_host(Host::Expected), Next::Wait);
    assert_eq!(with_host(Host::Running), Next::Release);
}

#[test]
fn what_a_refused_release_left_is_taken_back() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let half = Job { required_nodes: vec![NodeName::new("n1")], ..job(JobState::Pending) };
    assert!(matches!(step(&planned, Some(half)), Next::Undo(_)));
    let admins = Job { required_nodes: vec![NodeName::new("n9")], ..job(JobState::Pending) };
    assert!(!matches!(step(&planned, Some(admins)), Next::Undo(_)), "not ours");
}

#[test]
fn a_job_that_is_held_meanwhile_gives_its_place_up() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let held = Job { priority: 0, reason: ReasonKind::Held("JobHeldUser".into()), ..job(JobState::Pending) };
    assert_eq!(step(&planned, Some(held)), gone("it is held".to_owned()));
    let released = Member { released_at: Some(at(NOW - 2)), ..member(MemberState::Released) };
    let held = Job {
        priority: 0,
        reason: ReasonKind::Held("JobHeldUser".into()),
        ..leased(job(JobState::Pending), NOW - 2)
    };
    assert_eq!(step(&released, Some(held)), Next::Undo("its user or an admin holds it".to_owned()));
}

#[test]
fn who_runs_and_was_forgotten_is_not_started_where_he_runs() {
    let released = Member { released_at: Some(at(NOW - 9)), ..member(MemberState::Released) };
    let launched = |epoch| {
        let change = move |around: &mut Surroundings<'_>| around.launched_at = Some(at(epoch));
        let waits = leased(job(JobState::Pending), NOW - 9);
        step_with(&released, Some(waits), NodeAvailability::Up, change)
    };
    assert!(matches!(launched(NOW - 3), Next::Undo(_)));
    assert_eq!(launched(NOW + 1), Next::Wait, "the scan is older than that");
}

#[test]
fn after_a_crash_behind_the_release_the_lease_is_adopted_and_not_made_again() {
    let planned = Member { prepared_at: Some(at(NOW - 2)), ..member(MemberState::Planned) };
    assert_eq!(step(&planned, Some(leased(job(JobState::Pending), NOW - 1))), Next::AdoptRelease(NOW - 1));
    assert_eq!(step(&planned, Some(leased(job(JobState::Running), NOW - 1))), Next::AdoptRelease(NOW - 1));
}

#[test]
fn a_release_whose_answer_was_lost_is_not_made_again_before_slurm_was_looked_at() {
    let planned = Member { prepared_at: Some(at(NOW - 40)), ..member(MemberState::Planned) };
    let tried = |epoch| {
        let change = move |around: &mut Surroundings<'_>| around.tried_at = Some(at(epoch));
        step_with(&planned, Some(job(JobState::Pending)), NodeAvailability::Up, change)
    };
    assert_eq!(tried(NOW + 1), Next::Wait);
    assert_eq!(tried(NOW - 1), Next::Release);
}

#[test]
fn a_planned_job_that_slurm_started_alone_is_let_go() {
    let planned = Member { prepared_at: Some(at(NOW - 40)), ..member(MemberState::Planned) };
    assert!(matches!(step(&planned, Some(job(JobState::Running))), Next::Drop { .. }));
}

#[test]
fn a_scan_from_before_the_release_says_nothing_about_it() {
    let released = Member { released_at: Some(at(NOW + 1)), ..member(MemberState::Released) };
    assert_eq!(step(&released, Some(job(JobState::Pending))), Next::Wait);
}

#[test]
fn a_scan_from_during_the_release_says_nothing_about_it() {
    let released = Member { released_at: Some(at(NOW - 1)), ..member(MemberState::Released) };
    let seen = |answered| {
        step_with(&released, Some(job(JobState::Pending)), NodeAvailability::Up, |around| {
            around.tried_at = Some(at(answered));
        })
    };
    assert_eq!(seen(NOW + 1), Next::Wait);
    assert_eq!(seen(NOW), Next::Wait);
    assert!(matches!(seen(NOW - 1), Next::Drop { .. }), "taken back by somebody");
}

#[test]
fn who_did_not_release_it_himself_waits_until_the_release_must_be_over() {
    // Another scheduler did, that leads, or one that died: how long its call took nobody knows here.
    let seen = |released_at| {
        let released = Member { released_at: Some(at(released_at)), ..member(MemberState::Released) };
        step(&released, Some(job(JobState::Pending)))
    };
    assert_eq!((seen(NOW - 1), seen(NOW - 35)), (Next::Wait, Next::Wait));
    assert!(matches!(seen(NOW - 36), Next::Drop { .. }));
    let lua = include_str!("../../../../deploy/slurm/pillion.lua");
    assert!(lua.contains("local LEASE_SECONDS = 30 "), "CALL_SECONDS_MAX hangs on it");
    // An earlier try of our own says nothing of it.
    let released = Member { released_at: Some(at(NOW - 5)), ..member(MemberState::Released) };
    let tried_before = step_with(&released, Some(job(JobState::Pending)), NodeAvailability::Up, |around| {
        around.tried_at = Some(at(NOW - 9));
    });
    assert_eq!(tried_before, Next::Wait);
}

#[test]
fn a_scan_that_is_older_than_what_was_done_since_gives_nothing_up() {
    // The leader's scans are newer than those of whoever led before, or is about to.
    let pending = || Some(job(JobState::Pending));
    let running = |started_at| Member { started_at: Some(at(started_at)), ..member(MemberState::Running) };
    assert_eq!(step(&running(NOW + 1), pending()), Next::Wait, "it waits in this scan, and runs by now");
    // Slurm tells whole seconds.
    assert_eq!((step(&running(NOW), pending()), step(&running(NOW), None)), (Next::Wait, Next::Wait));
    assert_eq!(step(&running(NOW - 2), pending()), Next::Ended(at(NOW)));
    let stale = |member: &Member, job| {
        step_with(member, job, NodeAvailability::Up, |around| around.scan_is_stale = true)
    };
    let released = Member { released_at: Some(at(NOW - 50)), ..member(MemberState::Released) };
    for member in [running(NOW - 90), released, member(MemberState::Planned)] {
        assert_eq!((stale(&member, None), stale(&member, pending())), (Next::Wait, Next::Wait));
    }
}

#[test]
fn a_decision_that_the_scan_cannot_know_is_carried_on_and_not_given_up() {
    let scan_at = |seconds_before: u64, job| {
        let mut scan = scan(job, NodeAvailability::Up);
        scan.at = at(NOW - 5 - seconds_before);
        scan
    };
    let planned = Member { prepared_at: Some(at(NOW)), ..member(MemberState::Planned) };
    let step = |scan: &Scan| next(&decision(&planned), &planned, nothing_else(scan), Timeouts::default());
    assert_eq!(step(&scan_at(1, None)), Next::Wait, "it was submitted since");
    assert_eq!(step(&scan_at(1, Some(job(JobState::Running)))), Next::Wait);
    assert_eq!(step(&scan_at(1, Some(job(JobState::Pending)))), Next::Release, "the fence knows better");
}

/// A scheduler for which nothing stands in the way.
fn nothing_else(scan: &Scan) -> Surroundings<'_> {
    Surroundings {
        scan,
        agent_connected: true,
        drain: None,
        host: Host::NotNeeded,
        tried_at: None,
        launched_at: None,
        unanswered_at: None,
        unknown: None,
        scan_is_stale: false,
        led_since: None,
        releases_allowed: true,
    }
}

#[test]
fn who_begins_to_lead_gives_no_plan_up_that_may_have_been_released_a_moment_ago() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let (up, pending) = (NodeAvailability::Up, || Some(job(JobState::Pending)));
    let missing = |led_since| {
        step_with(&planned, pending(), up.clone(), |around| {
            (around.agent_connected, around.led_since) = (false, Some(at(led_since)));
        })
    };
    // It was made five seconds before this scan, and by a clock that may be ahead as much.
    assert_eq!((missing(NOW - 1), missing(NOW - 10)), (Next::Wait, Next::Wait));
    assert!(matches!(missing(NOW - 11), Next::Drop { .. }), "our own plan");
    let older = |led_since| {
        let decision = Decision { created_at: at(NOW - 50), ..decision(&planned) };
        let scan = scan(pending(), NodeAvailability::Unavailable("DRAIN".into()));
        let around = Surroundings { led_since: Some(at(led_since)), ..nothing_else(&scan) };
        next(&decision, &planned, around, Timeouts::default())
    };
    assert_eq!(older(NOW - 35), Next::Wait);
    assert!(matches!(older(NOW - 36), Next::Drop { .. }));
    // What is certain is certain at once, and what is in nobody's way goes on.
    let led = |around: &mut Surroundings<'_>| around.led_since = Some(at(NOW - 1));
    assert!(matches!(step_with(&planned, None, up.clone(), led), Next::Drop { .. }), "cancelled");
    assert_eq!(step_with(&planned, pending(), up, led), Next::Release);
}

#[test]
fn a_call_that_we_gave_up_waiting_for_may_land_yet() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let drained = NodeAvailability::Unavailable("DRAIN".into());
    let seen = |begun| {
        step_with(&planned, Some(job(JobState::Pending)), drained.clone(), |around| {
            (around.unanswered_at, around.tried_at) = (Some(at(begun)), Some(at(begun + 10)));
        })
    };
    assert_eq!(seen(NOW - 35), Next::Wait);
    assert!(matches!(seen(NOW - 36), Next::Drop { .. }));
}

#[test]
fn what_nobody_knows_the_grounds_of_is_given_up_once_no_call_can_land() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let seen = |led_since| {
        step_with(&planned, Some(job(JobState::Pending)), NodeAvailability::Up, |around| {
            (around.unknown, around.led_since) = (Some("its account is not known"), led_since);
        })
    };
    assert_eq!(seen(Some(at(NOW - 3))), Next::Wait);
    assert!(matches!(seen(None), Next::Drop { .. }));
}

#[test]
fn a_lease_for_another_place_is_not_adopted() {
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    let on = |state, node: &str, gres: &str| {
        let nodes = vec![NodeName::new(node)];
        let job = Job { gres: gres.into(), ..leased(job(state), NOW - 3) };
        let job = Job { required_nodes: nodes.clone(), nodes, ..job };
        step(&planned, Some(job))
    };
    for state in [JobState::Pending, JobState::Running] {
        assert_eq!(on(state.clone(), "n1", "shard:g1:40"), Next::AdoptRelease(NOW - 3));
        for (node, gres) in [("n2", "shard:g1:40"), ("n1", "shard:g0:40"), ("n1", "shard:g1:40,shard:g0:40")]
        {
            assert!(matches!(on(state.clone(), node, gres), Next::Drop { .. }), "{state:?} {node} {gres}");
        }
    }
}

#[test]
fn a_release_that_does_not_start_is_undone() {
    let released = |epoch| Member { released_at: Some(at(epoch)), ..member(MemberState::Released) };
    let pending = |epoch| Some(leased(job(JobState::Pending), epoch));
    assert_eq!(step(&released(NOW - 29), pending(NOW - 29)), Next::Wait);
    let limited =
        Job { reason: ReasonKind::Limit("QOSGrpGRES".into()), ..leased(job(JobState::Pending), NOW - 31) };
    let why = "Slurm did not start it within 31 s: QOSGrpGRES".to_owned();
    assert_eq!(step(&released(NOW - 31), Some(limited)), Next::Undo(why));
    let held = Job { priority: 0, ..leased(job(JobState::Pending), NOW - 2) };
    assert!(matches!(step(&released(NOW - 2), Some(held)), Next::Undo(_)));
    let down = NodeAvailability::Unavailable("DOWN".into());
    assert!(matches!(step_with(&released(NOW - 2), pending(NOW - 2), down, |_| {}), Next::Undo(_)));
    assert_eq!(
        step_with(&released(NOW - 2), pending(NOW - 2), NodeAvailability::Up, |a| a.agent_connected = false),
        Next::Wait,
        "the share is prepared: a released job starts without us"
    );
}

#[test]
fn a_clock_that_was_set_back_strands_nobody() {
    let released = Member { released_at: Some(at(NOW + 3600)), ..member(MemberState::Released) };
    assert!(matches!(step(&released, Some(leased(job(JobState::Pending), NOW + 3600))), Next::Undo(_)));
}

#[test]
fn a_released_member_follows_what_slurm_says() {
    let released = Member { released_at: Some(at(NOW - 2)), ..member(MemberState::Released) };
    let running = Job { started_at: Some(at(NOW - 1)), ..leased(job(JobState::Running), NOW - 2) };
    assert_eq!(step(&released, Some(running)), Next::Started(at(NOW - 1)));
    let over = Job { ended_at: Some(at(NOW - 1)), ..job(JobState::Ended(Ending::Completed)) };
    assert_eq!(step(&released, Some(over)), Next::Ended(at(NOW - 1)));
    let requeued = Job { restart_count: 1, ..leased(job(JobState::Pending), NOW - 2) };
    assert_eq!(step(&released, Some(requeued)), Next::Ended(at(NOW)));
    let rescued = Job { mark: Ok(Some(Mark { alone: true, ..Mark::default() })), ..job(JobState::Pending) };
    assert!(matches!(step(&released, Some(rescued)), Next::Drop { .. }), "undone by rescue");
}

#[test]
fn a_running_member_is_never_touched_and_ends_with_its_start() {
    let running = Member { started_at: Some(at(NOW - 50)), ..member(MemberState::Running) };
    assert_eq!(step(&running, Some(job(JobState::Running))), Next::Wait);
    assert_eq!(step(&running, Some(job(JobState::Completing))), Next::Wait);
    assert_eq!(step(&running, None), Next::Ended(at(NOW)));
    let requeued = Job { restart_count: 1, ..job(JobState::Running) };
    assert_eq!(step(&running, Some(requeued)), Next::Ended(at(NOW)));
}

#[test]
fn nothing_is_released_to_a_drained_device_and_who_runs_there_goes_on() {
    let place = DrainPlace { node: NodeName::new("n1"), gres_type: Some(GresType::new("g1")) };
    let drain = Drain { place, by: "alice".to_owned(), reason: "fan noise".to_owned(), since: at(NOW - 1) };
    let step = |member: &Member, job: Job| {
        let scan = scan(Some(job), NodeAvailability::Up);
        let around = Surroundings { drain: Some(&drain), ..nothing_else(&scan) };
        next(&decision(member), member, around, Timeouts::default())
    };
    let why = || "n1:g1 is drained by alice: fan noise".to_owned();
    let planned = Member { prepared_at: Some(at(NOW - 1)), ..member(MemberState::Planned) };
    assert_eq!(step(&planned, job(JobState::Pending)), gone(why()));
    let released = Member { released_at: Some(at(NOW - 2)), ..member(MemberState::Released) };
    assert_eq!(step(&released, leased(job(JobState::Pending), NOW - 2)), Next::Undo(why()));
    let started = Job { started_at: Some(at(NOW - 1)), ..leased(job(JobState::Running), NOW - 2) };
    assert_eq!(step(&released, started.clone()), Next::Started(at(NOW - 1)), "it was quicker");
    assert_eq!(step(&member(MemberState::Running), started), Next::Wait);
}
