//! Static SM partitions of the real control, against the double.

use crate::node::{Node, is_root, runs, until};
use pillion_core::Fraction;
use pillion_device::mps::MpsDaemons;
use pillion_device::simulated::Phase;
use pillion_device::{DeviceError, MpsControl, MpsPlace, MpsSettings};
use std::collections::BTreeSet;

fn settings(node: &Node) -> MpsSettings {
    MpsSettings { partitions: true, ..node.settings(0) }
}

fn add(daemons: &mut MpsDaemons, tenant: &str, cap: f64) -> Result<String, DeviceError> {
    daemons.add_partition(&MpsPlace::device(0), tenant, Fraction::clamped(cap))
}

fn keep(daemons: &mut MpsDaemons, tenants: &[&str]) -> Result<(), DeviceError> {
    let tenants: BTreeSet<String> = tenants.iter().map(|it| (*it).to_owned()).collect();
    daemons.keep_partitions(&MpsPlace::device(0), &tenants)
}

#[test]
fn tenants_have_compute_units_of_their_own_for_as_long_as_they_are_there() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &settings(&node)).unwrap();
    let first = add(&mut daemons, "33+0", 0.6).unwrap();
    assert!(first.starts_with(Node::devices()[0].1.as_str()), "{first}");
    assert_eq!(add(&mut daemons, "33+0", 0.6).unwrap(), first, "once");
    let second = add(&mut daemons, "34+0", 0.4).unwrap();
    assert_ne!(first, second);
    let mut client = node.client(0, &[("CUDA_MPS_SM_PARTITION", &first)]);
    let mut stray = node.client(0, &[]);
    until("one without a partition to be refused", || stray.progress().phase == Phase::Failed);
    assert_eq!(client.progress().phase, Phase::Running);
    let held = keep(&mut daemons, &["34+0"]);
    assert!(matches!(&held, Err(DeviceError::Busy { reason, .. }) if reason.contains("33+0")), "{held:?}");
    client.leave();
    stray.leave();
    until("the first's chunks", || keep(&mut daemons, &["34+0"]).is_ok());
    assert!(!node.says(0, "lspart").1.contains(first.split_once('/').unwrap().1));
    // The next agent knows whose is whose.
    drop(daemons);
    let mut daemons = node.daemons();
    assert_eq!(add(&mut daemons, "34+0", 0.4).unwrap(), second);
    keep(&mut daemons, &[]).unwrap();
    add(&mut daemons, "35+0", 1.0).expect("all chunks are free again");
    until("the server that came up last", || daemons.release(&MpsPlace::device(0)).is_ok());
}

#[test]
fn caps_that_sum_to_more_than_all_share_what_there_is() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &settings(&node)).unwrap();
    add(&mut daemons, "33+0", 0.8).unwrap();
    add(&mut daemons, "34+0", 1.0).expect("what is left");
    let row = |text: &str| text.lines().nth(3).unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(row(&node.says(0, "lspart").1), "12", "of 16");
    let none_left = add(&mut daemons, "35+0", 0.1).unwrap_err();
    assert!(none_left.to_string().ends_with("all 16 chunks of it are taken"), "{none_left}");
    keep(&mut daemons, &[]).unwrap();
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn a_partition_whose_name_was_not_understood_does_not_stay() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(0), &settings(&node)).unwrap();
    let first = add(&mut daemons, "33+0", 0.5).unwrap();
    let before = node.says(0, "lspart").1;
    let real = node.programs.join("nvidia-cuda-mps-control");
    // It makes it, and says so in words of its own, or fails.
    for end in ["echo Done; exit 0", "exit 1"] {
        node.write_control(&format!(
            "read -r line; case $line in *add*) echo \"$line\" | {real} >/dev/null; {end};; esac; \
             echo \"$line\" | {real}; exit $?",
            real = real.display()
        ));
        add(&mut daemons, "34+0", 0.25).unwrap_err();
        node.write_control("");
        assert_eq!(node.says(0, "lspart").1, before, "{end}");
    }
    assert_eq!(add(&mut daemons, "33+0", 0.5).unwrap(), first);
    keep(&mut daemons, &[]).unwrap();
    daemons.release(&MpsPlace::device(0)).unwrap();
}

#[test]
fn a_driver_without_partitions_says_so_and_leaves_no_daemon() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    for (how, said) in [("1", "does not know -S"), ("silent", "Static partitioning is not enabled")] {
        node.write_control(&format!("export MPS_DOUBLE_WITHOUT_PARTITIONS={how}"));
        let mut daemons = node.daemons();
        let refused = daemons.prepare(&MpsPlace::device(0), &settings(&node)).unwrap_err();
        assert!(matches!(refused, DeviceError::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(daemons.status(&MpsPlace::device(0)).unwrap(), None);
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).expect("without them it runs");
        let plain = add(&mut daemons, "33+0", 0.5);
        assert!(matches!(plain, Err(DeviceError::Unsupported { .. })), "{plain:?}");
        let pid = node.daemon_pid(0);
        daemons.release(&MpsPlace::device(0)).unwrap();
        assert!(!runs(pid));
    }
}
