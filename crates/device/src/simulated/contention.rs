//! Contention: what several tenants of one device get of its units, cache, bandwidth and power. Pure.
//!
//! The mechanism, and no formula over solo profiles. Each tenant cycles through a gap (no kernel of it runs: launch
//! overhead, input, Python) and kernel phases. A phase needs unit-seconds of computing on at most `width` units, waits
//! `stall_seconds` for memory, and moves bytes through the cache, of which the misses go to memory.
//!
//! 1. In each *joint state* (which tenant is in which phase) the device hands out what it has: engines and time slices,
//!    units by max-min fairness under each seat's cap, cache capacity by footprint, memory bandwidth by max-min
//!    fairness. That gives the speed of each phase in that state (`state`).
//! 2. Tenants run unsynchronised, so a phase meets each state as often as the others are in theirs. The time spent in
//!    each phase is the fixed point of that (`settle`).
//! 3. If the power in that fixed point exceeds the limit, the clock falls until it does not ([`evaluate`]).
//!
//! A consequence known from real devices: a third tenant can slow the second so much that the first gains a little.

mod seat;
mod state;
mod water;

pub use seat::{Cycle, Phase, Seat};
pub use water::water_fill;

use super::hardware::Hardware;
use seat::merge;
use state::{StateRates, rates_in_state};

/// How the dynamic power of issuing grows with the clock (frequency, and voltage with it).
const CLOCK_POWER_EXPONENT: f64 = 2.4;
/// The clock never falls below this part of its greatest.
const CLOCK_MIN: f64 = 0.3;
/// Above this many joint states the phases of each tenant are merged.
const STATES_MAX: usize = 512;

/// The most tenants that one device can be simulated with.
pub const TENANTS_MAX: usize = 8;

/// What one tenant gets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// Cycles a second.
    pub cycles_per_second: f64,
    /// Units of the device that issue for it.
    pub issue: f64,
    /// Units of the device on which it waits.
    pub stall: f64,
}

/// What the device does, all tenants together: fractions of its greatest.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// The power that the device draws.
    pub power_watts: f64,
    /// Any kernel runs.
    pub busy: f64,
    /// Units that issue instructions.
    pub issue: f64,
    /// Units with threads resident that all wait.
    pub stall: f64,
    /// Memory bandwidth in use.
    pub memory: f64,
    /// Cache bandwidth in use.
    pub cache: f64,
    /// Issuing, weighted by power coefficient.
    pub issue_power: f64,
    /// The clock as a fraction of the greatest: less under the power limit.
    pub clock: f64,
}

/// What everybody gets, and what the device does meanwhile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settled {
    /// In the order of the seats.
    pub shares: Vec<Share>,
    /// What the device does in all.
    pub used: Use,
}

/// Settles who gets what on a device with `engine_count` engines (each an equal part of the units).
pub fn evaluate(hardware: &Hardware, engine_count: usize, seats: &[Seat]) -> Settled {
    let merged: Vec<Seat>;
    let states: usize = seats.iter().map(|seat| seat.cycle.phases.len() + 1).product();
    let seats = if states > STATES_MAX {
        merged = seats.iter().map(|seat| Seat { cycle: merge(&seat.cycle), ..seat.clone() }).collect();
        &merged
    } else {
        seats
    };
    let at = |clock: f64| settle(hardware, engine_count, seats, clock);
    let full = at(1.0);
    if full.used.power_watts <= hardware.power.watts_max {
        return full;
    }
    let (mut low, mut high) = (CLOCK_MIN, 1.0);
    for _ in 0..14 {
        let middle = f64::midpoint(low, high);
        if at(middle).used.power_watts > hardware.power.watts_max { high = middle } else { low = middle }
    }
    at(low)
}

/// One joint state and what happens in it.
struct Joint {
    /// For each seat: 0 = gap, k = phase k - 1.
    phases: Vec<usize>,
    rates: StateRates,
}

/// The fixed point at one clock.
fn settle(hardware: &Hardware, engine_count: usize, seats: &[Seat], clock: f64) -> Settled {
    let joints = enumerate(hardware, engine_count, seats, clock);
    // Seconds in each phase of a cycle (0 = gap); the gap is the host's and nobody stretches it.
    let mut seconds: Vec<Vec<f64>> = seats
        .iter()
        .map(|seat| {
            let kernels = seat.cycle.phases.iter().map(|phase| phase.compute_seconds + phase.stall_seconds);
            std::iter::once(seat.cycle.gap_seconds).chain(kernels).collect()
        })
        .collect();
    for _ in 0..200 {
        let odds = odds(&seconds);
        let mut met: Vec<Vec<f64>> = seconds.iter().map(|parts| vec![0.0; parts.len()]).collect();
        for joint in &joints {
            for seat in 0..seats.len() {
                let weight = weight(&odds, joint, Some(seat));
                met[seat][joint.phases[seat]] += weight * joint.rates.tenants[seat].phases_per_second;
            }
        }
        let mut moved = 0.0_f64;
        for (parts, rates) in seconds.iter_mut().zip(&met) {
            for (part, rate) in parts.iter_mut().zip(rates).skip(1) {
                let next = 0.5 * (*part + 1.0 / rate);
                moved = moved.max((next - *part).abs() / next);
                *part = next;
            }
        }
        if moved < 1e-10 {
            break;
        }
    }
    let odds = odds(&seconds);
    let mut used = Use { clock, ..Use::default() };
    let cycles =
        |parts: &Vec<f64>| Share { cycles_per_second: 1.0 / parts.iter().sum::<f64>(), ..Share::default() };
    let mut shares: Vec<Share> = seconds.iter().map(cycles).collect();
    for joint in &joints {
        let weight = weight(&odds, joint, None);
        for (share, tenant) in shares.iter_mut().zip(&joint.rates.tenants) {
            share.issue += weight * tenant.issue;
            share.stall += weight * tenant.stall;
            used.issue += weight * tenant.issue;
            used.stall += weight * tenant.stall;
            used.memory += weight * tenant.memory;
            used.cache += weight * tenant.cache;
            used.issue_power += weight * tenant.issue_power;
        }
        if joint.phases.iter().any(|phase| *phase > 0) {
            used.busy += weight;
        }
    }
    let power = &hardware.power;
    used.power_watts = power.idle_watts
        + power.awake_watts
        + power.busy_watts * used.busy
        + power.issue_watts * used.issue_power * clock.powf(CLOCK_POWER_EXPONENT)
        + power.stall_watts * used.stall
        + power.memory_watts * used.memory;
    Settled { shares, used }
}

/// How likely each tenant is in each of its phases.
fn odds(seconds: &[Vec<f64>]) -> Vec<Vec<f64>> {
    seconds
        .iter()
        .map(|parts| {
            let total: f64 = parts.iter().sum();
            parts.iter().map(|part| part / total).collect()
        })
        .collect()
}

/// How likely a joint state is, given that seat `given` is in its phase there.
fn weight(odds: &[Vec<f64>], joint: &Joint, given: Option<usize>) -> f64 {
    odds.iter()
        .enumerate()
        .map(|(seat, parts)| if Some(seat) == given { 1.0 } else { parts[joint.phases[seat]] })
        .product()
}

fn enumerate(hardware: &Hardware, engine_count: usize, seats: &[Seat], clock: f64) -> Vec<Joint> {
    let mut joints = Vec::new();
    let mut phases = vec![0; seats.len()];
    loop {
        let rates = rates_in_state(hardware, engine_count, seats, &phases, clock);
        joints.push(Joint { phases: phases.clone(), rates });
        let Some(position) = (0..seats.len()).find(|seat| phases[*seat] < seats[*seat].cycle.phases.len())
        else {
            return joints;
        };
        phases[..position].fill(0);
        phases[position] += 1;
    }
}

#[cfg(test)]
mod tests;
