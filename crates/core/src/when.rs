//! Times as people write them for Slurm's tools, after `-S` and `-E` and in an address of the page. Read without a clock and
//! without a zone: both are the caller's.

use crate::clock::UnixTime;
use crate::text::quoted;
use std::str::FromStr;

/// Further from now than some three thousand years no clock counts.
const FROM_NOW_SECONDS_MAX: u64 = 100_000_000_000;
const DAY_SECONDS: u32 = 86_400;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// The year, of four digits.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// A time that was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// `now`, `now-2hours`: so many seconds after now; below zero: before.
    FromNow(i64),
    /// `2026-11-21`, `today`: a whole day; `None`: today.
    Day(Option<Date>),
    /// `2026-11-21T14:05`, `14:05:30`, `midnight`: so many seconds after the midnight of a day; `None`: of today.
    Moment(Option<Date>, u32),
}

/// What is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time; write 2026-11-21, 2026-11-21T14:05:00, 14:05, today, now or now-2hours")]
pub struct NotATime(pub String);

impl FromStr for When {
    type Err = NotATime;
    fn from_str(text: &str) -> Result<Self, NotATime> {
        parse(text).ok_or_else(|| NotATime(quoted(text)))
    }
}

impl When {
    /// The moment; of a whole day its beginning. `wall` tells when the clocks of the caller's zone are so many seconds past
    /// the midnight of a day (`None`: today): an hour that the change to summer time skips is no time.
    pub fn start(
        self,
        now: UnixTime,
        wall: impl Fn(Option<Date>, u32) -> Option<UnixTime>,
    ) -> Option<UnixTime> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "bounded by FROM_NOW_SECONDS_MAX")]
            Self::FromNow(seconds) => Some(UnixTime::from_seconds(now.seconds() + seconds as f64)),
            Self::Day(date) => wall(date, 0),
            Self::Moment(date, seconds) => wall(date, seconds),
        }
    }

    /// The same, but of a whole day its end.
    pub fn end(
        self,
        now: UnixTime,
        wall: impl Fn(Option<Date>, u32) -> Option<UnixTime>,
    ) -> Option<UnixTime> {
        match self {
            Self::Day(date) => wall(date, DAY_SECONDS),
            other => other.start(now, wall),
        }
    }
}

fn parse(text: &str) -> Option<When> {
    if let Some(offset) = text.strip_prefix("now") {
        return from_now(offset).map(When::FromNow);
    }
    Some(match text {
        "today" => When::Day(None),
        "midnight" => When::Moment(None, 0),
        _ if text.contains(':') => match text.split_once('T') {
            Some((day, time)) => When::Moment(Some(date(day)?), clock(time)?),
            None => When::Moment(None, clock(text)?),
        },
        _ => When::Day(Some(date(text)?)),
    })
}

/// `""`, `-2hours`, `+10` (seconds).
fn from_now(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("-", rest) => (-1, rest),
        ("+", rest) => (1, rest),
        _ => return None,
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let count: u64 = rest[..digits].parse().ok()?;
    let unit_seconds = match &rest[digits..] {
        "" | "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 86_400,
        "week" | "weeks" => 7 * 86_400,
        _ => return None,
    };
    let seconds = count.checked_mul(unit_seconds).filter(|seconds| *seconds <= FROM_NOW_SECONDS_MAX)?;
    Some(sign * i64::try_from(seconds).ok()?)
}

/// A number of at most so many digits, and nothing else.
fn number(text: &str, digits_max: usize) -> Option<u32> {
    let is_plain = (1..=digits_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

fn date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let year = i32::try_from(number(year, 4).filter(|_| year.len() == 4)?).ok()?;
    let is_there = parts.next().is_none() && (1..=month_days(year, month)?).contains(&day);
    is_there.then_some(Date { year, month, day })
}

fn month_days(year: i32, month: u32) -> Option<u32> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    })
}

/// `14:05`, `14:05:30`: seconds after midnight.
fn clock(text: &str) -> Option<u32> {
    let mut parts = text.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    let is_time = parts.next().is_none() && hour < 24 && minute < 60 && second < 60;
    is_time.then_some(hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATE: Date = Date { year: 2026, month: 11, day: 21 };

    #[test]
    fn every_form_is_read() {
        for (text, when) in [
            ("now", When::FromNow(0)),
            ("now-2hours", When::FromNow(-7200)),
            ("now-1minute", When::FromNow(-60)),
            ("now+10", When::FromNow(10)),
            ("now-3weeks", When::FromNow(-3 * 7 * 86_400)),
            ("today", When::Day(None)),
            ("midnight", When::Moment(None, 0)),
            ("2026-11-21", When::Day(Some(DATE))),
            ("2028-02-29", When::Day(Some(Date { year: 2028, month: 2, day: 29 }))),
            ("2026-11-21T14:05", When::Moment(Some(DATE), 50_700)),
            ("2026-11-21T14:05:30", When::Moment(Some(DATE), 50_730)),
            ("9:05", When::Moment(None, 32_700)),
            ("23:59:59", When::Moment(None, 86_399)),
        ] {
            assert_eq!(text.parse(), Ok(when), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_is_allowed() {
        let huge = format!("now-{}weeks", u64::MAX);
        for wrong in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-29",
            "2100-02-29",
            "2026-11-00",
            "2026-11-21-1",
            "26-11-21",
            "25:00",
            "12:60",
            "12",
            "12:00:00:00",
            "+1:00",
            "now2hours",
            "now-",
            "now-2moons",
            "now--2hours",
            "T14:05",
            "2026-11-21T",
            "2026-11-21 14:05",
            "-5",
            "1e3",
            "²026-11-21",
            &huge,
        ] {
            let error = wrong.parse::<When>().expect_err(wrong);
            assert!(error.to_string().contains("now-2hours"), "{error}");
        }
    }

    #[test]
    fn a_whole_day_has_two_ends_and_a_moment_one() {
        let now = UnixTime::from_epoch(1_000_000);
        let wall = |date: Option<Date>, seconds: u32| {
            let midnight = if date.is_some() { 500_000 } else { 900_000 };
            Some(UnixTime::from_epoch(midnight + u64::from(seconds)))
        };
        let ends = |when: When| {
            (when.start(now, wall).map(UnixTime::epoch), when.end(now, wall).map(UnixTime::epoch))
        };
        assert_eq!(ends(When::Day(None)), (Some(900_000), Some(986_400)));
        assert_eq!(ends(When::Day(Some(DATE))), (Some(500_000), Some(586_400)));
        assert_eq!(ends(When::Moment(None, 60)), (Some(900_060), Some(900_060)));
        assert_eq!(ends(When::FromNow(-10)), (Some(999_990), Some(999_990)));
        assert_eq!(ends(When::FromNow(-2_000_000)), (Some(0), Some(0)), "nothing was before 1970");
        assert_eq!(When::Moment(None, 60).start(now, |_, _| None), None);
    }

    proptest! {
        /// Whatever somebody writes into an address.
        #[test]
        fn no_text_panics(text in "\\PC{0,24}|now[-+]?[0-9]{0,22}[a-z]{0,7}|[0-9]{1,5}-[0-9]{0,3}-[0-9]{0,3}(T[0-9:]{0,9})?") {
            let _ = text.parse::<When>();
        }
    }
}
