//! Between our words and Postgres' types. Writing cannot fail; reading names the table, column and row that cannot be
//! read.

use crate::{LIST_LIMIT_DEFAULT, StoreError};
use pillion_core::share::{Sharing, SharingColumns};
use pillion_core::{Fraction, UnixTime};
use serde::de::DeserializeOwned;
use sqlx::types::chrono::{DateTime, Utc};
use std::borrow::Cow;
use std::str::FromStr;

pub(super) type Timestamp = DateTime<Utc>;

/// To the microsecond, which is what Postgres keeps.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and what is out of range becomes the last moment"
)]
pub(super) fn timestamp(time: UnixTime) -> Timestamp {
    DateTime::from_timestamp_micros((time.seconds() * 1e6).round() as i64).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds since the epoch are below 2^53 until the year 2255"
)]
pub(super) fn unix_time(timestamp: Timestamp) -> UnixTime {
    UnixTime::from_seconds(timestamp.timestamp_micros() as f64 / 1e6)
}

/// Counts beyond what a bigint holds do not occur; they would be kept as the greatest one.
pub(super) fn bigint(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Restart counts and the like.
pub(super) fn integer(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A limit as SQL takes it; 0 = the usual one.
pub(super) fn integer_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { LIST_LIMIT_DEFAULT } else { limit })
}

/// What `count(*)` answers; it is never below zero.
pub(super) fn counted(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Free text, without the one character that Postgres cannot keep.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Where a value was read: names the culprit if it cannot be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a str,
}

impl Place<'_> {
    pub(super) fn corrupt(&self, column: &'static str) -> StoreError {
        StoreError::Corrupt { table: self.table, column, row: self.row.to_owned() }
    }
    pub(super) fn parse<T: FromStr>(&self, column: &'static str, text: &str) -> Result<T, StoreError> {
        text.parse().map_err(|_| self.corrupt(column))
    }
    pub(super) fn parse_opt<T: FromStr>(
        &self,
        column: &'static str,
        text: Option<&str>,
    ) -> Result<Option<T>, StoreError> {
        text.map(|text| self.parse(column, text)).transpose()
    }
    /// How a tenant shares its device; without what its mechanism must be told the row says nothing.
    pub(super) fn sharing(&self, columns: SharingColumns) -> Result<Sharing, StoreError> {
        Sharing::try_from(columns).map_err(|_| self.corrupt("mechanism"))
    }
    pub(super) fn number<T: TryFrom<i64>>(
        &self,
        column: &'static str,
        value: impl Into<i64>,
    ) -> Result<T, StoreError> {
        T::try_from(value.into()).map_err(|_| self.corrupt(column))
    }
    pub(super) fn number_opt<T: TryFrom<i64>>(
        &self,
        column: &'static str,
        value: Option<impl Into<i64>>,
    ) -> Result<Option<T>, StoreError> {
        value.map(|value| self.number(column, value)).transpose()
    }
    pub(super) fn fraction(
        &self,
        column: &'static str,
        value: Option<f64>,
    ) -> Result<Option<Fraction>, StoreError> {
        value.map(Fraction::try_new).transpose().map_err(|_| self.corrupt(column))
    }
    pub(super) fn json<T: DeserializeOwned>(
        &self,
        column: &'static str,
        value: serde_json::Value,
    ) -> Result<T, StoreError> {
        serde_json::from_value(value).map_err(|_| self.corrupt(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_time_that_was_stored_once_does_not_move_again(seconds in 0.0_f64..4e9) {
            let stored = unix_time(timestamp(UnixTime::from_seconds(seconds)));
            proptest::prop_assert!((stored.seconds() - seconds).abs() <= 1e-6);
            proptest::prop_assert_eq!(unix_time(timestamp(stored)), stored);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let place = Place { table: "job", row: "33_2" };
        let error = place.number::<u32>("restart_count", -1_i32).expect_err("negative");
        assert_eq!(error.to_string(), "table job, column restart_count, row 33_2: cannot be read");
        assert!(place.fraction("cap_fraction", Some(1.5)).is_err());
        assert_eq!(text("a\0b"), "a\u{fffd}b");
    }
}
