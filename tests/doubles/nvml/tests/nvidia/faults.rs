//! Every fault of driver or device is told as what it is, and hides nothing of the others.

use crate::support::{Driver, Node, eventually};
use crate::{backend, kinds, read_whole, with_deadline};
use pillion_core::device::NoticeKind;
use pillion_core::metric::Metric;
use pillion_device::nvidia::{Nvidia, NvidiaSettings};
use pillion_device::simulated::{Machine, MachineConfig};
use pillion_device::{Backend as _, DeviceError};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

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
    assert!(nvidia.read(1).unwrap().metrics.get(Metric::EnergyJoules).is_some());
    read_whole(&mut nvidia, 1);
    assert_eq!(kinds(&mut nvidia), [], "a device that is gone loses no metric");
    assert!(matches!(nvidia.read(3), Err(DeviceError::NoSuchDevice { index: 3 })));
}

#[test]
fn a_device_that_is_gone_is_left_alone_for_a_while() {
    let mut node = Node::start("h100", 2);
    let (library, deadline) = (Some(node.library()), Duration::from_secs(20));
    let settings = NvidiaSettings { library, deadline, ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings, None);
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
fn what_we_may_not_read_is_told_once_and_hides_nothing_else() {
    let lost: [(&str, &[Metric]); 3] = [
        ("nvmlDeviceGetTotalEnergyConsumption", &[Metric::EnergyJoules]),
        ("nvmlGpmSampleGet", &OF_GPM_ALONE),
        ("nvmlGpmQueryDeviceSupport", &OF_GPM_ALONE),
    ];
    for (function, metrics) in lost {
        let mut node = Node::start("h100", 1);
        node.set("not_permitted", json!([function]));
        let mut nvidia = backend(&node);
        let reading = nvidia.read(0).unwrap();
        assert!(
            reading.metrics.get(Metric::PowerWatts).is_some()
                && !reading.metrics.known().any(|metric| metrics.contains(&metric))
        );
        let notices = nvidia.notices();
        let kinds: Vec<NoticeKind> = notices.iter().map(|notice| notice.kind).collect();
        assert_eq!(kinds, metrics.iter().copied().map(NoticeKind::MetricLost).collect::<Vec<_>>());
        assert!(notices.iter().all(|notice| notice.detail.contains("permission")), "{notices:?}");
        nvidia.read(0).unwrap();
        assert_eq!(nvidia.notices(), [], "{function}: told once");
        node.set("not_permitted", json!([]));
        read_whole(&mut nvidia, 0);
        let mut back: Vec<NoticeKind> = self::kinds(&mut nvidia).into_iter().map(|(_, kind)| kind).collect();
        back.retain(|kind| !matches!(kind, NoticeKind::MetricLost(_)));
        assert!(!back.is_empty() && back.iter().all(|kind| matches!(kind, NoticeKind::MetricBack(_))));
    }
}

/// In the order of their names.
const OF_GPM_ALONE: [Metric; 5] = [
    Metric::SmActiveFraction,
    Metric::SmOccupancyFraction,
    Metric::Fp32ActiveFraction,
    Metric::TensorActiveFraction,
    Metric::MemoryBandwidthFraction,
];

#[test]
fn a_node_without_the_library_says_so() {
    let settings = |path: PathBuf| NvidiaSettings { library: Some(path), ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings("/nowhere/libnvidia-ml.so.1".into()), None);
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
    let error = Nvidia::new(settings(text), None).devices().unwrap_err();
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

/// In a process of its own: it counts threads, and other tests beside it have some of the same name.
#[test]
#[expect(clippy::disallowed_methods, reason = "it runs itself, and nothing of Slurm's")]
fn a_device_that_hangs_keeps_nobody_waiting() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "faults::a_device_that_hangs_alone"];
    let own = std::process::Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&own.stdout);
    assert!(
        own.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&own.stderr)
    );
}

#[test]
#[ignore = "run by a_device_that_hangs_keeps_nobody_waiting"]
fn a_device_that_hangs_alone() {
    let mut node = Node::start("h100", 3);
    let mut nvidia = with_deadline(&node, Duration::from_millis(500));
    let all_well = |nvidia: &mut Nvidia| {
        let states = nvidia.read_all().ok()?;
        (states.len() == 3 && states.iter().all(|(_, state)| state.is_ok())).then_some(())
    };
    // A machine under load may be late at first.
    eventually("the library opens", || all_well(&mut nvidia));
    let is_ours = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "nvml")
    };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().flatten().filter(is_ours).count();
    let before = threads();
    node.set("hung", json!([1]));
    for round in 0..5 {
        let states = eventually("the others answer", || {
            let states = nvidia.read_all().unwrap();
            (states[0].1.is_ok() && states[2].1.is_ok()).then_some(states)
        });
        let error = states.into_iter().nth(1).unwrap().1.unwrap_err();
        assert!(matches!(error, DeviceError::NoAnswer { .. }) && error.is_transient(), "{round}: {error}");
        assert_eq!(nvidia.devices().unwrap().len(), 3, "it keeps its place");
        nvidia.notices();
    }
    assert!(threads() <= before + 1, "one more that asks which it is, however often: {} {before}", threads());
    node.set("hung", json!([]));
    eventually("it is back", || all_well(&mut nvidia));
    nvidia.devices().unwrap();
    assert_eq!(threads(), before, "none is left over");
}

#[test]
fn a_device_that_hangs_from_the_start_is_taken_up_when_it_answers() {
    let mut node = Node::start("h100", 3);
    node.set("hung", json!([1]));
    let mut nvidia = with_deadline(&node, Duration::from_millis(500));
    let indexes = |nvidia: &mut Nvidia| -> Option<Vec<u32>> {
        Some(nvidia.devices().ok()?.into_iter().map(|device| device.index).collect())
    };
    eventually("the others", || indexes(&mut nvidia).filter(|found| *found == [0, 2]));
    nvidia.read(2).unwrap();
    node.set("hung", json!([]));
    eventually("all", || indexes(&mut nvidia).filter(|found| *found == [0, 1, 2]));
    nvidia.read(1).unwrap();
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
