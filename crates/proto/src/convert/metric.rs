//! `SourcedMetrics` and `Throttles`: where values were read, and what holds a clock down. A number that is not known here,
//! of a newer agent, is left out.

use crate::v1 as wire;
use pillion_core::device::{Metric, MetricSource, Throttle};
use std::collections::{BTreeMap, BTreeSet};

const fn metric_number(value: Metric) -> wire::Metric {
    match value {
        Metric::EnergyJoules => wire::Metric::EnergyJoules,
        Metric::PowerWatts => wire::Metric::PowerWatts,
        Metric::SmActiveFraction => wire::Metric::SmActiveFraction,
        Metric::SmOccupancyFraction => wire::Metric::SmOccupancyFraction,
        Metric::StallFraction => wire::Metric::StallFraction,
        Metric::Fp32ActiveFraction => wire::Metric::Fp32ActiveFraction,
        Metric::TensorActiveFraction => wire::Metric::TensorActiveFraction,
        Metric::GpuBusyFraction => wire::Metric::GpuBusyFraction,
        Metric::MemoryBusyFraction => wire::Metric::MemoryBusyFraction,
        Metric::MemoryBandwidthFraction => wire::Metric::MemoryBandwidthFraction,
        Metric::CacheBandwidthFraction => wire::Metric::CacheBandwidthFraction,
        Metric::PcieTxBytesPerSecond => wire::Metric::PcieTxBytesPerSecond,
        Metric::PcieRxBytesPerSecond => wire::Metric::PcieRxBytesPerSecond,
        Metric::NvlinkTxBytesPerSecond => wire::Metric::NvlinkTxBytesPerSecond,
        Metric::NvlinkRxBytesPerSecond => wire::Metric::NvlinkRxBytesPerSecond,
        Metric::MemoryBytesUsed => wire::Metric::MemoryBytesUsed,
        Metric::SmClockHertz => wire::Metric::SmClockHertz,
        Metric::Throttles => wire::Metric::Throttles,
    }
}

fn known_metric(number: i32) -> Option<Metric> {
    Some(match wire::Metric::try_from(number).ok()? {
        wire::Metric::Unspecified => return None,
        wire::Metric::EnergyJoules => Metric::EnergyJoules,
        wire::Metric::PowerWatts => Metric::PowerWatts,
        wire::Metric::SmActiveFraction => Metric::SmActiveFraction,
        wire::Metric::SmOccupancyFraction => Metric::SmOccupancyFraction,
        wire::Metric::StallFraction => Metric::StallFraction,
        wire::Metric::Fp32ActiveFraction => Metric::Fp32ActiveFraction,
        wire::Metric::TensorActiveFraction => Metric::TensorActiveFraction,
        wire::Metric::GpuBusyFraction => Metric::GpuBusyFraction,
        wire::Metric::MemoryBusyFraction => Metric::MemoryBusyFraction,
        wire::Metric::MemoryBandwidthFraction => Metric::MemoryBandwidthFraction,
        wire::Metric::CacheBandwidthFraction => Metric::CacheBandwidthFraction,
        wire::Metric::PcieTxBytesPerSecond => Metric::PcieTxBytesPerSecond,
        wire::Metric::PcieRxBytesPerSecond => Metric::PcieRxBytesPerSecond,
        wire::Metric::NvlinkTxBytesPerSecond => Metric::NvlinkTxBytesPerSecond,
        wire::Metric::NvlinkRxBytesPerSecond => Metric::NvlinkRxBytesPerSecond,
        wire::Metric::MemoryBytesUsed => Metric::MemoryBytesUsed,
        wire::Metric::SmClockHertz => Metric::SmClockHertz,
        wire::Metric::Throttles => Metric::Throttles,
    })
}

const fn source_number(value: MetricSource) -> wire::MetricSource {
    match value {
        MetricSource::Simulated => wire::MetricSource::Simulated,
        MetricSource::Nvml => wire::MetricSource::Nvml,
        MetricSource::NvmlGpm => wire::MetricSource::NvmlGpm,
        MetricSource::DcgmExporter => wire::MetricSource::DcgmExporter,
        MetricSource::Sysman => wire::MetricSource::Sysman,
        MetricSource::MetricStreamer => wire::MetricSource::MetricStreamer,
        MetricSource::XpuManager => wire::MetricSource::XpuManager,
    }
}

fn known_source(number: i32) -> Option<MetricSource> {
    Some(match wire::MetricSource::try_from(number).ok()? {
        wire::MetricSource::Unspecified => return None,
        wire::MetricSource::Simulated => MetricSource::Simulated,
        wire::MetricSource::Nvml => MetricSource::Nvml,
        wire::MetricSource::NvmlGpm => MetricSource::NvmlGpm,
        wire::MetricSource::DcgmExporter => MetricSource::DcgmExporter,
        wire::MetricSource::Sysman => MetricSource::Sysman,
        wire::MetricSource::MetricStreamer => MetricSource::MetricStreamer,
        wire::MetricSource::XpuManager => MetricSource::XpuManager,
    })
}

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

/// Sources by metric, from metrics by source; of a metric that stands twice the first counts.
pub(super) fn known_sources(groups: Vec<wire::SourcedMetrics>) -> BTreeMap<Metric, MetricSource> {
    let mut sources = BTreeMap::new();
    for wire::SourcedMetrics { source, metrics } in groups {
        let Some(source) = known_source(source) else { continue };
        for metric in metrics.into_iter().filter_map(known_metric) {
            sources.entry(metric).or_insert(source);
        }
    }
    sources
}

/// Metrics by source: many metrics have few sources.
pub(super) fn grouped_sources(sources: &BTreeMap<Metric, MetricSource>) -> Vec<wire::SourcedMetrics> {
    let mut groups: BTreeMap<MetricSource, Vec<i32>> = BTreeMap::new();
    for (metric, source) in sources {
        groups.entry(*source).or_default().push(metric_number(*metric).into());
    }
    let group = |(source, metrics)| wire::SourcedMetrics { source: source_number(source).into(), metrics };
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
    fn what_a_newer_agent_knows_is_left_out() {
        let nvml: i32 = wire::MetricSource::Nvml.into();
        let power: i32 = wire::Metric::PowerWatts.into();
        let groups = vec![
            wire::SourcedMetrics { source: 99, metrics: vec![power] },
            wire::SourcedMetrics { source: nvml, metrics: vec![99, power, 0] },
        ];
        assert_eq!(known_sources(groups), [(Metric::PowerWatts, MetricSource::Nvml)].into());
        let known = |kinds: &[i32]| known_throttles(wire::Throttles { kinds: kinds.to_vec() });
        let heat: i32 = wire::Throttle::Heat.into();
        assert_eq!(known(&[]), Some(BTreeSet::new()), "nothing holds it down");
        assert_eq!(known(&[99]), None, "something does, and nobody here knows what");
        assert_eq!(known(&[99, heat]), Some([Throttle::Heat].into()));
    }
}
