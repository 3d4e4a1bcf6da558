//! Fills what a better source does not have. Pure.

use pillion_core::device::{Metric, Reading};
use std::collections::BTreeSet;

/// Copies into `reading`, with the name of its source, each value that `from` has and `reading` has not. What is there
/// stays as it is.
pub fn fill(reading: &mut Reading, from: &Reading) {
    let had: BTreeSet<Metric> = reading.known().collect();
    let Reading {
        energy_joules,
        power_watts,
        sm_active_fraction,
        sm_occupancy_fraction,
        stall_fraction,
        fp32_active_fraction,
        tensor_active_fraction,
        gpu_busy_fraction,
        memory_busy_fraction,
        memory_bandwidth_fraction,
        cache_bandwidth_fraction,
        pcie_tx_bytes_per_second,
        pcie_rx_bytes_per_second,
        nvlink_tx_bytes_per_second,
        nvlink_rx_bytes_per_second,
        memory_bytes_used,
        sm_clock_hertz,
        throttles,
        sources,
    } = from;
    or(&mut reading.energy_joules, energy_joules.as_ref());
    or(&mut reading.power_watts, power_watts.as_ref());
    or(&mut reading.sm_active_fraction, sm_active_fraction.as_ref());
    or(&mut reading.sm_occupancy_fraction, sm_occupancy_fraction.as_ref());
    or(&mut reading.stall_fraction, stall_fraction.as_ref());
    or(&mut reading.fp32_active_fraction, fp32_active_fraction.as_ref());
    or(&mut reading.tensor_active_fraction, tensor_active_fraction.as_ref());
    or(&mut reading.gpu_busy_fraction, gpu_busy_fraction.as_ref());
    or(&mut reading.memory_busy_fraction, memory_busy_fraction.as_ref());
    or(&mut reading.memory_bandwidth_fraction, memory_bandwidth_fraction.as_ref());
    or(&mut reading.cache_bandwidth_fraction, cache_bandwidth_fraction.as_ref());
    or(&mut reading.pcie_tx_bytes_per_second, pcie_tx_bytes_per_second.as_ref());
    or(&mut reading.pcie_rx_bytes_per_second, pcie_rx_bytes_per_second.as_ref());
    or(&mut reading.nvlink_tx_bytes_per_second, nvlink_tx_bytes_per_second.as_ref());
    or(&mut reading.nvlink_rx_bytes_per_second, nvlink_rx_bytes_per_second.as_ref());
    or(&mut reading.memory_bytes_used, memory_bytes_used.as_ref());
    or(&mut reading.sm_clock_hertz, sm_clock_hertz.as_ref());
    or(&mut reading.throttles, throttles.as_ref());
    for (metric, source) in sources {
        if !had.contains(metric) {
            reading.sources.insert(*metric, *source);
        }
    }
}

fn or<T: Clone>(into: &mut Option<T>, from: Option<&T>) {
    if into.is_none() {
        *into = from.cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::Fraction;
    use pillion_core::device::{MetricSource, Throttle};

    /// Every value there is, from one source.
    fn whole(source: MetricSource, part: f64, amount: f64) -> Reading {
        let fraction = Some(Fraction::clamped(part));
        let mut reading = Reading {
            energy_joules: Some(amount),
            power_watts: Some(amount),
            sm_active_fraction: fraction,
            sm_occupancy_fraction: fraction,
            stall_fraction: fraction,
            fp32_active_fraction: fraction,
            tensor_active_fraction: fraction,
            gpu_busy_fraction: fraction,
            memory_busy_fraction: fraction,
            memory_bandwidth_fraction: fraction,
            cache_bandwidth_fraction: fraction,
            pcie_tx_bytes_per_second: Some(amount),
            pcie_rx_bytes_per_second: Some(amount),
            nvlink_tx_bytes_per_second: Some(amount),
            nvlink_rx_bytes_per_second: Some(amount),
            memory_bytes_used: Some(1),
            sm_clock_hertz: Some(amount),
            throttles: Some([Throttle::Heat].into()),
            ..Reading::default()
        };
        reading.tag_untagged(source);
        reading
    }

    #[test]
    fn an_empty_reading_becomes_the_other() {
        let from = whole(MetricSource::DcgmExporter, 0.5, 7.0);
        let mut reading = Reading::default();
        fill(&mut reading, &from);
        assert_eq!(reading, from);
    }

    #[test]
    fn nothing_that_is_there_is_touched() {
        let better = whole(MetricSource::Nvml, 0.25, 3.0);
        let mut reading = better.clone();
        fill(&mut reading, &whole(MetricSource::DcgmExporter, 0.5, 7.0));
        assert_eq!(reading, better);
    }

    #[test]
    fn only_what_is_missing_is_filled_and_says_whence() {
        let mut reading = Reading { power_watts: Some(100.0), ..Reading::default() };
        reading.tag_untagged(MetricSource::Nvml);
        let mut from = Reading {
            power_watts: Some(90.0),
            sm_active_fraction: Some(Fraction::ONE),
            ..Reading::default()
        };
        from.tag_untagged(MetricSource::DcgmExporter);
        fill(&mut reading, &from);
        assert_eq!((reading.power_watts, reading.sm_active_fraction), (Some(100.0), Some(Fraction::ONE)));
        let sources = [
            (Metric::PowerWatts, MetricSource::Nvml),
            (Metric::SmActiveFraction, MetricSource::DcgmExporter),
        ];
        assert_eq!(reading.sources, sources.into());
    }
}
