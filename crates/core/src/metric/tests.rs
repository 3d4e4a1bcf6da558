use super::*;
use crate::report::ActivityMeans;
use crate::units::Fraction;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn words_are_those_of_json_and_read_back() {
    for metric in Metric::ALL {
        assert_eq!(metric.to_string().parse(), Ok(metric));
        assert_eq!(json!(metric), json!(metric.word()));
        assert_eq!(Metric::of_number(metric.number()), Some(metric));
    }
    let words: BTreeSet<&str> = Metric::ALL.map(Metric::word).into();
    assert_eq!(words.len(), Metric::ALL.len(), "each has one of its own");
    assert_eq!("nvml-gpm".parse(), Ok(MetricSource::NvmlGpm));
    assert_eq!("power_brake".parse(), Ok(Throttle::PowerBrake));
    let error = "warp_drive".parse::<Metric>().unwrap_err();
    assert_eq!(error.to_string(), "'warp_drive' is not a metric");
}

#[test]
fn each_stands_where_its_number_says() {
    assert!(Metric::ALL.iter().enumerate().all(|(place, metric)| *metric as usize == place));
    assert!(MetricSource::ALL.iter().enumerate().all(|(place, source)| *source as usize == place));
    assert_eq!((Metric::of_number(0), MetricSource::of_number(99)), (None, None));
}

#[test]
fn prometheus_names_end_in_the_unit_and_counters_are_meters() {
    for family in Metric::ALL.into_iter().filter_map(|metric| Some((metric, metric.family()?))) {
        let (metric, Family { name, meaning }) = family;
        let own = name.strip_prefix("pillion_device_").unwrap_or_default();
        assert_eq!(own.strip_suffix("_total").unwrap_or(own), metric.word());
        assert_eq!(own.ends_with("_total"), metric == Metric::EnergyJoules, "{metric}");
        assert!(!meaning.ends_with('.'), "{metric}");
    }
}

/// Every value there is, from one source.
fn whole(source: MetricSource, value: f64) -> Metrics {
    Metric::ALL.into_iter().map(|metric| (metric, value)).collect::<Metrics>().from_source(source)
}

#[test]
fn a_fraction_stays_within_its_range_and_an_amount_is_as_it_is() {
    let metrics = whole(MetricSource::Nvml, 7.0);
    assert_eq!(metrics.get(Metric::PowerWatts), Some(7.0));
    assert_eq!(metrics.fraction(Metric::StallFraction), Some(Fraction::ONE));
    assert_eq!(metrics.bytes(Metric::MemoryBytesUsed), Some(7));
}

#[test]
fn only_what_is_missing_is_filled_and_says_whence() {
    let other = whole(MetricSource::DcgmExporter, 0.5);
    let mut empty = Metrics::default();
    empty.fill(&other);
    assert_eq!(empty, other, "an empty one becomes the other");
    let mut full = whole(MetricSource::Nvml, 0.25);
    full.fill(&other);
    assert_eq!(full, whole(MetricSource::Nvml, 0.25), "nothing that is there is touched");
    let mut some = Metrics::from([(Metric::PowerWatts, 100.0)]).from_source(MetricSource::Nvml);
    some.fill(&other);
    assert_eq!(some.get(Metric::PowerWatts), Some(100.0));
    assert_eq!(some.source(Metric::PowerWatts), Some(MetricSource::Nvml));
    assert_eq!(some.source(Metric::StallFraction), Some(MetricSource::DcgmExporter));
}

#[test]
fn a_value_keeps_the_source_that_it_was_tagged_with_first() {
    let mut metrics = Metrics::from([(Metric::PowerWatts, 1.0)]).from_source(MetricSource::NvmlGpm);
    metrics.set(Metric::SmClockHertz, 2.0);
    metrics.tag_untagged(MetricSource::Nvml);
    let sources = [(Metric::PowerWatts, MetricSource::NvmlGpm), (Metric::SmClockHertz, MetricSource::Nvml)];
    assert_eq!(metrics.sources(), sources.into());
}

#[test]
fn metrics_read_back_as_they_were_written() {
    let metrics = whole(MetricSource::Simulated, 0.5);
    let written = json!(metrics);
    assert_eq!(written["memory_bytes_used"], json!(1), "whole bytes");
    let mut read: Metrics = serde_json::from_value(written).unwrap();
    read.set(Metric::MemoryBytesUsed, 0.5);
    read.tag_untagged(MetricSource::Simulated);
    assert_eq!(read, metrics);
    assert_eq!(json!(Metrics::default()), json!({"sources": {}}));
}

#[test]
fn what_a_newer_release_wrote_is_left_out_and_what_cannot_be_is_refused() {
    let newer = json!({"power_watts": 5.0, "warp_drive": {}, "sources": {"power_watts": "tea-leaves", "warp_drive": "nvml"}});
    assert_eq!(serde_json::from_value::<Metrics>(newer).unwrap(), Metrics::from([(Metric::PowerWatts, 5.0)]));
    let error = serde_json::from_value::<Metrics>(json!({"stall_fraction": 1.5})).unwrap_err();
    assert!(error.to_string().contains("1.5 is not a fraction"), "{error}");
}

#[test]
fn means_of_an_earlier_release_are_read() {
    let earlier = json!({
        "power_watts": 350.5, "sm_active_fraction": 0.57, "stall_fraction": null, "throttled_fraction": 0.25,
        "sources": {"sm_active_fraction": "nvml-gpm", "throttles": "nvml"}
    });
    let ActivityMeans(means) = serde_json::from_value(earlier).unwrap();
    let mut expected = Metrics::from([(Metric::SmActiveFraction, 0.57)]).from_source(MetricSource::NvmlGpm);
    expected.put(Metric::Throttles, Measured { value: 0.25, source: Some(MetricSource::Nvml) });
    expected.set(Metric::PowerWatts, 350.5);
    assert_eq!(means, expected);
    let written = json!(ActivityMeans(means));
    assert_eq!(written["stall_fraction"], json!(null), "what is not known is told to be so");
    assert!(written.get("energy_joules").is_none(), "a meter has no mean");
    assert_eq!(serde_json::from_value::<ActivityMeans>(written).unwrap().0, expected);
}
