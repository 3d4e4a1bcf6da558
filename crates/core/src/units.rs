//! Quantities with a range: a value outside it cannot be made.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number outside the range of its unit.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{value} is not a {unit}: allowed are {low} to {high}")]
pub struct OutOfRange {
    /// The number that was refused.
    pub value: f64,
    /// What it should have been.
    pub unit: &'static str,
    /// The least number that is allowed.
    pub low: f64,
    /// The greatest number that is allowed.
    pub high: f64,
}

fn in_range(value: f64, unit: &'static str, low: f64, high: f64) -> Result<f64, OutOfRange> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(OutOfRange { value, unit, low, high }) }
}

/// A part of a whole, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

impl Fraction {
    /// Nothing of the whole: 0.
    pub const ZERO: Self = Self(0.0);
    /// All of the whole: 1.
    pub const ONE: Self = Self(1.0);

    /// # Errors
    /// [`OutOfRange`] outside 0..=1, and for what is not a number.
    pub fn try_new(value: f64) -> Result<Self, OutOfRange> {
        in_range(value, "fraction", 0.0, 1.0).map(Self)
    }
    /// The nearest fraction; what is not a number becomes 0.
    pub fn clamped(value: f64) -> Self {
        Self(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) })
    }
    /// The number, 0..=1.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Fraction {
    type Error = OutOfRange;
    fn try_from(value: f64) -> Result<Self, OutOfRange> {
        Self::try_new(value)
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

/// Shared time over solo time. A promise is at least 1; a measured ratio may fall below by noise.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SlowdownRatio(f64);

impl SlowdownRatio {
    /// The greatest ratio that a user may accept with `max-slowdown=`.
    pub const PROMISE_MAX: f64 = 10.0;

    /// A promise: 1 to [`Self::PROMISE_MAX`].
    ///
    /// # Errors
    /// [`OutOfRange`] for anything else.
    pub fn try_promise(value: f64) -> Result<Self, OutOfRange> {
        in_range(value, "slowdown ratio", 1.0, Self::PROMISE_MAX).map(Self)
    }
    /// The slowdown ratio, 1 or more.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for SlowdownRatio {
    type Error = OutOfRange;
    fn try_from(value: f64) -> Result<Self, OutOfRange> {
        Self::try_promise(value)
    }
}

impl From<SlowdownRatio> for f64 {
    fn from(ratio: SlowdownRatio) -> Self {
        ratio.0
    }
}

/// One of the caps under which the speed of a workload alone is kept: a tenth, two tenths, .. all of the compute units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct CapStep(u8);

impl CapStep {
    /// All compute units: no cap.
    pub const WHOLE: Self = Self(10);

    /// `tenths`: 1 to 10.
    pub fn from_tenths(tenths: u8) -> Option<Self> {
        (1..=10).contains(&tenths).then_some(Self(tenths))
    }
    /// The steps below [`Self::WHOLE`], the narrowest first.
    pub fn caps() -> impl Iterator<Item = Self> {
        (1..10).map(Self)
    }
    /// The cap; `None` for the whole.
    pub fn cap_fraction(self) -> Option<Fraction> {
        (self < Self::WHOLE).then(|| Fraction(f64::from(self.0) / 10.0))
    }
    /// Its place among [`Self::caps`]; `None` for the whole.
    pub fn index(self) -> Option<usize> {
        (self < Self::WHOLE).then(|| usize::from(self.0) - 1)
    }
}

impl TryFrom<f64> for CapStep {
    type Error = OutOfRange;
    fn try_from(value: f64) -> Result<Self, OutOfRange> {
        let step = (1..=10).map(Self).find(|step| (f64::from(step.0) - value * 10.0).abs() < 1e-6);
        step.ok_or(OutOfRange { value, unit: "whole number of tenths", low: 0.1, high: 1.0 })
    }
}

impl From<CapStep> for f64 {
    fn from(step: CapStep) -> Self {
        Self::from(step.0) / 10.0
    }
}

/// A text that is none of `0.1`, `0.2`, .. `0.9` and `1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cap is 0.1, 0.2, .. 0.9 or 1")]
pub struct InvalidCapStep;

impl std::str::FromStr for CapStep {
    type Err = InvalidCapStep;
    fn from_str(text: &str) -> Result<Self, InvalidCapStep> {
        (1..=10).map(Self).find(|step| step.to_string() == text).ok_or(InvalidCapStep)
    }
}

impl fmt::Display for CapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::WHOLE { f.write_str("1") } else { write!(f, "0.{}", self.0) }
    }
}

/// Seconds of an hour.
pub const SECONDS_PER_HOUR: f64 = 3600.0;
/// Joules of a kilowatt-hour.
pub const JOULES_PER_KILOWATT_HOUR: f64 = 3.6e6;

/// Whether a tenant at this speed, of its speed alone, is slowed no more than it accepts.
pub fn keeps_promise(speed_fraction: f64, slowdown_ratio_max: f64) -> bool {
    speed_fraction * slowdown_ratio_max >= 1.0
}

/// Speeds beside others over the speed alone that are believed: a neighbour does not stop a job, nor make it twice as fast,
/// but a job may write anything into its counter.
pub const SPEED_FRACTIONS: std::ops::RangeInclusive<f64> = 0.01..=2.0;

/// Hundredths of a GPU that Slurm books and bills, 1..=100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Shards(u8);

impl Shards {
    /// A whole GPU.
    pub const ALL: Self = Self(100);

    /// # Errors
    /// [`OutOfRange`] outside 1..=100.
    pub fn try_new(count: u8) -> Result<Self, OutOfRange> {
        in_range(f64::from(count), "shard count", 1.0, 100.0).map(|_| Self(count))
    }
    /// The count, 1..=100.
    pub fn count(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Shards {
    type Error = OutOfRange;
    fn try_from(count: u8) -> Result<Self, OutOfRange> {
        Self::try_new(count)
    }
}

impl From<Shards> for u8 {
    fn from(shards: Shards) -> Self {
        shards.0
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_are_tenths_and_read_back_as_they_are_written() {
        let steps: Vec<CapStep> = CapStep::caps().chain([CapStep::WHOLE]).collect();
        assert_eq!(steps.len(), 10);
        for step in steps {
            assert_eq!(step.to_string().parse(), Ok(step));
            assert_eq!(CapStep::try_from(f64::from(step)), Ok(step));
        }
        for text in ["0", "0.0", "0.25", "1.0", "10", ".5", "0.5 ", ""] {
            assert!(text.parse::<CapStep>().is_err(), "{text}");
        }
        for value in [0.0, 0.25, 1.1, -0.1, f64::NAN] {
            assert!(CapStep::try_from(value).is_err(), "{value}");
        }
        assert_eq!((CapStep::WHOLE.cap_fraction(), CapStep::WHOLE.index()), (None, None));
    }
}
