//! Two jobs of one user in one instance, by its MPS daemon: how fast each is there, of its speed on the whole device. That is its speed
//! in the instance alone, times what company leaves of it. Must not know who may share.

use super::speed::SliceSpeed;
use crate::model::SpeedEstimate;
use pillion_core::Fraction;
use pillion_core::metric::{Measured, Metric};
use pillion_core::mig::{MigProfile, Size};
use pillion_core::profile::WorkloadProfile;
use pillion_core::units::keeps_promise;
use std::collections::BTreeMap;

/// Two waiting jobs that could share an instance, in the sizes in which both keep their promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Company {
    /// Which of them comes first in the queue, by its place.
    pub host: usize,
    /// Which of them comes along.
    pub guest: usize,
    /// How fast they are together, the host first.
    pub sizes: BTreeMap<MigProfile, Together>,
}

/// Two jobs in one instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Together {
    /// How fast each is.
    pub speeds: [SliceSpeed; 2],
    /// The most of the instance's compute units that each may use.
    pub caps: [Option<Fraction>; 2],
    /// The memory that each of their processes may hold: what they were admitted with.
    pub memory_bytes: [u64; 2],
}

impl Together {
    /// What both do, of what each does with the whole device.
    pub fn speed_sum(&self) -> f64 {
        self.speeds.iter().map(|speed| speed.speed_fraction).sum()
    }

    /// Whether both keep what they are promised, as far as anybody can tell.
    pub fn keeps(&self, slowdown_ratios_max: [f64; 2]) -> bool {
        let mut speeds = self.speeds.iter().zip(slowdown_ratios_max);
        speeds.all(|(speed, promise)| keeps_promise(speed.speed_fraction_low, promise))
    }
}

/// What is left of a speed in an instance beside somebody.
pub fn beside(alone: SliceSpeed, estimate: &SpeedEstimate) -> SliceSpeed {
    SliceSpeed {
        speed_fraction: alone.speed_fraction * estimate.speed_fraction,
        speed_fraction_low: alone.speed_fraction_low * estimate.speed_fraction_low,
    }
}

/// What its use of the whole device says of its use of an instance of this size, in which it is as fast as `speed` says: it does so
/// much of its work in the same time, on fewer units and with less bandwidth. `device_model`: a name of its own, so that nothing that
/// was learnt of pairs on whole devices is taken for what would be learnt there.
pub fn profile_in(
    profile: &WorkloadProfile,
    speed: SliceSpeed,
    (size, whole): (&Size, &Size),
    device_model: &str,
) -> WorkloadProfile {
    let of_units = f64::from(size.sm_count) / f64::from(whole.sm_count.max(1));
    let of_memory = f64::from(size.memory_slices) / f64::from(whole.memory_slices.max(1));
    let mut own = profile.clone();
    device_model.clone_into(&mut own.device_model);
    let parts = [
        (Metric::SmActiveFraction, of_units),
        (Metric::StallFraction, of_units),
        (Metric::GpuBusyFraction, of_units),
        (Metric::Fp32ActiveFraction, of_units),
        (Metric::MemoryBandwidthFraction, of_memory),
        (Metric::CacheBandwidthFraction, of_memory),
    ];
    for (metric, part) in parts {
        if let Some(value) = profile.metrics.get(metric) {
            let value = (value * speed.speed_fraction / part.max(f64::EPSILON)).clamp(0.0, 1.0);
            own.metrics.put(metric, Measured { value, source: profile.metrics.source(metric) });
        }
    }
    own
}
