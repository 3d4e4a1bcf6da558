//! Submits one run with the user's own `sbatch`, as he would.

use super::campaign::Subject;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// slurmctld may be busy for a while; sbatch itself tries again and again.
pub(crate) const SBATCH_DEADLINE: Duration = Duration::from_mins(2);
/// What pillion.lua says of a job that it takes, to run alone and to share: the rest of the sentence is for people.
pub(crate) const TAKEN_ALONE: &str = "pillion: waits for a GPU of its own";
pub(crate) const TAKEN_TO_SHARE: &str = "pillion: waits for a GPU, of its own or shared";

/// Why there is no job that Pillion has taken in.
#[derive(Debug)]
pub(crate) struct NotTaken {
    pub(crate) error: CliError,
    /// Whether there was a job, and it is cancelled. Else there may be one yet: sbatch did not end, or says of one that slurmctld
    /// answered too late.
    pub(crate) is_cancelled: bool,
}

impl From<NotTaken> for CliError {
    fn from(not_taken: NotTaken) -> Self {
        not_taken.error
    }
}

/// Submits a run that Pillion is to take in, which it says by `taken`; `options` come behind its user's. The job exists when this
/// returns it.
///
/// # Errors
/// [`CliError::Refused`] with what sbatch said, or where the job was not taken in; then it was cancelled again.
/// [`CliError::TryLater`] where sbatch did not end.
pub(crate) async fn submit(
    subject: &Subject,
    options: &[String],
    taken: &str,
) -> Result<SlurmJobId, NotTaken> {
    let submitted = sbatch(subject, options).await;
    let (job_id, stderr) = submitted.map_err(|error| NotTaken { error, is_cancelled: false })?;
    if stderr.contains(taken) {
        return Ok(job_id);
    }
    let cancelled = Command::new("scancel").arg(job_id.to_string()).stdin(Stdio::null()).status().await;
    let is_cancelled = cancelled.is_ok_and(|status| status.success());
    let fate = if is_cancelled { "it was cancelled again" } else { "it could not be cancelled again" };
    let error = refused(&format!("Pillion did not take job {job_id}, so {fate}"), &stderr);
    Err(NotTaken { error, is_cancelled })
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
            (TAKEN_ALONE.strip_prefix("pillion: ").unwrap(), "the sentences for jobs that run alone");
        assert_eq!(module.matches(&format!("\"{said}; runs alone")).count(), 2, "{whose}");
        let said = TAKEN_TO_SHARE.strip_prefix("pillion: ").unwrap();
        assert_eq!(
            module.matches(&format!("\"{said}; if shared, ")).count(),
            1,
            "and for those that may share"
        );
    }

    #[test]
    fn sbatch_names_the_job_with_or_without_its_cluster() {
        assert_eq!(job_id("17\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id("17;north\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id(""), None);
        assert_eq!(job_id("Submitted batch job 17"), None);
    }
}
