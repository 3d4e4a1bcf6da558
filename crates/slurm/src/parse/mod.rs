//! Slurm's text as our words. Foreign text: nothing here trusts it, guesses, or panics over it.

pub mod held;
pub mod queue;
pub mod scontrol;
pub mod squeue;
pub mod state;

use crate::nodeset::number;
use pillion_core::UnixTime;

/// Whether Slurm prints this where there is nothing.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "(null)" | "N/A" | "NONE" | "None" | "Unknown")
}

/// The text, or the empty one where Slurm printed its word for nothing.
pub(crate) fn or_empty(text: &str) -> &str {
    if is_null(text) { "" } else { text }
}

/// A time under `SLURM_TIME_FORMAT=%s`. The outer `None`: not a time.
#[expect(clippy::option_option, reason = "unreadable and absent are two things, and both occur")]
pub(crate) fn epoch(text: &str) -> Option<Option<UnixTime>> {
    if is_null(text) { Some(None) } else { number(text).map(|seconds| Some(UnixTime::from_epoch(seconds))) }
}

/// A time limit in seconds: `[days-]hours:minutes:seconds`, `minutes:seconds`, or a word for none.
/// The outer `None`: not a time limit.
pub fn time_limit_seconds(text: &str) -> Option<Option<u64>> {
    // `Partition_Limit`, `INVALID` and `NOT_SET` occur only where Slurm has not filled it in: the longest, to be careful.
    if matches!(text, "UNLIMITED" | "Partition_Limit" | "NOT_SET" | "INVALID") || is_null(text) {
        return Some(None);
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (number(days)?, clock),
        None => (0, text),
    };
    let parts =
        clock.split(':').map(|part| number(part).filter(|_| !part.is_empty())).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes, seconds] => (hours, minutes, seconds),
        [minutes, seconds] => (0, minutes, seconds),
        _ => return None,
    };
    let hours_all = days.checked_mul(24)?.checked_add(hours)?;
    let minutes_all = hours_all.checked_mul(60)?.checked_add(minutes)?;
    Some(Some(minutes_all.checked_mul(60)?.checked_add(seconds)?))
}

/// Memory in MiB: `4000M`, `1.50G`, `500Mc` (per CPU) and `500Mn` (per node) of older releases; bare numbers are MiB.
pub(crate) fn memory_mib(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['c', 'n']).unwrap_or(text);
    let (amount, factor_mib) = match text.bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1.0 / 1024.0),
        b'M' => (&text[..text.len() - 1], 1.0),
        b'G' => (&text[..text.len() - 1], 1024.0),
        b'T' => (&text[..text.len() - 1], 1024.0 * 1024.0),
        b'P' => (&text[..text.len() - 1], 1024.0 * 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    if amount.is_empty() || !amount.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let mib = (amount.parse::<f64>().ok()? * factor_mib).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1e15, checked here")]
    (0.0..1e15).contains(&mib).then_some(mib as u64)
}

/// A whole count with Slurm's binary suffix: `100`, `500G`.
pub(crate) fn count(text: &str) -> Option<u64> {
    let (digits, shift) = match text.bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    number(digits).filter(|_| !digits.is_empty())?.checked_mul(1 << shift)
}

/// What a value of `a=1,b=2` is for `key`.
pub(crate) fn tres<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(',')
        .find_map(|entry| entry.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value))
}

/// A GRES request without its prefix: `gres/shard:g1:40,gres/lscratch:100` and the `gres:` of older releases become
/// `shard:g1:40,lscratch:100`. What is no GRES (`cpu=2` of a per-task request) is left out.
pub(crate) fn gres_request(text: &str) -> String {
    if is_null(text) {
        return String::new();
    }
    let entries = text.split(',').filter_map(|e| e.strip_prefix("gres/").or_else(|| e.strip_prefix("gres:")));
    entries.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits() {
        let cases = [
            ("UNLIMITED", Some(None)),
            ("1:00", Some(Some(60))),
            ("30:00", Some(Some(1800))),
            ("1:00:00", Some(Some(3600))),
            ("2-00:00:00", Some(Some(172_800))),
            ("1-12:31:00", Some(Some(131_460))),
            ("60", None),
            ("1:-2", None),
            ("a:b", None),
            (":1", None),
            ("18446744073709551615-00:00:00", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(time_limit_seconds(text), seconds, "{text}");
        }
    }

    #[test]
    fn memory() {
        let cases = [
            ("100M", 100),
            ("1.50G", 1536),
            ("9G", 9216),
            ("500Mc", 500),
            ("4Gn", 4096),
            ("0", 0),
            ("1T", 1 << 20),
        ];
        for (text, mib) in cases {
            assert_eq!(memory_mib(text), Some(mib), "{text}");
        }
        for text in ["", "M", "-1M", "1e3M", "infG", "9999999999P", "é"] {
            assert_eq!(memory_mib(text), None, "{text}");
        }
    }

    #[test]
    fn gres_requests_of_both_spellings() {
        assert_eq!(gres_request("gres/shard:g1:40,gres/lscratch:100"), "shard:g1:40,lscratch:100");
        assert_eq!(gres_request("gres:shard:g1:40"), "shard:g1:40");
        assert_eq!(gres_request("cpu=2,gres/gpu:1"), "gpu:1");
        for text in ["", "N/A", "(null)", "cpu=2"] {
            assert_eq!(gres_request(text), "", "{text}");
        }
    }

    #[test]
    fn counts_with_a_suffix() {
        assert_eq!(count("100"), Some(100));
        assert_eq!(count("2K"), Some(2048));
        for text in ["", "K", "+1", "99999999999999999999", "99999999999999999T"] {
            assert_eq!(count(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,30}") {
            let _ = (time_limit_seconds(&text), memory_mib(&text), count(&text), epoch(&text), gres_request(&text));
        }
    }
}
