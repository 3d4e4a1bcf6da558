//! What one page says of each device, in our units: the common ground of all exporters. Pure.

use pillion_core::device::{Metric, MetricSource, Reading};
use pillion_core::{DeviceUuid, Fraction};
use std::collections::BTreeMap;

/// A fraction that is off by no more than this is taken for the nearest one: exporters divide rounded numbers.
const FRACTION_SLACK: f64 = 0.01;

/// What one page says of one device.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    /// Values as they stand, in the unit of their metric. Always finite.
    pub(super) values: BTreeMap<Metric, f64>,
    /// Bytes counted since the exporter began, for metrics that are rates. Always finite.
    pub(super) totals: BTreeMap<Metric, f64>,
    /// The latest time of measurement on the page, where it has any; milliseconds since the epoch.
    pub(super) stamp_millis: Option<i64>,
}

/// A page by device.
pub(super) type Page = BTreeMap<DeviceUuid, Seen>;

impl Seen {
    /// The values, and rates for what is counted, as a reading from `source`.
    pub(super) fn reading(&self, rates: &BTreeMap<Metric, f64>, source: MetricSource) -> Reading {
        let mut reading = Reading::default();
        for (metric, value) in rates.iter().chain(&self.values) {
            place(&mut reading, *metric, *value);
        }
        reading.tag_untagged(source);
        reading
    }
}

/// Puts a value where it belongs; one that its metric cannot have is left out.
fn place(reading: &mut Reading, metric: Metric, value: f64) {
    let within = (-FRACTION_SLACK..=1.0 + FRACTION_SLACK).contains(&value);
    let fraction = within.then(|| Fraction::clamped(value));
    let amount = (value.is_finite() && value >= 0.0).then_some(value);
    match metric {
        Metric::EnergyJoules => reading.energy_joules = amount,
        Metric::PowerWatts => reading.power_watts = amount,
        Metric::SmActiveFraction => reading.sm_active_fraction = fraction,
        Metric::SmOccupancyFraction => reading.sm_occupancy_fraction = fraction,
        Metric::StallFraction => reading.stall_fraction = fraction,
        Metric::Fp32ActiveFraction => reading.fp32_active_fraction = fraction,
        Metric::TensorActiveFraction => reading.tensor_active_fraction = fraction,
        Metric::GpuBusyFraction => reading.gpu_busy_fraction = fraction,
        Metric::MemoryBusyFraction => reading.memory_busy_fraction = fraction,
        Metric::MemoryBandwidthFraction => reading.memory_bandwidth_fraction = fraction,
        Metric::CacheBandwidthFraction => reading.cache_bandwidth_fraction = fraction,
        Metric::PcieTxBytesPerSecond => reading.pcie_tx_bytes_per_second = amount,
        Metric::PcieRxBytesPerSecond => reading.pcie_rx_bytes_per_second = amount,
        Metric::NvlinkTxBytesPerSecond => reading.nvlink_tx_bytes_per_second = amount,
        Metric::NvlinkRxBytesPerSecond => reading.nvlink_rx_bytes_per_second = amount,
        Metric::MemoryBytesUsed => reading.memory_bytes_used = amount.map(whole),
        Metric::SmClockHertz => reading.sm_clock_hertz = amount,
        // No exporter gives it as a number that is one of ours.
        Metric::Throttles => {}
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and it is not negative"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(metric: Metric, value: f64) -> Reading {
        let seen = Seen { values: [(metric, value)].into(), ..Seen::default() };
        seen.reading(&BTreeMap::new(), MetricSource::DcgmExporter)
    }

    #[test]
    fn a_fraction_is_forgiven_a_rounding_and_no_more() {
        let busy = |value| read(Metric::GpuBusyFraction, value).gpu_busy_fraction;
        assert_eq!(busy(1.004), Some(Fraction::ONE));
        assert_eq!(busy(-0.004), Some(Fraction::ZERO));
        assert_eq!((busy(1.02), busy(87.0), busy(-0.5)), (None, None, None));
    }

    #[test]
    fn an_amount_below_nothing_is_none() {
        assert_eq!(read(Metric::PowerWatts, -1.0).power_watts, None);
        assert_eq!(read(Metric::MemoryBytesUsed, -1.0).memory_bytes_used, None);
        assert!(read(Metric::PowerWatts, -1.0).sources.is_empty());
    }

    #[test]
    fn a_value_names_its_source() {
        let reading = read(Metric::PowerWatts, 250.5);
        assert_eq!(reading.power_watts, Some(250.5));
        assert_eq!(reading.sources, [(Metric::PowerWatts, MetricSource::DcgmExporter)].into());
    }
}
