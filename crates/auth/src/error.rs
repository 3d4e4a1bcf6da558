//! Why a connection did not come about. What cannot be judged now (`Unavailable`) is kept apart from what was judged and refused
//! (`Denied`): only the second is an answer.

use pillion_core::UnixTime;

/// Why nobody was let in, or why we do not speak to whoever answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AuthError {
    /// No connection, or it broke.
    #[error("{0}")]
    Unreachable(String),
    /// It cannot be judged now: MUNGE does not answer, a key is missing. Trying again may help.
    #[error("{0}")]
    Unavailable(String),
    /// It was judged.
    #[error("{0}")]
    Denied(Denial),
}

/// What was wrong with a proof.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Denial {
    /// The claim is no claim of ours.
    #[error("what was sent is no claim of a Pillion program")]
    Malformed,
    /// The other end proves by another method.
    #[error("it proves by {given}, and auth.method is {wanted} here; write the same on both sides")]
    OtherMethod {
        /// The method of the other end.
        given: String,
        /// The method that is configured here.
        wanted: String,
    },
    /// The credential is of another user than it must be of.
    #[error("the credential was made by uid {found}, not by uid {wanted}")]
    WrongUser {
        /// Whose it is.
        found: u32,
        /// Whose it had to be.
        wanted: u32,
    },
    /// The proof is of another connection: somebody passes on what was sent to him.
    #[error("the proof was made for another connection")]
    OtherConnection,
    /// The proof is of another role or node than claimed.
    #[error("the proof was made for another role or node")]
    OtherRole,
    /// The proof is not good: another key, or changed on the way.
    #[error("the proof is not good ({0})")]
    BadProof(String),
    /// The credential was used before.
    #[error("the credential was used before")]
    Replayed,
    /// It was made for somebody else to read.
    #[error("the credential was made for another user to read (see auth.scheduler_user)")]
    NotForUs,
    /// The two clocks are too far apart for a credential of a minute, or the connection stood still for longer.
    #[error("the credential's time has passed or has not come: {}", skew(*.made_at, *.read_at))]
    Clock {
        /// When it was made, by the peer's clock.
        made_at: UnixTime,
        /// When it was read, by ours.
        read_at: UnixTime,
    },
    /// The other end said no, in its own words.
    #[error("{0}")]
    Remote(String),
}

/// The difference of two clocks in words.
fn skew(made_at: UnixTime, read_at: UnixTime) -> String {
    let seconds = read_at.seconds() - made_at.seconds();
    let side = if seconds >= 0.0 { "behind" } else { "ahead of" };
    format!("the clock that it was made by is {:.0} s {side} the one that it was read by", seconds.abs())
}

impl AuthError {
    /// What went wrong, for the other end and the log: one line of plain letters.
    pub(crate) fn report(&self) -> String {
        plain(&self.to_string())
    }
}

/// How much of a text of the other end is passed on.
const REPORT_LENGTH_MAX: usize = 300;

/// A text from outside in plain letters: it goes to logs and terminals.
pub(crate) fn plain(text: &str) -> String {
    let letters = text.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ');
    letters.take(REPORT_LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_named_with_its_side() {
        for (made, read, sentence) in [(1000, 1400, "is 400 s behind"), (1400, 1000, "is 400 s ahead of")] {
            let (made_at, read_at) = (UnixTime::from_epoch(made), UnixTime::from_epoch(read));
            let text = Denial::Clock { made_at, read_at }.to_string();
            assert!(text.contains(sentence), "{text}");
        }
    }

    #[test]
    fn what_others_say_reaches_no_terminal_raw() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{202e}d"), "a[31mbcd");
        assert_eq!(plain(&"x".repeat(5000)).len(), REPORT_LENGTH_MAX);
    }
}
