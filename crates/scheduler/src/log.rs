//! The log, one line an event whatever stands in it: a name from outside that has an end of line in it makes no second line, and
//! no terminal obeys one that shows the log. What is in the way of every tick is said now and then, not every time.

use pillion_core::UnixTime;
use pillion_core::text::OneLine;
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;

/// The log of the program: what it says goes to `writer`, one line an event.
pub(crate) fn subscriber<W: Write + 'static>(
    filter: EnvFilter,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync + 'static {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine::to(writer()))
        .with_ansi(false)
        .finish()
}

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
    use std::io;
    use std::sync::Arc;

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

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// As it was tried: a node whose name had an end of line and an escape sequence in it.
    #[test]
    fn a_name_forges_no_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = subscriber(EnvFilter::new("info"), move || writer.clone());
        tracing::subscriber::with_default(log, || {
            tracing::info!(node = %"n1\n2026-11-24T00:00:00Z ERROR forged\x1b[2J", "agent attached");
            tracing::info!("the next");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\x1b') && text.contains("\\u{1b}[2J"), "{text}");
    }
}
