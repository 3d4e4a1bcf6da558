//! One MPS daemon of several devices: who is its client on which, and what becomes of them together.

use super::*;
use crate::{MpsPlace, MpsSettings, MpsState};
use std::path::PathBuf;

const ALICE: UserId = UserId(1001);
const BOB: UserId = UserId(1002);
const ROOT: UserId = UserId(0);

fn machine() -> Machine {
    Machine::new(&MachineConfig::plain("n1", "h200", 3)).unwrap()
}

/// Those of the first two devices.
fn both() -> MpsPlace {
    MpsPlace::set(0, vec![1])
}

fn settings() -> MpsSettings {
    MpsSettings {
        pipe_directory: PathBuf::from("/run/mps/0+1/pipe"),
        log_directory: PathBuf::from("/run/mps/0+1/log"),
        multi_user: false,
        partitions: false,
        users: BTreeSet::new(),
        cap_default: None,
        memory_limit_bytes_default: Some(8 << 30),
    }
}

/// A process on the device that clients of the daemon see under this number.
fn on(number: &str) -> AttachRequest {
    let environment = [("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/0+1/pipe"), ("CUDA_VISIBLE_DEVICES", number)];
    AttachRequest {
        workload: "gemm-hog".to_owned(),
        memory_bytes: Some(1 << 30),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..AttachRequest::default()
    }
}

fn phase(machine: &Machine, id: ClientId) -> Phase {
    machine.progress(id).unwrap().phase
}

#[test]
fn its_clients_are_on_each_of_its_devices_and_a_process_is_one() {
    let mut machine = machine();
    machine.start_mps(ROOT, &both(), &settings()).unwrap();
    machine.start_mps(ROOT, &both(), &settings()).expect("it runs already");
    let (first, second) = (machine.attach(&on("0"), 7, ALICE), machine.attach(&on("1"), 7, ALICE));
    machine.attach(&on("1"), 8, ALICE).unwrap();
    let pids = |machine: &Machine, index| {
        let processes = machine.processes(index).unwrap();
        processes.into_iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    assert_eq!((pids(&machine, 0), pids(&machine, 1)), (vec![7], vec![7, 8]));
    let status = machine.mps(&both()).unwrap().unwrap();
    assert_eq!((status.client_pids, status.server_uid), (vec![7, 8], Some(ALICE)));
    let tenants = machine.tenants(1).unwrap();
    assert!(tenants.iter().all(|it| it.is_mps && it.memory_bytes_max == Some(8 << 30)), "{tenants:?}");
    assert!(machine.attach(&on("2"), 9, ALICE).is_err(), "it shows two devices");
    assert_eq!(machine.mps_sets(), [both()]);
    assert!(matches!(machine.stop_mps(ROOT, &both()), Err(DeviceError::Busy { .. })));
    machine.terminate_mps_client(ROOT, &both(), 7).unwrap();
    for id in [first.unwrap(), second.unwrap()] {
        assert_eq!(phase(&machine, id), Phase::Failed, "all of the process");
    }
    machine.terminate_mps_client(ROOT, &both(), 8).unwrap();
    machine.stop_mps(ROOT, &both()).unwrap();
    assert_eq!((machine.mps_sets(), machine.mps(&both()).unwrap()), (vec![], None));
}

#[test]
fn no_device_has_two_daemons() {
    let mut machine = machine();
    let elsewhere = |name: &str| MpsSettings { pipe_directory: name.into(), ..settings() };
    machine.start_mps(ROOT, &both(), &settings()).unwrap();
    for (index, beside) in [(0, vec![]), (1, vec![]), (1, vec![2]), (1, vec![0]), (0, vec![1, 2])] {
        let place = MpsPlace::set(index, beside);
        let refused = machine.start_mps(ROOT, &place, &elsewhere("/other")).unwrap_err();
        assert!(refused.to_string().contains("with other devices"), "{place:?}: {refused}");
        assert!(machine.serve_mps(ROOT, 5, &place, elsewhere("/other")).is_err(), "{place:?}");
        assert_eq!(machine.mps(&place).unwrap(), None, "{place:?} has none of its own");
        machine.stop_mps(ROOT, &place).expect("nothing of its own to stop");
    }
    assert_eq!(machine.mps_sets(), [both()], "it is there still");
    machine.start_mps(ROOT, &MpsPlace::device(2), &elsewhere("/other")).unwrap();
}

#[test]
fn users_wait_for_each_other_on_all_its_devices() {
    let mut machine = machine();
    machine.start_mps(ROOT, &both(), &settings()).unwrap();
    let alice = machine.attach(&on("0"), 7, ALICE).unwrap();
    let bob = machine.attach(&on("1"), 8, BOB).unwrap();
    assert_eq!(phase(&machine, bob), Phase::Waiting, "one server, one user");
    machine.detach(alice);
    assert_eq!(phase(&machine, bob), Phase::Running);
}

#[test]
fn a_fault_or_a_death_ends_its_clients_on_all_its_devices() {
    let mut machine = machine();
    machine.serve_mps(ROOT, 5, &both(), settings()).unwrap();
    let clients = ["0", "1"].map(|number| machine.attach(&on(number), 7, ALICE).unwrap());
    machine.fault_mps(ROOT, &both()).unwrap();
    assert!(clients.iter().all(|id| phase(&machine, *id) == Phase::Failed));
    assert!(machine.attach(&on("1"), 8, ALICE).is_err(), "until all have left");
    machine.detach(clients[0]);
    assert_eq!(machine.mps(&both()).unwrap().unwrap().state, MpsState::Fault, "one is there still");
    machine.detach(clients[1]);
    assert_eq!(machine.mps(&both()).unwrap().unwrap().state, MpsState::Up);
    let late = machine.attach(&on("1"), 8, ALICE).unwrap();
    machine.mps_daemon_ended(&both(), 5);
    assert_eq!((phase(&machine, late), machine.mps_sets()), (Phase::Failed, vec![]));
}
