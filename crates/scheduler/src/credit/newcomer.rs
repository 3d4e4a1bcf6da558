//! Who is to answer for a promise that was broken: those beside the run whose workloads are known less than its own, and who are
//! another user's. Pure.

use pillion_core::UnixTime;
use pillion_core::units::keeps_promise;
use pillion_store::{CreditLoss, MeasuredRun, Member, StoredProfile};

/// The losses that follow from a run that was measured at this speed. `beside`: the members of its sharing that it met.
pub(crate) fn culprits(
    run: &MeasuredRun,
    speed_fraction: Option<f64>,
    beside: &[&Member],
    profiles: &[StoredProfile],
    now: UnixTime,
) -> Vec<CreditLoss> {
    let (Some(speed), Some(own)) = (speed_fraction, run.own_member()) else { return Vec::new() };
    if keeps_promise(speed, own.plan.slowdown_ratio_max) {
        return Vec::new();
    }
    let own_runs = run_count(own, &run.device_model, profiles);
    beside
        .iter()
        .filter(|other| {
            other.plan.uid != own.plan.uid && run_count(other, &run.device_model, profiles) < own_runs
        })
        .map(|other| CreditLoss {
            uid: other.plan.uid,
            lost_at: now,
            start: other.plan.start,
            node: run.node.clone(),
            // A user learns nothing of his neighbour: neither how slow nor what he was promised.
            reason: "its workload is new, and a promise to a neighbour was broken beside it".to_owned(),
        })
        .collect()
}

/// How many runs are known of the workload of this member on that model of device.
fn run_count(member: &Member, device_model: &str, profiles: &[StoredProfile]) -> u32 {
    let mut profiles = profiles.iter().map(|stored| &stored.profile);
    profiles
        .find(|profile| profile.workload == member.plan.workload && profile.device_model == device_model)
        .map_or(0, |profile| profile.run_count)
}
