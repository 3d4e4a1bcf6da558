//! What the device model's counters look like in a driver's units. By its own arithmetic: nothing here is shared with the
//! backend that reads it.

use level_zero_sys::*;
use pillion_device::simulated::Counters;

/// HBM of one tile: half of the 3276.8 GB/s of Intel's data sheet of the Max 1550.
pub(crate) const MEMORY_BYTES_PER_SECOND: u64 = 1_638_400_000_000;
/// L3 of one tile.
pub(crate) const CACHE_BYTES_PER_SECOND: f64 = 5e12;
/// Of the memory traffic, reads.
const READ_PART: f64 = 0.75;
/// What the clock shows while nothing holds it down.
pub(crate) const CLOCK_MEGAHERTZ: f64 = 1600.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters count up from 0")]
pub(crate) fn count(value: f64) -> u64 {
    value.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a data sheet's number")]
pub(crate) fn memory_traffic(bandwidth_seconds: f64) -> (u64, u64) {
    let bytes = bandwidth_seconds * MEMORY_BYTES_PER_SECOND as f64;
    (count(bytes * READ_PART), count(bytes * (1.0 - READ_PART)))
}

pub(crate) fn energy(tiles: &[Counters]) -> zes_power_energy_counter_t {
    let joules: f64 = tiles.iter().map(|counters| counters.totals.energy_joules).sum();
    let seconds = tiles.first().map_or(0.0, |counters| counters.totals.seconds);
    zes_power_energy_counter_t {
        energy: count(joules * 1_000_000.0),
        timestamp: count(seconds * 1_000_000.0),
    }
}

pub(crate) fn bandwidth(counters: &Counters) -> zes_mem_bandwidth_t {
    let (read, written) = memory_traffic(counters.totals.memory);
    zes_mem_bandwidth_t {
        readCounter: read,
        writeCounter: written,
        maxBandwidth: MEMORY_BYTES_PER_SECOND,
        timestamp: count(counters.totals.seconds * 1_000_000.0),
    }
}

pub(crate) fn activity(counters: &Counters) -> zes_engine_stats_t {
    zes_engine_stats_t {
        activeTime: count(counters.totals.busy * 1_000_000.0),
        timestamp: count(counters.totals.seconds * 1_000_000.0),
    }
}
