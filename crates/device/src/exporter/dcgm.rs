//! dcgm-exporter: the names and units of its fields, and the devices that they are about. Pure.
//!
//! Three generations of names are read. DCGM 4.6 renamed the profiling fields and the power; DCGM 4.7 gave clocks, energy,
//! memory and utilization new fields in base units beside the old ones, which dcgm-exporter 4.9 publishes by default. A
//! name always has the same unit, so the version need not be known. The profiling fields are ratios 0..=1 in all of them,
//! the PCIe and NVLink ones bytes a second in spite of their names, and whatever TYPE the site's list of fields says.
//!
//! Sources: NVIDIA/DCGM `dcgmlib/dcgm_fields.h` and `dcgm_fields.py` (4.6: fields 1002 to 1012, 155, 203), NVIDIA/go-dcgm
//! base unit fields 1603, 1611, 1613, 1614 and 1627 (4.7), dcgm-exporter `etc/default-counters.csv` (units) and
//! `internal/pkg/rendermetrics` (labels).

use super::page::Page;
use super::text::Sample;
use pillion_core::DeviceUuid;
use pillion_core::metric::Metric;
use std::collections::BTreeMap;

const MEBI: f64 = 1_048_576.0;

/// A field's name, what it measures, and what one of its units is in ours. Of two that are both there the first counts.
///
/// `DCGM_FI_DEV_GPU_UTIL_RATIO` is a ratio in 4.7. In 4.6 the same name was a whole percentage, which no list of fields
/// that was shipped contains; as a ratio nothing of it but 0 and 1 percent can be mistaken.
const FIELDS: [(&str, Metric, f64); 26] = [
    ("DCGM_FI_PROF_SM_ACTIVE", Metric::SmActiveFraction, 1.0),
    ("DCGM_FI_PROF_SM_UTIL_RATIO", Metric::SmActiveFraction, 1.0),
    ("DCGM_FI_PROF_SM_OCCUPANCY", Metric::SmOccupancyFraction, 1.0),
    ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", Metric::SmOccupancyFraction, 1.0),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", Metric::Fp32ActiveFraction, 1.0),
    ("DCGM_FI_PROF_FP32_UTIL_RATIO", Metric::Fp32ActiveFraction, 1.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Metric::TensorActiveFraction, 1.0),
    ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", Metric::TensorActiveFraction, 1.0),
    ("DCGM_FI_PROF_DRAM_ACTIVE", Metric::MemoryBandwidthFraction, 1.0),
    ("DCGM_FI_PROF_DRAM_UTIL_RATIO", Metric::MemoryBandwidthFraction, 1.0),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", Metric::PcieTxBytesPerSecond, 1.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", Metric::PcieRxBytesPerSecond, 1.0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", Metric::NvlinkTxBytesPerSecond, 1.0),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", Metric::NvlinkRxBytesPerSecond, 1.0),
    ("DCGM_FI_DEV_GPU_UTIL", Metric::GpuBusyFraction, 0.01),
    ("DCGM_FI_DEV_GPU_UTIL_RATIO", Metric::GpuBusyFraction, 1.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", Metric::MemoryBusyFraction, 0.01),
    ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", Metric::MemoryBusyFraction, 1.0),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Metric::EnergyJoules, 0.001),
    ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", Metric::EnergyJoules, 1.0),
    ("DCGM_FI_DEV_POWER_USAGE", Metric::PowerWatts, 1.0),
    ("DCGM_FI_DEV_BOARD_POWER_WATTS", Metric::PowerWatts, 1.0),
    ("DCGM_FI_DEV_FB_USED", Metric::MemoryBytesUsed, MEBI),
    ("DCGM_FI_DEV_FB_USED_BYTES", Metric::MemoryBytesUsed, 1.0),
    ("DCGM_FI_DEV_SM_CLOCK", Metric::SmClockHertz, 1_000_000.0),
    ("DCGM_FI_DEV_SM_CLOCK_HERTZ", Metric::SmClockHertz, 1.0),
];

/// The labels that name the device, by version and option (`--use-old-namespace`).
const UUID_LABELS: [&str; 3] = ["UUID", "uuid", "gpu_uuid"];
/// Labels of what is not a whole device: a MIG instance, one NVLink.
const PART_LABELS: [&str; 3] = ["GPU_I_ID", "gpu_i_id", "nvlink"];

/// `DCGM_INT64_BLANK` and the four above it (not found, not supported, not permitted) as they are in a double: they are
/// the greatest numbers there are. Newer exporters leave such values out.
const INT64_BLANK: f64 = 9_223_372_036_854_775_792.0;
/// `DCGM_FP64_BLANK`, and the three that follow it.
const FP64_BLANK: f64 = 140_737_488_355_328.0;

/// Whether DCGM has no value: paused profiling, not supported, not yet measured.
fn is_blank(value: f64) -> bool {
    !value.is_finite() || value >= INT64_BLANK || (FP64_BLANK..=FP64_BLANK + 3.0).contains(&value)
}

/// What a page says of each whole device; `None` if nothing on it is of dcgm-exporter.
pub(super) fn page(samples: &[Sample<'_>]) -> Option<Page> {
    let mut found = Page::new();
    let mut ranks: BTreeMap<(DeviceUuid, Metric), usize> = BTreeMap::new();
    let mut is_dcgm = false;
    for sample in samples {
        is_dcgm |= sample.name.starts_with("DCGM_");
        let Some((rank, metric, unit)) = field(sample.name) else { continue };
        if PART_LABELS.iter().any(|label| sample.label(label).is_some()) {
            continue;
        }
        let Some(uuid) = UUID_LABELS.iter().find_map(|label| sample.label(label)) else { continue };
        let uuid = DeviceUuid::new(uuid);
        let seen = found.entry(uuid.clone()).or_default();
        seen.stamp_millis = seen.stamp_millis.max(sample.stamp_millis);
        if is_blank(sample.value) {
            continue;
        }
        // The exporter repeats a device's line for each pod on it; the lines agree.
        let best = ranks.entry((uuid, metric)).or_insert(usize::MAX);
        if rank < *best {
            *best = rank;
            seen.values.insert(metric, sample.value * unit);
        }
    }
    is_dcgm.then_some(found)
}

fn field(name: &str) -> Option<(usize, Metric, f64)> {
    let rank = FIELDS.iter().position(|(field, ..)| *field == name)?;
    Some((rank, FIELDS[rank].1, FIELDS[rank].2))
}

#[cfg(test)]
#[path = "dcgm_tests.rs"]
mod tests;
