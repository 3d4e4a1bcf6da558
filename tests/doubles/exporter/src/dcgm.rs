//! The page of dcgm-exporter: of the fields of a site's list those that the device model knows. By its own arithmetic:
//! nothing here is shared with what reads it.
//!
//! Sources: NVIDIA/dcgm-exporter `etc/default-counters.csv` and `etc/dcp-metrics-included.csv` (names, HELP, TYPE, units),
//! `internal/pkg/rendermetrics` (labels), NVIDIA/DCGM `dcgm_fields.h` (what each field is).

use crate::look::Look;
use crate::number::{c, whole};
use std::fmt::Write as _;

/// What a model is called by the driver, and its SM clock, which the device model does not tell.
fn product(model: &str) -> (&'static str, f64) {
    match model {
        "v100" => ("Tesla V100-SXM2-32GB", 1530.0),
        "a100-40" => ("NVIDIA A100-SXM4-40GB", 1410.0),
        "h100" => ("NVIDIA H100 80GB HBM3", 1980.0),
        _ => ("NVIDIA H200", 1980.0),
    }
}

/// One field: what it is called, what the exporter says of it, and its value of a device, if it has one.
struct Field {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    value: fn(&Look) -> Option<String>,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Look) -> Option<String>) -> Field {
    Field { name, help, kind: "gauge", value }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Look) -> Option<String>) -> Field {
    Field { name, help, kind: "counter", value }
}

/// A warp is assigned to an SM whether it issues or waits.
fn sm_active(look: &Look) -> Option<String> {
    look.profiled(|it| it.issue + it.stall).map(c)
}

fn occupancy(look: &Look) -> Option<String> {
    look.profiled(|it| it.occupancy).map(c)
}

fn dram_active(look: &Look) -> Option<String> {
    look.profiled(|it| it.memory).map(c)
}

fn fp32_active(look: &Look) -> Option<String> {
    look.profiled(|it| it.fp32).map(c)
}

/// Bytes a second, in spite of the name.
fn pcie_tx(look: &Look) -> Option<String> {
    look.profiled(|it| it.pcie_tx_bytes).map(whole)
}

fn pcie_rx(look: &Look) -> Option<String> {
    look.profiled(|it| it.pcie_rx_bytes).map(whole)
}

#[expect(clippy::unnecessary_wraps, reason = "as every field's value, which may be lacking")]
fn power(look: &Look) -> Option<String> {
    Some(c(look.now.power_watts))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a device are far below 2^53")]
fn used_bytes(look: &Look) -> f64 {
    look.now.memory_bytes_used as f64
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a device are far below 2^53")]
fn size_bytes(look: &Look) -> f64 {
    look.memory_bytes as f64
}

const SM_ACTIVE: &str = "The ratio of cycles an SM has at least 1 warp assigned (in %).";
const OCCUPANCY: &str = "The ratio of number of warps resident on an SM (in %).";
const DRAM: &str = "Ratio of cycles the device memory interface is active sending or receiving data (in %).";
const FP32: &str = "Ratio of cycles the fp32 pipes are active (in %).";
const PCIE_TX: &str = "The number of bytes of active PCIe tx data including both header and payload.";
const PCIE_RX: &str = "The number of bytes of active PCIe rx data including both header and payload.";

/// Names and units before DCGM 4.6: megahertz, millijoules, percents and MiB.
const OLD: [Field; 12] = [
    gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |look| Some(whole(product(&look.model).1))),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", power),
    counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", |look| {
        Some(whole(look.now.totals.energy_joules * 1000.0))
    }),
    gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |look| {
        look.mean(|it| it.busy).map(|part| whole(part * 100.0 + 0.5))
    }),
    gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", |look| {
        Some(whole((size_bytes(look) - used_bytes(look)) / 1_048_576.0))
    }),
    gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", |look| {
        Some(whole(used_bytes(look) / 1_048_576.0))
    }),
    gauge("DCGM_FI_PROF_SM_ACTIVE", SM_ACTIVE, sm_active),
    gauge("DCGM_FI_PROF_SM_OCCUPANCY", OCCUPANCY, occupancy),
    gauge("DCGM_FI_PROF_DRAM_ACTIVE", DRAM, dram_active),
    gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE", FP32, fp32_active),
    counter("DCGM_FI_PROF_PCIE_TX_BYTES", PCIE_TX, pcie_tx),
    counter("DCGM_FI_PROF_PCIE_RX_BYTES", PCIE_RX, pcie_rx),
];

/// Names of DCGM 4.6 and base units of 4.7: hertz, joules, ratios and bytes.
const NEW: [Field; 12] = [
    gauge("DCGM_FI_DEV_SM_CLOCK_HERTZ", "SM clock frequency in hertz.", |look| {
        Some(whole(product(&look.model).1 * 1e6))
    }),
    gauge("DCGM_FI_DEV_BOARD_POWER_WATTS", "Board power draw in watts.", power),
    counter(
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        "Total energy consumption since the driver was loaded, in joules.",
        |look| Some(whole(look.now.totals.energy_joules)),
    ),
    gauge("DCGM_FI_DEV_GPU_UTIL_RATIO", "GPU utilization ratio.", |look| look.mean(|it| it.busy).map(c)),
    gauge("DCGM_FI_DEV_FB_CAPACITY_BYTES", "Framebuffer memory in bytes.", |look| {
        Some(whole(size_bytes(look)))
    }),
    gauge("DCGM_FI_DEV_FB_USED_BYTES", "Framebuffer memory used in bytes.", |look| {
        Some(whole(used_bytes(look)))
    }),
    gauge("DCGM_FI_PROF_SM_UTIL_RATIO", SM_ACTIVE, sm_active),
    gauge("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", OCCUPANCY, occupancy),
    gauge("DCGM_FI_PROF_DRAM_UTIL_RATIO", DRAM, dram_active),
    gauge("DCGM_FI_PROF_FP32_UTIL_RATIO", FP32, fp32_active),
    gauge("DCGM_FI_PROF_PCIE_TX_BYTES", PCIE_TX, pcie_tx),
    gauge("DCGM_FI_PROF_PCIE_RX_BYTES", PCIE_RX, pcie_rx),
];

fn old_labels(look: &Look) -> String {
    let Look { index, uuid, model, .. } = look;
    let name = product(model).0;
    format!(
        "gpu=\"{index}\",UUID=\"{uuid}\",device=\"nvidia{index}\",modelName=\"{name}\",Hostname=\"n1\",DCGM_FI_DRIVER_VERSION=\"550.54.15\""
    )
}

fn new_labels(look: &Look) -> String {
    let Look { index, uuid, model, .. } = look;
    let name = product(model).0;
    let bus = 0x17 + index;
    format!(
        "gpu=\"{index}\",gpu_uuid=\"{uuid}\",pci_bus_id=\"00000000:{bus:02X}:00.0\",device=\"nvidia{index}\",model_name=\"{name}\",hostname=\"n1\",DCGM_FI_SYSTEM_DRIVER_VERSION=\"590.44.01\""
    )
}

fn page(looks: &[Look], fields: &[Field], labels: fn(&Look) -> String) -> String {
    let mut page = String::new();
    for Field { name, help, kind, value } in fields {
        let valued: Vec<(&Look, String)> =
            looks.iter().filter_map(|look| Some((look, value(look)?))).collect();
        // A field that DCGM has no value of (BLANK) is left out whole.
        if valued.is_empty() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (look, value) in valued {
            let _ = writeln!(page, "{name}{{{}}} {value}", labels(look));
        }
    }
    page
}

/// As dcgm-exporter 3.3 writes it.
pub(crate) fn old_page(looks: &[Look]) -> String {
    page(looks, &OLD, old_labels)
}

/// As dcgm-exporter 4.9 writes it.
pub(crate) fn new_page(looks: &[Look]) -> String {
    page(looks, &NEW, new_labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::tests::look;

    fn value<'a>(page: &'a str, name: &str) -> Option<&'a str> {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next()
    }

    #[test]
    fn counters_are_in_the_units_of_each_generation() {
        let (old, new) = (old_page(&[look("v100", 0)]), new_page(&[look("a100-40", 1)]));
        for (name, expected) in [
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "4000500"),
            ("DCGM_FI_DEV_GPU_UTIL", "50"),
            ("DCGM_FI_DEV_FB_USED", "3072"),
            ("DCGM_FI_DEV_POWER_USAGE", "250.250000"),
            ("DCGM_FI_PROF_SM_ACTIVE", "0.500000"),
            ("DCGM_FI_PROF_PCIE_RX_BYTES", "7000000"),
        ] {
            assert_eq!(value(&old, name), Some(expected), "{name}");
        }
        for (name, expected) in [
            ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "4000"),
            ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.500000"),
            ("DCGM_FI_DEV_FB_USED_BYTES", "3221225472"),
            ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1410000000"),
            ("DCGM_FI_PROF_DRAM_UTIL_RATIO", "0.250000"),
        ] {
            assert_eq!(value(&new, name), Some(expected), "{name}");
        }
        assert!(old.contains("UUID=\"GPU-0\"") && new.contains("gpu_uuid=\"GPU-1\""));
    }

    #[test]
    fn blank_values_are_left_out() {
        let paused = Look { is_profiled: false, ..look("v100", 0) };
        let page = old_page(&[paused]);
        assert!(!page.contains("DCGM_FI_PROF") && page.contains("DCGM_FI_DEV_POWER_USAGE"), "{page}");
        let first = Look { before: None, ..look("v100", 0) };
        assert_eq!(value(&old_page(&[first]), "DCGM_FI_DEV_GPU_UTIL"), None);
    }
}
