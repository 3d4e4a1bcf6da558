//! Slurm's own programs, asked as the user who calls.

use super::fate::InSlurm;
use crate::error::CliError;
use crate::format;
use pillion_core::{SlurmJobId, UnixTime};
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

/// By what a job is known before its number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// By its whole name. One that was cancelled counts as none: it was not taken in.
    Name,
    /// By a word in its comment, of which the accounts know by its command line, whether they keep comments or not.
    Comment,
}

/// Clocks of two machines are not further apart than this.
const CLOCK_SECONDS: f64 = 3600.0;

/// The user's jobs that have these marks, those that there are or were, since then; and whether that is sure: slurmctld forgets jobs, and
/// not every site keeps accounts.
///
/// # Errors
/// [`CliError::SlurmBusy`] where the controller did not answer.
pub(crate) async fn find(
    marks: &[&str],
    kind: Mark,
    since: UnixTime,
) -> Result<(BTreeMap<String, SlurmJobId>, bool), CliError> {
    let name = (kind == Mark::Name).then(|| format!("--name={}", marks.join(",")));
    let (queue_format, account_format) = match kind {
        Mark::Name => ("--format=%i|%T|%j", "JobID,State,JobName"),
        Mark::Comment => ("--format=%i|%T|%k", "JobID,State,SubmitLine"),
    };
    let with_name = |words: &[&'static str]| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain(name.clone()).collect()
    };
    let queue = with_name(&["--noheader", "--me", "--states=all", queue_format]);
    let queue = told("squeue", &queue.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut found: BTreeMap<String, SlurmJobId> =
        queue.lines().filter_map(|line| marked(line, marks, kind)).collect();
    let mut is_sure = true;
    if marks.iter().any(|mark| !found.contains_key(*mark)) {
        // What slurmctld has forgotten (MinJobAge) the accounts know.
        let mut accounts = with_name(&["-X", "-n", "-P", "-o", account_format]);
        accounts.push(format!("--user={}", rustix::process::getuid().as_raw()));
        accounts.push(format!("--starttime={}", format::time((since.seconds() - CLOCK_SECONDS).max(1.0))));
        let answer = ask("sacct", &accounts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        is_sure = matches!(answer, Ok(Ok(_)));
        let text = answer.ok().and_then(Result::ok).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| marked(line, marks, kind)));
    }
    Ok((found, is_sure))
}

/// `17|RUNNING|text`: the mark that it has, if it has one of these.
fn marked(line: &str, marks: &[&str], kind: Mark) -> Option<(String, SlurmJobId)> {
    let [id, state, text] = line.trim().splitn(3, '|').collect::<Vec<_>>()[..] else { return None };
    let has = |mark: &&&str| match kind {
        Mark::Name => text == **mark && !state.starts_with("CANCELLED"),
        Mark::Comment => text.contains(**mark),
    };
    let mark = marks.iter().find(has)?;
    Some(((*mark).to_owned(), id.parse().ok()?))
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

    #[test]
    fn jobs_are_told_by_their_names_and_what_was_cancelled_again_counts_as_none() {
        let job =
            |line| marked(line, &["pillion-canary-1-0"], Mark::Name).map(|(name, id)| format!("{name} {id}"));
        assert_eq!(job("17|RUNNING|pillion-canary-1-0").as_deref(), Some("pillion-canary-1-0 17"));
        assert_eq!(job("17|CANCELLED by 1000|pillion-canary-1-0"), None);
        assert_eq!(job("17|RUNNING|pillion-canary-1-01"), None);
        assert_eq!(job("x|RUNNING|pillion-canary-1-0"), None);
        assert_eq!(job("slurm_load_jobs error"), None);
    }

    #[test]
    fn a_run_is_told_by_what_stands_in_its_comment_or_its_command_line() {
        let job = |line| marked(line, &["pillion-run-17"], Mark::Comment).map(|(_, id)| id);
        let it = Some(SlurmJobId::plain(9));
        assert_eq!(job("9|PENDING|grant 7 pillion-run-17"), it);
        assert_eq!(
            job("9|CANCELLED by 1000|sbatch --comment=pillion-run-17 a|b.sh"),
            it,
            "its user cancelled it"
        );
        assert_eq!(job("9|RUNNING|(null)"), None);
        assert_eq!(job("pillion-run-17"), None, "a line that somebody wrote");
    }
}
