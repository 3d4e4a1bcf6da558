//! Daemons of MIG instances.

use crate::node::{Node, is_root};
use pillion_core::DeviceUuid;
use pillion_device::mps::{Cleaned, cleanup};
use pillion_device::{MigControl as _, MpsControl as _, MpsPlace, MpsSettings, MpsState};

/// One control daemon an instance, named by it: what it serves is told by `CUDA_VISIBLE_DEVICES=MIG-..`, as the real one takes it.
#[test]
fn an_instance_has_a_daemon_of_its_own_which_the_next_agent_finds() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut driver = node.driver();
    driver.set_mode(0, true).unwrap();
    let [one, other] = ["3g.71gb@4", "3g.71gb@0"].map(|slot| {
        let name = driver.make(0, slot.parse().unwrap()).unwrap().compute[0].uuid.clone();
        MpsPlace::instance(0, name)
    });
    let settings = |name: &str| {
        let directory = node.mps_directory().join(name);
        let (pipe_directory, log_directory) = (directory.join("pipe"), directory.join("log"));
        MpsSettings { pipe_directory, log_directory, ..node.settings(0) }
    };
    let mut daemons = node.daemons();
    daemons.prepare(&one, &settings("g0-3g.71gb@4")).unwrap();
    daemons.prepare(&other, &settings("g0-3g.71gb@0")).unwrap();
    assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None, "of the whole device there is none");
    drop(daemons);
    let mut daemons = node.daemons();
    let names: Vec<DeviceUuid> = [&other, &one].iter().filter_map(|it| it.instance.clone()).collect();
    let found = daemons.instances(0).unwrap();
    assert!(found.len() == 2 && names.iter().all(|name| found.contains(name)), "{found:?}");
    assert_eq!(daemons.status(&one).unwrap().unwrap().state, MpsState::Up);
    let nowhere = MpsPlace::instance(0, DeviceUuid::new("MIG-none"));
    assert!(daemons.prepare(&nowhere, &settings("g0-x")).is_err(), "there is no such instance");
    daemons.release(&nowhere).unwrap();
    // A node whose agent is dead: the Epilog ends what nobody wants, by the names of directories.
    let cleaned = cleanup(&node.control(), &node.mps_directory(), None, |name| name == "g0-3g.71gb@4");
    let ended: Vec<&str> = cleaned
        .iter()
        .filter(|(_, it)| matches!(it, Ok(Cleaned::Ended)))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(ended, ["g0-3g.71gb@0"], "{cleaned:?}");
    let mut daemons = node.daemons();
    daemons.release(&one).unwrap();
    assert_eq!((daemons.status(&one).unwrap(), daemons.instances(0).unwrap()), (None, Vec::new()));
}
