//! How quantities and names are written for people: times as Slurm writes them, units that can be read. Absent is the empty text.

use chrono::{DateTime, Duration, Local, NaiveDate, NaiveTime, TimeZone as _};
use pillion_core::UnixTime;
use pillion_core::units::JOULES_PER_KILOWATT_HOUR;
use pillion_core::when::{Date, NotATime, When};

/// Stands for what only operators see.
const NOT_SHOWN: &str = "(not shown)";

/// A time as Slurm writes it, in the local zone: `2026-11-21T14:05:00`. 0 means that there is none.
pub fn time(seconds: f64) -> String {
    if seconds <= 0.0 {
        return String::new();
    }
    let epoch = i64::try_from(UnixTime::from_seconds(seconds).epoch()).unwrap_or(i64::MAX);
    DateTime::from_timestamp(epoch, 0)
        .map(|utc| utc.with_timezone(&Local).format("%Y-%m-%dT%H:%M:%S").to_string())
        .unwrap_or_default()
}

/// A time that may be absent.
pub fn time_or_none(seconds: Option<f64>) -> String {
    seconds.map(time).unwrap_or_default()
}

/// `1 device`, `2 devices`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Names in one line: `n1,n2,n3` or `n1,n2,n3 and 5 more`.
pub fn listed<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(","),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(",")),
    }
}

/// A cell that only operators, or its owner, see.
pub(crate) fn shown(cell: Option<&String>) -> String {
    cell.map_or_else(|| NOT_SHOWN.to_owned(), Clone::clone)
}

/// A part of a whole: `40 %`.
pub fn fraction(value: Option<f64>) -> String {
    value.map(|value| format!("{:.0} %", value * 100.0)).unwrap_or_default()
}

/// What a tenant may use of its device: `40 %` of the compute units, `1/2 card`; `None` where nothing holds it back.
pub fn part(
    cap: Option<f64>,
    mode: Option<impl std::fmt::Display>,
    slot: Option<impl std::fmt::Display>,
) -> Option<String> {
    let held = cap.map(|cap| fraction(Some(cap))).or_else(|| mode.map(|mode| format!("1/{mode} card")));
    match (slot, held) {
        // Of an instance that it shares a part.
        (Some(slot), Some(held)) => Some(format!("{held} of {slot}")),
        (slot, held) => held.or_else(|| slot.map(|slot| slot.to_string())),
    }
}

/// A cap: `40 %` of the compute units, or `none`.
pub fn cap(fraction_of_units: Option<f64>) -> String {
    fraction_of_units.map_or_else(|| "none".to_owned(), |cap| fraction(Some(cap)))
}

/// A slowdown ratio: `1.25x`.
pub fn ratio(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.2}x")).unwrap_or_default()
}

/// Bytes: `8.0 GiB`.
#[expect(clippy::cast_precision_loss, reason = "printed with one digit behind the point")]
pub fn bytes(count: Option<u64>) -> String {
    let Some(count) = count else { return String::new() };
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    String::new()
}

/// A length of time as Slurm writes it: `00:05:00`, `2-03:00:00`.
pub fn duration(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return String::new() };
    let whole = UnixTime::from_seconds(seconds + 0.5).epoch();
    let (days, rest) = (whole / 86_400, whole % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest % 3600 / 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// Energy: `12.3 kJ`, from one kilowatt-hour on `1.20 kWh`.
pub fn energy(joules: Option<f64>) -> String {
    match joules {
        None => String::new(),
        Some(joules) if joules >= JOULES_PER_KILOWATT_HOUR => {
            format!("{:.2} kWh", joules / JOULES_PER_KILOWATT_HOUR)
        }
        Some(joules) => format!("{:.1} kJ", joules / 1000.0),
    }
}

/// Power: `350 W`.
pub fn power(watts: Option<f64>) -> String {
    watts.map(|watts| format!("{watts:.0} W")).unwrap_or_default()
}

/// Text of others without control characters, so that it can neither forge lines nor drive a terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Reads the two ends of a stretch of time, what follows `-S` and `-E`; each may be open.
///
/// # Errors
/// A sentence: a time that cannot be read, or a stretch that ends before it begins.
pub fn stretch(
    start: Option<&str>,
    end: Option<&str>,
    now: UnixTime,
) -> Result<(Option<UnixTime>, Option<UnixTime>), String> {
    let since = start.map(|text| parse_time(text, now)).transpose()?;
    let until = end.map(|text| parse_time(text, now)).transpose()?;
    if since.zip(until).is_some_and(|(since, until)| until < since) {
        return Err("the time after -E lies before the time after -S; swap them".to_owned());
    }
    Ok((since, until))
}

/// Reads a time as Slurm's tools take it (`pillion_core::when`), in the local zone.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_time(text: &str, now: UnixTime) -> Result<UnixTime, String> {
    let when = text.parse::<When>().ok();
    let then = when.and_then(|when| when.start(now, |date, seconds| local(now, date, seconds)));
    then.ok_or_else(|| NotATime(text.to_owned()).to_string())
}

/// So many seconds after the midnight of a day, here. Of an hour that comes twice, the first.
fn local(now: UnixTime, date: Option<Date>, seconds: u32) -> Option<UnixTime> {
    let day = match date {
        Some(Date { year, month, day }) => NaiveDate::from_ymd_opt(year, month, day)?,
        None => {
            DateTime::from_timestamp(i64::try_from(now.epoch()).ok()?, 0)?.with_timezone(&Local).date_naive()
        }
    };
    let wall = day.and_time(NaiveTime::default()) + Duration::seconds(i64::from(seconds));
    let then = Local.from_local_datetime(&wall).earliest()?.timestamp();
    Some(UnixTime::from_epoch(u64::try_from(then).unwrap_or(0)))
}

/// Cells of a bar that stands for the whole.
const BAR_CELLS: u8 = 40;

/// `  name  42 %  ####......`: a part with a bar of `#`, which every terminal shows, and which is read aloud as its number.
pub fn bar_line(name: &str, part: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the number of cells")]
    let full = (part.clamp(0.0, 1.0) * f64::from(BAR_CELLS)).round() as u8;
    let bar = format!("{}{}", "#".repeat(full.into()), ".".repeat((BAR_CELLS - full).into()));
    format!("  {name:<27}{:>6}  {bar}", fraction(Some(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(bytes(Some(8 << 30)), "8.0 GiB");
        assert_eq!(bytes(Some(512)), "512 B");
        assert_eq!(bytes(Some(5 << 50)), "5120.0 TiB");
        assert_eq!(fraction(Some(0.4)), "40 %");
        assert_eq!(ratio(Some(1.25)), "1.25x");
        assert_eq!(duration(Some(300.2)), "00:05:00");
        assert_eq!(duration(Some(2.0 * 86_400.0 + 3.0 * 3600.0)), "2-03:00:00");
        assert_eq!(energy(Some(12_345.0)), "12.3 kJ");
        assert_eq!(energy(Some(7.2e6)), "2.00 kWh");
        assert_eq!(bytes(None) + &fraction(None) + &time(0.0), "");
    }

    #[test]
    fn times_read_back_in_whatever_zone_this_runs() {
        let now = UnixTime::from_epoch(1_795_000_000);
        let text = time(now.seconds());
        assert_eq!(parse_time(&text, UnixTime::default()), Ok(now));
        assert_eq!(parse_time("now", now), Ok(now));
        assert_eq!(parse_time("now-2hours", now), Ok(UnixTime::from_epoch(1_795_000_000 - 7200)));
        assert_eq!(parse_time("now+1week", now), Ok(UnixTime::from_epoch(1_795_000_000 + 604_800)));
        assert_eq!(parse_time(&text[..10], now), parse_time("today", now));
        assert_eq!(parse_time(&text[11..], now), Ok(now));
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_is_allowed() {
        let huge = format!("now-{}weeks", i64::MAX);
        for wrong in
            ["", "yesterday", "2026-13-01", "25:00", "now2hours", "now-", "now-2moons", "T14:05", &huge]
        {
            let message = parse_time(wrong, UnixTime::default()).expect_err(wrong);
            assert!(message.contains("now-2hours"), "{message}");
        }
    }

    #[test]
    fn control_characters_cannot_forge_lines() {
        assert_eq!(clean("a\nb\u{1b}[31mc\u{9b}"), "a?b?[31mc?");
    }
}
