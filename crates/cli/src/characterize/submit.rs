//! Submits one run with the user's own `sbatch`, as he would.

use super::campaign::Subject;
use crate::error::CliError;
use pillion_core::SlurmJobId;
use std::process::{Output, Stdio};
use tokio::process::Command;

/// slurmctld may be busy for a while; sbatch itself tries again and again. It ends by then, also where nobody is left to end it: of one that
/// outlives its caller a job would come when nobody expects one any more.
const SBATCH_SECONDS: u32 = 120;
/// As sbatch says that it got no answer, or none in time (Slurm's `slurm_errno.c`): slurmctld may have the request nevertheless.
const UNANSWERED: [&str; 6] = [
    "timed out",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Communication connection failure",
    "Message send failure",
    "Message receive failure",
];
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
/// [`CliError::SlurmBusy`] where slurmctld did not answer it: there may be a job yet.
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
    // In the foreground: who types Ctrl-C ends sbatch too. What ends us otherwise does not.
    let mut sbatch = Command::new("timeout");
    sbatch
        .args(["--foreground", "--kill-after=10", &SBATCH_SECONDS.to_string(), "sbatch", "--parsable"])
        .args(&subject.options)
        .args(options)
        .arg(&subject.script)
        .args(&subject.arguments)
        .stdin(Stdio::null());
    let output = sbatch
        .output()
        .await
        .map_err(|error| CliError::Refused(format!("sbatch could not be run by timeout ({error})")))?;
    answered(&output)
}

/// What became of sbatch.
fn answered(output: &Output) -> Result<(SlurmJobId, String), CliError> {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => {
            let job_id = job_id(&stdout).ok_or_else(|| refused("sbatch named no job", &stdout))?;
            Ok((job_id, stderr.into_owned()))
        }
        // What `timeout` says: its time is over, or it had to be killed.
        Some(124 | 137) => Err(CliError::SlurmBusy(format!("sbatch did not end within {SBATCH_SECONDS} s"))),
        // Of a signal, of which sbatch cannot say how far it was.
        None => Err(CliError::SlurmBusy("sbatch was killed".to_owned())),
        Some(126 | 127) => Err(refused("sbatch could not be run; is Slurm installed here?", &stderr)),
        Some(_) if UNANSWERED.iter().any(|words| stderr.contains(words)) => {
            Err(CliError::SlurmBusy(one_line(&stderr)))
        }
        Some(_) => Err(refused("sbatch submitted nothing", &stderr)),
    }
}

fn refused(what: &str, said: &str) -> CliError {
    CliError::Refused(format!("{what}: {}", one_line(said)))
}

fn one_line(said: &str) -> String {
    said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
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
    fn a_refusal_is_told_from_a_silence_behind_which_a_job_may_come() {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = |wait_status: i32, said: &str| {
            let status = std::process::ExitStatus::from_raw(wait_status);
            answered(&Output { status, stdout: b"17\n".to_vec(), stderr: said.as_bytes().to_vec() })
        };
        let exited = |code: i32, said: &str| ended(code << 8, said);
        assert_eq!(exited(0, "well").unwrap(), (SlurmJobId::plain(17), "well".to_owned()));
        let late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation";
        for silence in [exited(1, late), exited(124, ""), exited(137, ""), ended(9, "")] {
            assert!(matches!(silence, Err(CliError::SlurmBusy(_))), "{silence:?}");
        }
        for no in [exited(1, "sbatch: error: Batch job submission failed: Invalid account"), exited(127, "")]
        {
            assert!(matches!(no, Err(CliError::Refused(_))), "{no:?}");
        }
    }

    #[test]
    fn sbatch_names_the_job_with_or_without_its_cluster() {
        assert_eq!(job_id("17\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id("17;north\n"), Some(SlurmJobId::plain(17)));
        assert_eq!(job_id(""), None);
        assert_eq!(job_id("Submitted batch job 17"), None);
    }
}
