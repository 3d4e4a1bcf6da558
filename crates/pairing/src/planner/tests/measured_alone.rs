//! What becomes of jobs whose users have them measured alone.

use super::*;
use pillion_core::{CapStep, Fraction, Shards};

#[test]
fn what_is_measured_alone_shares_with_nobody_and_has_its_cap() {
    let measured = |tenths: u8| WaitingJob { solo_cap: CapStep::from_tenths(tenths), ..job(1, "light") };
    let plan = planned(&two(measured(3), job(2, "light")));
    let pairing = &plan.pairings[0];
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::MeasuredAlone));
    assert_eq!((pairing.mechanism(), pairing.members[0].shards), (Mps, Shards::ALL));
    assert_eq!(pairing.members[0].sharing.cap(), Fraction::try_new(0.3).ok());
    assert_eq!(
        &*pairing.members[0].explanation.text,
        "starts alone with 30 % of the device: its user has it measured so"
    );
    let plan = planned(&two(measured(10), job(2, "light")));
    let (pairing, member) = (&plan.pairings[0], &plan.pairings[0].members[0]);
    assert_eq!((pairing.mechanism(), member.sharing.cap(), member.role), (Turns, None, Role::Alone));
}

#[test]
fn a_job_with_a_cap_waits_for_a_device_that_has_caps() {
    let measured = WaitingJob { solo_cap: CapStep::from_tenths(3), ..job(1, "light") };
    let plan = planned(&view(vec![device("g0", Ccs), device("g1", Turns)], vec![measured]));
    assert!(plan.pairings.is_empty());
    assert_eq!(reason(&plan, 1), Reason::NodeDoesNotMatch);
}

/// As it was tried: a run of six seconds under a new name, and then heavy ones beside somebody.
#[test]
fn a_workload_that_was_measured_for_a_moment_shares_with_nobody_yet() {
    let policy = Policy { solo_seconds_min: 5401.0, ..Policy::default() };
    let plan = plan(&two(job(1, "light"), job(2, "light")), &Contention, &policy);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::MeasuredTooBriefly));
    let policy = Policy { solo_seconds_min: 5400.0, ..Policy::default() };
    let plan = super::plan(&two(job(1, "light"), job(2, "light")), &Contention, &policy);
    assert_eq!(groups(&plan), [[1, 2]], "nine runs of ten minutes");
}

#[test]
fn whose_user_owes_runs_shares_with_nobody_under_whatever_name() {
    let owing = WaitingJob { owes_runs: 1, ..job(1, "light") };
    let plan = planned(&two(owing, job(2, "light")));
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::OwesRuns));
    assert_eq!(plan.pairings[0].members[0].role, Role::Alone, "and nobody may join it");
    assert!(plan.pairings[0].members[0].explanation.text.contains("owes runs alone"));
}
