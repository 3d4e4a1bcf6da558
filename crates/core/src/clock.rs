//! Time as an argument. Only [`SystemClock`] reads the real clock; everything that decides takes a [`Clock`] or a
//! [`UnixTime`], so that the simulation can own time.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds since 1970-01-01 00:00:00 UTC, with a fraction; never negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixTime(f64);

impl UnixTime {
    /// From seconds since the epoch; what is negative or not a number becomes 0.
    pub fn from_seconds(seconds: f64) -> Self {
        Self(if seconds.is_finite() && seconds > 0.0 { seconds } else { 0.0 })
    }
    /// From whole seconds since the epoch, as Slurm writes them.
    #[expect(clippy::cast_precision_loss, reason = "epoch seconds are far below 2^53")]
    pub fn from_epoch(seconds: u64) -> Self {
        Self(seconds as f64)
    }
    /// Seconds since the epoch, with their fraction.
    pub fn seconds(self) -> f64 {
        self.0
    }
    /// Whole seconds since the epoch, rounded down.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite and not negative")]
    pub fn epoch(self) -> u64 {
        self.0 as u64
    }
    /// How long ago `earlier` was, in seconds; 0 if it lies in the future.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0).max(0.0)
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0 + rhs.as_secs_f64())
    }
}

impl Sub<Duration> for UnixTime {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self::from_seconds(self.0 - rhs.as_secs_f64())
    }
}

/// Where the current time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> UnixTime;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> UnixTime {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        UnixTime::from_seconds(since.map_or(0.0, |elapsed| elapsed.as_secs_f64()))
    }
}

/// A clock that stands until it is moved: for tests and the simulation.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: UnixTime) -> Self {
        Self(AtomicU64::new(now.seconds().to_bits()))
    }
    /// Moves the clock to `now`, forwards or back.
    pub fn set(&self, now: UnixTime) {
        self.0.store(now.seconds().to_bits(), Ordering::SeqCst);
    }
    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixTime {
        UnixTime(f64::from_bits(self.0.load(Ordering::SeqCst)))
    }
}
