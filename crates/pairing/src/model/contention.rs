//! The first model of interference: tenants contend for compute units, memory bandwidth and cache bandwidth, and each
//! is slowed by the resource that it waits for most. Knows solo profiles only; must not know how any simulated device
//! computes, nor what a pairing's outcome was (that is the learned model's business).
//!
//! ```text
//! solo profile -> Demand -> delay of compute, of memory, of cache -> the greatest of them, over (1 - loss) -> speed
//! ```
//!
//! Every term grows with every demand, so that adding demand never raises a neighbour's speed; one's own only where what one fills
//! of the device gives one a turn (`filling`). Demands are taken at solo rates: a tenant that is slowed presses less in truth, so
//! the estimate errs on the slow side.
//!
//! Sources of the constants: Costa et al. 2025 (Max 1550: a pair at 0.1 of the units each loses nothing, a pair at 0.97
//! each takes 1.10 times as long as taking turns), and the shape of throughput over thread percentage on a V100.

use super::crowding;
use super::filling::{Met, overlap};
use super::interface::{BOUND_DEVIATIONS, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use std::sync::Arc;

/// Bandwidth that can be reached in practice, of the nominal.
const BANDWIDTH_REACHABLE_FRACTION: f64 = 0.85;
/// A tenant above this bandwidth waits for memory all the time.
const BANDWIDTH_BOUND_FRACTION: f64 = 0.5;
/// How much of a collision in the cache is felt, against one at the memory.
const CACHE_WEIGHT: f64 = 0.5;
/// What is lost to contention at most, when demand is far beyond the device.
const LOSS_MAX: f64 = 0.12;
/// How fast the loss comes as demand exceeds the device.
const LOSS_RATE: f64 = 2.0;
/// What switching between processes costs where the device is time-sliced.
const SWITCH_LOSS: f64 = 0.05;
/// Standard deviation of an estimate where all is known and nothing contends: the noise of measurements.
const SPREAD_BASE: f64 = 0.03;
/// Standard deviation from one solo run; falls with the square root of their number.
const SPREAD_ONE_RUN: f64 = 0.05;
/// Standard deviation for each unit of speed lost: the more they contend, the less is certain.
const SPREAD_OF_LOSS: f64 = 0.3;
/// Standard deviation where busy time stands in for active compute units.
const SPREAD_BUSY_ONLY: f64 = 0.08;
/// Standard deviation where nothing is known of the compute units.
const SPREAD_COMPUTE_UNKNOWN: f64 = 0.2;
/// Standard deviation where the memory bandwidth is not known.
const SPREAD_MEMORY_UNKNOWN: f64 = 0.05;
/// Memory bandwidth assumed for a tenant that keeps all compute units busy and whose bandwidth is not known.
const MEMORY_ASSUMED_FRACTION: f64 = 0.4;
/// Device power at rest, of the least solo power: profiles do not tell it.
const POWER_IDLE_FRACTION: f64 = 0.3;
/// No estimate is slower than this.
const SPEED_MIN: f64 = 0.01;

/// Predicts from solo profiles alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contention;

/// What one tenant asks of the device, each 0..=1 of what there is.
#[derive(Debug, Clone, Copy)]
struct Demand {
    /// Compute units in use, waiting ones included.
    compute: f64,
    /// The part of the compute units on which others find somebody at work; 0 where only busy time is known, which says nothing
    /// of how full a device is.
    filled: f64,
    /// The most compute units it may use.
    cap: f64,
    memory: f64,
    cache: f64,
    /// Variance of the estimate from what is not known of this tenant.
    variance: f64,
}

impl Demand {
    /// Compute units in use at once, at most: what the neighbours meet.
    fn presence(&self) -> f64 {
        self.compute.min(self.cap)
    }
}

/// What slows one tenant, as ratios of its solo time.
#[derive(Debug, Clone, Copy)]
struct Delays {
    compute: f64,
    memory: f64,
    cache: f64,
    loss_fraction: f64,
}

impl Delays {
    fn speed(&self) -> f64 {
        let slowest = self.compute.max(self.memory).max(self.cache).max(1.0);
        ((1.0 - self.loss_fraction) / slowest).clamp(SPEED_MIN, 1.0)
    }
}

impl InterferenceModel for Contention {
    fn name(&self) -> &'static str {
        "contention-1"
    }

    fn predict(&self, tenants: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
        let demands =
            tenants.iter().map(|tenant| demand(*tenant)).collect::<Result<Vec<Demand>, PredictError>>()?;
        Ok((0..).zip(tenants).map(|(own, tenant)| estimate(&demands, own, tenant.sharing)).collect())
    }

    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64> {
        let solo = tenants
            .iter()
            .map(|tenant| tenant.profile.metrics.get(Metric::PowerWatts))
            .collect::<Option<Vec<f64>>>()?;
        let speeds = self.predict(tenants, device_model).ok()?;
        let idle = solo.iter().copied().reduce(f64::min)? * POWER_IDLE_FRACTION;
        Some(
            idle + solo
                .iter()
                .zip(&speeds)
                .map(|(watts, own)| own.speed_fraction * (watts - idle))
                .sum::<f64>(),
        )
    }
}

/// Compute units in use and the standard deviation from not knowing them well: active units and those that wait on
/// memory; else busy time, which is never less; else all of them.
fn compute_use(profile: &WorkloadProfile, is_time_sliced: bool) -> (f64, f64) {
    let active = profile
        .metrics
        .get(Metric::SmActiveFraction)
        .map(|active| (active + profile.metrics.get(Metric::StallFraction).unwrap_or(0.0)).min(1.0));
    let busy = profile.metrics.get(Metric::GpuBusyFraction);
    match (active, busy) {
        (_, Some(busy)) if is_time_sliced => (busy, 0.0),
        (Some(active), _) => (active, if is_time_sliced { SPREAD_BUSY_ONLY } else { 0.0 }),
        (None, Some(busy)) => (busy, SPREAD_BUSY_ONLY),
        (None, None) => (1.0, SPREAD_COMPUTE_UNKNOWN),
    }
}

fn demand(tenant: TenantInput<'_>) -> Result<Demand, PredictError> {
    let TenantInput { profile, sharing } = tenant;
    let features = [
        Metric::SmActiveFraction,
        Metric::GpuBusyFraction,
        Metric::MemoryBandwidthFraction,
        Metric::CacheBandwidthFraction,
        Metric::Fp32ActiveFraction,
    ];
    if features.into_iter().all(|feature| profile.metrics.get(feature).is_none()) {
        let (workload, device_model) = (profile.workload.to_string(), profile.device_model.clone());
        return Err(PredictError::NoProfile { workload, device_model });
    }
    let (compute, spread_compute) = compute_use(profile, sharing.is_time_sliced());
    let memory = profile.metrics.get(Metric::MemoryBandwidthFraction);
    let spread_memory = if memory.is_none() { SPREAD_MEMORY_UNKNOWN } else { 0.0 };
    Ok(Demand {
        compute,
        filled: profile.metrics.get(Metric::SmActiveFraction).map_or(0.0, |_| compute),
        cap: sharing.compute_part().max(SPEED_MIN),
        memory: memory.unwrap_or(MEMORY_ASSUMED_FRACTION * compute),
        cache: profile.metrics.get(Metric::CacheBandwidthFraction).unwrap_or(0.0),
        variance: spread_compute.powi(2)
            + spread_memory.powi(2)
            + SPREAD_ONE_RUN.powi(2) / f64::from(profile.run_count.max(1)),
    })
}

/// Mixes steady use (the mean, all the time) with use in bursts (everything, now and then): the more units a workload
/// uses on average, the more of its time it is held up by having fewer.
fn mixed(use_fraction: f64, steady: f64, bursts: f64) -> f64 {
    (1.0 - use_fraction) * steady + use_fraction * bursts.max(steady)
}

/// Delay from having only a part of the compute units, neighbours or not.
fn delay_of_cap(demand: &Demand) -> f64 {
    let steady = (demand.compute / demand.cap).max(1.0);
    let bursts = (1.0 - demand.compute) + demand.compute / demand.cap;
    mixed(demand.compute, steady, bursts)
}

/// Delay from neighbours on the same compute units. Caps that sum to one or less keep tenants apart.
fn delay_of_neighbours(demands: &[Demand], own: usize) -> f64 {
    let this = &demands[own];
    let total: f64 = demands.iter().map(Demand::presence).sum();
    let (mut collisions, mut filled) = (0.0, 0.0);
    for other in others(demands, own) {
        let overlap = overlap(this.cap, other.cap);
        collisions += other.presence() * overlap;
        filled += other.filled.min(other.cap) * overlap;
    }
    let met = mixed(this.compute, total.max(1.0), 1.0 + this.compute * collisions);
    let on_units = Met { needed: this.compute, own: this.filled.min(this.cap), filled };
    met.max(on_units.delay(0.0))
}

/// Delay at a bandwidth that all share.
fn delay_of_bandwidth(own: f64, others: f64, reachable: f64) -> f64 {
    let excess = ((own + others) / reachable - 1.0).max(0.0);
    let bound = (own / BANDWIDTH_BOUND_FRACTION).min(1.0);
    1.0 + (bound * excess).max(own * others)
}

fn others(demands: &[Demand], own: usize) -> impl Iterator<Item = &Demand> {
    demands.iter().enumerate().filter(move |(index, _)| *index != own).map(|(_, other)| other)
}

fn loss_beyond(total_demand: f64) -> f64 {
    LOSS_MAX * (1.0 - (-LOSS_RATE * (total_demand - 1.0).max(0.0)).exp())
}

fn delays(demands: &[Demand], own: usize, sharing: Sharing) -> Delays {
    let this = &demands[own];
    if sharing.is_time_sliced() {
        let total: f64 = demands.iter().map(|each| each.compute).sum();
        let others_use: f64 = others(demands, own).map(|other| other.compute).sum();
        let compute = mixed(this.compute, total.max(1.0), 1.0 + this.compute * others_use);
        let loss_fraction = loss_beyond(total) + SWITCH_LOSS * others_use.min(1.0);
        return Delays { compute, memory: 1.0, cache: 1.0, loss_fraction };
    }
    if sharing.mechanism().meets_nobody() {
        // Nothing is met in an instance of one's own: what it makes of a speed is not said here (`mig`).
        return Delays { compute: 1.0, memory: 1.0, cache: 1.0, loss_fraction: 0.0 };
    }
    let compute = match sharing {
        // Units are split for good: neighbours are not met on them.
        Sharing::Ccs { .. } | Sharing::Mig { .. } => delay_of_cap(this),
        Sharing::Mps { .. } | Sharing::MigMps { .. } | Sharing::TimeSliced => {
            delay_of_cap(this).max(1.0) * delay_of_neighbours(demands, own)
        }
    };
    let total: f64 = match sharing {
        // A card whose parts are all used up contends for what the parts share.
        Sharing::Ccs { .. } | Sharing::Mig { .. } => demands.iter().map(|each| each.compute).sum(),
        Sharing::Mps { .. } | Sharing::MigMps { .. } | Sharing::TimeSliced => {
            demands.iter().map(Demand::presence).sum()
        }
    };
    let memory: f64 = others(demands, own).map(|other| other.memory).sum();
    let cache: f64 = others(demands, own).map(|other| other.cache).sum();
    let cache_delay = delay_of_bandwidth(this.cache, cache, 1.0);
    Delays {
        compute,
        memory: delay_of_bandwidth(this.memory, memory, BANDWIDTH_REACHABLE_FRACTION)
            .max(crowding::delay(this.memory, memory)),
        cache: 1.0 + CACHE_WEIGHT * (cache_delay - 1.0),
        loss_fraction: if demands.len() > 1 { loss_beyond(total) } else { 0.0 },
    }
}

fn estimate(demands: &[Demand], own: usize, sharing: Sharing) -> SpeedEstimate {
    let delays = delays(demands, own, sharing);
    let speed_fraction = delays.speed();
    let known: f64 = demands.iter().map(|each| each.variance).sum();
    let spread = (SPREAD_BASE.powi(2) + (SPREAD_OF_LOSS * (1.0 - speed_fraction)).powi(2) + known).sqrt();
    let terms = [
        ("compute_delay_ratio", delays.compute),
        ("memory_delay_ratio", delays.memory),
        ("cache_delay_ratio", delays.cache),
        ("loss_fraction", delays.loss_fraction),
        ("spread", spread),
    ];
    SpeedEstimate {
        speed_fraction,
        speed_fraction_deviation: spread,
        has_heavy_tail: false,
        speed_fraction_low: (speed_fraction - BOUND_DEVIATIONS * spread)
            .clamp(SPEED_MIN.min(speed_fraction), 1.0),
        speed_fraction_high: (speed_fraction + BOUND_DEVIATIONS * spread).min(1.0),
        terms: Arc::new(terms.into_iter().map(|(name, term)| (name.into(), term)).collect()),
    }
}
