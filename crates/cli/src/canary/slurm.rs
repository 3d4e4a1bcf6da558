//! What Slurm tells the user who calls: the nodes of the pool, and which of his jobs have a name.

use super::place::SINFO_FORMAT;
use super::plan::Run;
use crate::characterize::fate::InSlurm;
use crate::characterize::slurm::{ask, told};
use crate::error::CliError;
use crate::format;
use pillion_core::SlurmJobId;
use pillion_slurm::parse::state::job_state;
use std::collections::BTreeMap;

/// Clocks of two machines are not further apart than this.
const CLOCK_SECONDS: f64 = 3600.0;

/// The nodes of all partitions, hidden ones too, a line a node and partition.
///
/// # Errors
/// [`CliError`] where sinfo cannot be run or says no.
pub(super) async fn nodes() -> Result<String, CliError> {
    told("sinfo", &["--noheader", "--all", "--Node", &format!("--format={SINFO_FORMAT}")]).await
}

/// The jobs of these runs by their names, those that there are or were; and whether that is sure: slurmctld forgets jobs, and not every
/// site keeps accounts. A job that was cancelled counts as none.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(super) async fn find(runs: &[&Run]) -> Result<(BTreeMap<String, SlurmJobId>, bool), CliError> {
    let names: Vec<&str> = runs.iter().map(|run| run.job_name.as_str()).collect();
    let own = format!("--name={}", names.join(","));
    let queue = told("squeue", &["--noheader", "--me", "--states=all", &own, "--format=%j|%i|%T"]).await?;
    let mut found: BTreeMap<String, SlurmJobId> = queue.lines().filter_map(named).collect();
    let mut is_sure = true;
    if names.iter().any(|name| !found.contains_key(*name)) {
        // What slurmctld has forgotten (MinJobAge) the accounts know.
        let since = runs.iter().map(|run| run.submitted_at.seconds()).fold(f64::INFINITY, f64::min);
        let since = format!("--starttime={}", format::time((since - CLOCK_SECONDS).max(1.0)));
        let user = format!("--user={}", rustix::process::getuid().as_raw());
        let accounts =
            ask("sacct", &["-X", "-n", "-P", &user, &own, &since, "-o", "JobName,JobID,State"]).await;
        is_sure = matches!(accounts, Ok(Ok(_)));
        let accounts = accounts.ok().and_then(Result::ok).unwrap_or_default();
        found.extend(accounts.lines().filter_map(named));
    }
    Ok((found, is_sure))
}

/// The user's jobs that Slurm holds, by their names.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(super) async fn held() -> Result<BTreeMap<String, SlurmJobId>, CliError> {
    let queue = told("squeue", &["--noheader", "--me", "--format=%j|%i|%T"]).await?;
    let jobs = queue.lines().filter_map(|line| {
        let state = job_state(line.trim().rsplit('|').next()?);
        let (name, job) = named(line)?;
        matches!(InSlurm::of(&state), InSlurm::Held(_)).then_some((name, job))
    });
    Ok(jobs.collect())
}

fn named(line: &str) -> Option<(String, SlurmJobId)> {
    let [name, id, state] = line.trim().split('|').collect::<Vec<_>>()[..] else { return None };
    (!state.starts_with("CANCELLED")).then_some(())?;
    Some((name.to_owned(), id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_told_by_their_names_and_what_was_cancelled_again_counts_as_none() {
        let job = |line| named(line).map(|(name, id)| format!("{name} {id}"));
        assert_eq!(job("pillion-canary-1-0|17|RUNNING").as_deref(), Some("pillion-canary-1-0 17"));
        assert_eq!(job("pillion-canary-1-0|17|CANCELLED by 1000"), None);
        assert_eq!(job("pillion-canary-1-0|x|RUNNING"), None);
        assert_eq!(job("slurm_load_jobs error"), None);
    }
}
