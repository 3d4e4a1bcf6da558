//! Interactive jobs, as the planner sees them.

use super::*;
use pillion_core::workload::of_session;

/// What is seen of a tenant with this key that leaves its device idle, or does not.
fn seen(workload: WorkloadKey, is_idle: bool) -> Option<bool> {
    let mut host = member(MemberState::Running);
    host.plan.workload = workload;
    let idle_sessions = is_idle.then_some(host.plan.start).into_iter().collect();
    let jobs = vec![leased(job(JobState::Running), NOW - 100)];
    let view = view_of(&World { jobs, decisions: vec![decision(&host)], idle_sessions, ..World::default() });
    let tenant = view.devices.iter().flat_map(|device| &device.tenants).next().unwrap().clone();
    tenant.session.map(|session| session.is_idle)
}

#[test]
fn an_interactive_job_is_told_by_its_key_and_as_idle_while_it_was_seen_so() {
    let session = || of_session("alice", "1f0c");
    assert_eq!((seen(session(), true), seen(session(), false)), (Some(true), Some(false)));
    assert_eq!(seen(WorkloadKey::new("alice/w"), true), None);
}

#[test]
fn the_word_in_its_mark_makes_the_key() {
    let mut own = job(JobState::Pending);
    if let Ok(Some(mark)) = &mut own.mark {
        mark.session = true;
    }
    let view = view_of(&World { jobs: vec![own], ..World::default() });
    assert_eq!(view.waiting[0].workload, of_session("alice", "w"));
}
