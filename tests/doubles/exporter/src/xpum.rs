//! The pages of XPU Manager: of the metrics those that the device model knows. Two devices of the model are the tiles of one
//! card, and cards are named as the double of Level Zero names them. By its own arithmetic: nothing here is shared with what
//! reads it.
//!
//! Sources: intel/xpumanager `rest/prometheus_exporter*.py` (v1), `xpumd/receiver/intelxpu/sysman/documentation.md` (v2).

#![expect(clippy::unnecessary_wraps, reason = "as every metric's value, which may be lacking")]

use crate::look::Look;
use crate::number::{go, python};
use std::fmt::Write as _;

const MODEL: &str = "Intel(R) Data Center GPU Max 1550";
const TILES: usize = 2;
const CLOCK_MEGAHERTZ: f64 = 1600.0;

fn uuid(card: usize) -> String {
    format!("{card:02x}000000-0000-0000-0000-000000008086")
}

fn bdf(card: usize) -> String {
    format!("0000:{:02x}:00.0", 0x18 + card)
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a device are far below 2^53")]
fn bytes(count: u64) -> f64 {
    count as f64
}

/// What is said of one part of a card, several times where a metric has several kinds: further labels and the value.
type Said = Vec<(&'static str, f64)>;

/// One metric: of the whole card by all its tiles, and of one tile.
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    card: fn(&[Look]) -> Said,
    tile: fn(&Look) -> Said,
}

fn nothing<T: ?Sized>(_: &T) -> Said {
    Vec::new()
}

fn plain(value: Option<f64>) -> Said {
    value.map(|value| ("", value)).into_iter().collect()
}

/// XPU Manager keeps ratios as hundredths of a percent.
fn ratio(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 10_000.0).round() / 10_000.0)
}

fn sum(tiles: &[Look], of: fn(&Look) -> Option<f64>) -> Option<f64> {
    tiles.iter().map(of).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a card has few tiles")]
fn mean(tiles: &[Look], of: fn(&Look) -> Option<f64>) -> Option<f64> {
    Some(sum(tiles, of)? / tiles.len() as f64)
}

fn busy(look: &Look) -> Option<f64> {
    look.mean(|it| it.busy)
}

fn memory(look: &Look) -> Option<f64> {
    look.mean(|it| it.memory)
}

fn energy(look: &Look) -> Option<f64> {
    Some((look.now.totals.energy_joules * 100.0).round() / 100.0)
}

/// Version 1 tells means.
fn power_mean(look: &Look) -> Option<f64> {
    look.mean(|it| it.energy_joules)
}

fn power_now(look: &Look) -> Option<f64> {
    Some(look.now.power_watts)
}

fn read(look: &Look) -> Option<f64> {
    Some(look.now.totals.pcie_rx_bytes.round())
}

fn written(look: &Look) -> Option<f64> {
    Some(look.now.totals.pcie_tx_bytes.round())
}

const V1: [Metric; 11] = [
    Metric {
        name: "xpum_engine_ratio",
        help: "GPU active time of the elapsed time (in %), per GPU tile",
        kind: "gauge",
        card: |tiles| plain(ratio(mean(tiles, busy))),
        tile: |look| plain(ratio(busy(look))),
    },
    Metric {
        name: "xpum_engine_group_ratio",
        help: "Avg utilization of engine group (in %), per GPU tile",
        kind: "gauge",
        card: nothing,
        tile: |look| {
            let compute = ratio(busy(look));
            // The model's programs compute and do not copy.
            compute
                .into_iter()
                .flat_map(|part| [("type=\"compute\",", part), ("type=\"copy\",", 0.0)])
                .collect()
        },
    },
    Metric {
        name: "xpum_eu_active_ratio",
        help: "xpum_eu_active_ratio_desc",
        kind: "gauge",
        card: nothing,
        tile: |look| plain(ratio(look.profiled(|it| it.issue))),
    },
    Metric {
        name: "xpum_eu_stall_ratio",
        help: "xpum_eu_stall_ratio_desc",
        kind: "gauge",
        card: nothing,
        tile: |look| plain(ratio(look.profiled(|it| it.stall))),
    },
    Metric {
        name: "xpum_power_watts",
        help: "Avg GPU power (in watts), per GPU and per card",
        kind: "gauge",
        card: |tiles| plain(sum(tiles, power_mean)),
        tile: |look| plain(power_mean(look)),
    },
    Metric {
        name: "xpum_energy_joules_total",
        help: "Total GPU energy consumption since boot (in Joules), per GPU",
        kind: "counter",
        card: |tiles| plain(sum(tiles, energy)),
        tile: |look| plain(energy(look)),
    },
    Metric {
        name: "xpum_frequency_mhz",
        help: "Avg (GPU) frequency (in MHz), per GPU tile",
        kind: "gauge",
        card: nothing,
        tile: |_| {
            let labels = ["location=\"gpu\",type=\"actual\",", "location=\"gpu\",type=\"request\","];
            labels.map(|label| (label, CLOCK_MEGAHERTZ)).into()
        },
    },
    Metric {
        name: "xpum_memory_used_bytes",
        help: "Used GPU memory (in bytes), per GPU tile",
        kind: "gauge",
        card: nothing,
        tile: |look| plain(Some(bytes(look.now.memory_bytes_used))),
    },
    Metric {
        name: "xpum_memory_bandwidth_ratio",
        help: "Avg memory throughput / max memory bandwidth (in %), per GPU tile",
        kind: "gauge",
        card: |tiles| plain(ratio(mean(tiles, memory))),
        tile: |look| plain(ratio(memory(look))),
    },
    Metric {
        name: "xpum_pcie_read_bytes_total",
        help: "Total PCIe read bytes (in bytes), per GPU",
        kind: "counter",
        card: |tiles| plain(sum(tiles, read)),
        tile: nothing,
    },
    Metric {
        name: "xpum_pcie_write_bytes_total",
        help: "Total PCIe write bytes (in bytes), per GPU",
        kind: "counter",
        card: |tiles| plain(sum(tiles, written)),
        tile: nothing,
    },
];

const DEVICE_MEMORY: &str = "hw_memory_location=\"device\",hw_memory_type=\"hbm\",";

/// No XVE metrics: version 2 has none.
const V2: [Metric; 8] = [
    Metric {
        name: "hw_gpu_utilization_ratio",
        help: "GPU engine / task pipeline utilization ratio.",
        kind: "gauge",
        card: nothing,
        tile: |look| {
            let tasks = |part| {
                [
                    ("hw_gpu_task=\"all\",", part),
                    ("hw_gpu_task=\"compute-all\",", part),
                    ("hw_gpu_task=\"copy-all\",", 0.0),
                ]
            };
            busy(look).into_iter().flat_map(tasks).collect()
        },
    },
    Metric {
        name: "hw_energy_joules_total",
        help: "Energy consumed by the hardware component.",
        kind: "counter",
        card: |tiles| {
            sum(tiles, energy).map(|joules| ("hw_sensor_location=\"card\",", joules)).into_iter().collect()
        },
        tile: |look| {
            energy(look).map(|joules| ("hw_sensor_location=\"package\",", joules)).into_iter().collect()
        },
    },
    Metric {
        name: "hw_power_watts",
        help: "Instantaneous power usage of the hardware component.",
        kind: "gauge",
        card: |tiles| {
            sum(tiles, power_now).map(|watts| ("hw_sensor_location=\"card\",", watts)).into_iter().collect()
        },
        tile: |look| {
            power_now(look).map(|watts| ("hw_sensor_location=\"package\",", watts)).into_iter().collect()
        },
    },
    Metric {
        name: "hw_frequency_hertz",
        help: "Operating frequency of the hardware component.",
        kind: "gauge",
        card: nothing,
        tile: |_| {
            let gpu = "aggregation=\"avg\",hw_frequency_domain=\"gpu\",";
            let memory = "aggregation=\"avg\",hw_frequency_domain=\"memory\",";
            vec![(gpu, CLOCK_MEGAHERTZ * 1e6), (memory, 3.2e9)]
        },
    },
    Metric {
        name: "hw_memory_usage_bytes",
        help: "Used memory amount.",
        kind: "gauge",
        card: nothing,
        tile: |look| vec![(DEVICE_MEMORY, bytes(look.now.memory_bytes_used))],
    },
    Metric {
        name: "hw_memory_size_bytes",
        help: "Memory size.",
        kind: "gauge",
        card: nothing,
        tile: |look| vec![(DEVICE_MEMORY, bytes(look.memory_bytes))],
    },
    Metric {
        name: "hw_memory_bandwidth_utilization_ratio",
        help: "Memory bandwidth (read+write) utilization ratio.",
        kind: "gauge",
        card: nothing,
        tile: |look| memory(look).map(|part| (DEVICE_MEMORY, part)).into_iter().collect(),
    },
    Metric {
        name: "hw_gpu_io_bytes_total",
        help: "Bytes received / transmitted over PCI bus by the GPU device.",
        kind: "counter",
        card: |tiles| {
            let received = sum(tiles, read).map(|count| ("network_io_direction=\"receive\",", count));
            let sent = sum(tiles, written).map(|count| ("network_io_direction=\"transmit\",", count));
            received.into_iter().chain(sent).collect()
        },
        tile: nothing,
    },
];

fn labels_v1(card: usize, tile: Option<usize>, more: &str) -> String {
    let tile = tile.map(|tile| format!("sub_dev=\"{tile}\",")).unwrap_or_default();
    let (bdf, uuid, number) = (bdf(card), uuid(card), card + 1);
    format!(
        "dev_file=\"card{number},renderD{}\",dev_name=\"{MODEL}\",{more}pci_bdf=\"{bdf}\",pci_dev=\"0xbd5\",{tile}uuid=\"{uuid}\",vendor=\"Intel(R) Corporation\"",
        127 + number
    )
}

fn labels_v2(card: usize, tile: Option<usize>, more: &str) -> String {
    let tile = tile.map(|tile| tile.to_string()).unwrap_or_default();
    let (bdf, uuid) = (bdf(card), uuid(card).replace('-', ""));
    format!("com_intel_subdevice_id=\"{tile}\",{more}hw_id=\"{uuid}\",pci_bdf=\"{bdf}\"")
}

fn page(
    looks: &[Look],
    metrics: &[Metric],
    labels: fn(usize, Option<usize>, &str) -> String,
    number: fn(f64) -> String,
) -> String {
    let mut page = String::new();
    for Metric { name, help, kind, card: of_card, tile: of_tile } in metrics {
        let mut lines = String::new();
        for (card, tiles) in looks.chunks(TILES).enumerate() {
            let parts = tiles.iter().enumerate().map(|(tile, look)| (Some(tile), of_tile(look)));
            for (tile, said) in [(None, of_card(tiles))].into_iter().chain(parts) {
                for (more, value) in said {
                    // Writing to a string cannot fail.
                    let _ = writeln!(lines, "{name}{{{}}} {}", labels(card, tile, more), number(value));
                }
            }
        }
        if !lines.is_empty() {
            let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
    }
    page
}

/// As XPU Manager 1.2 writes it.
pub(crate) fn v1_page(looks: &[Look]) -> String {
    page(looks, &V1, labels_v1, python)
}

/// As xpumd 2.0 writes it.
pub(crate) fn v2_page(looks: &[Look]) -> String {
    let mut text =
        "# HELP hw_gpu_info Information about the GPU device.\n# TYPE hw_gpu_info gauge\n".to_owned();
    for (card, tiles) in looks.chunks(TILES).enumerate() {
        let (bdf, uuid, count) = (bdf(card), uuid(card).replace('-', ""), tiles.len());
        let _ = writeln!(
            text,
            "hw_gpu_info{{com_intel_subdevice_count=\"{count}\",hw_gpu_type=\"discrete\",hw_id=\"{uuid}\",hw_model=\"{MODEL}\",hw_name=\"gpu-{}\",pci_bdf=\"{bdf}\"}} 1",
            card + 1
        );
    }
    text + &page(looks, &V2, labels_v2, go)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::tests::look;

    fn card() -> [Look; 2] {
        [look("max-1550", 0), look("max-1550", 1)]
    }

    #[test]
    fn a_card_is_the_sum_or_the_mean_of_its_tiles() {
        let page = v1_page(&card());
        let of = |name: &str| -> Vec<&str> {
            let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
            lines.filter_map(|line| line.rsplit(' ').next()).collect()
        };
        assert_eq!(of("xpum_energy_joules_total"), ["8001.0", "4000.5", "4000.5"]);
        assert_eq!(of("xpum_engine_ratio"), ["0.5", "0.5", "0.5"]);
        assert_eq!(of("xpum_eu_active_ratio"), ["0.4", "0.4"]);
        assert_eq!(of("xpum_memory_used_bytes"), ["3.221225472e+09", "3.221225472e+09"]);
    }

    #[test]
    fn version_2_has_no_xve_metrics_and_version_1_only_while_nobody_else_has_the_counters() {
        let paused = card().map(|look| Look { is_profiled: false, ..look });
        assert!(v1_page(&card()).contains("xpum_eu_") && !v1_page(&paused).contains("xpum_eu_"));
        let page = v2_page(&card());
        assert!(!page.contains("eu_active") && page.contains("hw_memory_size_bytes"), "{page}");
        assert!(
            page.contains("hw_sensor_location=\"card\",hw_id=\"00000000000000000000000000008086\""),
            "{page}"
        );
    }
}
