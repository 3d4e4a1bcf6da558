//! Each value is what the simulated device did, with its source; what stops coming is told.

use crate::support::{Node, eventually};
use crate::{WORKLOAD, backend, kinds, read_whole};
use pillion_core::device::NoticeKind;
use pillion_core::metric::{Metric, MetricSource, Throttle};
use pillion_device::Backend as _;
use pillion_device::nvidia::Nvidia;
use pillion_device::simulated::Totals;
use serde_json::json;
use std::collections::BTreeSet;

fn close(what: &str, told: Option<f64>, done: f64, tolerance: f64) {
    let told = told.unwrap_or_else(|| panic!("{what} is not told"));
    assert!((told - done).abs() <= tolerance, "{what}: {told} told, {done} done");
}

/// What a steady device does in a second, by its own counters.
fn rates(node: &Node, index: u32) -> Totals {
    let counters = || node.simulated().counters(index).unwrap().totals;
    let first = counters();
    let second =
        eventually("time passes", || Some(counters()).filter(|it| it.seconds - first.seconds > 0.05));
    let rate = |part: fn(&Totals) -> f64| (part(&second) - part(&first)) / (second.seconds - first.seconds);
    Totals {
        seconds: 1.0,
        energy_joules: rate(|it| it.energy_joules),
        busy: rate(|it| it.busy),
        issue: rate(|it| it.issue),
        stall: rate(|it| it.stall),
        memory: rate(|it| it.memory),
        cache: rate(|it| it.cache),
        occupancy: rate(|it| it.occupancy),
        fp32: rate(|it| it.fp32),
        pcie_rx_bytes: rate(|it| it.pcie_rx_bytes),
        pcie_tx_bytes: rate(|it| it.pcie_tx_bytes),
    }
}

fn check_base(node: &Node, nvidia: &mut Nvidia, index: u32, rates: &Totals) {
    let before = node.simulated().counters(index).unwrap();
    let reading = nvidia.read(index).unwrap();
    let after = node.simulated().counters(index).unwrap();
    let energy = reading.metrics.get(Metric::EnergyJoules).unwrap();
    let span = before.totals.energy_joules - 0.001..=after.totals.energy_joules + 0.001;
    assert!(span.contains(&energy), "{energy} J told, {span:?} J used");
    close("power", reading.metrics.get(Metric::PowerWatts), before.power_watts, 0.001);
    assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed), Some(before.memory_bytes_used));
    close("gpu busy", reading.metrics.get(Metric::GpuBusyFraction), rates.busy, 0.006);
    close("memory busy", reading.metrics.get(Metric::MemoryBusyFraction), rates.memory, 0.006);
    assert_eq!(reading.throttles(), Some(&BTreeSet::new()));
}

#[test]
fn a_hopper_tells_what_it_did_by_gpm() {
    let mut node = Node::start("h200", 2);
    node.set("tensor_percent", json!(37.5));
    node.set("nvlink_mebibytes", json!([10.0, 20.0]));
    let _load = node.load(1, WORKLOAD, &[]);
    let rates = rates(&node, 1);
    let mut nvidia = backend(&node);
    let first = nvidia.read(1).unwrap();
    assert_eq!(first.metrics.fraction(Metric::SmActiveFraction), None, "one sample says nothing");
    let reading = read_whole(&mut nvidia, 1);
    close("SM", reading.metrics.get(Metric::SmActiveFraction), rates.issue + rates.stall, 1e-6);
    close("occupancy", reading.metrics.get(Metric::SmOccupancyFraction), rates.occupancy, 1e-6);
    close("FP32", reading.metrics.get(Metric::Fp32ActiveFraction), rates.fp32, 1e-6);
    close("bandwidth", reading.metrics.get(Metric::MemoryBandwidthFraction), rates.memory, 1e-6);
    close("tensor", reading.metrics.get(Metric::TensorActiveFraction), 0.375, 1e-12);
    close("PCIe out", reading.metrics.get(Metric::PcieTxBytesPerSecond), rates.pcie_tx_bytes, 1.0);
    close("PCIe in", reading.metrics.get(Metric::PcieRxBytesPerSecond), rates.pcie_rx_bytes, 1.0);
    assert!(
        rates.pcie_rx_bytes > 1e3 && (rates.pcie_rx_bytes - rates.pcie_tx_bytes).abs() > 1e3,
        "the two can be told apart"
    );
    close("NVLink out", reading.metrics.get(Metric::NvlinkTxBytesPerSecond), 10_485_760.0, 0.0);
    close("NVLink in", reading.metrics.get(Metric::NvlinkRxBytesPerSecond), 20_971_520.0, 0.0);
    close("clock", reading.metrics.get(Metric::SmClockHertz), 1.98e9, 0.0);
    assert_eq!(
        (
            reading.metrics.fraction(Metric::StallFraction),
            reading.metrics.fraction(Metric::CacheBandwidthFraction)
        ),
        (None, None)
    );
    check_base(&node, &mut nvidia, 1, &rates);
    for metric in reading.metrics.known() {
        let of_nvml = matches!(
            metric,
            Metric::EnergyJoules
                | Metric::PowerWatts
                | Metric::GpuBusyFraction
                | Metric::MemoryBusyFraction
                | Metric::MemoryBytesUsed
                | Metric::SmClockHertz
                | Metric::Throttles
        );
        let source = if of_nvml { MetricSource::Nvml } else { MetricSource::NvmlGpm };
        assert_eq!(reading.metrics.sources().get(&metric), Some(&source), "{metric:?}");
    }
    let idle = read_whole(&mut nvidia, 0);
    assert_eq!(idle.metrics.get(Metric::SmActiveFraction), Some(0.0));
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn who_looks_again_at_once_is_told_the_same() {
    let node = Node::start("h100", 1);
    let load = node.load(0, WORKLOAD, &[]);
    let mut nvidia = backend(&node);
    let first = read_whole(&mut nvidia, 0);
    drop(load);
    // The double refuses a sample that is taken too soon. A busy machine may be slow enough to see the load leave.
    let again = nvidia.read(0).unwrap();
    assert!(
        again
            .metrics
            .fraction(Metric::SmActiveFraction)
            .is_some_and(|active| active <= first.metrics.fraction(Metric::SmActiveFraction).unwrap())
    );
    assert_eq!(kinds(&mut nvidia), [], "nothing is lost");
    eventually("the load is seen to leave", || {
        nvidia
            .read(0)
            .unwrap()
            .metrics
            .fraction(Metric::SmActiveFraction)
            .filter(|active| f64::from(*active) < 1e-9)
    });
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn a_volta_has_its_plain_meters_only() {
    let node = Node::start("v100", 1);
    let _load = node.load(0, "resnet50-train", &[]);
    let rates = rates(&node, 0);
    let mut nvidia = backend(&node);
    let reading = nvidia.read(0).unwrap();
    check_base(&node, &mut nvidia, 0, &rates);
    close("clock", reading.metrics.get(Metric::SmClockHertz), 1.53e9, 0.0);
    close(
        "PCIe out",
        reading.metrics.get(Metric::PcieTxBytesPerSecond),
        rates.pcie_tx_bytes,
        500.0 + rates.pcie_tx_bytes * 0.01,
    );
    close(
        "PCIe in",
        reading.metrics.get(Metric::PcieRxBytesPerSecond),
        rates.pcie_rx_bytes,
        500.0 + rates.pcie_rx_bytes * 0.01,
    );
    let known: BTreeSet<Metric> = reading.metrics.known().collect();
    let expected = [
        Metric::EnergyJoules,
        Metric::PowerWatts,
        Metric::GpuBusyFraction,
        Metric::MemoryBusyFraction,
        Metric::PcieTxBytesPerSecond,
        Metric::PcieRxBytesPerSecond,
        Metric::MemoryBytesUsed,
        Metric::SmClockHertz,
        Metric::Throttles,
    ];
    assert_eq!(known, BTreeSet::from(expected));
    assert!(reading.metrics.sources().values().all(|source| *source == MetricSource::Nvml));
}

#[test]
fn power_now_is_preferred_and_the_mean_stands_in() {
    let mut node = Node::start("h100", 1);
    let _load = node.load(0, WORKLOAD, &[]);
    let watts = node.simulated().counters(0).unwrap().power_watts;
    let mut nvidia = backend(&node);
    for (missing, told) in [
        (json!([]), true),
        (json!(["nvmlDeviceGetPowerUsage"]), true),
        (json!(["field:186"]), true),
        (json!(["nvmlDeviceGetFieldValues"]), true),
        (json!(["field:186", "nvmlDeviceGetPowerUsage"]), false),
    ] {
        node.set("not_supported", missing.clone());
        let power = nvidia.read(0).unwrap().metrics.get(Metric::PowerWatts);
        assert_eq!(power.is_some(), told, "without {missing}");
        assert!(power.is_none_or(|power| (power - watts).abs() < 0.001), "{power:?} W told, {watts} W drawn");
    }
}

#[test]
fn what_holds_the_clock_is_told() {
    let mut node = Node::start("h100", 1);
    // SwPowerCap and SwThermalSlowdown (nvml.h).
    node.set("throttle_reasons", json!(0x4 | 0x20));
    let reading = backend(&node).read(0).unwrap();
    assert_eq!(reading.throttles(), Some(&BTreeSet::from([Throttle::PowerLimit, Throttle::Heat])));
}

#[test]
fn a_metric_that_stops_coming_is_told_once_and_again_when_it_is_back() {
    let mut node = Node::start("v100", 1);
    let mut nvidia = backend(&node);
    nvidia.read(0).unwrap();
    node.set("not_supported", json!(["nvmlDeviceGetTotalEnergyConsumption"]));
    assert_eq!(nvidia.read(0).unwrap().metrics.get(Metric::EnergyJoules), None);
    nvidia.read(0).unwrap();
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::MetricLost(Metric::EnergyJoules))]);
    node.set("not_supported", json!([]));
    assert!(nvidia.read(0).unwrap().metrics.get(Metric::EnergyJoules).is_some());
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::MetricBack(Metric::EnergyJoules))]);
}

#[test]
fn gpm_that_fails_leaves_the_plain_meters() {
    let mut node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    read_whole(&mut nvidia, 0);
    node.set("not_supported", json!(["nvmlGpmSampleGet"]));
    let reading = eventually("GPM fails", || {
        Some(nvidia.read(0).unwrap())
            .filter(|reading| reading.metrics.get(Metric::SmActiveFraction).is_none())
    });
    assert!(reading.metrics.get(Metric::EnergyJoules).is_some());
    assert_eq!(
        reading.metrics.sources()[&Metric::PcieTxBytesPerSecond],
        MetricSource::Nvml,
        "NVML's own stands in"
    );
    assert!(kinds(&mut nvidia).contains(&(0, NoticeKind::MetricLost(Metric::SmActiveFraction))));
    node.set("not_supported", json!(["gpm:12"]));
    let reading = read_whole(&mut nvidia, 0);
    assert_eq!(
        reading.metrics.fraction(Metric::Fp32ActiveFraction),
        None,
        "one metric that lacks hides no other"
    );
    assert!(kinds(&mut nvidia).contains(&(0, NoticeKind::MetricBack(Metric::SmActiveFraction))));
}

#[test]
fn all_devices_are_read_in_one_call() {
    let node = Node::start("a100-40", 2);
    let _load = node.load(1, WORKLOAD, &[]);
    let mut nvidia = backend(&node);
    let states = nvidia.read_all().unwrap();
    let state = |index: usize| states[index].1.as_ref().unwrap();
    assert_eq!((states[0].0, states[1].0), (0, 1));
    assert_eq!(state(0).processes, []);
    assert_eq!(state(1).processes, node.simulated().processes(1).unwrap());
    assert!(
        state(1).reading.metrics.get(Metric::PowerWatts) > state(0).reading.metrics.get(Metric::PowerWatts)
    );
}
