//! Every field, against what the device model did.

use crate::both_ways;
use crate::scene::{Scene, wait_for};
use pillion_core::Fraction;
use pillion_core::device::{Mechanism, MetricSource, Reading, Throttle};
use pillion_device::intel::Intel;
use pillion_device::{Backend as _, DeviceError};
use pillion_double_level_zero::Faults;
use std::collections::BTreeSet;

both_ways! {
    tiles_are_devices
    each_field_is_what_the_device_did
    processes_are_on_their_tile
    an_idle_tile_is_idle
    a_clock_that_is_held_down_says_why
    counters_are_not_read_too_often
    mps_is_not_for_intel
}

/// A reading of an interval; what comes before has no rates.
pub(crate) fn interval(intel: &mut Intel, index: u32) -> Reading {
    let mut found = None;
    wait_for("a reading of an interval", || {
        let reading = intel.read(index).unwrap();
        let has_rates = reading.power_watts.is_some();
        found = has_rates.then_some(reading);
        has_rates
    });
    found.unwrap()
}

fn tiles_are_devices(scene: &Scene) {
    let devices = scene.opened().devices().unwrap();
    let uuids: BTreeSet<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
    assert_eq!(uuids.len(), 4, "{uuids:?}");
    for (index, device) in (0..).zip(&devices) {
        assert_eq!((device.index, device.model.as_str()), (index, "max-1550"));
        assert_eq!((device.memory_bytes, device.mechanism), (64 << 30, Mechanism::Ccs));
        assert_eq!(device.gres_type.as_str(), format!("g{index}"));
        assert!(device.uuid.as_str().ends_with(&format!("8086.{}", index % 2)), "{}", device.uuid);
    }
}

fn each_field_is_what_the_device_did(scene: &Scene) {
    let mut intel = scene.opened();
    let first = intel.read(0).unwrap();
    assert!(first.power_watts.is_none() && first.gpu_busy_fraction.is_none(), "no interval yet: {first:?}");
    for index in [0, 1] {
        let before = scene.truth(index);
        let reading = interval(&mut intel, index);
        let after = scene.truth(index);
        let seconds = after.totals.seconds - before.totals.seconds;
        let part = |now: f64, then: f64| (now - then) / seconds;
        let near = |name: &str, value: f64, truth: f64, within: f64| {
            assert!((value - truth).abs() <= within, "device {index}: {name} is {value}, in truth {truth}");
        };
        let Reading {
            energy_joules,
            power_watts,
            gpu_busy_fraction,
            memory_bandwidth_fraction,
            memory_bytes_used,
            sm_clock_hertz,
            throttles,
            sources,
            ..
        } = reading.clone();
        let energy = energy_joules.unwrap();
        let range = before.totals.energy_joules - 1e-3..=after.totals.energy_joules + 1e-3;
        assert!(range.contains(&energy), "{energy} J is not within {range:?}");
        near("power", power_watts.unwrap(), after.power_watts, after.power_watts * 0.01);
        let busy = part(after.totals.busy, before.totals.busy);
        near("busy", gpu_busy_fraction.unwrap().value(), busy, 0.01);
        let bandwidth = part(after.totals.memory, before.totals.memory);
        assert!(bandwidth > 0.01, "the load uses memory");
        near("bandwidth", memory_bandwidth_fraction.unwrap().value(), bandwidth, 0.01);
        assert_eq!(memory_bytes_used, Some(after.memory_bytes_used));
        assert!(after.memory_bytes_used > 4 << 30);
        assert_eq!(sm_clock_hertz, Some(1.6e9));
        assert_eq!(throttles, Some(BTreeSet::new()));
        assert!(sources.values().all(|source| *source == MetricSource::Sysman), "{sources:?}");
        assert_eq!(sources.len(), reading.known().count());
        assert_eq!(sources.len(), 7);
    }
}

fn processes_are_on_their_tile(scene: &Scene) {
    let mut intel = scene.opened();
    let card = scene.truth(0).memory_bytes_used + scene.truth(1).memory_bytes_used;
    let on: Vec<Vec<_>> = (0..4).map(|index| intel.processes(index).unwrap()).collect();
    assert_eq!(on[0].len(), 1);
    assert_eq!((on[0][0].pid, on[0][0].memory_bytes), (scene.load_pid, Some(card)));
    assert!(on[1..].iter().all(Vec::is_empty), "its mask says tile 0: {on:?}");
}

fn an_idle_tile_is_idle(scene: &Scene) {
    let mut intel = scene.opened();
    let reading = interval(&mut intel, 3);
    assert_eq!(reading.gpu_busy_fraction, Some(Fraction::ZERO));
    assert_eq!(reading.memory_bandwidth_fraction, Some(Fraction::ZERO));
    assert_eq!(reading.memory_bytes_used, Some(0));
    let truth = scene.truth(3).power_watts;
    assert!((reading.power_watts.unwrap() - truth).abs() < truth * 0.01, "{reading:?}");
}

fn a_clock_that_is_held_down_says_why(scene: &Scene) {
    let mut intel = scene.opened();
    scene.faults(&Faults { throttle_reasons: 0b1_1001, ..Faults::default() });
    let throttles = interval(&mut intel, 0).throttles;
    let expected = BTreeSet::from([Throttle::PowerLimit, Throttle::Heat, Throttle::PowerBrake]);
    assert_eq!(throttles, Some(expected));
}

fn counters_are_not_read_too_often(scene: &Scene) {
    let mut intel = scene.opened();
    for _ in 0..20 {
        assert!(intel.read(1).unwrap().energy_joules.is_some(), "the double refuses what comes too soon");
        assert!(intel.read_all().unwrap().iter().all(|(_, state)| state.is_ok()));
    }
    assert_eq!(intel.notices(), []);
}

fn mps_is_not_for_intel(scene: &Scene) {
    let mut intel = scene.opened();
    assert_eq!(intel.mps(0).unwrap(), None);
    assert!(matches!(intel.stop_mps(0), Err(DeviceError::Unsupported { index: 0, .. })));
    assert!(matches!(intel.terminate_mps_client(0, 1), Err(DeviceError::Unsupported { .. })));
    assert!(matches!(intel.read(4), Err(DeviceError::NoSuchDevice { index: 4 })));
    assert!(matches!(intel.mps(4), Err(DeviceError::NoSuchDevice { .. })));
}
