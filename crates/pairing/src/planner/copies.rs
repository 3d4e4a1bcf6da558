//! How many may be on one device, and when one more copy of a workload comes: the one place that says so, for the planner, for
//! plans on files and for explanations (docs/decisions/0037-replicas.md).
//!
//! ```text
//! differing workloads          at most 4, by the model's bound
//! copies, where the site       2 by the model's bound, n + 1 when n were measured together and kept every promise;
//! allows more than 4           how fast n + 1 are is foretold from what was measured of n
//! ```

use crate::copies::{CopiesSeen, CopyBook, CopyKind};
use crate::model::{BOUND_DEVIATIONS, Contention, InterferenceModel, SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::view::Tenant;
use pillion_core::SlowdownRatio;
use pillion_core::device::{COPIES_MAX, Mechanism, TENANTS_MAX};
use pillion_core::metric::Metric;
use std::sync::Arc;

/// The least shards that a tenant is given.
pub(crate) const SHARDS_MIN: u32 = 10;
/// The least that a copy is booked with where more than four may come: sixteen of them find room.
const SHARDS_OF_COPY: u32 = 100 / COPIES_MAX;
/// How far a workload's use of a device may be above what was measured of it alone.
const USE_DOUBT: f64 = 1.15;
/// Bandwidth that can be reached in practice, of the nominal.
const BANDWIDTH_REACHABLE_FRACTION: f64 = 0.85;
/// Nobody is surer than this of a speed that was not measured: one standard deviation.
const STEP_DOUBT: f64 = 0.02;
/// No estimate is slower than this.
const SPEED_MIN: f64 = 0.01;

/// How many may be on one device, by the strictest of their rules: more than four only where all are copies of one workload.
pub(crate) fn tenants_max(wanted: u32, are_copies: bool, mechanism: Mechanism) -> u32 {
    let most = if are_copies { COPIES_MAX } else { TENANTS_MAX };
    wanted.min(most).min(mechanism.processes_max())
}

/// Whether these go up step by step: copies of one workload, where the site lets more than four be together.
pub(crate) const fn climb(wanted: u32, are_copies: bool) -> bool {
    are_copies && wanted > TENANTS_MAX
}

/// The least shards of one more.
pub(crate) const fn shards_min(climbs: bool) -> u32 {
    if climbs { SHARDS_OF_COPY } else { SHARDS_MIN }
}

/// Whether all that run on a device run the same, by what was measured of whole runs.
pub(crate) fn run_the_same(tenants: &[Tenant]) -> bool {
    let first = tenants.first().and_then(|tenant| tenant.workload.as_ref());
    first.is_some()
        && tenants.iter().all(|tenant| tenant.workload.as_ref() == first && tenant.first_run.is_none())
}

/// What is known of copies of one workload, as far as it is believed.
#[derive(Debug, Clone)]
pub(crate) struct Ladder<'b> {
    pub(crate) book: &'b CopyBook,
    pub(crate) kind: CopyKind,
    /// Whether what they count themselves is believed.
    pub(crate) believes_counters: bool,
}

impl Ladder<'_> {
    pub(crate) fn seen(&self, count: u32) -> CopiesSeen {
        self.book.seen(&self.kind, count, self.believes_counters)
    }

    /// Whether so many were measured together, and kept this promise for sure.
    fn held(&self, count: u32, promise: SlowdownRatio) -> bool {
        match self.seen(count) {
            CopiesSeen::Never | CopiesSeen::Unfit => false,
            CopiesSeen::At { speed_fraction, error } => {
                (speed_fraction - BOUND_DEVIATIONS * error) * promise.value() >= 1.0
            }
        }
    }

    /// Whether there may be `count` of them by what was measured of one less. `strictest`: the least slowdown that any of them was
    /// promised.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) fn may_be(&self, count: u32, strictest: SlowdownRatio) -> Result<(), Reason> {
        if self.seen(count) == CopiesSeen::Unfit {
            return Err(Reason::MemoryDoesNotFit);
        }
        if count <= 2 || self.held(count - 1, strictest) { Ok(()) } else { Err(Reason::CopiesUnmeasured) }
    }

    /// How many there may be at most by what was measured up to now.
    pub(crate) fn reach(&self, wanted: u32, promise: SlowdownRatio) -> u32 {
        let held = (2..wanted).rev().find(|count| self.held(*count, promise));
        held.map_or(2, |count| count + 1).min(wanted)
    }

    /// How fast these copies are together: measured, else foretold from what was measured of one less; `None` where nothing can be
    /// said.
    pub(crate) fn speed(&self, inputs: &[TenantInput<'_>], device_model: &str) -> Option<SpeedEstimate> {
        let count = u32::try_from(inputs.len()).ok()?;
        if let CopiesSeen::At { speed_fraction, error } = self.seen(count) {
            return Some(estimate(speed_fraction, error, &[("copies_measured", f64::from(count))]));
        }
        let CopiesSeen::At { speed_fraction, error } = self.seen(count - 1) else { return None };
        let before = match self.seen(count.saturating_sub(2)) {
            CopiesSeen::At { speed_fraction, .. } => Some(speed_fraction),
            CopiesSeen::Never | CopiesSeen::Unfit => None,
        };
        let filling = |inputs: &[TenantInput<'_>]| {
            let speeds = Contention.predict(inputs, device_model).ok()?;
            speeds.first().map(|own| own.speed_fraction)
        };
        let step = filling(&inputs[1..])? - filling(inputs)?;
        let measured = Measured { count: f64::from(count - 1), speed: speed_fraction, before };
        Some(foretold(&measured, error, step.max(0.0), use_of(inputs.first()?)))
    }
}

/// What was measured of the copies that there are.
struct Measured {
    count: f64,
    speed: f64,
    /// Of one less, where that was measured too.
    before: Option<f64>,
}

/// One more than was measured. Two things may happen: it is waited for units as of any neighbours (`filling_step`, which grows
/// steeply as a device fills); or copies, who want the same at the same time, cost each other nothing until they fill the device and
/// divide it evenly beyond, as was measured on an H200 (docs/benchmarks.md). Expected is the mean of both, and the bound is the worse
/// of them, with the device filled sooner than the profile says. A step is no smaller than the one before it, and no larger than
/// even division: what they do together does not become less.
fn foretold(measured: &Measured, error: f64, filling_step: f64, use_fraction: f64) -> SpeedEstimate {
    let Measured { count, speed, before } = *measured;
    let last_step = before.map_or(0.0, |before| (before - speed).max(0.0));
    let evenly = speed * count / (count + 1.0);
    let filling = (speed - filling_step.max(last_step)).clamp(evenly, speed);
    let divided = |doubt: f64| {
        // Who is seen to be slowed has filled it.
        let holds = (1.0 / (use_fraction * doubt)).max(count * speed);
        (speed * (holds / (count + 1.0)).min(1.0) - last_step).clamp(evenly, speed)
    };
    let expected = f64::midpoint(filling, divided(1.0));
    let worst = filling.min(divided(USE_DOUBT)).min(expected);
    let noise = error.hypot(STEP_DOUBT);
    let terms = [
        ("copies_measured", count),
        ("speed_measured", speed),
        ("by_filling", filling),
        ("by_division", divided(1.0)),
    ];
    let sure = estimate(expected, noise, &terms);
    SpeedEstimate {
        // Both laws and the doubt about the use lie above the worst: it is two deviations away.
        speed_fraction_deviation: noise.hypot(0.5 * (expected - worst)),
        speed_fraction_low: (worst - BOUND_DEVIATIONS * noise).max(SPEED_MIN.min(worst)),
        ..sure
    }
}

/// The part of a device that one copy fills alone, of compute units or of bandwidth, whichever is more.
fn use_of(input: &TenantInput<'_>) -> f64 {
    let metrics = &input.profile.metrics;
    let busy = metrics.get(Metric::GpuBusyFraction);
    let active = metrics
        .get(Metric::SmActiveFraction)
        .map(|active| active + metrics.get(Metric::StallFraction).unwrap_or(0.0));
    let compute = if input.sharing.is_time_sliced() { busy.or(active) } else { active.or(busy) };
    let compute = compute.unwrap_or(1.0).min(input.sharing.compute_part());
    let bandwidth = metrics.get(Metric::MemoryBandwidthFraction).unwrap_or(0.0);
    compute.max(bandwidth / BANDWIDTH_REACHABLE_FRACTION).max(SPEED_MIN)
}

fn estimate(speed_fraction: f64, deviation: f64, terms: &[(&'static str, f64)]) -> SpeedEstimate {
    let reach = BOUND_DEVIATIONS * deviation;
    SpeedEstimate {
        speed_fraction,
        speed_fraction_deviation: deviation,
        has_heavy_tail: false,
        speed_fraction_low: (speed_fraction - reach).clamp(SPEED_MIN.min(speed_fraction), 1.0),
        speed_fraction_high: (speed_fraction + reach).min(1.0).max(speed_fraction),
        terms: Arc::new(terms.iter().map(|(name, term)| ((*name).into(), *term)).collect()),
    }
}

#[cfg(test)]
mod tests;
