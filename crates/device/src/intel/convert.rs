//! What Level Zero says, in our words and units: the one place where that is done. Pure.
//!
//! Counters are of sysman (`zes_api.h`, specification 1.4): microjoules, microseconds, bytes, megahertz. A rate is the
//! difference of a counter over the difference of its own timestamps; a counter that went back gives none.

use super::calls::{Answer, Failure};
use crate::DeviceError;
use level_zero_sys::*;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource, Throttle};
use pillion_core::{DeviceUuid, Fraction};
use std::collections::BTreeSet;
use std::ffi::c_char;
use std::fmt::Write as _;

/// A memory module at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModuleMemory {
    pub(super) free_bytes: u64,
    pub(super) size_bytes: u64,
}

impl From<zes_mem_state_t> for ModuleMemory {
    fn from(state: zes_mem_state_t) -> Self {
        Self { free_bytes: state.free, size_bytes: state.size }
    }
}

/// A clock at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frequency {
    /// Negative if unknown.
    pub(super) actual_megahertz: f64,
    pub(super) throttle_reasons: u32,
}

impl From<zes_freq_state_t> for Frequency {
    fn from(state: zes_freq_state_t) -> Self {
        Self { actual_megahertz: state.actual, throttle_reasons: state.throttleReasons }
    }
}

/// What the counters of one tile showed at one moment.
pub(super) struct Sample {
    pub(super) energy: Answer<zes_power_energy_counter_t>,
    pub(super) memory: Answer<Vec<ModuleMemory>>,
    pub(super) bandwidth: Answer<Vec<zes_mem_bandwidth_t>>,
    pub(super) activity: Answer<Vec<zes_engine_stats_t>>,
    pub(super) frequency: Answer<Frequency>,
}

impl Sample {
    /// The calls that failed.
    pub(super) fn failures(&self) -> Vec<Failure> {
        let Self { energy, memory, bandwidth, activity, frequency } = self;
        let all = [
            energy.as_ref().err(),
            memory.as_ref().err(),
            bandwidth.as_ref().err(),
            activity.as_ref().err(),
            frequency.as_ref().err(),
        ];
        all.into_iter().flatten().copied().collect()
    }
}

/// How many queries a sample has.
pub(super) const QUERY_COUNT: usize = 5;

/// The reading of two samples of one tile.
pub(super) fn reading(before: Option<&Sample>, now: &Sample) -> Reading {
    let frequency = now.frequency.as_ref().ok();
    let energy = now.energy.as_ref().ok().map(|counter| micro(counter.energy));
    let mut reading = Reading::default();
    let metrics = &mut reading.metrics;
    metrics.set_known(Metric::EnergyJoules, energy);
    metrics.set_known(
        Metric::PowerWatts,
        before.and_then(|before| power_watts(before.energy.as_ref().ok()?, now.energy.as_ref().ok()?)),
    );
    metrics.set_known(
        Metric::GpuBusyFraction,
        before.and_then(|before| busy(before.activity.as_ref().ok()?, now.activity.as_ref().ok()?)),
    );
    metrics.set_known(
        Metric::MemoryBandwidthFraction,
        before.and_then(|before| bandwidth(before.bandwidth.as_ref().ok()?, now.bandwidth.as_ref().ok()?)),
    );
    metrics.set_known(Metric::SmClockHertz, frequency.and_then(|state| hertz(state.actual_megahertz)));
    if let Some(bytes) = now.memory.as_deref().ok().and_then(memory_bytes_used) {
        metrics.set_bytes(Metric::MemoryBytesUsed, bytes);
    }
    if let Some(state) = frequency {
        reading.set_throttles(throttles(state.throttle_reasons));
    }
    reading.metrics.tag_untagged(MetricSource::Sysman);
    reading
}

/// Microjoules in joules, microseconds in seconds, bytes in millions.
#[expect(clippy::cast_precision_loss, reason = "a counter's last digits do not matter")]
fn micro(count: u64) -> f64 {
    count as f64 / 1e6
}

/// How far a counter and its timestamp went; `None` if either went back, or no time has passed.
fn advance(counter: (u64, u64), timestamp: (u64, u64)) -> Option<(u64, u64)> {
    let ((before, now), (then, at)) = (counter, timestamp);
    Some((now.checked_sub(before)?, at.checked_sub(then).filter(|passed| *passed > 0)?))
}

/// Mean watts between two samples of an energy counter: microjoules a microsecond.
pub(super) fn power_watts(
    before: &zes_power_energy_counter_t,
    now: &zes_power_energy_counter_t,
) -> Option<f64> {
    let (energy, time) = advance((before.energy, now.energy), (before.timestamp, now.timestamp))?;
    Some(micro(energy) / micro(time))
}

/// Bytes in use in all modules of a tile; `None` if a module says nonsense.
pub(super) fn memory_bytes_used(modules: &[ModuleMemory]) -> Option<u64> {
    modules.iter().map(|state| state.size_bytes.checked_sub(state.free_bytes)).sum()
}

/// Bytes that all modules of a tile hold.
pub(super) fn memory_bytes(modules: &[ModuleMemory]) -> u64 {
    modules.iter().map(|state| state.size_bytes).sum()
}

/// Bytes read and written a second, of the most that the modules can; `None` where that is not known.
pub(super) fn bandwidth(before: &[zes_mem_bandwidth_t], now: &[zes_mem_bandwidth_t]) -> Option<Fraction> {
    let (mut rate, mut rate_max) = (0.0, 0.0);
    for (before, now) in before.iter().zip(now) {
        let timestamp = (before.timestamp, now.timestamp);
        let (read, time) = advance((before.readCounter, now.readCounter), timestamp)?;
        let (written, _) = advance((before.writeCounter, now.writeCounter), timestamp)?;
        rate += (micro(read) + micro(written)) / micro(time);
        // Millions of bytes a second, as the rate.
        rate_max += micro(now.maxBandwidth);
    }
    (before.len() == now.len() && rate_max > 0.0).then(|| Fraction::clamped(rate / rate_max))
}

/// The most bytes a second of all modules together, where it is known.
#[expect(clippy::cast_precision_loss, reason = "bytes a second are far below 2^53")]
pub(super) fn bandwidth_max(modules: &[zes_mem_bandwidth_t]) -> Option<f64> {
    let most: u64 = modules.iter().map(|module| module.maxBandwidth).sum();
    (most > 0).then_some(most as f64)
}

/// The part of the time in which the busiest of these engine groups did anything.
pub(super) fn busy(before: &[zes_engine_stats_t], now: &[zes_engine_stats_t]) -> Option<Fraction> {
    let mut busiest: Option<f64> = None;
    for (before, now) in before.iter().zip(now) {
        let (active, time) = advance((before.activeTime, now.activeTime), (before.timestamp, now.timestamp))?;
        let part = micro(active) / micro(time);
        busiest = Some(busiest.map_or(part, |busiest| busiest.max(part)));
    }
    busiest.map(Fraction::clamped)
}

/// Megahertz in hertz; negative is unknown.
pub(super) fn hertz(megahertz: f64) -> Option<f64> {
    (megahertz.is_finite() && megahertz >= 0.0).then_some(megahertz * 1e6)
}

/// What holds the clock down. A limit of current is one of power; a range, by software or because a part of the chip has
/// a lower one, is a setting.
pub(super) fn throttles(reasons: u32) -> BTreeSet<Throttle> {
    [
        (ZES_FREQ_THROTTLE_REASON_FLAG_AVE_PWR_CAP, Throttle::PowerLimit),
        (ZES_FREQ_THROTTLE_REASON_FLAG_BURST_PWR_CAP, Throttle::PowerLimit),
        (ZES_FREQ_THROTTLE_REASON_FLAG_CURRENT_LIMIT, Throttle::PowerLimit),
        (ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT, Throttle::Heat),
        (ZES_FREQ_THROTTLE_REASON_FLAG_PSU_ALERT, Throttle::PowerBrake),
        (ZES_FREQ_THROTTLE_REASON_FLAG_SW_RANGE, Throttle::Setting),
        (ZES_FREQ_THROTTLE_REASON_FLAG_HW_RANGE, Throttle::Setting),
    ]
    .into_iter()
    .filter_map(|(flag, throttle)| (reasons & flag != 0).then_some(throttle))
    .collect()
}

/// A C string of fixed room.
#[expect(clippy::cast_sign_loss, reason = "bytes of a text")]
pub(super) fn text(room: &[c_char]) -> String {
    let bytes: Vec<u8> = room.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The model as profiles are kept by it: `max-1550`. By the number where drivers call all of them "Graphics"; numbers and
/// names are those of intel/compute-runtime, `shared/source/dll/devices/devices_base.inl`.
pub(super) fn model(name: &str, device_id: u32) -> String {
    let by_number = match device_id {
        0x0bd5 | 0x0bd6 => Some("max-1550"),
        0x0bd4 => Some("max-1550vg"),
        0x0bd7 | 0x0bd8 => Some("max-1350"),
        0x0bd9..=0x0bdb => Some("max-1100"),
        0x0b69 => Some("max-1450"),
        0x0b6e => Some("max-1100c"),
        _ => None,
    };
    if let Some(model) = by_number {
        return model.to_owned();
    }
    let noise = ["intel(r)", "(tm)", "data", "center", "gpu", "graphics", "corporation"];
    let lower = name.to_lowercase().replace("(tm)", " ");
    let words: Vec<String> = lower
        .split_whitespace()
        .filter(|word| !noise.contains(word))
        .map(|word| word.chars().filter(char::is_ascii_alphanumeric).collect())
        .filter(|word: &String| !word.is_empty())
        .collect();
    if words.is_empty() { format!("intel-{device_id:04x}") } else { words.join("-") }
}

/// A card's UUID, with the tile where it has several. The bytes stand in Level Zero's order, the last first
/// (`ze_device_uuid_t`, "opaque data structure"; printed as `sycl-ls` and XPU Manager do).
pub(super) fn uuid(bytes: &[u8; 16], tile: u32, tile_count: u32) -> DeviceUuid {
    let mut text = String::new();
    for (position, byte) in bytes.iter().rev().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    if tile_count > 1 {
        let _ = write!(text, ".{tile}");
    }
    DeviceUuid::new(text)
}

/// An address as Linux writes it: `0000:18:00.0`.
pub(super) fn pci_address(address: zes_pci_address_t) -> String {
    let zes_pci_address_t { domain, bus, device, function } = address;
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

/// Whether the device itself went away.
pub(super) fn is_lost(failure: Failure) -> bool {
    matches!(failure.result, ZE_RESULT_ERROR_DEVICE_LOST | ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET)
}

/// Whether it takes more rights.
pub(super) fn is_forbidden(failure: Failure) -> bool {
    failure.result == ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS
}

/// A failure in one sentence.
pub(super) fn words(failure: Failure) -> String {
    let Failure { call, result } = failure;
    let said = match result {
        ZE_RESULT_NOT_READY => "not ready",
        ZE_RESULT_ERROR_DEVICE_LOST => "device lost",
        ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET => "device requires a reset",
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS => {
            return format!(
                "{call} takes more rights: run the agent as root, or with CAP_PERFMON and in the group of /dev/dri/render*"
            );
        }
        ZE_RESULT_ERROR_NOT_AVAILABLE => "in use by another, or not available",
        ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE => "a library that it needs is missing",
        ZE_RESULT_ERROR_UNINITIALIZED => "not initialised",
        ZE_RESULT_ERROR_UNSUPPORTED_VERSION => "version not supported",
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE => "not supported",
        _ => return format!("{call} answered {result:#010x}"),
    };
    format!("{call}: {said}")
}

/// A failure on a device, as every backend tells it.
pub(super) fn device_error(index: u32, failure: Failure) -> DeviceError {
    let reason = words(failure);
    match failure.result {
        _ if is_lost(failure) => DeviceError::Gone { index, reason },
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS => DeviceError::Refused { index, reason },
        ZE_RESULT_NOT_READY | ZE_RESULT_ERROR_NOT_AVAILABLE => DeviceError::NotReady { index, reason },
        ZE_RESULT_ERROR_UNSUPPORTED_VERSION
        | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
        | ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE => DeviceError::Unsupported { index, reason },
        _ => DeviceError::Garbled { reason },
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
