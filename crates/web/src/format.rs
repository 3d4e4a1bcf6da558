//! How quantities are written. Absent is a dash.

use chrono::{DateTime, Duration, Local, NaiveDate, NaiveTime, TimeZone as _};
use maud::{Markup, html};
use pillion_core::UnixTime;
use pillion_core::when::{Date, NotATime, When};

/// What stands where nothing is known.
pub(crate) const NONE: &str = "–";

fn local(seconds: f64) -> Option<DateTime<Local>> {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds of a time; `as` saturates")]
    let whole = seconds as i64;
    (seconds > 0.0).then(|| DateTime::from_timestamp(whole, 0)).flatten().map(|it| it.with_timezone(&Local))
}

/// A moment, with its machine-readable form; the year only where it is not this one.
pub(crate) fn time(seconds: f64, now: f64) -> Markup {
    let Some(then) = local(seconds) else { return html! { (NONE) } };
    let is_this_year =
        local(now).is_some_and(|now| now.format("%Y").to_string() == then.format("%Y").to_string());
    let shown = if is_this_year { then.format("%-d %b, %H:%M") } else { then.format("%-d %b %Y, %H:%M") };
    html! { time datetime=(then.to_rfc3339()) { (shown) } }
}

/// A moment that may be absent.
pub(crate) fn time_or_none(seconds: Option<f64>, now: f64) -> Markup {
    time(seconds.unwrap_or_default(), now)
}

/// How long ago: `12 s ago`.
pub(crate) fn ago(seconds: Option<f64>, now: f64) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{} ago", duration(now - seconds)))
}

/// A length of time in its two greatest units: `3 h 20 min`.
pub(crate) fn duration(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    let whole = seconds.max(0.0).round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) if minutes < 10 && rest > 0 => format!("{minutes} min {rest} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, 0) => format!("{hours} h"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, 0, _) => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// The same, where it may be absent.
pub(crate) fn duration_or_none(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| NONE.to_owned(), duration)
}

/// A part of a whole: `40 %`.
pub(crate) fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| NONE.to_owned(), |fraction| format!("{:.0} %", fraction * 100.0))
}

/// A ratio: `1.25×`.
pub(crate) fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.2}×"))
}

/// The slowdown of a speed fraction.
pub(crate) fn slowdown(speed_fraction: Option<f64>) -> Option<f64> {
    speed_fraction.filter(|speed| *speed > 0.0).map(f64::recip)
}

/// A sum with its sign: `+12.3`, `−4.0`; with a minus that is as wide as the plus.
pub(crate) fn signed(value: f64) -> String {
    let digits = usize::from(value.abs() < 100.0);
    if value < -0.05 { format!("−{:.digits$}", value.abs()) } else { format!("+{:.digits$}", value.abs()) }
}

/// Bytes: `41.2 GiB`.
#[expect(clippy::cast_precision_loss, reason = "printed with one digit behind the point")]
pub(crate) fn bytes(count: Option<u64>) -> String {
    let Some(count) = count else { return NONE.to_owned() };
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{value:.0} {unit}");
        }
        value /= 1024.0;
        if unit == "MiB" && value < 1024.0 {
            return format!("{value:.1} GiB");
        }
    }
    format!("{value:.1} TiB")
}

/// A whole number in groups of three: `12 345`, with spaces that do not break.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `2 jobs`.
pub(crate) fn counted(value: u64, one: &str) -> String {
    format!("{} {one}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Reads a time of a filter: every form that `-S` and `-E` of the command line take, and seconds since 1970. A day as the end
/// of a stretch means its end.
///
/// # Errors
/// What is no time.
pub(crate) fn parse_time(text: &str, now: f64, is_end: bool) -> Result<f64, NotATime> {
    let seconds = if let Ok(seconds) = text.parse::<f64>() {
        Some(seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    } else {
        let when: When = text.parse()?;
        let now = UnixTime::from_seconds(now);
        let wall = |date, seconds| wall_time(now, date, seconds);
        let then = if is_end { when.end(now, wall) } else { when.start(now, wall) };
        // What lies before 1970 is as good as its beginning, and 0 would mean no time at all.
        then.map(|then| then.seconds().max(1.0))
    };
    seconds.ok_or_else(|| NotATime(text.to_owned()))
}

/// So many seconds after the midnight of a day, here. Of an hour that comes twice, the first.
fn wall_time(now: UnixTime, date: Option<Date>, seconds: u32) -> Option<UnixTime> {
    let day = match date {
        Some(Date { year, month, day }) => NaiveDate::from_ymd_opt(year, month, day)?,
        None => local(now.seconds())?.date_naive(),
    };
    let wall = day.and_time(NaiveTime::default()) + Duration::seconds(i64::from(seconds));
    let then = Local.from_local_datetime(&wall).earliest()?.timestamp();
    Some(UnixTime::from_epoch(u64::try_from(then).unwrap_or(0)))
}

/// The beginning of the day, and the zone's offset from UTC in seconds.
pub(crate) fn today(now: f64) -> (f64, i32) {
    let Some(time) = local(now) else { return (now, 0) };
    (parse_time("today", now, false).unwrap_or(now), time.offset().local_minus_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!([duration(59.6), duration(3600.0), duration(100_000.0)], ["1 min", "1 h", "1 d 3 h"]);
        assert_eq!([signed(12.34), signed(-0.01), signed(-240.0)], ["+12.3", "+0.0", "−240"]);
        assert_eq!([bytes(Some(41 << 30)), bytes(Some(3 << 40)), bytes(None)], ["41.0 GiB", "3.0 TiB", NONE]);
        assert_eq!(slowdown(Some(0.8)), Some(1.25));
    }

    #[test]
    fn times_of_filters_are_read_or_refused() {
        let now = 1_795_000_000.0;
        let of = |text: &str, is_end| parse_time(text, now, is_end).ok();
        assert_eq!(of("now-2days", false), Some(now - 172_800.0));
        assert_eq!(of("now-3000weeks", false), Some(1.0));
        assert_eq!(of("1794000000.5", false), Some(1_794_000_000.5));
        let day = of("2026-11-18", false).unwrap();
        assert!(of("2026-11-18", true).unwrap() - day > 82_000.0);
        assert_eq!(of("2026-11-18T00:10:05", true), Some(day + 605.0));
        assert_eq!((of("midnight", true), of("now", true)), (of("today", false), Some(now)));
        assert!(of("today", true).unwrap() > now);
        assert_eq!(of("0:10", false), of("midnight", false).map(|time| time + 600.0));
        for wrong in ["yesterday", "now-", "now-3fortnights", "-5", "2026-13-01", "inf", "nan", "25:00"] {
            assert_eq!(of(wrong, false), None, "{wrong}");
        }
    }
}
