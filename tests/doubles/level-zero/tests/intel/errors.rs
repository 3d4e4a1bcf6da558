//! Each state of error: what fails is absent or told, and hides nothing of the others.

use crate::both_ways;
use crate::fields::interval;
use crate::scene::{Scene, Way, double, play, wait_for};
use level_zero_sys::*;
use pillion_core::SystemClock;
use pillion_core::device::{DeviceNotice, NoticeKind};
use pillion_core::metric::Metric;
use pillion_device::intel::{Intel, Settings};
use pillion_device::{Backend as _, CcsControl, DeviceError};
use pillion_double_level_zero::Faults;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

both_ways! {
    a_metric_that_stops_is_told_once
    a_query_that_takes_more_rights_is_absent
    a_lost_tile_hides_no_other
    a_tile_that_hangs_keeps_nobody_waiting
    nothing_that_may_be_read_is_a_refusal
    a_driver_that_never_had_it_is_no_loss
    what_keeps_level_zero_from_opening_is_told
}

fn kinds(notices: &[DeviceNotice]) -> Vec<NoticeKind> {
    notices.iter().map(|notice| notice.kind).collect()
}

/// Reads until something is told.
fn told(intel: &mut Intel, index: u32) -> Vec<DeviceNotice> {
    let mut notices = Vec::new();
    wait_for("a notice", || {
        intel.read(index).unwrap();
        notices = intel.notices();
        !notices.is_empty()
    });
    notices
}

fn a_metric_that_stops_is_told_once(scene: &Scene) {
    let mut intel = scene.opened();
    interval(&mut intel, 0);
    scene.answers(&[("zesPowerGetEnergyCounter", ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)]);
    let lost = told(&mut intel, 0);
    let energy = [Metric::EnergyJoules, Metric::PowerWatts];
    assert_eq!(kinds(&lost), energy.map(NoticeKind::MetricLost));
    assert_eq!(lost[0].detail, "zesPowerGetEnergyCounter: not supported");
    let reading = intel.read(0).unwrap();
    assert!(
        reading.metrics.get(Metric::EnergyJoules).is_none()
            && reading.metrics.get(Metric::PowerWatts).is_none(),
        "{reading:?}"
    );
    assert!(
        reading.metrics.bytes(Metric::MemoryBytesUsed).is_some()
            && reading.metrics.get(Metric::SmClockHertz).is_some(),
        "{reading:?}"
    );
    scene.answers(&[]);
    assert_eq!(kinds(&told(&mut intel, 0)), energy.map(NoticeKind::MetricBack));
    assert!(interval(&mut intel, 0).metrics.get(Metric::EnergyJoules).is_some());
    assert_eq!(intel.notices(), []);
}

fn a_query_that_takes_more_rights_is_absent(scene: &Scene) {
    scene.answers(&[("zesEngineGetActivity", ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)]);
    let mut intel = scene.opened();
    let reading = interval(&mut intel, 0);
    assert_eq!(reading.metrics.fraction(Metric::GpuBusyFraction), None);
    assert!(reading.metrics.get(Metric::MemoryBandwidthFraction).is_some(), "{reading:?}");
    assert_eq!(intel.notices(), [], "it never was there");
}

fn a_lost_tile_hides_no_other(scene: &Scene) {
    let mut intel = scene.opened();
    interval(&mut intel, 1);
    scene.faults(&Faults { lost: [1].into(), ..Faults::default() });
    wait_for("the loss", || intel.read(1).is_err());
    for (index, state) in intel.read_all().unwrap() {
        match state {
            Err(error) => {
                assert_eq!(index, 1, "{error}");
                assert!(error.is_gone() && error.to_string().contains("device lost"), "{error}");
            }
            Ok(state) => {
                assert!(index != 1 && state.reading.metrics.get(Metric::MemoryBytesUsed).is_some());
            }
        }
    }
    assert_eq!(intel.notices(), [], "a device is lost, not its metrics");
    scene.answers(&[]);
    wait_for("its return", || intel.read(1).is_ok());
    interval(&mut intel, 1);
}

fn a_tile_that_hangs_keeps_nobody_waiting(scene: &Scene) {
    let settings = Settings { deadline: Duration::from_millis(500), ..scene.settings() };
    let mut intel = Intel::new(settings, Arc::new(SystemClock));
    let all_read = |intel: &mut Intel| {
        let states = intel.read_all();
        states.is_ok_and(|states| states.len() == 4 && states.iter().all(|(_, state)| state.is_ok()))
    };
    // A machine under load may be late at first.
    wait_for("all tiles", || all_read(&mut intel));
    scene.faults(&Faults { hanging: [1].into(), ..Faults::default() });
    let mut reasons = BTreeSet::new();
    wait_for("a look that does not wait any more", || {
        for (index, state) in intel.read_all().unwrap() {
            match state {
                Err(error) if index == 1 => {
                    assert!(matches!(error, DeviceError::NoAnswer { .. }) && error.is_transient(), "{error}");
                    reasons.insert(pillion_core::report(&error));
                }
                Err(error) => {
                    assert!(matches!(error, DeviceError::NoAnswer { .. }), "a busy machine: {error}");
                }
                Ok(_) => {}
            }
        }
        reasons.iter().any(|reason| reason.contains("it still works on an earlier question"))
    });
    assert!(reasons.iter().any(|reason| reason.contains("it takes too long")), "{reasons:?}");
    wait_for("the neighbour on its card", || intel.read(0).is_ok());
    assert!(intel.prepare(1, 2).unwrap_err().is_transient());
    assert_eq!(intel.devices().unwrap().len(), 4);
    scene.answers(&[]);
    wait_for("its return", || intel.read(1).is_ok());
    assert_eq!(intel.notices(), [], "it lost no metric");
}

fn nothing_that_may_be_read_is_a_refusal(scene: &Scene) {
    let mut intel = scene.opened();
    let all = [
        "zesPowerGetEnergyCounter",
        "zesMemoryGetState",
        "zesMemoryGetBandwidth",
        "zesEngineGetActivity",
        "zesFrequencyGetState",
        "zesDeviceProcessesGetState",
    ];
    scene.answers(&all.map(|name| (name, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)));
    let error = intel.read(0).unwrap_err();
    assert!(matches!(error, DeviceError::Refused { index: 0, .. }), "{error}");
    assert!(error.to_string().contains("run the agent as root"), "{error}");
    let error = intel.processes(2).unwrap_err();
    assert!(matches!(error, DeviceError::Refused { index: 2, .. }), "{error}");
}

fn a_driver_that_never_had_it_is_no_loss(scene: &Scene) {
    scene.answers(&[
        ("zesDeviceEnumPowerDomains", ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        ("zesDeviceEnumFrequencyDomains", ZE_RESULT_ERROR_UNKNOWN),
    ]);
    let mut intel = scene.opened();
    let mut reading = intel.read(0).unwrap();
    wait_for("a rate", || {
        reading = intel.read(0).unwrap();
        reading.metrics.get(Metric::GpuBusyFraction).is_some()
    });
    assert!(
        reading.metrics.get(Metric::EnergyJoules).is_none()
            && reading.metrics.get(Metric::PowerWatts).is_none(),
        "{reading:?}"
    );
    assert!(
        reading.metrics.get(Metric::SmClockHertz).is_none() && reading.throttles().is_none(),
        "{reading:?}"
    );
    assert_eq!(intel.notices(), []);
}

fn what_keeps_level_zero_from_opening_is_told(scene: &Scene) {
    let mut intel = scene.intel();
    let both = |result| [("zesInit", result), ("zeInit", result)];
    scene.answers(&both(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS));
    let refused = intel.devices().unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("run the agent as root"), "{refused}");
    scene.answers(&[("zesDeviceGetProperties", ZE_RESULT_ERROR_DEVICE_LOST)]);
    let gone = intel.devices().unwrap_err();
    assert!(gone.is_gone(), "{gone}");
    scene.answers(&[]);
    assert_eq!(intel.devices().unwrap().len(), 4, "it is asked again");
    let settings = Settings { library: Some("/nowhere/libze_loader.so.1".to_owned()), ..scene.settings() };
    let error = Intel::new(settings, Arc::new(SystemClock)).devices().unwrap_err();
    assert!(matches!(&error, DeviceError::NoLibrary { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/libze_loader.so.1"), "{error}");
}

#[test]
fn a_loader_without_a_driver_has_no_devices_to_offer() {
    play("errors::a_loader_without_a_driver_has_no_devices_to_offer", Way::Modern, |scene| {
        let none = ZE_RESULT_ERROR_UNINITIALIZED;
        scene.answers(&[("zesInit", none), ("zeInit", none)]);
        let mut intel = scene.intel();
        let error = intel.devices().unwrap_err();
        assert!(matches!(&error, DeviceError::NoLibrary { .. }), "{error}");
        assert!(error.to_string().contains("no driver to offer (not initialised)"), "{error}");
        let again = intel.devices().unwrap_err();
        assert_eq!(again.to_string(), error.to_string(), "by another call, and no news");
        assert!(error.to_string().contains(double().to_str().unwrap()), "{error}");
    });
}

#[test]
fn an_old_driver_below_a_new_loader_is_opened_the_legacy_way() {
    play("errors::an_old_driver_below_a_new_loader_is_opened_the_legacy_way", Way::Modern, |scene| {
        scene.answers(&[("zesInit", ZE_RESULT_ERROR_UNINITIALIZED)]);
        let mut intel = scene.opened();
        assert!(interval(&mut intel, 0).metrics.get(Metric::PowerWatts).is_some());
    });
}
