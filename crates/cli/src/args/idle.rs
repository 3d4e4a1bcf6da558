//! `pillion idle`: what counts as a GPU without work.

use clap::Args as ClapArgs;
use std::time::Duration;

/// The parts of a minute below which the scheduler remembers since when a GPU is, in percent.
const LEVELS: [u8; 4] = [1, 5, 10, 25];

#[derive(Debug, ClapArgs)]
pub struct IdleArgs {
    /// Without work for so long at least: 30m, 1h, 2d
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub at_least: Duration,
    /// Busy less than this part of each minute: 1%, 5%, 10% or 25%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = level)]
    pub busy_below: u8,
    /// Only this user's jobs
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
    /// Print a text for each user instead, to be sent by mail
    #[arg(long, conflicts_with_all = ["json", "parsable2", "columns"])]
    pub mail: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is expected; write 30m, 1h or 2d".to_owned();
    let (count, seconds) = match text.as_bytes().last() {
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => return Err(wrong()),
    };
    let count: u32 = count.parse().map_err(|_| wrong())?;
    let is_number = text.as_bytes()[0].is_ascii_digit() && count > 0 && count <= 10_000;
    is_number.then(|| Duration::from_secs(u64::from(count) * seconds)).ok_or_else(wrong)
}

fn level(text: &str) -> Result<u8, String> {
    let percent = text.trim_end_matches('%').parse().ok().filter(|percent| LEVELS.contains(percent));
    percent.ok_or_else(|| "1%, 5%, 10% or 25% is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_levels_are_read_or_refused_with_what_is_expected() {
        assert_eq!(duration("30m"), Ok(Duration::from_mins(30)));
        assert_eq!(duration("2d"), Ok(Duration::from_hours(48)));
        for wrong in ["", "h", "1", "0h", "+1h", "1.5h", "99999h", "1w"] {
            assert_eq!(
                duration(wrong),
                Err("a duration is expected; write 30m, 1h or 2d".to_owned()),
                "{wrong}"
            );
        }
        assert_eq!((level("25%"), level("1")), (Ok(25), Ok(1)));
        assert!(level("7%").is_err() && level("-5").is_err());
    }
}
