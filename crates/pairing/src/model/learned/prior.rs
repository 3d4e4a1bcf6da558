//! What a workload's own solo profile lets one expect before anything was seen of it beside others: its own throughput
//! under the cap, times contention for compute units and for memory. Sensible with any feature missing, modest with none.

use super::solo_curve::{SoloCurve, small};
use crate::model::crowding;
use crate::model::filling::{self, Met};
use crate::model::interface::TenantInput;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;

/// Speed expected where nothing is known of either tenant: a little better than taking turns.
const SPEED_UNKNOWN: f64 = 0.6;
/// Use of the compute units assumed for a tenant of which nothing is known, beside one of which something is.
const USE_UNKNOWN: f64 = 0.6;
/// Memory use assumed, of the use of the compute units.
const MEMORY_OF_USE: f64 = 0.4;
/// What two tenants lose that both wait for memory all the time (the residual learns the rest).
const MEMORY_LOSS: f64 = 0.3;
/// What is lost to a neighbour on the same units, of the part of time in which both would use them.
const COLLISION_LOSS: f64 = 0.25;
/// The doubt about what is expected: where tenants are kept apart by caps whose effect alone was measured, where they meet
/// on the same units and neither is sure to win, for a cap whose effect was not measured, and where nothing is known.
const DOUBT_APART: f64 = 0.3;
const DOUBT_OF_PRESSURE: f64 = 1.2;
/// Doubt grows late: beside who uses up to a third of the units, KACE's speeds are foretold as well as beside nobody.
const DOUBT_EXPONENT: f64 = 1.5;
const DOUBT_OF_CAP: f64 = 0.5;
const DOUBT_UNKNOWN: f64 = 1.5;
/// All compute units, and a little more: loads are measured with noise, and what waits leaves room.
const CAPACITY: f64 = 1.15;
/// The least speed that is expected of anybody.
const SPEED_MIN: f64 = 0.02;

/// How much a workload asks for, from its profile alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Appetite {
    /// Compute units that it uses while alone, 0..=1; absent = unknown.
    pub(super) use_fraction: Option<f64>,
    /// The part of the device that it keeps busy alone, as far as that bounds what others can get; absent = unknown.
    load_fraction: Option<f64>,
    /// The part of the compute units on which others find somebody at work, 0..=1; absent = unknown.
    filled_fraction: Option<f64>,
    /// Memory bandwidth or memory busy time, 0..=1; absent = unknown.
    memory_fraction: Option<f64>,
    /// Memory bandwidth alone, 0..=1; absent = unknown, also where busy time is known: a memory is busy long before it is full.
    bandwidth_fraction: Option<f64>,
    /// How fast it is alone under caps; absent = not measured.
    curve: Option<SoloCurve>,
}

/// What is expected before anything is remembered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    /// Speed over solo speed.
    pub(super) speed_fraction: f64,
    /// How far it may be wrong, in units of speed: effects are learnt in units of it.
    pub(super) doubt: f64,
    /// How far the compute units of this tenant are shared with others, 0 (kept apart) ..= 1.
    pub(super) overlap: f64,
    /// Its cap; 1 = none.
    pub(super) cap: f64,
    /// Standard deviation of that speed, whoever is beside it, for what its speeds alone under caps vary by more than is usual.
    pub(super) solo_deviation: f64,
}

impl Appetite {
    pub(super) fn of_tenant(tenant: &TenantInput<'_>) -> Self {
        Self::of(tenant.profile, tenant.sharing.is_time_sliced())
    }

    pub(super) fn of(profile: &WorkloadProfile, is_time_sliced: bool) -> Self {
        let curve = SoloCurve::of(profile);
        let active = profile
            .metrics
            .get(Metric::SmActiveFraction)
            .map(|active| (active + profile.metrics.get(Metric::StallFraction).unwrap_or(0.0)).min(1.0));
        let busy = profile.metrics.get(Metric::GpuBusyFraction);
        // Of all hints, what a cap takes away tells best how much is needed.
        let sensitivity = curve.map(|curve| curve.sensitivity());
        let use_fraction = if is_time_sliced { busy.or(active) } else { sensitivity.or(active).or(busy) };
        Self {
            // A device whose kernels hardly fill it is busy all the time, and still has room.
            load_fraction: if is_time_sliced { busy.or(active) } else { sensitivity.or(active) },
            // Time slices are dealt out in turn, and busy time says nothing of how full a device is.
            filled_fraction: active
                .into_iter()
                .chain(sensitivity)
                .reduce(f64::max)
                .filter(|_| !is_time_sliced),
            use_fraction: use_fraction.map(|part| part.clamp(SPEED_MIN, 1.0)),
            memory_fraction: profile
                .metrics
                .get(Metric::MemoryBandwidthFraction)
                .or(profile.metrics.get(Metric::MemoryBusyFraction)),
            bandwidth_fraction: profile.metrics.get(Metric::MemoryBandwidthFraction),
            curve,
        }
    }

    /// The part of the compute units that it uses, 0..=1, known or assumed.
    fn use_or_assumed(&self) -> f64 {
        self.use_fraction.unwrap_or(USE_UNKNOWN)
    }

    /// Its time beside others on the same units, of which it fills the part `own` and they `filled`, over its time alone.
    fn contested(&self, own: f64, pressure: f64, filled: f64) -> f64 {
        let met = Met { needed: self.use_or_assumed(), own, filled };
        met.delay(COLLISION_LOSS * met.needed * pressure)
    }

    /// The part of the memory bandwidth that it uses, 0..=1, known or assumed.
    fn memory_or_assumed(&self) -> f64 {
        self.memory_fraction.unwrap_or(MEMORY_OF_USE * self.use_or_assumed())
    }

    /// How much of its solo loss under every cap is known, 0..=1; absent = not measured.
    pub(super) fn sensitivity(&self) -> Option<f64> {
        self.curve.and(self.use_fraction)
    }

    /// Speed alone under a cap of 0.1, where it was measured.
    pub(super) fn speed_at_a_tenth(&self) -> Option<f64> {
        self.curve.map(|curve| curve.at(0.1))
    }

    fn alone_at(&self, cap: f64, using: f64) -> f64 {
        if cap >= 1.0 {
            return 1.0;
        }
        if let Some(curve) = &self.curve {
            return curve.at(cap);
        }
        // Mixes steady use (the mean, all the time) with use in bursts (everything, now and then).
        let steady = (using / cap).max(1.0);
        let bursts = (1.0 - using) + using / cap;
        1.0 / ((1.0 - using) * steady + using * bursts.max(steady))
    }
}

/// The part of the device that a tenant can use; 1 = all of it.
pub(super) fn cap(tenant: &TenantInput<'_>) -> f64 {
    tenant.sharing.compute_part().max(SPEED_MIN)
}

/// By how much expected speeds are too high together for one device: tenants on the same compute units cannot get more
/// than all of them. 1 where they are not, or where that is not known.
pub(super) fn excess(appetites: &[Appetite], speeds: &[f64]) -> f64 {
    let loads: Option<Vec<f64>> = appetites.iter().map(|appetite| appetite.load_fraction).collect();
    let total = loads.map_or(0.0, |loads| loads.iter().zip(speeds).map(|(load, speed)| load * speed).sum());
    (total / CAPACITY).max(1.0)
}

/// How open it is who wins where this speed is expected: 1 in the middle, 0 where one is sure to.
pub(super) fn contest(speed_fraction: f64) -> f64 {
    4.0 * speed_fraction * (1.0 - speed_fraction)
}

/// What to expect of the tenant at `own`.
pub(super) fn expected(appetites: &[Appetite], caps: &[f64], own: usize) -> Expected {
    let cap = caps[own];
    let others = (0..appetites.len()).filter(|other| *other != own);
    let overlap = others.clone().map(|other| filling::overlap(cap, caps[other])).fold(0.0, f64::max);
    if appetites.iter().all(|appetite| appetite.use_fraction.is_none()) {
        let count = small(appetites.len());
        let speed_fraction = if appetites.len() < 2 { 1.0 } else { SPEED_UNKNOWN * 2.0 / count };
        let speed_fraction = speed_fraction.min(cap.max(SPEED_MIN));
        return Expected { speed_fraction, doubt: DOUBT_UNKNOWN, overlap, cap, solo_deviation: 0.0 };
    }
    let (mut pressure, mut filled, mut memory, mut bandwidth) = (0.0, Some(0.0), 0.0, 0.0);
    for other in others {
        let (appetite, other_cap) = (&appetites[other], caps[other]);
        let use_fraction = appetite.use_or_assumed();
        let overlap = filling::overlap(cap, other_cap);
        pressure += use_fraction.min(other_cap) * overlap;
        filled = filled.zip(appetite.filled_fraction).map(|(sum, part)| sum + part.min(other_cap) * overlap);
        // Whoever has a part of the device presses in proportion to what it gets done.
        let alone = appetite.alone_at(other_cap, use_fraction);
        memory += appetite.memory_or_assumed() * alone;
        bandwidth += appetite.bandwidth_fraction.unwrap_or(0.0) * alone;
    }
    let this = &appetites[own];
    let contested = match filled.zip(this.filled_fraction) {
        Some((filled, own)) => this.contested(own.min(cap), pressure, filled),
        None => 1.0 + this.use_or_assumed() * pressure,
    };
    let crowded = this.bandwidth_fraction.map_or(1.0, |own| crowding::delay(own, bandwidth));
    let contention = contested * (1.0 + MEMORY_LOSS * this.memory_or_assumed() * memory).max(crowded);
    let alone = this.alone_at(cap, this.use_or_assumed());
    let of_cap = if cap < 1.0 && this.curve.is_none() { DOUBT_OF_CAP } else { 0.0 };
    let doubt = DOUBT_APART + DOUBT_OF_PRESSURE * pressure.min(1.0).powf(DOUBT_EXPONENT) + of_cap;
    let speed_fraction = (alone / contention).clamp(SPEED_MIN, 1.0);
    let solo_deviation = this.curve.map_or(0.0, |curve| speed_fraction * curve.deviation_fraction_at(cap));
    Expected { speed_fraction, doubt, overlap, cap, solo_deviation }
}
