//! The metric streamer, in bursts.

use crate::both_ways;
use crate::scene::{Scene, wait_for};
use level_zero_sys::*;
use pillion_core::device::{NoticeKind, Reading};
use pillion_core::metric::{Metric, MetricSource};
use pillion_core::{Fraction, SystemClock};
use pillion_device::Backend as _;
use pillion_device::intel::{Bursts, Intel, Settings};
use pillion_double_level_zero::Faults;
use std::sync::Arc;
use std::time::Duration;

both_ways! {
    a_burst_gives_what_the_units_did
    a_burst_ends_and_the_next_comes
    traffic_stands_in_for_a_lost_counter
    a_stream_that_is_not_to_be_had_costs_nothing_else
}

/// The rate of the double's cache, which a site would have measured.
const CACHE_BYTES_PER_SECOND: f64 = 5e12;

fn bursting(scene: &Scene, burst: Duration, period: Duration) -> Intel {
    let bursts = Some(Bursts { burst, period });
    let cache_bytes_per_second_max = Some(CACHE_BYTES_PER_SECOND);
    let settings = Settings { bursts, cache_bytes_per_second_max, ..scene.settings() };
    Intel::new(settings, Arc::new(SystemClock))
}

fn until(intel: &mut Intel, what: &str, is_it: impl Fn(&Reading) -> bool) -> Reading {
    let mut last = Reading::default();
    wait_for(what, || {
        last = intel.read(0).unwrap();
        is_it(&last)
    });
    last
}

fn a_burst_gives_what_the_units_did(scene: &Scene) {
    let mut intel = bursting(scene, Duration::from_mins(1), Duration::from_mins(1));
    let before = scene.truth(0);
    let reading =
        until(&mut intel, "a burst", |reading| reading.metrics.get(Metric::SmActiveFraction).is_some());
    let after = scene.truth(0);
    let seconds = after.totals.seconds - before.totals.seconds;
    let near = |name: &str, value: Option<Fraction>, now: f64, then: f64| {
        let (value, truth) = (value.unwrap().value(), (now - then) / seconds);
        assert!((value - truth).abs() < 0.01, "{name} is {value}, in truth {truth}");
    };
    let (now, then) = (after.totals, before.totals);
    assert!(now.issue > then.issue && now.cache > then.cache);
    near("active", reading.metrics.fraction(Metric::SmActiveFraction), now.issue, then.issue);
    near("stall", reading.metrics.fraction(Metric::StallFraction), now.stall, then.stall);
    near("occupancy", reading.metrics.fraction(Metric::SmOccupancyFraction), now.occupancy, then.occupancy);
    near("cache", reading.metrics.fraction(Metric::CacheBandwidthFraction), now.cache, then.cache);
    for metric in [
        Metric::SmActiveFraction,
        Metric::StallFraction,
        Metric::SmOccupancyFraction,
        Metric::CacheBandwidthFraction,
    ] {
        assert_eq!(reading.metrics.sources()[&metric], MetricSource::MetricStreamer);
    }
    assert_eq!(reading.metrics.source(Metric::EnergyJoules), Some(MetricSource::Sysman));
}

fn a_burst_ends_and_the_next_comes(scene: &Scene) {
    let mut intel = bursting(scene, Duration::from_millis(150), Duration::from_millis(600));
    let is_on = |reading: &Reading| reading.metrics.get(Metric::SmActiveFraction).is_some();
    until(&mut intel, "a burst", is_on);
    let quiet = until(&mut intel, "its end", |reading| !is_on(reading));
    assert!(quiet.metrics.get(Metric::GpuBusyFraction).is_some(), "the counters go on: {quiet:?}");
    until(&mut intel, "the next burst", is_on);
    assert_eq!(intel.notices(), [], "between bursts nothing is lost");
}

fn traffic_stands_in_for_a_lost_counter(scene: &Scene) {
    let mut intel = bursting(scene, Duration::from_mins(1), Duration::from_mins(1));
    let counted = until(&mut intel, "a bandwidth", |reading| {
        reading.metrics.get(Metric::MemoryBandwidthFraction).is_some()
    });
    scene.answers(&[("zesMemoryGetBandwidth", ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)]);
    let streamed = until(&mut intel, "it from the stream", |reading| {
        reading.metrics.source(Metric::MemoryBandwidthFraction) == Some(MetricSource::MetricStreamer)
    });
    let of = |reading: &Reading| reading.metrics.get(Metric::MemoryBandwidthFraction).unwrap();
    assert!((of(&counted) - of(&streamed)).abs() < 0.01, "{} and {}", of(&counted), of(&streamed));
}

fn a_stream_that_is_not_to_be_had_costs_nothing_else(scene: &Scene) {
    scene.answers(&[("zetMetricStreamerOpen", ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)]);
    let mut intel = bursting(scene, Duration::from_millis(150), Duration::from_millis(150));
    let reading = until(&mut intel, "the rest", |reading| reading.metrics.get(Metric::PowerWatts).is_some());
    assert_eq!(reading.metrics.fraction(Metric::SmActiveFraction), None);
    let mut some = Faults::default();
    some.missing_metrics.insert("XVE_STALL".to_owned());
    scene.faults(&some);
    let reading =
        until(&mut intel, "what there is", |reading| reading.metrics.get(Metric::SmActiveFraction).is_some());
    assert_eq!(reading.metrics.fraction(Metric::StallFraction), None);
    scene.answers(&[("zetMetricStreamerReadData", ZE_RESULT_ERROR_NOT_AVAILABLE)]);
    let mut lost = Vec::new();
    wait_for("its loss", || {
        intel.read(0).unwrap();
        lost.extend(intel.notices());
        lost.iter().any(|notice| notice.kind == NoticeKind::MetricLost(Metric::SmActiveFraction))
    });
}
