//! Whoever is cut off between the record of a run and its submission, or got no answer, asks Slurm for what the run was to carry, and submits
//! another one only where it is sure that there is none ([decision 0031](../../../../docs/decisions/0031-canary.md)).

use super::fate::{Unfound, unfound};
use super::intent::Intent;
use super::slurm::{self, Mark};
use crate::error::CliError;
use pillion_core::{SlurmJobId, UnixTime};

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

    #[test]
    fn only_a_silence_leaves_it_open_whether_there_is_a_job() {
        assert!(may_be_submitted(&CliError::SlurmBusy("timed out".to_owned())));
        assert!(!may_be_submitted(&CliError::Refused("Invalid account".to_owned())));
    }
}
