//! Submits one run with the user's own `sbatch`, as he would.

use super::campaign::Subject;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// slurmctld may be busy for a while; sbatch itself tries again and again.
const SBATCH_DEADLINE: Duration = Duration::from_mins(2);
/// What pillion.lua says of a job that it takes: the rest of the sentence is for people.
const TAKEN: &str = "pillion: waits for a GPU of its own";

/// Submits a run that Pillion is to take in. The job exists when this returns it.
///
/// # Errors
/// [`CliError::Refused`] with what sbatch said, or where the job was not taken in; then it was cancelled again.
pub(super) async fn submit(subject: &Subject, colocate: &str) -> Result<SlurmJobId, CliError> {
    let (job_id, stderr) = sbatch(subject, &[format!("--colocate={colocate}")]).await?;
    if stderr.contains(TAKEN) {
        return Ok(job_id);
    }
    let cancelled = Command::new("scancel").arg(job_id.to_string()).stdin(Stdio::null()).status().await;
    let fate = if cancelled.is_ok_and(|status| status.success()) {
        "it was cancelled again"
    } else {
        "it could not be cancelled again"
    };
    Err(refused(&format!("Pillion did not take job {job_id}, so {fate}"), &stderr))
}

/// Submits an ordinary job, which is none of Pillion's; these options come behind its user's.
///
/// # Errors
/// [`CliError::Refused`] with what sbatch said.
pub(super) async fn plain(subject: &Subject, options: &[String]) -> Result<SlurmJobId, CliError> {
    sbatch(subject, options).await.map(|(job_id, _)| job_id)
}

/// The job, and what was said to its user.
async fn sbatch(subject: &Subject, options: &[String]) -> Result<(SlurmJobId, String), CliError> {
    let mut sbatch = Command::new("sbatch");
    sbatch
        .arg("--parsable")
        .args(&subject.options)
        .args(options)
        .arg(&subject.script)
        .args(&subject.arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(SBATCH_DEADLINE, sbatch.output())
        .await
        .map_err(|_| {
            CliError::TryLater(format!("sbatch did not end within {} s", SBATCH_DEADLINE.as_secs()))
        })?
        .map_err(|error| {
            CliError::Refused(format!("sbatch could not be run ({error}); is Slurm installed here?"))
        })?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(refused("sbatch submitted nothing", &stderr));
    }
    let job_id = job_id(&stdout).ok_or_else(|| refused("sbatch named no job", &stdout))?;
    Ok((job_id, stderr.into_owned()))
}

fn refused(what: &str, said: &str) -> CliError {
    let said = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    CliError::Refused(format!("{what}: {said}"))
}

/// `17` or `17;cluster`.
fn job_id(stdout: &str) -> Option<SlurmJobId> {
    stdout.lines().next()?.split(';').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentence is the module's; an older one beside a newer command would cancel every run of a campaign.
    #[test]
    fn what_the_module_says_of_a_job_that_it_takes_is_known() {
        let module = include_str!("../../../../deploy/slurm/pillion.lua");
        let (said, whose) =
            (TAKEN.strip_prefix("pillion: ").unwrap(), "the sentences for jobs that run alone");
        assert_eq!(module.matches(&format!("\"{said}; runs alone")).count(), 2, "{whose}");
    }

    #[test]
    fn sbatch_names_the_job_with_or_without_its_cluster() {
        assert_eq!(job_id("17\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id("17;north\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id(""), None);
        assert_eq!(job_id("Submitted batch job 17"), None);
    }
}
