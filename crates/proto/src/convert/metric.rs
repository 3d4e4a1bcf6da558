//! `MetricValue`, `SourcedMetrics` and `Throttles`: what is told in numbers, where it was read, and what holds a clock down.
//! A number that is not known here, of a newer agent, is left out. The numbers of metrics are core's.

use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::metric::{Measured, Metric, MetricSource, Metrics, Throttle, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// The most values of one device at one moment; of what comes after nobody here knows the metric.
const VALUES_MAX: usize = 256;

const fn throttle_number(value: Throttle) -> wire::Throttle {
    match value {
        Throttle::PowerLimit => wire::Throttle::PowerLimit,
        Throttle::Heat => wire::Throttle::Heat,
        Throttle::PowerBrake => wire::Throttle::PowerBrake,
        Throttle::Setting => wire::Throttle::Setting,
    }
}

fn known_throttle(number: i32) -> Option<Throttle> {
    Some(match wire::Throttle::try_from(number).ok()? {
        wire::Throttle::Unspecified => return None,
        wire::Throttle::PowerLimit => Throttle::PowerLimit,
        wire::Throttle::Heat => Throttle::Heat,
        wire::Throttle::PowerBrake => Throttle::PowerBrake,
        wire::Throttle::Setting => Throttle::Setting,
    })
}

/// The values that are known here; of a metric that stands twice the first counts.
pub(super) fn checked_metrics(values: Vec<wire::MetricValue>) -> Result<Metrics, InvalidField> {
    let mut metrics = Metrics::default();
    for wire::MetricValue { metric, value, source } in field::few("metrics", values, VALUES_MAX)? {
        let Some(metric) = Metric::of_number(metric) else { continue };
        let measured = Measured { value: checked(metric, value)?, source: MetricSource::of_number(source) };
        if metrics.measured(metric).is_none() {
            metrics.put(metric, measured);
        }
    }
    Ok(metrics)
}

/// A value in the unit of its metric.
fn checked(metric: Metric, value: f64) -> Result<f64, InvalidField> {
    match metric.unit() {
        Unit::Fraction => field::fraction(metric.word(), Some(value)).map(|_| value),
        Unit::Joules | Unit::Watts | Unit::Bytes | Unit::BytesPerSecond | Unit::Hertz => {
            field::quantity(metric.word(), value)
        }
    }
}

/// All of them.
pub(super) fn metric_values(metrics: &Metrics) -> Vec<wire::MetricValue> {
    metrics
        .iter()
        .map(|(metric, Measured { value, source })| wire::MetricValue {
            metric: metric.number(),
            value,
            source: source.map_or(0, MetricSource::number),
        })
        .collect()
}

/// The fields that samples and means of agents of earlier releases both have, each with its metric.
macro_rules! earlier_fields {
    ($wire:ident) => {
        [
            (Metric::PowerWatts, $wire.power_watts),
            (Metric::SmActiveFraction, $wire.sm_active_fraction),
            (Metric::SmOccupancyFraction, $wire.sm_occupancy_fraction),
            (Metric::StallFraction, $wire.stall_fraction),
            (Metric::Fp32ActiveFraction, $wire.fp32_active_fraction),
            (Metric::TensorActiveFraction, $wire.tensor_active_fraction),
            (Metric::GpuBusyFraction, $wire.gpu_busy_fraction),
            (Metric::MemoryBusyFraction, $wire.memory_busy_fraction),
            (Metric::MemoryBandwidthFraction, $wire.memory_bandwidth_fraction),
            (Metric::CacheBandwidthFraction, $wire.cache_bandwidth_fraction),
            (Metric::PcieTxBytesPerSecond, $wire.pcie_tx_bytes_per_second),
            (Metric::PcieRxBytesPerSecond, $wire.pcie_rx_bytes_per_second),
            (Metric::NvlinkTxBytesPerSecond, $wire.nvlink_tx_bytes_per_second),
            (Metric::NvlinkRxBytesPerSecond, $wire.nvlink_rx_bytes_per_second),
        ]
    };
}
pub(super) use earlier_fields;

/// Adds what an agent of an earlier release told: a field for each metric, and the sources apart.
pub(super) fn add_earlier(
    metrics: &mut Metrics,
    values: impl IntoIterator<Item = (Metric, Option<f64>)>,
    sources: Vec<wire::SourcedMetrics>,
) -> Result<(), InvalidField> {
    let sources = known_sources(sources);
    for (metric, value) in values {
        if let (Some(value), None) = (value, metrics.measured(metric)) {
            let value = checked(metric, value)?;
            metrics.put(metric, Measured { value, source: sources.get(&metric).copied() });
        }
    }
    Ok(())
}

/// Sources by metric, from metrics by source; of a metric that stands twice the first counts.
pub(super) fn known_sources(groups: Vec<wire::SourcedMetrics>) -> BTreeMap<Metric, MetricSource> {
    let mut sources = BTreeMap::new();
    for wire::SourcedMetrics { source, metrics } in groups {
        let Some(source) = MetricSource::of_number(source) else { continue };
        for metric in metrics.into_iter().filter_map(Metric::of_number) {
            sources.entry(metric).or_insert(source);
        }
    }
    sources
}

/// Metrics by source: many metrics have few sources.
pub(super) fn grouped_sources(sources: &BTreeMap<Metric, MetricSource>) -> Vec<wire::SourcedMetrics> {
    let mut groups: BTreeMap<MetricSource, Vec<i32>> = BTreeMap::new();
    for (metric, source) in sources {
        groups.entry(*source).or_default().push(metric.number());
    }
    let group =
        |(source, metrics): (MetricSource, _)| wire::SourcedMetrics { source: source.number(), metrics };
    groups.into_iter().map(group).collect()
}

/// What holds the clock down, as far as it is known here: of reasons of which none is known, nothing is known.
pub(super) fn known_throttles(wire: wire::Throttles) -> Option<BTreeSet<Throttle>> {
    let wire::Throttles { kinds } = wire;
    let known: BTreeSet<Throttle> = kinds.iter().filter_map(|number| known_throttle(*number)).collect();
    (kinds.is_empty() || !known.is_empty()).then_some(known)
}

pub(super) fn throttle_numbers(throttles: &BTreeSet<Throttle>) -> wire::Throttles {
    wire::Throttles { kinds: throttles.iter().map(|throttle| throttle_number(*throttle).into()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_wire() {
        let words = |of: &dyn Fn(i32) -> Option<String>| (1..).map_while(of).collect::<Vec<_>>();
        let metric = |number| Some(wire::Metric::try_from(number).ok()?.as_str_name().to_lowercase());
        let own: Vec<String> = Metric::ALL.map(|metric| format!("metric_{metric}")).into();
        assert_eq!(words(&metric), own);
        let source = |number| Some(wire::MetricSource::try_from(number).ok()?.as_str_name().to_lowercase());
        let own: Vec<String> =
            MetricSource::ALL.map(|source| format!("metric_source_{source}").replace('-', "_")).into();
        assert_eq!(words(&source), own);
    }

    #[test]
    fn what_a_newer_agent_knows_is_left_out() {
        let nvml = MetricSource::Nvml.number();
        let power = Metric::PowerWatts.number();
        let groups = vec![
            wire::SourcedMetrics { source: 99, metrics: vec![power] },
            wire::SourcedMetrics { source: nvml, metrics: vec![99, power, 0] },
        ];
        assert_eq!(known_sources(groups), [(Metric::PowerWatts, MetricSource::Nvml)].into());
        let value = |metric, value, source| wire::MetricValue { metric, value, source };
        let values = vec![value(99, -1.0, nvml), value(power, 5.0, 99), value(power, 6.0, nvml)];
        assert_eq!(checked_metrics(values), Ok(Metrics::from([(Metric::PowerWatts, 5.0)])));
        let known = |kinds: &[i32]| known_throttles(wire::Throttles { kinds: kinds.to_vec() });
        let heat: i32 = wire::Throttle::Heat.into();
        assert_eq!(known(&[]), Some(BTreeSet::new()), "nothing holds it down");
        assert_eq!(known(&[99]), None, "something does, and nobody here knows what");
        assert_eq!(known(&[99, heat]), Some([Throttle::Heat].into()));
    }

    #[test]
    fn a_value_that_its_metric_cannot_have_is_refused_by_name() {
        let refused = |metric: Metric, value| {
            let value = wire::MetricValue { metric: metric.number(), value, source: 0 };
            checked_metrics(vec![value]).unwrap_err().to_string()
        };
        assert_eq!(refused(Metric::StallFraction, 1.5), "stall_fraction is out of range");
        assert_eq!(
            refused(Metric::PowerWatts, -1.0),
            "power_watts is -1; allowed are numbers from 0 to 1e18"
        );
        assert_eq!(
            refused(Metric::PowerWatts, f64::NAN),
            "power_watts is NaN; allowed are numbers from 0 to 1e18"
        );
        let many = vec![wire::MetricValue::default(); VALUES_MAX + 1];
        assert!(checked_metrics(many).is_err());
    }
}
