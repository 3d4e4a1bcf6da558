//! What devices are, and what cannot be done with them.

use crate::support::{Node, eventually};
use crate::{WORKLOAD, backend, kinds, mps_settings, read_whole};
use pillion_core::device::{DeviceDescription, NoticeKind};
use pillion_core::metric::Metric;
use pillion_device::mps::{ComputeMode, ComputeModes as _};
use pillion_device::nvidia::{Nvidia, NvidiaSettings, NvmlComputeModes, SearchPauses};
use pillion_device::simulated::{Machine, MachineConfig};
use pillion_device::{Backend, DeviceError, MpsControl as _, MpsPlace};
use serde_json::json;
use std::time::Duration;

#[test]
fn devices_are_described_in_our_words() {
    let node = Node::start("h100", 2);
    let expected = node.descriptions();
    assert_eq!(backend(&node).devices().unwrap(), expected);
    assert_eq!(expected[1].gres_type.as_str(), "g1");
    let node = Node::start("a100-40", 1);
    assert_eq!(backend(&node).devices().unwrap(), node.descriptions());
}

/// A node of four whose first two NVLink joins, and whose sockets have two each.
fn two_sockets() -> Node {
    let mut machine = MachineConfig::plain("n1", "h200", 4);
    for (index, device) in machine.devices.iter_mut().enumerate() {
        device.numa_node = Some(u32::from(index >= 2));
    }
    machine.nvlinks = vec![[0, 1]];
    Node::of(Machine::new(&machine).unwrap())
}

fn ways(devices: &[DeviceDescription], index: usize) -> Vec<(u32, &'static str)> {
    devices[index].links.iter().map(|(other, link)| (*other, link.as_str())).collect()
}

#[test]
fn devices_say_how_they_reach_each_other_by_their_own_numbers() {
    let mut node = two_sockets();
    assert_eq!(backend(&node).devices().unwrap(), node.descriptions());
    // NVML counts along the bus, and the files otherwise.
    node.set("minor_numbers", json!([3, 2, 1, 0]));
    let devices = backend(&node).devices().unwrap();
    assert_eq!(ways(&devices, 3), [(0, "SYS"), (1, "SYS"), (2, "NV")]);
    assert_eq!(ways(&devices, 0), [(1, "NODE"), (2, "SYS"), (3, "SYS")]);
    // A driver that does not tell of NVLink, and one that tells nothing.
    node.set("not_supported", json!(["nvmlDeviceGetP2PStatus"]));
    assert_eq!(ways(&backend(&node).devices().unwrap(), 3)[2], (2, "NODE"));
    node.set("not_supported", json!(["nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"]));
    let devices = backend(&node).devices().unwrap();
    assert!(devices.len() == 4 && devices.iter().all(|device| device.links.is_empty()));
}

#[test]
fn a_device_that_hangs_keeps_nobody_from_knowing_the_others() {
    let mut node = two_sockets();
    node.set("hung", json!([3]));
    let settings = NvidiaSettings {
        library: Some(node.library()),
        deadline: Duration::from_millis(500),
        ..NvidiaSettings::default()
    };
    let mut nvidia = Nvidia::new(settings, None);
    // A machine under load may be late at first.
    let known = || {
        let devices = nvidia.devices().ok()?;
        (devices.len() == 3).then_some(devices)
    };
    let devices = eventually("those that answer", known);
    assert!(
        devices.iter().all(|device| device.links.is_empty()),
        "the way to it is not known, nor any other yet"
    );
    assert!(nvidia.read(0).is_ok());
    node.set("hung", json!([]));
    let all = || nvidia.devices().ok().filter(|all| all.len() == 4 && !all[0].links.is_empty());
    let devices = eventually("all of them, and how they reach each other", all);
    assert_eq!(ways(&devices, 0), [(1, "NV"), (2, "SYS"), (3, "SYS")]);
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

#[test]
fn a_device_that_cannot_be_described_lets_no_other_rest() {
    let mut node = Node::start("h200", 2);
    node.set("minor_numbers", json!([1, 0]));
    let pause = Duration::from_mins(10);
    let search_pauses = SearchPauses { first: pause, longest: pause };
    let settings =
        NvidiaSettings { library: Some(node.library()), search_pauses, ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings, None);
    assert_eq!(eventually("the devices", || nvidia.devices().ok()).len(), 2);
    node.set("lost", json!([0]));
    assert_eq!(nvidia.devices().unwrap().len(), 2, "they keep their places");
    eventually("the other one, which is 0 by its file", || nvidia.read(0).ok());
    let gone = nvidia.read(1).unwrap_err();
    assert!(matches!(gone, DeviceError::Gone { index: 1, .. }), "{gone}");
}

#[test]
fn a_mode_that_comes_late_is_waited_for_before_the_next() {
    let mut node = Node::start("h200", 1);
    let device = node.descriptions()[0].uuid.clone();
    let (library, deadline) = (Some(node.library()), Duration::from_millis(500));
    let mut modes = NvmlComputeModes::new(NvidiaSettings { library, deadline, ..NvidiaSettings::default() });
    let set = |modes: &mut NvmlComputeModes, mode| modes.set_compute_mode(&device, mode);
    // A machine under load may be late at first.
    eventually("the library opens", || set(&mut modes, ComputeMode::Default).ok());
    node.set("hang_milliseconds", json!(700));
    let late = set(&mut modes, ComputeMode::ExclusiveProcess).unwrap_err();
    assert!(pillion_core::report(&late).contains("it takes too long"), "{}", pillion_core::report(&late));
    let busy = set(&mut modes, ComputeMode::Default).unwrap_err();
    assert!(pillion_core::report(&busy).contains("earlier question"), "{}", pillion_core::report(&busy));
    node.set("hang_milliseconds", json!(0));
    eventually("the library is back", || set(&mut modes, ComputeMode::Default).ok());
}

#[test]
fn a_device_that_mig_has_cut_up_has_no_utilisation() {
    let mut node = Node::start("h100", 2);
    node.set("mig", json!([0]));
    let _load = node.load(0, WORKLOAD, &[]);
    let mut nvidia = backend(&node);
    let devices = nvidia.devices().unwrap();
    assert!(devices[0].instances.is_some() && devices[1].instances.is_none());
    let notices = nvidia.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!((notices[0].index, notices[0].kind), (0, NoticeKind::Divided));
    assert!(notices[0].detail.contains(devices[0].uuid.as_str()), "{notices:?}");
    nvidia.devices().unwrap();
    read_whole(&mut nvidia, 1);
    let reading = nvidia.read(0).unwrap();
    assert!(
        reading.metrics.get(Metric::EnergyJoules).is_some()
            && reading.metrics.bytes(Metric::MemoryBytesUsed).is_some()
    );
    assert_eq!(
        (
            reading.metrics.fraction(Metric::GpuBusyFraction),
            reading.metrics.fraction(Metric::MemoryBusyFraction)
        ),
        (None, None)
    );
    assert_eq!(
        (
            reading.metrics.fraction(Metric::SmActiveFraction),
            reading.metrics.fraction(Metric::MemoryBandwidthFraction)
        ),
        (None, None)
    );
    assert_eq!(kinds(&mut nvidia), [], "told once, and what never came is not lost");
}

#[test]
fn without_mps_and_ccs_their_calls_are_refused() {
    let node = Node::start("h100", 1);
    let mut nvidia = backend(&node);
    assert!(nvidia.mps().is_none() && nvidia.ccs().is_none());
    let nvidia: &mut dyn Backend = &mut nvidia;
    for refused in [nvidia.mps_on(0).err(), nvidia.ccs_on(0).err()] {
        assert!(matches!(refused, Some(DeviceError::Unsupported { index: 0, .. })), "{refused:?}");
    }
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
    node.simulated().prepare(&MpsPlace::device(0), &mps_settings()).unwrap();
    let client = node.load(0, WORKLOAD, &[("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")]);
    let refused = node.try_load(0, WORKLOAD, &[]).unwrap_err();
    assert!(refused.to_string().contains("busy or unavailable"), "{refused}");
    let second = node.load(0, WORKLOAD, &[("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")]);
    drop((client, second));
    modes.set_compute_mode(&device, ComputeMode::Default).unwrap();
    assert_eq!(now(), Mode::Default);
    node.set("not_root", json!(true));
    let refused = modes.set_compute_mode(&device, ComputeMode::ExclusiveProcess).unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { index: 0, .. }), "{refused:?}");
    assert_eq!(now(), Mode::Default);
}
