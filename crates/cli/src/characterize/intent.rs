//! A run goes on record before it is submitted: whoever is cut off between the two, or got no answer, asks Slurm for what the run was to carry,
//! and submits another one only where it is sure that there is none ([decision 0031](../../../../docs/decisions/0031-canary.md)).

use super::fate::{Unfound, unfound};
use super::slurm::{self, Mark};
use crate::error::CliError;
use pillion_core::{SlurmJobId, UnixTime};
use serde::{Deserialize, Serialize};

/// How a token begins; digits follow, for numbers tell no command lines apart (`pillion_core::workload`).
const TOKEN_BEGIN: &str = "pillion-run-";

/// A run that may have been submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intent<W> {
    /// What the run is of.
    pub(crate) what: W,
    /// Stands in its comment, and so in its command line, and in no other's.
    token: String,
    pub(crate) at: UnixTime,
}

/// What is known of a run that may have been submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There is none such.
    Nothing,
    /// It was, as this job.
    Submitted(SlurmJobId),
    /// It was not.
    Never,
    /// Its sbatch may still be under way.
    NotKnownYet,
    /// Nobody can say any more: why, in one sentence.
    Unknowable(&'static str),
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

/// Asks Slurm for the run that may have been submitted, if there is one.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(crate) async fn settle<W>(open: Option<&Intent<W>>, now: UnixTime) -> Result<Settled, CliError> {
    let Some(intent) = open else { return Ok(Settled::Nothing) };
    let (found, is_sure) = slurm::find(&[&intent.token], Mark::Comment, intent.at).await?;
    if let Some(job_id) = found.get(&intent.token) {
        return Ok(Settled::Submitted(*job_id));
    }
    Ok(match unfound(intent.at, false, is_sure, now) {
        Unfound::Never => Settled::Never,
        Unfound::NotYet => Settled::NotKnownYet,
        Unfound::Unknowable(why) => Settled::Unknowable(why),
    })
}

/// What whoever leaves a campaign that is not over is told.
pub(crate) fn goes_on<W>(open: Option<&Intent<W>>) -> &'static str {
    if open.is_some() {
        "pillion: whether the last run was submitted is not known yet; the same command finds out, within three minutes"
    } else {
        "pillion: the jobs go on; the same command follows them again"
    }
}

/// Whether what went wrong leaves open whether there is a job.
pub(crate) fn may_be_submitted(error: &CliError) -> bool {
    matches!(error, CliError::SlurmBusy(_))
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

    #[test]
    fn only_a_silence_leaves_it_open_whether_there_is_a_job() {
        assert!(may_be_submitted(&CliError::SlurmBusy("timed out".to_owned())));
        assert!(!may_be_submitted(&CliError::Refused("Invalid account".to_owned())));
    }
}
