//! A run goes on record before it is submitted, with a token that its job is to carry ([`super::settle`] asks Slurm for it).

use pillion_core::UnixTime;
use serde::{Deserialize, Serialize};

/// How a token begins; digits follow, for numbers tell no command lines apart (`pillion_core::workload`).
const TOKEN_BEGIN: &str = "pillion-run-";

/// A run that may have been submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intent<W> {
    /// What the run is of.
    pub(crate) what: W,
    /// Stands in its comment, and so in its command line, and in no other's.
    pub(super) token: String,
    pub(crate) at: UnixTime,
}

impl<W> Intent<W> {
    /// Of a run that is submitted now. Two at one microsecond are of one user only where he calls twice for two scripts.
    pub(crate) fn new(what: W, now: UnixTime) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "since 1970, in microseconds"
        )]
        let serial = (now.seconds() * 1e6) as u64;
        Self { what, token: format!("{TOKEN_BEGIN}{serial}"), at: now }
    }

    /// What sbatch is told besides: the token behind what its user comments himself.
    pub(crate) fn option(&self, comment: Option<&str>) -> String {
        match comment.filter(|comment| !comment.is_empty()) {
            Some(comment) => format!("--comment={comment} {}", self.token),
            None => format!("--comment={}", self.token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::workload::of_submit_line;

    #[test]
    fn a_token_is_one_runs_and_changes_no_workload() {
        let at = |seconds: f64| Intent::new((), UnixTime::from_seconds(seconds));
        let (one, other) = (at(1_795_718_071.123_456), at(1_795_718_071.123_457));
        assert_ne!(one.token, other.token);
        let line = |intent: &Intent<()>| format!("sbatch {} train.sh", intent.option(None));
        let key = |intent| of_submit_line("alice", "train.sh", &line(intent));
        assert_eq!(key(&one), key(&other));
        assert_eq!(one.option(Some("grant 7")), format!("--comment=grant 7 {}", one.token));
    }
}
