//! Who is on a device.

use crate::support::{Node, eventually};
use crate::{WORKLOAD, backend, mps_settings};
use pillion_core::UserId;
use pillion_core::device::DeviceProcess;
use pillion_device::simulated::{Machine, MachineConfig};
use pillion_device::{Backend as _, DeviceError, MpsPlace, MpsSettings};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command};

#[test]
fn the_processes_of_all_lists_are_told_once() {
    let mut machine = Machine::new(&MachineConfig::plain("n1", "h100", 1)).unwrap();
    let settings = mps_settings();
    machine.start_mps(UserId(0), &MpsPlace::device(0), &settings).unwrap();
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

/// A process of this one, by the name of an MPS server, for as long as it is kept.
struct Server(Child);

impl Server {
    #[expect(clippy::disallowed_methods, reason = "plays a control daemon, which starts its server")]
    fn start(directory: &Path) -> Self {
        let program = directory.join("nvidia-cuda-mps-server");
        std::fs::copy("/bin/sleep", &program).unwrap();
        Self(Command::new(program).arg("1000").spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_mps_server_is_listed_beside_its_clients_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    std::fs::create_dir(&pipe).unwrap();
    std::fs::write(pipe.join("nvidia-cuda-mps-control.pid"), std::process::id().to_string()).unwrap();
    let mut machine = Machine::new(&MachineConfig::plain("n1", "h100", 2)).unwrap();
    let settings = MpsSettings { pipe_directory: pipe.clone(), ..mps_settings() };
    machine.start_mps(UserId(0), &MpsPlace::device(0), &settings).unwrap();
    let node = Node::of(machine);
    let mut nvidia = backend(&node);
    let server = Server::start(directory.path());
    assert_eq!(nvidia.processes(0).unwrap(), [], "it has had no client yet");
    let client = node.load(0, WORKLOAD, &[("CUDA_MPS_PIPE_DIRECTORY", pipe.to_str().unwrap())]);
    let own = DeviceProcess { pid: server.0.id(), memory_bytes: Some(60 << 20) };
    let mut both = node.simulated().processes(0).unwrap();
    both.push(own);
    both.sort_by_key(|process| process.pid);
    assert_eq!(nvidia.processes(0).unwrap(), both);
    assert_eq!(nvidia.processes(1).unwrap(), [], "it is on its own device");
    drop(client);
    eventually("its client is gone", || (nvidia.processes(0).unwrap() == [own]).then_some(()));
    drop(server);
    assert_eq!(nvidia.processes(0).unwrap(), []);
}
