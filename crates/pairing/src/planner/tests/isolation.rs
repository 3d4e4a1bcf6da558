//! Walls between users: the stricter of what the site and both users want.

use super::{exclusion, groups, reason};
use crate::model::Contention;
use crate::plan::Reason;
use crate::planner::plan;
use crate::policy::{Policy, UserPolicy};
use crate::testing::{device, device_with, job, tenant, view};
use crate::view::{Tenant, WaitingJob};
use pillion_core::UserId;
use pillion_core::device::Mechanism::Mps;
use pillion_core::isolation::Isolation::{self, Hard, Shared};

/// A job of another user than the tests' own.
fn stranger(id: u32, isolation: Isolation) -> WaitingJob {
    WaitingJob { uid: UserId(1001), isolation, ..job(id, "light") }
}

fn own(id: u32, isolation: Isolation) -> WaitingJob {
    WaitingJob { isolation, ..job(id, "light") }
}

#[test]
fn strangers_share_only_where_site_and_users_need_no_wall() {
    for (site, one, other, shared) in [
        (Shared, Shared, Shared, true),
        (Hard, Shared, Shared, false),
        (Shared, Hard, Shared, false),
        (Shared, Shared, Hard, false),
    ] {
        let policy = Policy { users: UserPolicy::Any, isolation: site, ..Policy::default() };
        let waiting = vec![own(1, one), stranger(2, other)];
        let plan = plan(&view(vec![device("g0", Mps), device("g1", Mps)], waiting), &Contention, &policy);
        let expected = if shared { vec![vec![1, 2]] } else { vec![vec![1], vec![2]] };
        assert_eq!(groups(&plan), expected, "{site} {one} {other}");
        if !shared {
            assert_eq!(exclusion(&plan, 1, 2), Some(Reason::NeedsWall));
        }
    }
}

#[test]
fn nobody_needs_a_wall_to_himself() {
    let policy = Policy { users: UserPolicy::Any, isolation: Hard, ..Policy::default() };
    let plan = plan(&view(vec![device("g0", Mps)], vec![own(1, Hard), own(2, Hard)]), &Contention, &policy);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1, 2]], Reason::Paired));
}

#[test]
fn a_stranger_joins_nobody_who_wants_a_wall() {
    let policy = Policy { users: UserPolicy::Any, ..Policy::default() };
    for (isolation, expected) in [(Shared, vec![vec![1]]), (Hard, vec![])] {
        let host = Tenant { isolation, ..tenant(7, "light", 7200) };
        let sharing = pillion_core::share::Sharing::by(Mps, None, None);
        let host = Tenant { sharing, ..host };
        let view = view(vec![device_with("g0", Mps, host)], vec![stranger(1, Shared)]);
        assert_eq!(groups(&plan(&view, &Contention, &policy)), expected, "{isolation}");
    }
}

#[test]
fn where_users_never_meet_that_is_said_and_no_wall() {
    let waiting = vec![own(1, Hard), stranger(2, Hard)];
    let view = view(vec![device("g0", Mps), device("g1", Mps)], waiting);
    assert_eq!(exclusion(&plan(&view, &Contention, &Policy::default()), 1, 2), Some(Reason::UserPolicy));
}
