//! Quantities with a range: a value outside it cannot be made.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number outside the range of its unit.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{value} is not a {unit}: allowed are {low} to {high}")]
pub struct OutOfRange {
    /// The number.
    pub value: f64,
    /// What it should have been.
    pub unit: &'static str,
    /// Least allowed.
    pub low: f64,
    /// Greatest allowed.
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
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// All.
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
    /// The number.
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

/// Seconds of an hour.
pub const SECONDS_PER_HOUR: f64 = 3600.0;
/// Joules of a kilowatt-hour.
pub const JOULES_PER_KILOWATT_HOUR: f64 = 3.6e6;

/// Whether a tenant at this speed, of its speed alone, is slowed no more than it accepts.
pub fn keeps_promise(speed_fraction: f64, slowdown_ratio_max: f64) -> bool {
    speed_fraction * slowdown_ratio_max >= 1.0
}

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
