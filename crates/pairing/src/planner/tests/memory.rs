//! What of the device memory a job gets: limits also for who runs alone, and frameworks that take all of it beforehand.

use super::*;
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;

/// The limit of the only job, which declares so much.
fn limit_of(declared_gib: Option<u64>, known: Option<WorkloadProfile>, mechanism: Mechanism) -> Option<u64> {
    let mut view = two(job(1, "w"), job(2, "w"));
    view.waiting.truncate(1);
    view.waiting[0].memory_bytes_declared = declared_gib.map(|gib| gib * GIB);
    view.profiles = ProfileBook::from(known.into_iter().collect::<Vec<_>>());
    for device in &mut view.devices {
        device.mechanism = mechanism;
    }
    let plan = planned(&view);
    plan.pairings[0].members[0].sharing.memory_limit_bytes().map(|bytes| bytes / GIB)
}

fn held(gib: u64) -> WorkloadProfile {
    profile("w", 0.5, 0.5, gib)
}

#[test]
fn who_declares_what_it_needs_is_held_to_it_already_when_alone() {
    let mps = |declared, known| limit_of(declared, known, Mechanism::Mps);
    assert_eq!(mps(Some(8), None), Some(8), "its first run");
    assert_eq!(mps(None, None), None, "nobody knows");
    assert_eq!(mps(Some(80), None), None, "as much as there is");
    assert_eq!(mps(Some(8), Some(held(10))), Some(10), "what was seen to be needed goes before");
    assert_eq!(limit_of(Some(8), None, Mechanism::TimeSliced), None, "nobody could hold it");
}

#[test]
fn after_it_ran_out_of_memory_it_is_given_more() {
    let ran_out = |bytes| WorkloadProfile {
        memory_bytes_ran_out: Some(bytes),
        run_count: 0,
        ..WorkloadProfile::empty(held(1).workload, held(1).device_model)
    };
    assert_eq!(limit_of(Some(8), Some(ran_out(8 * GIB)), Mechanism::Mps), Some(12));
    assert_eq!(limit_of(Some(20), Some(ran_out(8 * GIB)), Mechanism::Mps), Some(20));
    let known = WorkloadProfile { memory_bytes_ran_out: Some(8 * GIB), ..held(10) };
    assert_eq!(
        limit_of(Some(8), Some(known), Mechanism::Mps),
        Some(10),
        "a run that had enough shows how much"
    );
}

#[test]
fn who_takes_all_beforehand_runs_alone_within_what_it_declares_and_then_shares() {
    let full = held(62);
    let view = |declared_gib: Option<u64>, known: WorkloadProfile| {
        let mut view = two(job(1, "w"), job(2, "light"));
        view.waiting[0].memory_bytes_declared = declared_gib.map(|gib| gib * GIB);
        view.profiles = ProfileBook::from(vec![profile("light", 0.1, 0.1, 20), known]);
        planned(&view)
    };
    let undeclared = view(None, full.clone());
    assert_eq!(
        exclusion(&undeclared, 1, 2),
        Some(Reason::MemoryLooksPreallocated),
        "and is told what to write"
    );
    let declared = view(Some(8), full.clone());
    assert_eq!(reason(&declared, 1), Reason::MemoryLooksPreallocated);
    assert_eq!(limit_of(Some(8), Some(full.clone()), Mechanism::Mps), Some(8));
    let completed = WorkloadProfile { memory_bytes_completed: Some(8 * GIB), ..full.clone() };
    assert_eq!(groups(&view(Some(8), completed.clone())), [[1, 2]]);
    assert_eq!(groups(&view(None, completed.clone())), [[1, 2]], "also without saying it again");
    let ran_out = WorkloadProfile { memory_bytes_ran_out: Some(8 * GIB), ..full };
    assert_eq!(limit_of(Some(8), Some(ran_out), Mechanism::Mps), Some(12), "it did not suffice");
    let both = WorkloadProfile { memory_bytes_ran_out: Some(8 * GIB), ..completed };
    assert_eq!(
        reason(&view(Some(8), both), 1),
        Reason::MemoryLooksPreallocated,
        "with as much it ran out once"
    );
}

#[test]
fn a_limit_alone_is_no_share_that_others_could_join() {
    let mut view = two(job(1, "w"), job(2, "w"));
    view.waiting.truncate(1);
    view.waiting[0].memory_bytes_declared = Some(8 * GIB);
    view.profiles = ProfileBook::from(Vec::new());
    let member = &planned(&view).pairings[0].members[0];
    let limited = Sharing::Mps { cap: None, memory_limit_bytes: Some(8 * GIB) };
    assert_eq!((member.role, member.sharing), (crate::plan::Role::Alone, limited));
    assert_eq!(member.shards, pillion_core::Shards::ALL);
}
