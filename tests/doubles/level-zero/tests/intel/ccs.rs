//! CCS modes: xe's files in the modern scene, the processes' own choice under i915 in the legacy one.

use crate::scene::{Scene, Way, play, wait_for};
use pillion_device::{Backend as _, CcsControl, DeviceError};
use pillion_double_level_zero::Faults;
use std::os::unix::fs::symlink;

#[test]
fn xe_is_set_by_its_file_while_the_card_is_idle() {
    play("ccs::xe_is_set_by_its_file_while_the_card_is_idle", Way::Modern, set_by_file);
}

fn set_by_file(scene: &Scene) {
    let mut intel = scene.opened();
    assert_eq!(intel.status(2).unwrap(), Some(1));
    intel.prepare(2, 4).unwrap();
    assert_eq!((intel.status(2).unwrap(), intel.status(3).unwrap()), (Some(4), Some(1)), "a mode a tile");
    let refused = intel.prepare(2, 3).unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { index: 2, .. }), "{refused}");
    let busy = intel.prepare(1, 2).unwrap_err();
    assert!(matches!(busy, DeviceError::Busy { index: 1, .. }), "{busy}");
    assert!(busy.to_string().contains(&scene.load_pid.to_string()), "{busy}");
    intel.prepare(1, 1).unwrap();
}

#[test]
fn what_holds_a_card_open_is_let_go_of_or_told() {
    play("ccs::what_holds_a_card_open_is_let_go_of_or_told", Way::Modern, let_go);
}

fn let_go(scene: &Scene) {
    let mut intel = scene.opened();
    intel.read(2).unwrap();
    symlink("/dev/dri/renderD129", scene.open_file(9)).unwrap();
    let refused = intel.prepare(3, 2).unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { index: 3, .. }), "{refused}");
    assert!(refused.to_string().contains("keeps /dev/dri/renderD129 open"), "{refused}");
    assert_eq!(intel.status(3).unwrap(), Some(1), "Level Zero was closed, and is open again");
    assert_eq!(intel.devices().unwrap().len(), 4);
    intel.prepare(1, 1).unwrap();
    std::fs::remove_file(scene.open_file(9)).unwrap();
    intel.prepare(3, 2).unwrap();
    assert_eq!(intel.status(3).unwrap(), Some(2));
}

#[test]
fn a_thread_that_hangs_only_puts_a_mode_off() {
    play("ccs::a_thread_that_hangs_only_puts_a_mode_off", Way::Modern, put_off);
}

fn put_off(scene: &Scene) {
    let mut intel = scene.opened();
    wait_for("both cards", || intel.read(1).is_ok() && intel.read(3).is_ok());
    scene.faults(&Faults { hanging: [1].into(), ..Faults::default() });
    wait_for("a call that hangs", || intel.read(1).is_err());
    symlink("/dev/dri/renderD129", scene.open_file(9)).unwrap();
    let late = intel.prepare(3, 2).unwrap_err();
    assert!(matches!(late, DeviceError::NotReady { index: 3, .. }) && late.is_transient(), "{late}");
    scene.answers(&[]);
    let is_final = |error: &DeviceError| matches!(error, DeviceError::Refused { index: 3, .. });
    wait_for("its return", || intel.prepare(3, 2).is_err_and(|error| is_final(&error)));
    std::fs::remove_file(scene.open_file(9)).unwrap();
    intel.prepare(3, 2).unwrap();
}

#[test]
fn i915_leaves_the_mode_to_processes() {
    play("ccs::i915_leaves_the_mode_to_processes", Way::Legacy, left_to_processes);
}

fn left_to_processes(scene: &Scene) {
    let mut intel = scene.opened();
    intel.prepare(0, 2).unwrap();
    assert_eq!(intel.status(0).unwrap(), None, "nobody tells");
    for mode in [0, 3, 8] {
        let refused = intel.prepare(0, mode).unwrap_err();
        assert!(refused.to_string().contains("is no CCS mode; allowed are 1, 2 and 4"), "{refused}");
    }
    assert!(matches!(intel.prepare(9, 2), Err(DeviceError::NoSuchDevice { index: 9 })));
}
