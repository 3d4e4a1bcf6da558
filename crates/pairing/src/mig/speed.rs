//! How fast a workload is in an instance, of its speed on the whole device, where nobody has measured it there.

use crate::model::{BOUND_DEVIATIONS, SpeedEstimate, Terms};
use pillion_core::metric::Metric;
use pillion_core::mig::Size;
use pillion_core::profile::WorkloadProfile;
use std::sync::Arc;

/// The least speed that is foretold.
const SPEED_MIN: f64 = 0.01;
/// How far a foretold speed may be too high, in speed: of all but one of ten trainings that were measured (MISO).
const SPREAD: f64 = 0.08;

/// A speed in an instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceSpeed {
    /// What is expected.
    pub speed_fraction: f64,
    /// What it is at least, as far as anybody can tell: a promise is held against it.
    pub speed_fraction_low: f64,
}

impl SliceSpeed {
    /// One that was measured in that size.
    pub const fn measured(speed_fraction: f64) -> Self {
        Self { speed_fraction, speed_fraction_low: speed_fraction }
    }

    /// Whether it is more than foretold.
    pub fn is_measured(self) -> bool {
        self.speed_fraction_low >= self.speed_fraction
    }

    /// As decisions keep what is expected of a tenant.
    pub fn as_estimate(self) -> SpeedEstimate {
        let spread = self.speed_fraction - self.speed_fraction_low;
        SpeedEstimate {
            speed_fraction: self.speed_fraction,
            speed_fraction_deviation: spread / BOUND_DEVIATIONS,
            has_heavy_tail: false,
            speed_fraction_low: self.speed_fraction_low,
            speed_fraction_high: (self.speed_fraction + spread).min(1.0),
            terms: Arc::new(Terms::new()),
        }
    }
}

/// What its use of the whole device says of its speed in a part: work that keeps the compute units busy takes longer on fewer
/// of them, in bursts as on average, and no bandwidth is had beyond that of the instance. `None` where its use is not known.
///
/// Use that waits on something else (a loader, a small batch) is busy on more units than it needs: it is faster than foretold.
pub fn prior(profile: &WorkloadProfile, size: &Size, whole: &Size) -> Option<SliceSpeed> {
    let metrics = &profile.metrics;
    let active = metrics.get(Metric::SmActiveFraction);
    let with_stall = active.map(|active| active + metrics.get(Metric::StallFraction).unwrap_or(0.0));
    let compute = with_stall.or_else(|| metrics.get(Metric::GpuBusyFraction))?.clamp(0.0, 1.0);
    let bandwidth = metrics.get(Metric::MemoryBandwidthFraction).unwrap_or(0.0);
    let compute_part = f64::from(size.sm_count) / f64::from(whole.sm_count.max(1));
    let memory_part = f64::from(size.memory_slices) / f64::from(whole.memory_slices.max(1));
    if compute_part >= 1.0 {
        return Some(SliceSpeed::measured(1.0));
    }
    let on_average = (compute / compute_part).max(1.0);
    let in_bursts = (1.0 - compute) + compute / compute_part;
    let of_compute = (1.0 - compute) * on_average + compute * in_bursts.max(on_average);
    let delay = of_compute.max(bandwidth / memory_part).max(1.0);
    let speed_fraction = delay.recip().max(SPEED_MIN);
    Some(SliceSpeed { speed_fraction, speed_fraction_low: (speed_fraction - SPREAD).max(SPEED_MIN) })
}
