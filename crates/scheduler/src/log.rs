//! What is in the way of every tick is said in the log now and then, not every time.

use pillion_core::UnixTime;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How long a sentence is not said again.
const SAID_AGAIN_AFTER_SECONDS: f64 = 600.0;
/// So many different ones are remembered; of more, those beyond are not said until others are forgotten.
const SENTENCES_MAX: usize = 1_000;

/// Sentences of the log and when each was last said.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<HashMap<String, UnixTime>>);

impl Repeats {
    /// Whether this sentence is to be said now. A thousand bad rows that are met every second fill no disk.
    pub(crate) fn is_news(&self, sentence: &str, now: UnixTime) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= SENTENCES_MAX && !said.contains_key(sentence) {
            said.retain(|_, at| now.seconds_since(*at).abs() < SAID_AGAIN_AFTER_SECONDS);
        }
        match said.get(sentence) {
            // A clock that was set back is no reason for silence.
            Some(at) if now.seconds_since(*at).abs() < SAID_AGAIN_AFTER_SECONDS => return false,
            None if said.len() >= SENTENCES_MAX => return false,
            _ => {}
        }
        said.insert(sentence.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_every_second_is_said_every_ten_minutes() {
        let repeats = Repeats::default();
        let said = (0..3600).filter(|second| repeats.is_news("row 7", UnixTime::from_epoch(*second))).count();
        assert_eq!(said, 6);
    }

    #[test]
    fn ten_thousand_bad_rows_are_a_thousand_lines() {
        let repeats = Repeats::default();
        let lines_at = |at: u64| {
            (0..10_000).filter(|row| repeats.is_news(&format!("row {row}"), UnixTime::from_epoch(at))).count()
        };
        assert_eq!((lines_at(0), lines_at(1), lines_at(599), lines_at(600)), (1_000, 0, 0, 1_000));
    }
}
