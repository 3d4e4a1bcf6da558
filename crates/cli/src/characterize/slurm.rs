//! Slurm's own programs, asked as the user who calls.

use super::fate::InSlurm;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use pillion_slurm::parse::state::job_state;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// slurmctld may be busy for a while.
const DEADLINE: Duration = Duration::from_mins(1);

/// What a program printed, or what it said where it failed.
///
/// # Errors
/// [`CliError::SlurmBusy`] where it did not end, [`CliError::Refused`] where it could not be begun.
pub(crate) async fn ask(program: &str, arguments: &[&str]) -> Result<Result<String, String>, CliError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output())
        .await
        .map_err(|_| CliError::SlurmBusy(format!("{program} did not end within {} s", DEADLINE.as_secs())))?
        .map_err(|error| {
            CliError::Refused(format!("{program} could not be run ({error}); is Slurm installed here?"))
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// What a program printed.
///
/// # Errors
/// As [`ask`], and [`CliError::SlurmBusy`] where it failed.
pub(crate) async fn told(program: &str, arguments: &[&str]) -> Result<String, CliError> {
    ask(program, arguments).await?.map_err(|said| busy(program, &said))
}

fn busy(program: &str, said: &str) -> CliError {
    CliError::SlurmBusy(format!("{program}: {}", said.trim()))
}

/// A format of a program, and what it makes of a line.
pub(crate) type Read<T> = (&'static str, fn(&str) -> Option<(SlurmJobId, T)>);

/// What is known of these jobs: by `squeue` what slurmctld holds, by `sacct`, where there are accounts, what it has forgotten. One that
/// nobody knows is left out.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(crate) async fn known<T>(
    jobs: &[SlurmJobId],
    queue: Read<T>,
    accounts: Read<T>,
) -> Result<BTreeMap<SlurmJobId, T>, CliError> {
    let mut known = BTreeMap::new();
    if jobs.is_empty() {
        return Ok(known);
    }
    let listed = |jobs: &[SlurmJobId]| jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (own, format) = (format!("--jobs={}", listed(jobs)), format!("--format={}", queue.0));
    match ask("squeue", &["--noheader", "--states=all", &own, &format]).await? {
        Ok(text) => known.extend(text.lines().filter_map(queue.1)),
        // It knows none of them.
        Err(said) if said.contains("Invalid job id") => {}
        Err(said) => return Err(busy("squeue", &said)),
    }
    let rest: Vec<SlurmJobId> = jobs.iter().copied().filter(|job| !known.contains_key(job)).collect();
    if !rest.is_empty() {
        // Where nobody keeps accounts it fails, and nothing is known.
        if let Ok(Ok(text)) = ask("sacct", &["-X", "-n", "-P", "-j", &listed(&rest), "-o", accounts.0]).await
        {
            known.extend(text.lines().filter_map(accounts.1).filter(|(job, _)| rest.contains(job)));
        }
    }
    Ok(known)
}

/// What Slurm says of these jobs, each of them. What it holds slurmctld says; how a job ended that it has forgotten the accounts, where there
/// are any.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(crate) async fn fates(jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, InSlurm>, CliError> {
    let mut fates = known(jobs, ("%i|%T", queued), ("JobID,State", accounted)).await?;
    for job in jobs {
        fates.entry(*job).or_insert(InSlurm::Forgotten);
    }
    Ok(fates)
}

fn queued(line: &str) -> Option<(SlurmJobId, InSlurm)> {
    stated(line).map(|(job, state)| (job, InSlurm::of(&job_state(state))))
}

fn accounted(line: &str) -> Option<(SlurmJobId, InSlurm)> {
    stated(line).map(|(job, state)| (job, InSlurm::by_accounts(&job_state(state))))
}

/// `17|CANCELLED by 1000`.
fn stated(line: &str) -> Option<(SlurmJobId, &str)> {
    let (id, state) = line.trim().split_once('|')?;
    Some((id.parse().ok()?, state.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_without_who_brought_it_about() {
        assert_eq!(stated("17|CANCELLED by 1000"), Some((SlurmJobId::plain(17), "CANCELLED")));
        assert_eq!(stated("slurm_load_jobs error"), None);
    }
}
