//! The NVIDIA backend against the double: every value that it reads is what the simulated device did, and every fault of
//! driver or device is told as what it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pillion_core::UserId;
use pillion_core::device::{DeviceProcess, Mechanism, Metric, MetricSource, NoticeKind, Reading, Throttle};
use pillion_device::mps::{ComputeMode, ComputeModes as _};
use pillion_device::nvidia::{NoMps, Nvidia, NvidiaSettings, NvmlComputeModes};
use pillion_device::simulated::{Machine, MachineConfig, Totals};
use pillion_device::{Backend as _, DeviceError, MpsSettings};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use support::{Driver, Node, eventually};

const WORKLOAD: &str = "bert-finetune";

fn backend(node: &Node) -> Nvidia {
    with_deadline(node, Duration::from_secs(20))
}

fn with_deadline(node: &Node, deadline: Duration) -> Nvidia {
    let library = Some(node.library());
    let search_pause = Duration::ZERO;
    let settings = NvidiaSettings { library, deadline, search_pause, ..NvidiaSettings::default() };
    Nvidia::new(settings, Box::new(NoMps))
}

/// A reading with the values of GPM, which come with the second sample.
fn read_whole(nvidia: &mut Nvidia, index: u32) -> Reading {
    eventually("GPM gives its values", || {
        Some(nvidia.read(index).unwrap()).filter(|reading| reading.sm_active_fraction.is_some())
    })
}

fn kinds(nvidia: &mut Nvidia) -> Vec<(u32, NoticeKind)> {
    nvidia.notices().into_iter().map(|notice| (notice.index, notice.kind)).collect()
}

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
    let energy = reading.energy_joules.unwrap();
    let span = before.totals.energy_joules - 0.001..=after.totals.energy_joules + 0.001;
    assert!(span.contains(&energy), "{energy} J told, {span:?} J used");
    close("power", reading.power_watts, before.power_watts, 0.001);
    assert_eq!(reading.memory_bytes_used, Some(before.memory_bytes_used));
    close("gpu busy", reading.gpu_busy_fraction.map(f64::from), rates.busy, 0.006);
    close("memory busy", reading.memory_busy_fraction.map(f64::from), rates.memory, 0.006);
    assert_eq!(reading.throttles, Some(BTreeSet::new()));
}

#[test]
fn devices_are_described_in_our_words() {
    let node = Node::start("h100", 2);
    let expected = node.descriptions();
    assert_eq!(backend(&node).devices().unwrap(), expected);
    assert_eq!(expected[1].gres_type.as_str(), "g1");
    let node = Node::start("a100-40", 1);
    assert_eq!(backend(&node).devices().unwrap(), node.descriptions());
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
    assert_eq!(first.sm_active_fraction, None, "one sample says nothing");
    let reading = read_whole(&mut nvidia, 1);
    close("SM", reading.sm_active_fraction.map(f64::from), rates.issue + rates.stall, 1e-6);
    close("occupancy", reading.sm_occupancy_fraction.map(f64::from), rates.occupancy, 1e-6);
    close("FP32", reading.fp32_active_fraction.map(f64::from), rates.fp32, 1e-6);
    close("bandwidth", reading.memory_bandwidth_fraction.map(f64::from), rates.memory, 1e-6);
    close("tensor", reading.tensor_active_fraction.map(f64::from), 0.375, 1e-12);
    close("PCIe out", reading.pcie_tx_bytes_per_second, rates.pcie_tx_bytes, 1.0);
    close("PCIe in", reading.pcie_rx_bytes_per_second, rates.pcie_rx_bytes, 1.0);
    assert!(
        rates.pcie_rx_bytes > 1e3 && (rates.pcie_rx_bytes - rates.pcie_tx_bytes).abs() > 1e3,
        "the two can be told apart"
    );
    close("NVLink out", reading.nvlink_tx_bytes_per_second, 10_485_760.0, 0.0);
    close("NVLink in", reading.nvlink_rx_bytes_per_second, 20_971_520.0, 0.0);
    close("clock", reading.sm_clock_hertz, 1.98e9, 0.0);
    assert_eq!((reading.stall_fraction, reading.cache_bandwidth_fraction), (None, None));
    check_base(&node, &mut nvidia, 1, &rates);
    for metric in reading.known() {
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
        assert_eq!(reading.sources.get(&metric), Some(&source), "{metric:?}");
    }
    let idle = read_whole(&mut nvidia, 0);
    assert_eq!(idle.sm_active_fraction.map(f64::from), Some(0.0));
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
    assert!(again.sm_active_fraction.is_some_and(|active| active <= first.sm_active_fraction.unwrap()));
    assert_eq!(kinds(&mut nvidia), [], "nothing is lost");
    eventually("the load is seen to leave", || {
        nvidia.read(0).unwrap().sm_active_fraction.filter(|active| f64::from(*active) < 1e-9)
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
    close("clock", reading.sm_clock_hertz, 1.53e9, 0.0);
    close(
        "PCIe out",
        reading.pcie_tx_bytes_per_second,
        rates.pcie_tx_bytes,
        500.0 + rates.pcie_tx_bytes * 0.01,
    );
    close(
        "PCIe in",
        reading.pcie_rx_bytes_per_second,
        rates.pcie_rx_bytes,
        500.0 + rates.pcie_rx_bytes * 0.01,
    );
    let known: BTreeSet<Metric> = reading.known().collect();
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
    assert!(reading.sources.values().all(|source| *source == MetricSource::Nvml));
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
        let power = nvidia.read(0).unwrap().power_watts;
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
    assert_eq!(reading.throttles, Some(BTreeSet::from([Throttle::PowerLimit, Throttle::Heat])));
}

#[test]
fn a_device_that_mig_has_cut_up_has_no_utilisation() {
    let mut node = Node::start("h100", 2);
    node.set("mig", json!([0]));
    let _load = node.load(0, WORKLOAD, &[]);
    let mut nvidia = backend(&node);
    let devices = nvidia.devices().unwrap();
    assert_eq!((devices[0].mechanism, devices[1].mechanism), (Mechanism::None, Mechanism::Mps));
    read_whole(&mut nvidia, 1);
    let reading = nvidia.read(0).unwrap();
    assert!(reading.energy_joules.is_some() && reading.memory_bytes_used.is_some());
    assert_eq!((reading.gpu_busy_fraction, reading.memory_busy_fraction), (None, None));
    assert_eq!((reading.sm_active_fraction, reading.memory_bandwidth_fraction), (None, None));
    assert_eq!(kinds(&mut nvidia), [], "what never came is not lost");
}

#[test]
fn a_metric_that_stops_coming_is_told_once_and_again_when_it_is_back() {
    let mut node = Node::start("v100", 1);
    let mut nvidia = backend(&node);
    nvidia.read(0).unwrap();
    node.set("not_supported", json!(["nvmlDeviceGetTotalEnergyConsumption"]));
    assert_eq!(nvidia.read(0).unwrap().energy_joules, None);
    nvidia.read(0).unwrap();
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::MetricLost(Metric::EnergyJoules))]);
    node.set("not_supported", json!([]));
    assert!(nvidia.read(0).unwrap().energy_joules.is_some());
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::MetricBack(Metric::EnergyJoules))]);
}

#[test]
fn gpm_that_fails_leaves_the_plain_meters() {
    let mut node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    read_whole(&mut nvidia, 0);
    node.set("not_supported", json!(["nvmlGpmSampleGet"]));
    let reading = eventually("GPM fails", || {
        Some(nvidia.read(0).unwrap()).filter(|reading| reading.sm_active_fraction.is_none())
    });
    assert!(reading.energy_joules.is_some());
    assert_eq!(reading.sources[&Metric::PcieTxBytesPerSecond], MetricSource::Nvml, "NVML's own stands in");
    assert!(kinds(&mut nvidia).contains(&(0, NoticeKind::MetricLost(Metric::SmActiveFraction))));
    node.set("not_supported", json!(["gpm:12"]));
    let reading = read_whole(&mut nvidia, 0);
    assert_eq!(reading.fp32_active_fraction, None, "one metric that lacks hides no other");
    assert!(kinds(&mut nvidia).contains(&(0, NoticeKind::MetricBack(Metric::SmActiveFraction))));
}

#[test]
fn a_lost_device_is_gone_alone_and_may_come_back() {
    let mut node = Node::start("h100", 3);
    let mut nvidia = backend(&node);
    read_whole(&mut nvidia, 1);
    assert!(nvidia.read_all().unwrap().iter().all(|(_, state)| state.is_ok()));
    node.set("lost", json!([1]));
    for _ in 0..2 {
        let states = nvidia.read_all().unwrap();
        let gone: Vec<_> = states.iter().map(|(index, state)| (*index, state.is_err())).collect();
        assert_eq!(gone, [(0, false), (1, true), (2, false)]);
        let error = states.into_iter().nth(1).unwrap().1.unwrap_err();
        assert!(matches!(error, DeviceError::Gone { index: 1, .. }) && error.is_gone(), "{error}");
    }
    assert!(nvidia.processes(1).unwrap_err().is_gone());
    assert_eq!(nvidia.devices().unwrap().len(), 3, "it keeps its place");
    node.set("lost", json!([]));
    assert!(nvidia.read(1).unwrap().energy_joules.is_some());
    read_whole(&mut nvidia, 1);
    assert_eq!(kinds(&mut nvidia), [], "a device that is gone loses no metric");
    assert!(matches!(nvidia.read(3), Err(DeviceError::NoSuchDevice { index: 3 })));
}

#[test]
fn a_device_that_is_gone_is_left_alone_for_a_while() {
    let mut node = Node::start("h100", 2);
    let (library, deadline) = (Some(node.library()), Duration::from_secs(20));
    let search_pause = Duration::from_hours(1);
    let settings = NvidiaSettings { library, deadline, search_pause, ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings, Box::new(NoMps));
    eventually("the library opens", || nvidia.read(0).ok());
    node.set("lost", json!([0]));
    let first = nvidia.read(0).unwrap_err();
    node.set("lost", json!([]));
    let second = nvidia.read(0).unwrap_err();
    assert!(second.is_gone() && first.to_string() == second.to_string(), "{second}");
    nvidia.read(1).unwrap();
}

#[test]
fn a_device_that_is_lost_from_the_start_hides_no_other() {
    let mut node = Node::start("h100", 2);
    node.set("lost", json!([0]));
    let mut nvidia = backend(&node);
    let indexes = |nvidia: &mut Nvidia| -> Vec<u32> {
        nvidia.devices().unwrap().into_iter().map(|device| device.index).collect()
    };
    assert_eq!(indexes(&mut nvidia), [1]);
    node.set("lost", json!([]));
    assert_eq!(indexes(&mut nvidia), [0, 1]);
    node.set("lost", json!([0, 1]));
    assert!(backend(&node).devices().unwrap_err().is_gone());
}

#[test]
fn a_refusal_is_told_as_such() {
    let mut node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    nvidia.read(0).unwrap();
    node.set("no_permission", json!(true));
    for error in
        [nvidia.read(0).unwrap_err(), nvidia.processes(0).unwrap_err(), backend(&node).devices().unwrap_err()]
    {
        assert!(matches!(error, DeviceError::Refused { index: 0, .. }), "{error}");
        assert!(error.to_string().contains("permission"), "{error}");
    }
    node.set("no_permission", json!(false));
    nvidia.read(0).unwrap();
}

#[test]
fn a_node_without_the_library_says_so() {
    let settings = |path: PathBuf| NvidiaSettings { library: Some(path), ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings("/nowhere/libnvidia-ml.so.1".into()), Box::new(NoMps));
    assert_eq!(nvidia.notices(), [], "nothing is loaded for this");
    let error = nvidia.devices().unwrap_err();
    assert!(
        matches!(&error, DeviceError::NoLibrary { library, .. } if library.contains("/nowhere/")),
        "{error}"
    );
    assert!(matches!(nvidia.read(0), Err(DeviceError::NoLibrary { .. })));
    assert!(matches!(nvidia.read_all(), Err(DeviceError::NoLibrary { .. })));
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("libnvidia-ml.so.1");
    std::fs::write(&text, "no library at all").unwrap();
    let error = Nvidia::new(settings(text), Box::new(NoMps)).devices().unwrap_err();
    assert!(matches!(error, DeviceError::NoLibrary { .. }), "{error}");
}

#[test]
fn a_driver_that_goes_and_comes_back_is_opened_again() {
    let mut node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    read_whole(&mut nvidia, 0);
    node.driver = None;
    for _ in 0..2 {
        let error = nvidia.read(0).unwrap_err();
        assert!(matches!(error, DeviceError::Unreachable { .. }) && error.is_transient(), "{error}");
    }
    assert!(matches!(nvidia.read_all(), Err(DeviceError::Unreachable { .. })));
    let machine = Machine::new(&MachineConfig::plain("n1", "h100", 1)).unwrap();
    node.driver = Some(Driver::start(machine, &node.socket()));
    read_whole(&mut nvidia, 0);
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn no_call_takes_longer_than_its_deadline() {
    let mut node = Node::start("v100", 1);
    let mut nvidia = with_deadline(&node, Duration::from_millis(500));
    // A machine under load may be late at first.
    eventually("the library opens", || nvidia.read(0).ok());
    node.set("hang_milliseconds", json!(700));
    let error = nvidia.read(0).unwrap_err();
    assert!(matches!(error, DeviceError::NoAnswer { .. }) && error.is_transient(), "{error}");
    let error = nvidia.read(0).unwrap_err();
    assert!(pillion_core::report(&error).contains("earlier question"), "{}", pillion_core::report(&error));
    node.set("hang_milliseconds", json!(0));
    eventually("the library is back", || nvidia.read(0).ok());
}

#[test]
fn each_xid_is_told_once_for_its_device() {
    let mut node = Node::start("h100", 2);
    node.set("xid", json!([{ "index": 0, "code": 13 }]));
    let mut nvidia = backend(&node);
    assert!(nvidia.read_all().unwrap().iter().all(|(_, state)| state.is_ok()));
    assert_eq!(kinds(&mut nvidia), [], "what happened before we came is not news");
    let told = json!([{ "index": 0, "code": 13 }, { "index": 1, "code": 31 }, { "index": 1, "code": 999 }]);
    node.set("xid", told);
    let xid = |code| NoticeKind::Xid { code, pid: None };
    assert_eq!(kinds(&mut nvidia), [(1, xid(31)), (1, xid(999))]);
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn the_xid_of_a_device_that_falls_off_the_bus_is_not_lost_with_it() {
    let mut node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    nvidia.read(0).unwrap();
    node.set("xid", json!([{ "index": 0, "code": 79 }]));
    node.set("lost", json!([0]));
    assert!(nvidia.read(0).unwrap_err().is_gone());
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::Xid { code: 79, pid: None })]);
}

#[test]
fn the_processes_of_all_lists_are_told_once() {
    let mut machine = Machine::new(&MachineConfig::plain("n1", "h100", 1)).unwrap();
    let settings = MpsSettings {
        pipe_directory: "/run/mps".into(),
        log_directory: "/log".into(),
        multi_user: true,
        partitions: false,
        cap_default: None,
        memory_limit_bytes_default: None,
    };
    machine.start_mps(UserId(0), 0, &settings).unwrap();
    let mut node = Node::of(machine);
    let mut nvidia = backend(&node);
    assert_eq!(nvidia.processes(0).unwrap(), []);
    let client = node.load(0, WORKLOAD, &[("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")]);
    let own = std::process::id();
    let told = node.simulated().processes(0).unwrap();
    assert_eq!(told.len(), 1);
    let others = json!([
        { "index": 0, "pid": 1, "memory_bytes": null },
        { "index": 0, "pid": 2, "memory_bytes": 5_000_000 },
        { "index": 0, "pid": own, "memory_bytes": null },
    ]);
    node.set("graphics", others);
    node.set("mps_races", json!(2));
    let mut expected = vec![
        DeviceProcess { pid: 1, memory_bytes: None },
        DeviceProcess { pid: 2, memory_bytes: Some(5_000_000) },
        told[0],
    ];
    expected.sort_by_key(|process| process.pid);
    assert_eq!(nvidia.processes(0).unwrap(), expected);
    // A list that never comes to rest, and one that is not there.
    node.set("mps_races", json!(1_000));
    assert!(matches!(nvidia.processes(0), Err(DeviceError::Busy { index: 0, .. })));
    node.set("not_supported", json!(["nvmlDeviceGetMPSComputeRunningProcesses_v3"]));
    assert_eq!(nvidia.processes(0).unwrap(), expected);
    drop(client);
    node.set("graphics", json!([]));
    eventually("the client is gone", || nvidia.processes(0).unwrap().is_empty().then_some(()));
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
    assert!(state(1).reading.power_watts > state(0).reading.power_watts);
}

#[test]
fn without_mps_and_ccs_their_calls_are_refused() {
    let node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    let settings = MpsSettings {
        pipe_directory: "/run/mps".into(),
        log_directory: "/log".into(),
        multi_user: false,
        partitions: false,
        cap_default: None,
        memory_limit_bytes_default: None,
    };
    for refused in [
        nvidia.start_mps(0, &settings),
        nvidia.stop_mps(0),
        nvidia.terminate_mps_client(0, 1),
        nvidia.set_ccs_mode(0, 1),
    ] {
        assert!(matches!(refused, Err(DeviceError::Unsupported { index: 0, .. })), "{refused:?}");
    }
    assert_eq!(nvidia.mps(0).unwrap(), None);
    assert_eq!(nvidia.ccs_mode(0).unwrap(), None);
}

#[test]
fn a_device_is_closed_to_all_but_one_process_and_opened_again() {
    use nvml_wrapper::enum_wrappers::device::ComputeMode as Mode;
    let mut node = Node::start("h200", 2);
    let device = node.descriptions()[0].uuid.clone();
    let library = nvml_wrapper::Nvml::builder().lib_path(node.library().as_os_str()).init().unwrap();
    let now = || library.device_by_index(0).unwrap().compute_mode().unwrap();
    let mut modes =
        NvmlComputeModes::new(NvidiaSettings { library: Some(node.library()), ..NvidiaSettings::default() });
    modes.set_compute_mode(&device, ComputeMode::ExclusiveProcess).unwrap();
    assert_eq!(now(), Mode::ExclusiveProcess);
    modes.set_compute_mode(&device, ComputeMode::Default).unwrap();
    assert_eq!(now(), Mode::Default);
    node.set("not_root", json!(true));
    let refused = modes.set_compute_mode(&device, ComputeMode::ExclusiveProcess).unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { index: 0, .. }), "{refused:?}");
    assert_eq!(now(), Mode::Default);
}

#[test]
fn devices_are_numbered_as_their_files_are() {
    let mut node = Node::start("h200", 2);
    let uuids: Vec<_> = node.descriptions().into_iter().map(|device| device.uuid).collect();
    node.set("minor_numbers", json!([1, 0]));
    let mut nvidia = backend(&node);
    let devices = nvidia.devices().unwrap();
    let found: Vec<_> = devices.iter().map(|device| (device.index, &device.uuid)).collect();
    assert_eq!(found, [(0, &uuids[1]), (1, &uuids[0])], "/dev/nvidia0 is the second on the bus");
    let load = node.load(1, WORKLOAD, &[]);
    let busy = |nvidia: &mut Nvidia, index| !nvidia.processes(index).unwrap().is_empty();
    assert!(busy(&mut nvidia, 0) && !busy(&mut nvidia, 1));
    drop(load);
}
