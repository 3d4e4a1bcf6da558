//! What Pillion would know by then: profiles of runs alone as their jobs end, and outcomes of shared ones where a duration tells
//! them, by the rules of the scheduler (`scheduler/profile`).

use super::{Kind, PoolJob};
use crate::jobs::{Ended, Usage};
use pillion_core::WorkloadKey;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::units::SPEED_FRACTIONS;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A duration tells a speed only where runs alone vary less.
const DURATION_VARIATION_MAX: f64 = 0.10;
/// And only where it tells it this well.
const SPEED_DEVIATION_MAX: f64 = 0.2;

/// How one run used the device, as the agent would have measured it alone.
pub(super) fn profile_of(kind: &Kind, device_model: &str, usage: &Usage) -> WorkloadProfile {
    let mut metrics = Metrics::default();
    metrics.set_known(Metric::GpuBusyFraction, usage.busy_fraction);
    metrics.set_known(Metric::SmActiveFraction, usage.sm_active_fraction);
    metrics.set_known(Metric::MemoryBandwidthFraction, usage.memory_bandwidth_fraction);
    metrics.set_known(Metric::PowerWatts, usage.power_watts);
    if let Some(busy) = metrics.get(Metric::GpuBusyFraction) {
        let Unseen { units_of_busy, bandwidth_of_busy } = kind.unseen;
        let of_busy =
            [(Metric::SmActiveFraction, units_of_busy), (Metric::MemoryBandwidthFraction, bandwidth_of_busy)];
        for (metric, part) in of_busy {
            if metrics.get(metric).is_none() {
                metrics.set(metric, busy * part);
            }
        }
    }
    WorkloadProfile {
        metrics,
        memory_bytes_peak: usage.memory_bytes_peak,
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(kind.key.clone(), device_model)
    }
}

/// Compute units in use over busy time, and memory bandwidth over busy time, where a site measured busy time alone: of 29
/// measured workloads on a V100 nine of ten lie within 0.31..0.75 and 0.1..0.55 (docs/decisions/0021-replay-claims-a-difference.md).
const UNITS_OF_BUSY: std::ops::Range<f64> = 0.3..1.0;
const BANDWIDTH_OF_BUSY: std::ops::Range<f64> = 0.1..0.7;

/// What agents would have measured of a workload and the site did not, over busy time: the same for all of its runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unseen {
    units_of_busy: f64,
    bandwidth_of_busy: f64,
}

impl Unseen {
    /// Drawn for this workload.
    pub(crate) fn drawn(workload: u32, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(UNSEEN_STREAM + u64::from(workload));
        let units_of_busy = rng.random_range(UNITS_OF_BUSY);
        Self { units_of_busy, bandwidth_of_busy: rng.random_range(BANDWIDTH_OF_BUSY) }
    }
}

/// The generator's streams of what was not measured, behind those of users.
const UNSEEN_STREAM: u64 = 1 << 40;

/// What is known of one workload on one model of device.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) profile: WorkloadProfile,
    durations: Welford,
    sums: [(f64, u32); METRICS.len()],
}

const METRICS: [Metric; 4] =
    [Metric::GpuBusyFraction, Metric::SmActiveFraction, Metric::MemoryBandwidthFraction, Metric::PowerWatts];

#[derive(Debug, Clone, Copy, Default)]
struct Welford {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Welford {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / f64::from(self.count);
        self.squares += before * (value - self.mean);
    }
    /// Standard deviation over the mean; `None` of fewer than two.
    fn variation(&self) -> Option<f64> {
        let variance = (self.count > 1).then(|| self.squares / f64::from(self.count - 1))?;
        (self.mean > 0.0).then(|| variance.sqrt() / self.mean)
    }
}

impl Known {
    pub(crate) fn new(workload: WorkloadKey, device_model: &str) -> Self {
        Self {
            profile: WorkloadProfile::empty(workload, device_model),
            durations: Welford::default(),
            sums: [(0.0, 0); METRICS.len()],
        }
    }

    /// A run alone has ended, which used the device so.
    pub(crate) fn add_solo(&mut self, job: &PoolJob, measured: &WorkloadProfile) {
        if job.ended != Ended::Completed || !job.usage.is_profile() {
            return;
        }
        self.durations.add(job.seconds);
        for (at, metric) in METRICS.into_iter().enumerate() {
            if let Some(value) = measured.metrics.get(metric) {
                let (sum, count) = &mut self.sums[at];
                *sum += value;
                *count += 1;
                self.profile.metrics.set(metric, *sum / f64::from(*count));
            }
        }
        let profile = &mut self.profile;
        profile.run_count += 1;
        profile.duration_seconds = Some(self.durations.mean);
        profile.duration_variation_fraction = self.durations.variation();
        profile.memory_bytes_peak = profile.memory_bytes_peak.max(job.usage.memory_bytes_peak);
        profile.process_count_peak = 1;
    }

    /// The speed that the duration of a shared run tells, where it tells any. `alone_seconds` and `shared_seconds` of the run.
    pub(crate) fn speed_by_duration(
        &self,
        job: &PoolJob,
        alone_seconds: f64,
        shared_seconds: f64,
    ) -> Option<f64> {
        let solo_seconds = self.profile.duration_seconds?;
        let variation =
            self.profile.duration_variation_fraction.filter(|part| *part < DURATION_VARIATION_MAX)?;
        if job.ended != Ended::Completed || shared_seconds <= 0.0 {
            return None;
        }
        let speed = (solo_seconds - alone_seconds) / shared_seconds;
        let is_known = variation * solo_seconds / shared_seconds <= SPEED_DEVIATION_MAX;
        (is_known && SPEED_FRACTIONS.contains(&speed)).then_some(speed)
    }
}
