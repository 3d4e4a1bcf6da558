//! Waiting for a condition instead of sleeping: polls, with a deadline, and says what was seen last.

use crate::error::{HarnessError, Result};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The time now, for measuring spans.
#[expect(clippy::disallowed_methods, reason = "the harness waits for real programs in real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// What a look at the world gave.
#[derive(Debug)]
pub enum Look<T> {
    /// What was waited for.
    Ready(T),
    /// Not yet; what was seen instead, for the error.
    NotYet(String),
}

/// Looks until it is ready.
///
/// # Errors
/// [`HarnessError::Timeout`] after `deadline`, or the first error that `look` returns.
pub fn wait_for<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<Look<T>>) -> Result<T> {
    let begun = now();
    loop {
        let seen = match look()? {
            Look::Ready(value) => return Ok(value),
            Look::NotYet(seen) => seen,
        };
        if begun.elapsed() >= deadline {
            let seconds = begun.elapsed().as_secs_f64();
            return Err(HarnessError::Timeout {
                what: what.to_owned(),
                seconds,
                detail: format!("seen last: {seen}"),
            });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Looks until the condition holds.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_until(what: &str, deadline: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, deadline, || {
        Ok(if holds()? { Look::Ready(()) } else { Look::NotYet("it does not hold".into()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_seen_when_the_time_is_over() {
        let mut looks = 0;
        let result: Result<()> = wait_for("answer", Duration::from_millis(60), || {
            looks += 1;
            Ok(Look::NotYet(format!("look {looks}")))
        });
        let message = result.unwrap_err().to_string();
        assert!(message.contains("no answer") && message.contains(&format!("look {looks}")), "{message}");
        assert!(looks >= 2);
    }

    #[test]
    fn returns_at_once_when_ready_and_passes_errors_on() {
        assert_eq!(wait_for("x", Duration::ZERO, || Ok(Look::Ready(3))).unwrap(), 3);
        assert!(matches!(
            wait_until("x", Duration::from_secs(9), || Err(HarnessError::NotInTestbed)),
            Err(HarnessError::NotInTestbed)
        ));
    }
}
