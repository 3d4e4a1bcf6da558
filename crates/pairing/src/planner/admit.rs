//! The rules that a sharing of a device must pass, each alone and by name. Says yes or no and why; must not choose.

use crate::fit::{MemoryFit, least, scaled};
use crate::model::SpeedEstimate;
use crate::plan::Reason;
use crate::planner::{copies, first_run, session};
use crate::policy::{FirstRuns, GuestRule, JobRules, Policy};
use crate::view::{DeviceView, NodeView, Tenant, WaitingJob};
use pillion_core::device::Mechanism;
use pillion_core::isolation::Isolation;
use pillion_core::profile::WorkloadProfile;
use pillion_core::workload::is_session;
use pillion_core::{SlowdownRatio, UserId};

/// What an observed memory peak is multiplied with: peaks are sampled, and runs differ.
pub const OBSERVED_PEAK_RATIO: f64 = 1.05;
/// Who holds this part of a device may have taken it beforehand: JAX takes 0.75 of it, others more.
const PREALLOCATED_FRACTION: f64 = 0.7;

/// Whose a job is, as far as sharing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner<'a> {
    pub(crate) uid: UserId,
    pub(crate) account: &'a str,
    /// What its user wants, or more where the site does.
    pub(crate) isolation: Isolation,
    /// What the site says of it.
    pub(crate) rules: JobRules,
    pub(crate) is_guest: bool,
}

impl<'a> Owner<'a> {
    pub(crate) fn of_waiting(job: &'a WaitingJob, policy: &Policy) -> Self {
        let rules = job.rules(policy);
        let isolation = job.isolation.max(rules.isolation);
        Self { uid: job.uid, account: &job.account, isolation, rules, is_guest: job.as_guest }
    }

    pub(crate) fn of_tenant(tenant: &'a Tenant, policy: &Policy) -> Self {
        let rules = tenant.rules(policy);
        let isolation = tenant.isolation.max(rules.isolation);
        Self { uid: tenant.uid, account: &tenant.account, isolation, rules, is_guest: tenant.guest.is_some() }
    }

    fn bears(&self, other: &Self) -> bool {
        !other.is_guest || self.rules.guests == GuestRule::Beside
    }
}

/// Whether the site and both users let these two share a device without a wall. A user may always share with himself.
///
/// # Errors
/// The rule that forbids it.
pub(crate) fn owners_may_share(a: Owner<'_>, b: Owner<'_>) -> Result<(), Reason> {
    owners_may_be_neighbours(a, b)?;
    match a.isolation.max(b.isolation) {
        _ if a.uid == b.uid => Ok(()),
        Isolation::Hard => Err(Reason::NeedsWall),
        Isolation::Shared => Ok(()),
    }
}

/// Whether the site lets these two be on one device with a wall between them: what they then still share is power, clocks and
/// the way to the host.
///
/// # Errors
/// The rule that forbids it.
pub(crate) fn owners_may_be_neighbours(a: Owner<'_>, b: Owner<'_>) -> Result<(), Reason> {
    let both = [(a.uid, a.account), (b.uid, b.account)];
    if !a.rules.users.lets(both) || !b.rules.users.lets(both) {
        return Err(Reason::UserPolicy);
    }
    if a.bears(&b) && b.bears(&a) { Ok(()) } else { Err(Reason::NoGuests) }
}

/// The device memory that tenants may be admitted with.
pub(crate) fn memory_usable(device: &DeviceView, policy: &Policy) -> u64 {
    usable_bytes(device.memory_bytes, policy)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "memory is far below 2^53 bytes and the fraction is clamped"
)]
pub(super) fn usable_bytes(device_memory_bytes: u64, policy: &Policy) -> u64 {
    (device_memory_bytes as f64 * (1.0 - policy.memory_margin_fraction.clamp(0.0, 1.0))) as u64
}

/// The device memory that a workload is admitted with: what was declared, but never less than what was seen to be needed.
pub fn memory_need(declared: Option<u64>, profile: &WorkloadProfile) -> Option<u64> {
    let fit = MemoryFit::from(profile);
    let (peak, completed) = (peak_divided(profile), fit.enough_bytes());
    let need = match declared {
        Some(declared) => Some(declared.max(least(peak, completed).unwrap_or(0))),
        None => least(peak.map(|peak| scaled(peak, OBSERVED_PEAK_RATIO)), completed),
    };
    need.max(fit.beyond_bytes(peak))
}

/// The most that a workload held. Of several processes each is limited to an even part of what all have, so that it is no less than
/// as much for each as any one held.
fn peak_divided(profile: &WorkloadProfile) -> Option<u64> {
    let all = profile.memory_bytes_peak?;
    let most = profile.process_memory_bytes_peak.filter(|_| profile.process_count_peak > 1).unwrap_or(0);
    Some(all.max(most.saturating_mul(u64::from(profile.process_count_peak))))
}

/// What each process of a workload may have of the memory that all are admitted with: MPS limits a process, not a job.
pub(crate) fn limit_of_each(admitted_bytes: u64, profile: Option<&WorkloadProfile>) -> u64 {
    admitted_bytes / u64::from(profile.map_or(1, |profile| profile.process_count_peak.max(1)))
}

/// Whether the processes of one workload can be held to what they are admitted with: each by a limit of its own, which a run alone has
/// to have shown to be enough (docs/decisions/0040-several-processes.md).
fn may_be_limited(profile: &WorkloadProfile, mechanism: Mechanism) -> Result<(), Reason> {
    let is_one = profile.process_count_peak <= 1;
    let is_known = profile.process_memory_bytes_peak.is_some();
    if is_one || is_known && mechanism.can_cap() { Ok(()) } else { Err(Reason::SeveralProcesses) }
}

/// Whether a device, or an instance of one, serves all processes of these at once.
pub(crate) fn are_served<'p>(
    profiles: impl Iterator<Item = &'p WorkloadProfile>,
    mechanism: Mechanism,
) -> Result<(), Reason> {
    let processes = profiles.map(|profile| profile.process_count_peak.max(1)).fold(0, u32::saturating_add);
    if processes <= mechanism.processes_max() { Ok(()) } else { Err(Reason::SeveralProcesses) }
}

/// Whether a workload held so much of a device that its framework may have taken it only because it was there. Which runs under a
/// limit tell.
pub(crate) fn looks_preallocated(profile: &WorkloadProfile, device_memory_bytes: u64) -> bool {
    let held = least(profile.memory_bytes_peak, MemoryFit::from(profile).enough_bytes());
    held.is_some_and(|held| held >= scaled(device_memory_bytes, PREALLOCATED_FRACTION))
}

/// The memory limit under which a job runs alone that declares what it needs: what was seen of its workload goes before, unless that
/// may be what its framework took beforehand. `None`: it declares nothing, or as much as there is.
pub(crate) fn limit_alone(
    declared: Option<u64>,
    profile: Option<&WorkloadProfile>,
    device_memory_bytes: u64,
) -> Option<u64> {
    let declared = declared?;
    let limit = match profile {
        None => declared,
        Some(profile) if looks_preallocated(profile, device_memory_bytes) => {
            declared.max(MemoryFit::from(profile).beyond_bytes_anyway().unwrap_or(0))
        }
        Some(profile) => memory_need(Some(declared), profile)?,
    };
    (limit < device_memory_bytes).then_some(limit)
}

/// The profile, where enough runs alone stand behind it and they took long enough.
///
/// # Errors
/// The rule that is not met.
pub fn known<'p>(
    profile: Option<&'p WorkloadProfile>,
    policy: &Policy,
) -> Result<&'p WorkloadProfile, Reason> {
    let measured = profile.filter(|profile| profile.run_count >= policy.solo_runs_min);
    let profile = measured.ok_or(Reason::UnknownWorkload)?;
    let seconds = profile.duration_seconds.map(|seconds| seconds * f64::from(profile.run_count));
    if seconds.is_some_and(|seconds| seconds < policy.solo_seconds_min) {
        return Err(Reason::MeasuredTooBriefly);
    }
    Ok(profile)
}

/// Whether a job's workload may share this device with anybody at all; gives the memory that it is admitted with.
pub(crate) fn may_share(
    job: &WaitingJob,
    profile: Option<&WorkloadProfile>,
    device: &DeviceView,
    policy: &Policy,
) -> Result<u64, Reason> {
    if is_session(&job.workload) {
        return Err(Reason::Interactive);
    }
    if job.solo_cap.is_some() {
        return Err(Reason::MeasuredAlone);
    }
    if job.owes_runs > 0 {
        return Err(Reason::OwesRuns);
    }
    if job.rules(policy).tenants_max < 2 || device.mechanism.has_instances() {
        return Err(Reason::NotShareable);
    }
    let profile = known(profile, policy)?;
    may_be_limited(profile, device.mechanism)?;
    let need = memory_need(job.memory_bytes_declared, profile).ok_or(Reason::MemoryUnknown)?;
    let is_doubtful = looks_preallocated(profile, device.memory_bytes);
    // It runs alone within what it declares, and what it needs is known from then on.
    let is_bounded =
        device.mechanism.can_cap() && job.memory_bytes_declared.is_some_and(|declared| declared < need);
    if is_doubtful && (is_bounded || need > memory_usable(device, policy)) {
        Err(Reason::MemoryLooksPreallocated)
    } else if need > memory_usable(device, policy) {
        Err(Reason::MemoryDoesNotFit)
    } else {
        Ok(need)
    }
}

/// Whether the promise holds at the pessimistic bound.
pub(crate) fn keeps_promise(estimate: &SpeedEstimate, promise: SlowdownRatio) -> bool {
    estimate.speed_fraction_low * promise.value() >= 1.0
}

/// Whether a job can run on this device whatever is free there. A cap is set by MPS alone; a run without one that is to be
/// compared with it belongs on the same devices.
pub(crate) fn matches_device(job: &WaitingJob, node: &NodeView, device: &DeviceView) -> bool {
    matches_but_for_reservations(job, node, device) && node.is_open_for(job.time_limit_seconds)
}

/// The same whoever has the node before the job would end.
pub(crate) fn matches_but_for_reservations(job: &WaitingJob, node: &NodeView, device: &DeviceView) -> bool {
    node.partitions.iter().any(|partition| *partition == job.partition)
        && job.features.iter().all(|feature| node.features.contains(feature))
        && !job.excluded_nodes.contains(&node.name)
        && node.is_large_enough(job.demand())
        && (job.solo_cap.is_none() || device.mechanism.can_cap())
        && job.gpu_type.as_ref().is_none_or(|wanted| device.gpu_types.contains(wanted))
}

/// Whether somebody may join what runs on this device, as far as the device itself goes. In instances nobody is joined.
pub(crate) fn may_be_joined(device: &DeviceView, policy: &Policy) -> Result<(), Reason> {
    let group = device.tenants.first().and_then(|tenant| tenant.group);
    let are_together = device.tenants.iter().all(|tenant| {
        tenant.is_running && tenant.group.is_some() && tenant.group == group && tenant.workload.is_some()
    });
    let mode_max = device
        .tenants
        .iter()
        .filter_map(|tenant| tenant.sharing.ccs_mode())
        .min()
        .map_or(u32::MAX, u32::from);
    let wanted = device.tenants.iter().map(|tenant| tenant.rules(policy).tenants_max).min().unwrap_or(0);
    let are_copies = copies::run_the_same(&device.tenants);
    let tenants_max = copies::tenants_max(wanted, are_copies, device.mechanism);
    let is_full = device.tenants.len() >= tenants_max.min(mode_max) as usize;
    let has_instances = device.tenants.iter().any(|tenant| tenant.sharing.mechanism().has_instances());
    // Whoever has several devices shares them with those only who have just these (`whole::sets`).
    let has_others = device.tenants.iter().any(|tenant| tenant.set.is_some());
    if device.tenants.is_empty() || !are_together || has_instances || has_others {
        return Err(Reason::NotShareable);
    }
    if device.shards_free < copies::shards_min(copies::climb(wanted, are_copies)) || is_full {
        return Err(Reason::NoShardsLeft);
    }
    device
        .tenants
        .iter()
        .filter_map(|tenant| tenant.session.as_deref())
        .try_for_each(session::may_be_joined)?;
    let mut first_runs =
        device.tenants.iter().filter_map(|tenant| Some((tenant, tenant.first_run.as_deref()?)));
    first_runs.try_for_each(|(tenant, first)| match tenant.rules(policy).first_runs {
        FirstRuns::Alone => Err(Reason::UnknownWorkload),
        FirstRuns::Host => first_run::may_be_joined(first, policy),
    })
}
