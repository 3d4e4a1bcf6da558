//! One daemon of two devices, for those who use both: its limits are of each of them, its clients are ended on both, the next agent
//! finds it, and no other daemon serves one of its devices.

use crate::node::{Client, Node, command, is_root, kill, runs, until};
use pillion_core::device::NoticeKind;
use pillion_core::{DeviceUuid, UserId};
use pillion_device::mps::{Cleaned, ComputeMode, ComputeModes, ModeControl, MpsDaemons, cleanup};
use pillion_device::simulated::Phase;
use pillion_device::{DeviceError, MpsControl as _, MpsPlace, MpsSettings, MpsState};
use std::io::Write as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

fn both() -> MpsPlace {
    MpsPlace::set(0, vec![1])
}

fn settings(node: &Node) -> MpsSettings {
    let directory = node.mps_directory().join("g0+g1");
    let (pipe_directory, log_directory) = (directory.join("pipe"), directory.join("log"));
    MpsSettings { pipe_directory, log_directory, ..node.settings(0) }
}

fn pipe(node: &Node) -> String {
    settings(node).pipe_directory.display().to_string()
}

/// A process of the set on one of its devices, as clients number them.
fn client(node: &Node, number: &str, limits: &str) -> Client {
    let pipe = pipe(node);
    let more = [("CUDA_MPS_PIPE_DIRECTORY", pipe.as_str()), ("CUDA_VISIBLE_DEVICES", number)];
    let limits = Some(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits)).filter(|(_, limits)| !limits.is_empty());
    node.client(0, &more.into_iter().chain(limits).collect::<Vec<_>>())
}

fn says(node: &Node, text: &str) -> String {
    let mut asked = command(node.control());
    asked.env("CUDA_MPS_PIPE_DIRECTORY", pipe(node)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = asked.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

fn clients(daemons: &mut MpsDaemons) -> Vec<u32> {
    daemons.status(&both()).unwrap().map_or_else(Vec::new, |status| status.client_pids)
}

fn is_busy(result: &Result<(), DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Busy { .. }))
}

/// What each client on a device may hold of it.
fn limits(node: &Node, index: u32) -> Vec<Option<u64>> {
    node.driver().tenants(index).unwrap().iter().map(|tenant| tenant.memory_bytes_max).collect()
}

#[test]
fn its_clients_are_on_both_within_the_limits_of_each_and_are_ended_as_one() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    let limited = MpsSettings { memory_limit_bytes_default: Some(8 << 30), ..settings(&node) };
    daemons.prepare(&both(), &limited).unwrap();
    for device in ["0", "1"] {
        assert_eq!(says(&node, &format!("get_default_device_pinned_mem_limit {device}")), "8G");
    }
    let pid = std::fs::read_to_string(settings(&node).pipe_directory.join("nvidia-cuda-mps-control.pid"));
    let environ = std::fs::read_to_string(format!("/proc/{}/environ", pid.unwrap())).unwrap();
    let uuids: Vec<String> = Node::devices().iter().map(|(_, uuid)| uuid.to_string()).collect();
    assert!(environ.contains(&format!("CUDA_VISIBLE_DEVICES={}\0", uuids.join(","))), "{environ}");
    let mut first = client(&node, "0,1", "0=4G,1=4G");
    let second = client(&node, &format!("{},{}", uuids[1], uuids[0]), "0=2G,1=2G");
    until("both", || clients(&mut daemons).len() == 2);
    assert_eq!((limits(&node, 0), limits(&node, 1)), (vec![Some(4 << 30)], vec![Some(2 << 30)]));
    // A server that runs takes new limits for both; who names a device that he does not see drops them all.
    let more = MpsSettings { memory_limit_bytes_default: Some(16 << 30), ..settings(&node) };
    daemons.prepare(&both(), &more).unwrap();
    let (third, loose) = (client(&node, "1", ""), client(&node, "1", "0=2G,1=2G"));
    assert_eq!(limits(&node, 1), [Some(2 << 30), Some(16 << 30), None]);
    assert!(is_busy(&daemons.release(&both())));
    let pids = [second.pid(), third.pid(), loose.pid()];
    until("they are clients", || pids.iter().all(|pid| clients(&mut daemons).contains(pid)));
    for pid in pids {
        daemons.terminate_client(&both(), pid).unwrap();
    }
    assert_eq!(first.progress().phase, Phase::Running, "they took nobody along");
    let nobody = daemons.terminate_client(&both(), 1);
    assert!(matches!(nobody, Err(DeviceError::Refused { .. })), "{nobody:?}");
    first.leave();
    drop((second, third, loose));
    until("its end", || daemons.release(&both()).is_ok());
    assert!(!settings(&node).pipe_directory.exists());
}

#[test]
fn no_device_has_two_daemons() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&MpsPlace::device(1), &node.settings(1)).unwrap();
    let refused = daemons.prepare(&both(), &settings(&node));
    assert!(is_busy(&refused), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("an MPS daemon serves device 1; one device has one"));
    daemons.release(&MpsPlace::device(1)).unwrap();
    daemons.prepare(&both(), &settings(&node)).unwrap();
    let other_order = MpsPlace::set(1, vec![0]);
    for place in [MpsPlace::device(0), MpsPlace::device(1), other_order] {
        let refused = daemons.prepare(&place, &node.settings(place.index)).unwrap_err().to_string();
        assert!(refused.contains("an MPS daemon serves device 0, 1;"), "{place:?}: {refused}");
        daemons.release(&place).expect("it has none of its own");
    }
    assert_eq!(daemons.sets().unwrap(), [both()]);
    daemons.release(&both()).unwrap();
    assert_eq!(daemons.sets().unwrap(), []);
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
}

#[test]
fn partitions_are_of_one_device() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let parted = MpsSettings { partitions: true, ..settings(&node) };
    let refused = node.daemons().prepare(&both(), &parted);
    assert!(matches!(refused, Err(DeviceError::Unsupported { .. })), "{refused:?}");
}

#[test]
fn the_next_agent_goes_on_with_it_and_hears_of_its_death_on_both_devices() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let mut daemons = node.daemons();
    daemons.prepare(&both(), &settings(&node)).unwrap();
    let tenant = client(&node, "1", "");
    drop(daemons);
    let mut daemons = node.daemons();
    assert_eq!(daemons.sets().unwrap(), [both()]);
    until("its client", || clients(&mut daemons) == [tenant.pid()]);
    assert_eq!(daemons.status(&both()).unwrap().unwrap().settings, settings(&node));
    drop(daemons);
    // It dies while no agent looks.
    let pid = std::fs::read_to_string(settings(&node).pipe_directory.join("nvidia-cuda-mps-control.pid"));
    let pid: u32 = pid.unwrap().parse().unwrap();
    kill(pid);
    until("the death", || !runs(pid));
    let mut daemons = node.daemons();
    let told = daemons.notices();
    let told: Vec<(u32, NoticeKind)> = told.iter().map(|notice| (notice.index, notice.kind)).collect();
    assert_eq!(told, [(0, NoticeKind::MpsDied), (1, NoticeKind::MpsDied)]);
    assert_eq!(daemons.status(&both()).unwrap().unwrap().state, MpsState::Died);
    drop(tenant);
    until("a new one", || daemons.prepare(&both(), &settings(&node)).is_ok());
    let told: Vec<(u32, NoticeKind)> =
        daemons.notices().iter().map(|notice| (notice.index, notice.kind)).collect();
    assert_eq!(told, [(0, NoticeKind::MpsClear), (1, NoticeKind::MpsClear)]);
    daemons.release(&both()).unwrap();
}

#[test]
fn one_whose_devices_are_not_all_there_any_more_is_in_the_way_until_it_has_gone() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    node.daemons().prepare(&both(), &settings(&node)).unwrap();
    let only_first = Node::devices().into_iter().take(1);
    let mut daemons = MpsDaemons::new(node.control(), &node.mps_directory(), None, only_first);
    assert_eq!(daemons.sets().unwrap(), [], "not all of its devices have a number");
    let refused = daemons.prepare(&MpsPlace::device(0), &node.settings(0));
    assert!(is_busy(&refused), "it runs: {refused:?}");
    // The Epilog ends it, whatever devices there are.
    let cleaned = cleanup(&node.control(), &node.mps_directory(), None, |_| false);
    assert!(matches!(cleaned[..], [(_, Ok(Cleaned::Ended))]), "{cleaned:?}");
    daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
}

/// What was done to which device.
#[derive(Clone, Default)]
struct Modes(Arc<Mutex<Vec<(DeviceUuid, ComputeMode)>>>);

impl ComputeModes for Modes {
    fn set_compute_mode(&mut self, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError> {
        self.0.lock().unwrap().push((device.clone(), mode));
        Ok(())
    }
}

#[test]
fn a_strict_site_closes_all_its_devices_and_opens_them_again() {
    if !is_root() {
        return;
    }
    let node = Node::start();
    let modes = Modes::default();
    let control = || ModeControl { modes: Box::new(modes.clone()), is_strict: true };
    let each = |mode| Node::devices().into_iter().map(|(_, uuid)| (uuid, mode)).collect::<Vec<_>>();
    let told = || std::mem::take(&mut *modes.0.lock().unwrap());
    let mut daemons = node.daemons_with(control());
    daemons.prepare(&both(), &settings(&node)).unwrap();
    assert_eq!(told(), each(ComputeMode::ExclusiveProcess));
    daemons.release(&MpsPlace::device(1)).unwrap();
    assert_eq!(told(), [], "closed for the daemon of both");
    daemons.release(&both()).unwrap();
    assert_eq!(told(), each(ComputeMode::Default));
    daemons.prepare(&both(), &settings(&node)).unwrap();
    told();
    cleanup(&node.control(), &node.mps_directory(), Some(&mut control()), |name| name != "g0+g1");
    assert_eq!(told(), each(ComputeMode::Default), "by the Epilog too");
}

#[test]
fn users_take_turns_on_all_of_it() {
    if !is_root() {
        return;
    }
    let node = Node::for_all_users();
    let mut daemons = node.daemons();
    let users = [1001, 1002].map(UserId);
    let let_in = MpsSettings { users: users.into(), ..settings(&node) };
    daemons.prepare(&both(), &let_in).unwrap();
    let pipe = pipe(&node);
    let [alice, bob] = [(users[0], "0"), (users[1], "1")].map(|(user, number)| {
        let more = [("CUDA_MPS_PIPE_DIRECTORY", pipe.as_str()), ("CUDA_VISIBLE_DEVICES", number)];
        node.client_of(user, 0, &more)
    });
    let mut bob = bob;
    assert_eq!(bob.progress().phase, Phase::Waiting, "one server, one user");
    alice.leave();
    until("his turn", || bob.progress().phase == Phase::Running);
    bob.leave();
    until("its end", || daemons.release(&both()).is_ok());
}
