//! Devices whose tenants have instances of their own: there are no pairs on them.

use super::{groups, planned, reason};
use crate::model::Contention;
use crate::plan::Reason;
use crate::planner::plan;
use crate::policy::{FirstRuns, Policy};
use crate::testing::{device, device_with, job, tenant, view};
use pillion_core::Shards;
use pillion_core::device::Mechanism::{Mig, Mps};
use pillion_core::share::Sharing;

#[test]
fn nobody_is_paired_on_a_device_that_is_cut_into_instances() {
    let cut = view(vec![device("g0", Mig)], vec![job(1, "light"), job(2, "light")]);
    let plan = planned(&cut);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::NotShareable));
    assert_eq!(
        (plan.pairings[0].sharing(), plan.pairings[0].members[0].shards),
        (Sharing::TimeSliced, Shards::ALL)
    );
}

#[test]
fn nobody_joins_who_has_an_instance_of_his_own() {
    let sharing = Sharing::Mig { profile: "3g.40gb".parse().unwrap(), start: 4 };
    let walled = crate::view::Tenant { sharing, ..tenant(7, "light", 7200) };
    for mechanism in [Mig, Mps] {
        let cut = view(vec![device_with("g0", mechanism, walled.clone())], vec![job(1, "light")]);
        assert_eq!(groups(&planned(&cut)), [[0_u32; 0]; 0], "{mechanism}");
    }
}

#[test]
fn a_first_run_there_is_nobodys_host() {
    let policy = Policy { first_runs: FirstRuns::Host, ..Policy::default() };
    let plan = plan(&view(vec![device("g0", Mig)], vec![job(1, "new")]), &Contention, &policy);
    assert_eq!((reason(&plan, 1), plan.pairings[0].members[0].shards), (Reason::NotShareable, Shards::ALL));
}
