//! XPU Manager: the names and units of its metrics, and the cards and tiles that they are about. Pure.
//!
//! Version 1 (`xpum_*`) publishes cards and tiles (`sub_dev`) with ratios 0..=1, joules, watts, bytes and megahertz, and has
//! XVE active and stall where the site turned them on. Version 2 (xpumd, `hw_*`) publishes OpenTelemetry's names in base
//! units, engine by engine and sensor by sensor, and no XVE metrics at all. Both name the device by Level Zero's UUID. What
//! a card itself does not say is put together from its tiles, as version 1 does it: means of ratios and clocks, sums of
//! the rest.
//!
//! Sources: intel/xpumanager `rest/prometheus_exporter*.py` and `doc/Prometheus_Exported_Metrics.csv` (v1),
//! `xpumd/receiver/intelxpu/sysman/documentation.md`, `engine.go`, `memory.go`, `power.go` and its script that converts
//! dashboards (v2).

use super::page::{Page, Seen};
use super::text::Sample;
use pillion_core::DeviceUuid;
use pillion_core::metric::Metric;
use std::collections::BTreeMap;

/// How [`page`] names a tile of a card: as `ZE_AFFINITY_MASK` does, `card.tile`.
pub fn tile_uuid(card: &DeviceUuid, tile: &str) -> DeviceUuid {
    DeviceUuid::new(format!("{card}.{tile}"))
}

/// What a sample measures.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Meaning {
    metric: Metric,
    /// What one of its units is in ours.
    unit: f64,
    /// Of several that are there for one part of a device, those of the least rank count.
    rank: u8,
    /// A total of bytes, whose rate is wanted.
    is_total: bool,
}

const fn plain(metric: Metric, unit: f64, rank: u8) -> Meaning {
    Meaning { metric, unit, rank, is_total: false }
}

const fn total(metric: Metric) -> Meaning {
    Meaning { metric, unit: 1.0, rank: 0, is_total: true }
}

/// What a sample of version 1 measures. The Python client of Prometheus ends names of counters in `_total`.
fn meaning_v1(sample: &Sample<'_>) -> Option<Meaning> {
    let is = |label, value| sample.label(label) == Some(value);
    let meaning = match sample.name {
        "xpum_engine_ratio" => plain(Metric::GpuBusyFraction, 1.0, 0),
        "xpum_engine_group_ratio" if is("type", "compute") => plain(Metric::GpuBusyFraction, 1.0, 1),
        "xpum_eu_active_ratio" => plain(Metric::SmActiveFraction, 1.0, 0),
        "xpum_eu_stall_ratio" => plain(Metric::StallFraction, 1.0, 0),
        "xpum_memory_bandwidth_ratio" => plain(Metric::MemoryBandwidthFraction, 1.0, 0),
        "xpum_memory_used_bytes" => plain(Metric::MemoryBytesUsed, 1.0, 0),
        "xpum_power_watts" => plain(Metric::PowerWatts, 1.0, 0),
        "xpum_energy_joules" | "xpum_energy_joules_total" => plain(Metric::EnergyJoules, 1.0, 0),
        "xpum_frequency_mhz" if is("location", "gpu") && is("type", "actual") => {
            plain(Metric::SmClockHertz, 1_000_000.0, 0)
        }
        "xpum_pcie_write_bytes" | "xpum_pcie_write_bytes_total" => total(Metric::PcieTxBytesPerSecond),
        "xpum_pcie_read_bytes" | "xpum_pcie_read_bytes_total" => total(Metric::PcieRxBytesPerSecond),
        _ => return None,
    };
    Some(meaning)
}

/// What a sample of version 2 measures.
fn meaning_v2(sample: &Sample<'_>) -> Option<Meaning> {
    let is = |label, value| sample.label(label) == Some(value);
    let meaning = match sample.name {
        "hw_gpu_utilization_ratio" if is("hw_gpu_task", "all") => plain(Metric::GpuBusyFraction, 1.0, 0),
        "hw_gpu_utilization_ratio" if is("hw_gpu_task", "compute-all") => {
            plain(Metric::GpuBusyFraction, 1.0, 1)
        }
        "hw_memory_bandwidth_utilization_ratio" if is("hw_memory_location", "device") => {
            plain(Metric::MemoryBandwidthFraction, 1.0, 0)
        }
        "hw_memory_usage_bytes" if is("hw_memory_location", "device") => {
            plain(Metric::MemoryBytesUsed, 1.0, 0)
        }
        "hw_power_watts" => plain(Metric::PowerWatts, 1.0, sensor_rank(sample)?),
        "hw_energy_joules_total" => plain(Metric::EnergyJoules, 1.0, sensor_rank(sample)?),
        "hw_frequency_hertz" if is("hw_frequency_domain", "gpu") && is("aggregation", "avg") => {
            plain(Metric::SmClockHertz, 1.0, 0)
        }
        "hw_gpu_io_bytes_total" if is("network_io_direction", "transmit") => {
            total(Metric::PcieTxBytesPerSecond)
        }
        "hw_gpu_io_bytes_total" if is("network_io_direction", "receive") => {
            total(Metric::PcieRxBytesPerSecond)
        }
        _ => return None,
    };
    Some(meaning)
}

/// The whole card before its package, the package before the compute part. Memory's own sensor is no measure of either.
fn sensor_rank(sample: &Sample<'_>) -> Option<u8> {
    match sample.label("hw_sensor_location") {
        Some("card") => Some(0),
        Some("package") => Some(1),
        Some("gpu") | None => Some(2),
        Some(_) => None,
    }
}

/// All that was said of one metric of one card or tile.
#[derive(Debug, Default)]
struct Said {
    rank: u8,
    is_total: bool,
    values: Vec<f64>,
}

/// A card (`None`) or one of its tiles.
type Part = (DeviceUuid, Option<String>);

/// What a page says of each card, and of each tile under [`tile_uuid`]; `None` if nothing on it is of XPU Manager.
pub(super) fn page(samples: &[Sample<'_>]) -> Option<Page> {
    let mut parts: BTreeMap<Part, BTreeMap<Metric, Said>> = BTreeMap::new();
    let mut stamps: BTreeMap<DeviceUuid, Option<i64>> = BTreeMap::new();
    let mut is_xpum = false;
    for sample in samples {
        is_xpum |= sample.name.starts_with("xpum_") || sample.name.starts_with("hw_gpu_");
        let (uuid, tile, meaning) = if sample.name.starts_with("xpum_") {
            (sample.label("uuid"), sample.label("sub_dev"), meaning_v1(sample))
        } else {
            (sample.label("hw_id"), sample.label("com_intel_subdevice_id"), meaning_v2(sample))
        };
        // Version 1 also sums up cards of several devices, without a UUID.
        let (Some(uuid), Some(meaning)) = (uuid, meaning) else { continue };
        let uuid = dashed(uuid);
        let stamp = stamps.entry(uuid.clone()).or_default();
        *stamp = (*stamp).max(sample.stamp_millis);
        let part = parts.entry((uuid, tile.map(str::to_owned))).or_default();
        if sample.value.is_finite() {
            hear(part, meaning, sample.value);
        }
    }
    is_xpum.then(|| together(parts, &stamps))
}

fn hear(part: &mut BTreeMap<Metric, Said>, meaning: Meaning, value: f64) {
    let Meaning { metric, unit, rank, is_total } = meaning;
    let said = part.entry(metric).or_insert_with(|| Said { rank, is_total, values: Vec::new() });
    if rank < said.rank {
        *said = Said { rank, is_total, values: Vec::new() };
    }
    if rank == said.rank {
        said.values.push(value * unit);
    }
}

fn together(
    parts: BTreeMap<Part, BTreeMap<Metric, Said>>,
    stamps: &BTreeMap<DeviceUuid, Option<i64>>,
) -> Page {
    let mut cards = Page::new();
    let mut tiles = Page::new();
    let mut of_tiles: BTreeMap<DeviceUuid, BTreeMap<Metric, Said>> = BTreeMap::new();
    for ((uuid, tile), said) in parts {
        let seen = Seen { stamp_millis: stamps.get(&uuid).copied().flatten(), ..seen(&said) };
        match tile {
            None => {
                cards.insert(uuid, seen);
            }
            Some(tile) => {
                tiles.insert(tile_uuid(&uuid, &tile), seen);
                let card = of_tiles.entry(uuid).or_default();
                for (metric, Said { rank, is_total, values }) in said {
                    let one = combined(metric, &values);
                    let all =
                        card.entry(metric).or_insert_with(|| Said { rank, is_total, values: Vec::new() });
                    all.values.push(one);
                }
            }
        }
    }
    for (uuid, said) in of_tiles {
        let Seen { values, totals, .. } = seen(&said);
        let stamp_millis = stamps.get(&uuid).copied().flatten();
        let card = cards.entry(uuid).or_insert_with(|| Seen { stamp_millis, ..Seen::default() });
        for (metric, value) in values {
            card.values.entry(metric).or_insert(value);
        }
        for (metric, value) in totals {
            card.totals.entry(metric).or_insert(value);
        }
    }
    cards.append(&mut tiles);
    cards
}

fn seen(said: &BTreeMap<Metric, Said>) -> Seen {
    let mut seen = Seen::default();
    for (metric, Said { is_total, values, .. }) in said {
        let into = if *is_total { &mut seen.totals } else { &mut seen.values };
        into.insert(*metric, combined(*metric, values));
    }
    seen
}

/// Several parts of a device as one: parts of one size, so that ratios and clocks have a mean and the rest a sum.
#[expect(clippy::cast_precision_loss, reason = "a device has few parts")]
fn combined(metric: Metric, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    if metric.unit().adds_up() { sum } else { sum / values.len() as f64 }
}

/// A UUID as Level Zero's tools write it, in lower case and with dashes, whichever way it was written; another name as it
/// stands.
pub(super) fn dashed(uuid: &str) -> DeviceUuid {
    let digits: String = uuid.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return DeviceUuid::new(uuid);
    }
    DeviceUuid::new(format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    ))
}

#[cfg(test)]
#[path = "xpum_tests.rs"]
mod tests;
