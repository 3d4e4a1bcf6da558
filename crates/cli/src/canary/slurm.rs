//! What Slurm tells the user who calls: the nodes of the pool, and his jobs by their names.

use super::place::SINFO_FORMAT;
use crate::characterize::fate::InSlurm;
use crate::characterize::slurm::told;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use pillion_slurm::parse::state::job_state;
use std::collections::BTreeMap;

/// The nodes of all partitions, hidden ones too, a line a node and partition.
///
/// # Errors
/// [`CliError`] where sinfo cannot be run or says no.
pub(super) async fn nodes() -> Result<String, CliError> {
    told("sinfo", &["--noheader", "--all", "--Node", &format!("--format={SINFO_FORMAT}")]).await
}

/// The user's jobs that Slurm holds, by their names.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(super) async fn held() -> Result<BTreeMap<String, SlurmJobId>, CliError> {
    let queue = told("squeue", &["--noheader", "--me", "--format=%j|%i|%T"]).await?;
    let jobs = queue.lines().filter_map(|line| {
        let state = job_state(line.trim().rsplit('|').next()?);
        let [name, id, _] = line.trim().split('|').collect::<Vec<_>>()[..] else { return None };
        matches!(InSlurm::of(&state), InSlurm::Held(_)).then_some((name.to_owned(), id.parse().ok()?))
    });
    Ok(jobs.collect())
}
