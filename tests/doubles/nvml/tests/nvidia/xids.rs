//! The processes of Xids: NVML names none, the kernel's log does.

use crate::kinds;
use crate::support::Node;
use pillion_core::device::NoticeKind;
use pillion_device::Backend as _;
use pillion_device::nvidia::{Nvidia, NvidiaSettings};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// A node with a kernel's log of its own.
struct Machine {
    node: Node,
    directory: tempfile::TempDir,
    log: File,
    xids: Vec<Value>,
}

impl Machine {
    fn start() -> Self {
        let (node, directory) = (Node::start("h100", 2), tempfile::tempdir().unwrap());
        let path = directory.path().join("kmsg");
        let log = OpenOptions::new().create_new(true).append(true).open(path).unwrap();
        Self { node, directory, log, xids: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("kmsg")
    }

    fn backend(&self, kernel_log: PathBuf) -> Nvidia {
        let (library, kernel_log) = (Some(self.node.library()), Some(kernel_log));
        let deadline = std::time::Duration::from_secs(20);
        let settings = NvidiaSettings { library, kernel_log, deadline, ..NvidiaSettings::default() };
        let mut nvidia = Nvidia::new(settings, None);
        assert_eq!(nvidia.read_all().unwrap().len(), 2);
        nvidia
    }

    fn log(&mut self, bus: &str, told: &str) {
        writeln!(self.log, "4,7,8,-;NVRM: Xid (PCI:0000:{bus}:00): {told}").unwrap();
    }

    /// Events that wait all at once.
    fn raise(&mut self, xids: &[(u32, u64)]) {
        self.xids.extend(xids.iter().map(|(index, code)| json!({ "index": index, "code": code })));
        self.node.set("xid", Value::Array(self.xids.clone()));
    }
}

fn xid(code: u64, pid: Option<u32>) -> NoticeKind {
    NoticeKind::Xid { code, pid }
}

#[test]
fn an_xid_is_one_event_with_the_process_that_the_kernel_names() {
    let mut machine = Machine::start();
    machine.log("3b", "31, pid=1, name=before we came");
    let mut nvidia = machine.backend(machine.path());
    assert_eq!(kinds(&mut nvidia), []);
    machine.log("3c", "31, pid=4711, name=python, Ch 00000008");
    machine.log("99", "31, pid=4712, name=of no device of ours");
    machine.raise(&[(1, 31)]);
    let told = nvidia.notices();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].index, told[0].kind), (1, xid(31, Some(4711))));
    assert!(told[0].detail.contains("name=python"), "{told:?}");
    assert_eq!(kinds(&mut nvidia), []);
    machine.raise(&[(0, 79)]);
    assert_eq!(kinds(&mut nvidia), [], "the kernel may log it yet");
    assert_eq!(kinds(&mut nvidia), [(0, xid(79, None))]);
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn without_a_kernel_log_xids_come_without_processes() {
    let mut machine = Machine::start();
    let mut nvidia = machine.backend("/nowhere/kmsg".into());
    machine.log("3b", "31, pid=4711, name=python");
    machine.raise(&[(0, 31)]);
    assert_eq!(kinds(&mut nvidia), [(0, xid(31, None))]);
}

#[test]
fn a_burst_of_xids_is_told_whole() {
    let mut machine = Machine::start();
    let mut nvidia = machine.backend("/nowhere/kmsg".into());
    let burst: Vec<(u32, u64)> = (0..48).map(|number| (number % 2, 31 + u64::from(number))).collect();
    machine.raise(&burst);
    let mut told = kinds(&mut nvidia);
    told.sort_by_key(|(_, kind)| if let NoticeKind::Xid { code, .. } = kind { *code } else { 0 });
    let expected: Vec<_> = burst.iter().map(|(index, code)| (*index, xid(*code, None))).collect();
    assert_eq!(told, expected, "each of its device, and none twice");
    assert_eq!(kinds(&mut nvidia), []);
}

#[test]
fn a_storm_of_xids_is_told_over_several_looks() {
    let mut machine = Machine::start();
    let mut nvidia = machine.backend("/nowhere/kmsg".into());
    machine.raise(&[(0, 31); 150]);
    let counts = [(); 4].map(|()| kinds(&mut nvidia).len());
    assert_eq!(counts, [64, 64, 22, 0], "no look is held by it, and none is lost");
}
