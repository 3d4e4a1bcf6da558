//! Every field, against what the device model did.

use crate::both_ways;
use crate::scene::{Scene, wait_for};
use pillion_core::Fraction;
use pillion_core::device::{Mechanism, Reading};
use pillion_core::metric::{Metric, MetricSource, Throttle};
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
        let has_rates = reading.metrics.get(Metric::PowerWatts).is_some();
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
    assert!(
        first.metrics.get(Metric::PowerWatts).is_none()
            && first.metrics.get(Metric::GpuBusyFraction).is_none(),
        "no interval yet: {first:?}"
    );
    for index in [0, 1] {
        let before = scene.truth(index);
        let reading = interval(&mut intel, index);
        let after = scene.truth(index);
        let seconds = after.totals.seconds - before.totals.seconds;
        let part = |now: f64, then: f64| (now - then) / seconds;
        let near = |name: &str, value: f64, truth: f64, within: f64| {
            assert!((value - truth).abs() <= within, "device {index}: {name} is {value}, in truth {truth}");
        };
        let metrics = &reading.metrics;
        let value = |metric| metrics.get(metric).unwrap();
        let energy = value(Metric::EnergyJoules);
        let range = before.totals.energy_joules - 1e-3..=after.totals.energy_joules + 1e-3;
        assert!(range.contains(&energy), "{energy} J is not within {range:?}");
        near("power", value(Metric::PowerWatts), after.power_watts, after.power_watts * 0.01);
        let busy = part(after.totals.busy, before.totals.busy);
        near("busy", value(Metric::GpuBusyFraction), busy, 0.01);
        let bandwidth = part(after.totals.memory, before.totals.memory);
        assert!(bandwidth > 0.01, "the load uses memory");
        near("bandwidth", value(Metric::MemoryBandwidthFraction), bandwidth, 0.01);
        assert_eq!(metrics.bytes(Metric::MemoryBytesUsed), Some(after.memory_bytes_used));
        assert!(after.memory_bytes_used > 4 << 30);
        assert_eq!(metrics.get(Metric::SmClockHertz), Some(1.6e9));
        assert_eq!(reading.throttles(), Some(&BTreeSet::new()));
        let sources = metrics.sources();
        assert!(sources.values().all(|source| *source == MetricSource::Sysman), "{sources:?}");
        assert_eq!(sources.len(), metrics.known().count());
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
    assert_eq!(reading.metrics.fraction(Metric::GpuBusyFraction), Some(Fraction::ZERO));
    assert_eq!(reading.metrics.fraction(Metric::MemoryBandwidthFraction), Some(Fraction::ZERO));
    assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed), Some(0));
    let truth = scene.truth(3).power_watts;
    assert!((reading.metrics.get(Metric::PowerWatts).unwrap() - truth).abs() < truth * 0.01, "{reading:?}");
}

fn a_clock_that_is_held_down_says_why(scene: &Scene) {
    let mut intel = scene.opened();
    scene.faults(&Faults { throttle_reasons: 0b1_1001, ..Faults::default() });
    let reading = interval(&mut intel, 0);
    let expected = BTreeSet::from([Throttle::PowerLimit, Throttle::Heat, Throttle::PowerBrake]);
    assert_eq!(reading.throttles(), Some(&expected));
}

fn counters_are_not_read_too_often(scene: &Scene) {
    let mut intel = scene.opened();
    for _ in 0..20 {
        assert!(
            intel.read(1).unwrap().metrics.get(Metric::EnergyJoules).is_some(),
            "the double refuses what comes too soon"
        );
        assert!(intel.read_all().unwrap().iter().all(|(_, state)| state.is_ok()));
    }
    assert_eq!(intel.notices(), []);
}

fn mps_is_not_for_intel(scene: &Scene) {
    let mut intel = scene.opened();
    assert!(intel.mps().is_none());
    assert!(matches!(intel.read(4), Err(DeviceError::NoSuchDevice { index: 4 })));
}
