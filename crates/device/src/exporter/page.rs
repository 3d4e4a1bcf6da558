//! What one page says of each device, in our units: the common ground of all exporters. Pure.

use pillion_core::DeviceUuid;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource, Unit};
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
        reading.metrics.tag_untagged(source);
        reading
    }
}

/// Puts a value where it belongs; one that its metric cannot have is left out.
fn place(reading: &mut Reading, metric: Metric, value: f64) {
    let is_possible = match metric.unit() {
        Unit::Fraction => (-FRACTION_SLACK..=1.0 + FRACTION_SLACK).contains(&value),
        Unit::Joules | Unit::Watts | Unit::Bytes | Unit::BytesPerSecond | Unit::Hertz => {
            value.is_finite() && value >= 0.0
        }
    };
    if is_possible {
        reading.metrics.set(metric, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::Fraction;

    fn read(metric: Metric, value: f64) -> Reading {
        let seen = Seen { values: [(metric, value)].into(), ..Seen::default() };
        seen.reading(&BTreeMap::new(), MetricSource::DcgmExporter)
    }

    #[test]
    fn a_fraction_is_forgiven_a_rounding_and_no_more() {
        let busy = |value| read(Metric::GpuBusyFraction, value).metrics.fraction(Metric::GpuBusyFraction);
        assert_eq!(busy(1.004), Some(Fraction::ONE));
        assert_eq!(busy(-0.004), Some(Fraction::ZERO));
        assert_eq!((busy(1.02), busy(87.0), busy(-0.5)), (None, None, None));
    }

    #[test]
    fn an_amount_below_nothing_is_none() {
        assert_eq!(read(Metric::PowerWatts, -1.0).metrics.get(Metric::PowerWatts), None);
        assert_eq!(read(Metric::MemoryBytesUsed, -1.0).metrics.bytes(Metric::MemoryBytesUsed), None);
        assert!(read(Metric::PowerWatts, -1.0).metrics.sources().is_empty());
    }

    #[test]
    fn a_value_names_its_source() {
        let reading = read(Metric::PowerWatts, 250.5);
        assert_eq!(reading.metrics.get(Metric::PowerWatts), Some(250.5));
        assert_eq!(reading.metrics.sources(), [(Metric::PowerWatts, MetricSource::DcgmExporter)].into());
    }
}
