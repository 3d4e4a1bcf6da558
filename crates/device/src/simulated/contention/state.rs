//! One joint state: who runs which phase right now, and how fast each goes.

use super::seat::{Phase, Seat};
use super::water::water_fill;
use crate::simulated::hardware::Hardware;

/// How fast each tenant goes in one joint state, and what it uses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StateRates {
    /// In the order of the seats; all zero for a tenant in its gap.
    pub(super) tenants: Vec<TenantRate>,
}

/// One tenant in one joint state; fractions are of the whole device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct TenantRate {
    pub(super) phases_per_second: f64,
    pub(super) issue: f64,
    pub(super) issue_power: f64,
    pub(super) stall: f64,
    pub(super) memory: f64,
    pub(super) cache: f64,
}

/// A tenant that runs a kernel in this state.
struct Runner<'a> {
    seat: usize,
    engine: usize,
    context: usize,
    phase: &'a Phase,
    units_max: f64,
    /// Of its engine's time.
    time_share: f64,
    /// While it has its slice.
    units: f64,
    compute_seconds: f64,
    miss_bytes: f64,
}

impl Runner<'_> {
    /// Waiting for misses while the others use `busy_others` of the bandwidth. What a phase waits grows with its misses.
    fn stall_seconds(&self, latency_growth: f64, busy_others: f64) -> f64 {
        let misses = if self.phase.miss_bytes_alone > 0.0 {
            self.miss_bytes / self.phase.miss_bytes_alone
        } else {
            1.0
        };
        self.phase.stall_seconds * misses * (1.0 + latency_growth * busy_others)
    }

    /// Bytes a second it would take if bandwidth were free, while it has its slice.
    fn memory_demand(&self) -> f64 {
        self.miss_bytes / (self.compute_seconds + self.stall_seconds(0.0, 0.0)).max(1e-12)
    }
}

/// `phases`: for each seat 0 = in its gap, k = in phase k - 1.
pub(super) fn rates_in_state(
    hardware: &Hardware,
    engine_count: usize,
    seats: &[Seat],
    phases: &[usize],
    clock: f64,
) -> StateRates {
    let mut runners: Vec<Runner<'_>> = seats
        .iter()
        .zip(phases)
        .enumerate()
        .filter(|(_, (_, phase))| **phase > 0)
        .map(|(index, (seat, phase))| Runner {
            seat: index,
            engine: seat.engine,
            context: seat.context,
            phase: &seat.cycle.phases[phase - 1],
            units_max: seat.units_max,
            time_share: 1.0,
            units: 0.0,
            compute_seconds: 0.0,
            miss_bytes: 0.0,
        })
        .collect();
    share_units(hardware, engine_count, &mut runners, clock);
    share_cache(hardware, &mut runners);
    let mut tenants = vec![TenantRate::default(); seats.len()];
    for (runner, rate) in runners.iter().zip(share_bandwidth(hardware, &runners)) {
        tenants[runner.seat] = rate;
    }
    StateRates { tenants }
}

/// Contexts of one engine are time-sliced and lose a little at each turn; tenants of one context share its units.
fn share_units(hardware: &Hardware, engine_count: usize, runners: &mut [Runner<'_>], clock: f64) {
    #[expect(clippy::cast_precision_loss, reason = "1, 2 or 4 engines; a handful of contexts")]
    let engine_units = hardware.units() / engine_count as f64;
    let places: Vec<(usize, usize)> = runners.iter().map(|runner| (runner.engine, runner.context)).collect();
    for index in 0..runners.len() {
        let (engine, context) = places[index];
        let mut turns: Vec<usize> =
            places.iter().filter(|place| place.0 == engine).map(|place| place.1).collect();
        turns.sort_unstable();
        turns.dedup();
        let together: Vec<usize> =
            (0..places.len()).filter(|other| places[*other] == (engine, context)).collect();
        let demands: Vec<f64> = together
            .iter()
            .map(|other| runners[*other].phase.width_units.min(runners[*other].units_max).min(engine_units))
            .collect();
        let parts = water_fill(engine_units, &demands);
        let mine = together.iter().position(|other| *other == index).map_or(0.0, |position| parts[position]);
        let runner = &mut runners[index];
        #[expect(clippy::cast_precision_loss, reason = "a handful of contexts")]
        let turn_count = turns.len() as f64;
        let lost = if turns.len() > 1 { hardware.switch_fraction } else { 0.0 };
        runner.time_share = (1.0 - lost) / turn_count;
        runner.units = mine;
        let split = if engine_count > 1 { 1.0 + hardware.split_fraction } else { 1.0 };
        runner.compute_seconds =
            runner.phase.compute_seconds * split * runner.phase.width_units / (mine * clock);
    }
}

/// The cache is divided by footprint among all whose kernels run; what does not hit goes to memory.
fn share_cache(hardware: &Hardware, runners: &mut [Runner<'_>]) {
    let footprints: Vec<f64> = runners.iter().map(|runner| runner.phase.footprint_bytes).collect();
    let parts = water_fill(hardware.cache_bytes, &footprints);
    for (runner, part) in runners.iter_mut().zip(parts) {
        runner.miss_bytes = miss_bytes(runner.phase, part);
    }
}

/// Misses of one pass through a phase with `cached_bytes` of its footprint in the cache.
fn miss_bytes(phase: &Phase, cached_bytes: f64) -> f64 {
    let resident =
        if phase.footprint_bytes > 0.0 { (cached_bytes / phase.footprint_bytes).min(1.0) } else { 1.0 };
    phase.cache_bytes * (1.0 - phase.reuse_fraction * resident)
}

/// Memory bandwidth, max-min fair among those who run at the same time: the same context, and the other engines.
fn share_bandwidth(hardware: &Hardware, runners: &[Runner<'_>]) -> Vec<TenantRate> {
    (0..runners.len()).map(|index| rate(hardware, runners, index)).collect()
}

/// What the runner at `index` does a second, with its part of the memory bandwidth.
fn rate(hardware: &Hardware, runners: &[Runner<'_>], index: usize) -> TenantRate {
    let (capacity, runner) = (hardware.memory_bytes_per_second, &runners[index]);
    let demands: Vec<f64> = runners
        .iter()
        .enumerate()
        .map(|(position, other)| {
            if position == index || (other.engine == runner.engine && other.context == runner.context) {
                other.memory_demand()
            } else if other.engine == runner.engine {
                0.0
            } else {
                other.memory_demand() * other.time_share
            }
        })
        .collect();
    let parts = water_fill(capacity, &demands);
    let others: f64 = parts.iter().sum::<f64>() - parts[index];
    let stall = runner.stall_seconds(hardware.latency_growth, (others / capacity).min(1.0));
    let transfer = if runner.miss_bytes > 0.0 { runner.miss_bytes / parts[index] } else { 0.0 };
    let seconds = (runner.compute_seconds + stall).max(transfer);
    let on_units = runner.time_share * runner.units / hardware.units();
    let issue = on_units * runner.compute_seconds / seconds;
    TenantRate {
        phases_per_second: runner.time_share / seconds,
        issue,
        issue_power: issue * runner.phase.power_coefficient,
        stall: on_units - issue,
        memory: runner.time_share * runner.miss_bytes / seconds / capacity,
        cache: runner.time_share * runner.phase.cache_bytes / seconds / hardware.cache_bytes_per_second,
    }
}
