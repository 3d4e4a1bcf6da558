//! The values that are known.

use super::catalogue::{Metric, Unit};
use super::source::MetricSource;
use crate::units::Fraction;
use std::collections::BTreeMap;

/// A value, in the unit of its metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// How much it is, in the metric's unit.
    pub value: f64,
    /// Where it was read; `None`: nobody says.
    pub source: Option<MetricSource>,
}

/// What is known of metrics. What is not known is absent, never 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics([Option<Measured>; Metric::ALL.len()]);

impl Metrics {
    /// The value and its source.
    pub const fn measured(&self, metric: Metric) -> Option<Measured> {
        self.0[metric as usize]
    }
    /// The value, in the unit of its metric.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.measured(metric).map(|measured| measured.value)
    }
    /// The value as a fraction, 0..=1.
    pub fn fraction(&self, metric: Metric) -> Option<Fraction> {
        self.get(metric).map(Fraction::clamped)
    }
    /// The value in whole bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and it was whole"
    )]
    pub fn bytes(&self, metric: Metric) -> Option<u64> {
        self.get(metric).map(|value| value.round() as u64)
    }
    /// Where the value was read.
    pub fn source(&self, metric: Metric) -> Option<MetricSource> {
        self.measured(metric)?.source
    }

    /// Puts a value there whose source nobody says yet. A fraction is kept within 0..=1.
    pub fn set(&mut self, metric: Metric, value: impl Into<f64>) {
        self.put(metric, Measured { value: value.into(), source: None });
    }
    /// The same where there is one; else what is there stays.
    pub fn set_known(&mut self, metric: Metric, value: Option<impl Into<f64>>) {
        if let Some(value) = value {
            self.set(metric, value);
        }
    }
    /// Puts a number of bytes there.
    #[expect(clippy::cast_precision_loss, reason = "devices have far less than 2^53 bytes")]
    pub fn set_bytes(&mut self, metric: Metric, bytes: u64) {
        self.set(metric, bytes as f64);
    }
    /// Puts a value there, with its source.
    pub fn put(&mut self, metric: Metric, Measured { value, source }: Measured) {
        let value = match metric.unit() {
            Unit::Fraction => Fraction::clamped(value).value(),
            Unit::Joules | Unit::Watts | Unit::Bytes | Unit::BytesPerSecond | Unit::Hertz => value,
        };
        self.0[metric as usize] = Some(Measured { value, source });
    }
    /// From now on it is not known.
    pub fn remove(&mut self, metric: Metric) {
        self.0[metric as usize] = None;
    }

    /// The values that are there.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, Measured)> {
        Metric::ALL.into_iter().filter_map(|metric| Some((metric, self.measured(metric)?)))
    }
    /// Whose values are there.
    pub fn known(&self) -> impl Iterator<Item = Metric> {
        self.iter().map(|(metric, _)| metric)
    }
    /// The sources of the values that are there, as far as anybody says.
    pub fn sources(&self) -> BTreeMap<Metric, MetricSource> {
        self.iter().filter_map(|(metric, measured)| Some((metric, measured.source?))).collect()
    }

    /// Says of every value that names no source yet that it is from `source`: a reading is built source by source, the best
    /// first.
    pub fn tag_untagged(&mut self, source: MetricSource) {
        for measured in self.0.iter_mut().flatten() {
            measured.source.get_or_insert(source);
        }
    }
    /// All of them from `source` that name none.
    #[must_use]
    pub fn from_source(mut self, source: MetricSource) -> Self {
        self.tag_untagged(source);
        self
    }
    /// Takes each value, with its source, that the other has and this has not. What is there stays.
    pub fn fill(&mut self, from: &Self) {
        for (own, other) in self.0.iter_mut().zip(&from.0) {
            *own = own.or(*other);
        }
    }
}

impl FromIterator<(Metric, f64)> for Metrics {
    fn from_iter<T: IntoIterator<Item = (Metric, f64)>>(values: T) -> Self {
        let mut metrics = Self::default();
        for (metric, value) in values {
            metrics.set(metric, value);
        }
        metrics
    }
}

impl<const COUNT: usize> From<[(Metric, f64); COUNT]> for Metrics {
    fn from(values: [(Metric, f64); COUNT]) -> Self {
        values.into_iter().collect()
    }
}
