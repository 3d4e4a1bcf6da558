//! Who is served before whom, and who may keep a device from those that wait.

use super::{exclusion, groups, planned, reason};
use crate::model::Contention;
use crate::plan::Reason;
use crate::planner::plan;
use crate::policy::{EndsBy, Policy};
use crate::testing::{NOW, device, device_with, job, tenant, view};
use crate::view::{ClusterView, ProfileBook, Tenant};
use pillion_core::UnixTime;
use pillion_core::device::Mechanism::Mps;
use std::time::Duration;

#[test]
fn a_joiner_must_not_outlive_its_host_while_an_earlier_job_waits() {
    let devices = || vec![device_with("g0", Mps, tenant(50, "light", 1800))];
    // Job 1 is first: nobody is passed over, though it may run for longer than its host.
    assert_eq!(reason(&planned(&view(devices(), vec![job(1, "light")])), 1), Reason::Joined);
    // Behind an exclusive job it may not.
    let plan = planned(&view(devices(), vec![job(1, "never-seen"), job(2, "light")]));
    assert_eq!((groups(&plan).len(), reason(&plan, 2)), (0, Reason::BehindOthers));
    assert_eq!(exclusion(&plan, 2, 50), Some(Reason::OutlivesHost));
    // Unless its limit ends in time.
    let mut short = job(2, "light");
    short.time_limit_seconds = Some(1800);
    assert_eq!(reason(&planned(&view(devices(), vec![job(1, "never-seen"), short])), 2), Reason::Joined);
    // A limit is needed for that.
    let mut endless = job(2, "light");
    endless.time_limit_seconds = None;
    assert_eq!(
        reason(&planned(&view(devices(), vec![job(1, "never-seen"), endless])), 2),
        Reason::BehindOthers
    );
}

#[test]
fn a_whole_prefix_of_the_queue_may_join_at_once() {
    let devices = (0..4)
        .map(|index| device_with(&format!("g{index}"), Mps, tenant(50 + index, "light", 1800)))
        .collect();
    let plan = planned(&view(devices, (1..=5).map(|id| job(id, "light")).collect()));
    assert_eq!(plan.pairings.len(), 4);
    assert_eq!(plan.left_waiting.iter().map(|left| left.job_id.id).collect::<Vec<_>>(), [5]);
}

#[test]
fn the_first_exclusive_job_gets_the_free_device() {
    let waiting = vec![job(1, "never-seen"), job(2, "light"), job(3, "light")];
    let plan = planned(&view(vec![device("g0", Mps)], waiting));
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!(reason(&plan, 3), Reason::BehindOthers);
}

#[test]
fn a_joiner_comes_from_behind_but_delays_nobody() {
    let waiting = vec![job(1, "half"), job(2, "heavy"), job(3, "light")];
    let plan = planned(&view(vec![device("g0", Mps)], waiting));
    assert_eq!(groups(&plan), [[1, 3]]);
    let mut long = vec![job(1, "half"), job(2, "heavy"), job(3, "light")];
    long[2].time_limit_seconds = Some(7200);
    let plan = planned(&view(vec![device("g0", Mps)], long));
    assert_eq!((groups(&plan), exclusion(&plan, 1, 3)), (vec![vec![1]], Some(Reason::OutlivesHost)));
}

/// A host that is expected to end in so many seconds, somebody unknown who waits first, and one behind him who takes 600 s alone, as
/// several runs showed. All have the same time limit.
fn behind_a_first_run(host_left_seconds: u64) -> ClusterView {
    let end = UnixTime::from_epoch(NOW) + Duration::from_secs(host_left_seconds);
    let host = Tenant { expected_end_at: Some(end), ..tenant(50, "half", 3000) };
    let mut view = view(vec![device_with("g0", Mps, host)], vec![job(1, "never-seen"), job(2, "light")]);
    let mut profiles = crate::testing::known_profiles();
    for profile in &mut profiles {
        profile.duration_variation_fraction = Some(0.05);
    }
    view.profiles = ProfileBook::from(profiles);
    view
}

#[test]
fn who_is_known_to_take_less_than_the_host_may_join_whatever_the_limits_are() {
    // 600 s, a fifth longer than usual, and slowed by a quarter.
    assert_eq!(reason(&planned(&behind_a_first_run(901)), 2), Reason::Joined);
    let late = planned(&behind_a_first_run(899));
    assert_eq!(
        (reason(&late, 2), exclusion(&late, 2, 50)),
        (Reason::BehindOthers, Some(Reason::OutlivesHost))
    );
    // Where the site goes by limits, and of a host that is late.
    let by_limits = Policy { ends_by: EndsBy::Limits, ..Policy::default() };
    assert_eq!(reason(&plan(&behind_a_first_run(901), &Contention, &by_limits), 2), Reason::BehindOthers);
    let mut late = behind_a_first_run(0);
    assert_eq!(reason(&planned(&late), 2), Reason::Joined, "by its limit, in 3000 s");
    late.devices[0].tenants[0].time_limit_at = Some(UnixTime::from_epoch(NOW + 800));
    assert_eq!(reason(&planned(&late), 2), Reason::BehindOthers);
}
