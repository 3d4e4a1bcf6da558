//! A workload's first run as a host: alone for its first minutes, in which it is measured, and then joined by jobs that are
//! known (docs/principles.md#first-run-alone, docs/decisions/0016-first-runs-as-hosts.md). Pure; what was seen of it so far
//! stands in the view. Must not know who measures.

use crate::model::{BOUND_DEVIATIONS, SpeedEstimate};
use crate::plan::Reason;
use crate::policy::{FirstRuns, Policy};
use crate::view::{DeviceView, FirstRun, WaitingJob};
use pillion_core::Shards;

/// The least looks at the device that a mean is made of.
const SAMPLES_MIN: u32 = 30;
/// The greatest standard error of the mean activity, over that mean.
const ACTIVITY_ERROR_MAX: f64 = 0.1;
/// How far both halves of what was measured may be apart, over their mean: a job that still loads its data is not yet what
/// it will be.
const DRIFT_MAX: f64 = 0.15;
/// What the device memory seen so far is multiplied with where nothing was declared. Of a whole run it is 1.05; minutes do
/// not show an evaluation that comes at the end of each epoch.
const PEAK_SO_FAR_RATIO: f64 = 1.5;
/// The same where memory was declared, and more than that is seen.
const PEAK_DECLARED_RATIO: f64 = 1.05;
/// What a first run books: how much it uses is not known, and whoever joins has to find room.
const SHARDS: u8 = 50;

/// What a workload that nobody has seen is booked with where it may be joined later; `None` = it has the whole device, and
/// nobody joins.
///
/// Not where a card has modes: in a part of the card it would be measured as slower than it is. Not where its user owes runs,
/// or has it measured: those have another reason than [`Reason::UnknownWorkload`].
pub(crate) fn shards(
    why_alone: Reason,
    job: &WaitingJob,
    device: &DeviceView,
    policy: &Policy,
) -> Option<Shards> {
    let is_first = why_alone == Reason::UnknownWorkload && job.solo_cap.is_none() && job.owes_runs == 0;
    let has_parts = device.mechanism.has_modes() || device.mechanism.has_instances();
    let rules = job.rules(policy);
    let may_host = rules.first_runs == FirstRuns::Host && rules.tenants_max > 1 && !has_parts;
    (is_first && may_host).then(|| Shards::try_new(SHARDS).expect("it is 1 to 100"))
}

/// Whether what was seen of a first run suffices to let somebody join it, where it may be a host.
///
/// # Errors
/// The rule that is not met.
pub fn may_be_joined(first: &FirstRun, policy: &Policy) -> Result<(), Reason> {
    if first.profile.process_count_peak > 1 {
        return Err(Reason::SeveralProcesses);
    }
    // Minutes foretell less than runs: only beside a host whose speed can be read is a promise that breaks seen.
    if first.profile.throughput_per_second.is_none() && first.measured_seconds >= policy.first_run_seconds_min
    {
        return Err(Reason::FirstRunUncounted);
    }
    let is_long_enough =
        first.measured_seconds >= policy.first_run_seconds_min && first.sample_count >= SAMPLES_MIN;
    // What was not measured is not steady.
    let is_steady = first.activity_error_fraction.is_some_and(|error| error <= ACTIVITY_ERROR_MAX)
        && first.drift_fraction.is_some_and(|drift| drift <= DRIFT_MAX)
        && first.has_memory_settled;
    if !is_long_enough || !is_steady {
        return Err(Reason::FirstRunUnsettled);
    }
    memory_need(first).map(|_| ())
}

/// The device memory that a first run is counted with from now on.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "memory is far below 2^53 bytes"
)]
pub(crate) fn memory_need(first: &FirstRun) -> Result<u64, Reason> {
    let scaled = |ratio: f64| first.profile.memory_bytes_peak.map(|peak| (peak as f64 * ratio).ceil() as u64);
    match first.memory_bytes_declared {
        Some(declared) => Ok(declared.max(scaled(PEAK_DECLARED_RATIO).unwrap_or(0))),
        None => scaled(PEAK_SO_FAR_RATIO).ok_or(Reason::MemoryUnknown),
    }
}

/// Estimates in which somebody's profile is of minutes: by how much a mean may be off, the slowing that it foretells may be
/// off too. `error_fraction`: standard error of the activity over its mean.
pub(crate) fn widen(estimates: &mut [SpeedEstimate], error_fraction: f64) {
    for own in estimates {
        let doubt = error_fraction * (1.0 - own.speed_fraction).max(0.0);
        let reach = (own.speed_fraction - own.speed_fraction_low).hypot(BOUND_DEVIATIONS * doubt);
        own.speed_fraction_low = (own.speed_fraction - reach).max(0.0);
        own.speed_fraction_high = (own.speed_fraction + reach).min(1.0).max(own.speed_fraction_high);
        own.speed_fraction_deviation = own.speed_fraction_deviation.hypot(doubt);
    }
}

#[cfg(test)]
mod tests;
