//! Who is on a device.

use crate::support::{Node, eventually};
use crate::{WORKLOAD, backend, mps_settings};
use pillion_core::UserId;
use pillion_core::device::DeviceProcess;
use pillion_device::simulated::{Machine, MachineConfig};
use pillion_device::{Backend as _, DeviceError};
use serde_json::json;

#[test]
fn the_processes_of_all_lists_are_told_once() {
    let mut machine = Machine::new(&MachineConfig::plain("n1", "h100", 1)).unwrap();
    let settings = mps_settings();
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
