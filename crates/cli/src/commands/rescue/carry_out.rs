//! Carries the undos out, one job after the other, reads the queue back, and tries again what did not hold.

use super::plan::{Undo, Why, plan};
use crate::error::CliError;
use pillion_core::{Clock, SlurmJobId, report};
use pillion_slurm::{Job, JobState, JobsScan, Slurm, updates};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is tried within one run. The timer's next run goes on where this one stops.
const ATTEMPTS_MAX: u32 = 3;
/// How long it waits between attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// What became of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub job_id: SlurmJobId,
    /// Why it was given back.
    pub why: String,
    /// undone, started, ended, `would be undone`, `left: ...` or `NOT undone: ...`.
    pub result: String,
    #[serde(skip)]
    left: bool,
}

impl Outcome {
    /// Whether it still has to be given back.
    pub fn is_left(&self) -> bool {
        self.left
    }
    fn new(job_id: SlurmJobId, why: String, result: &str) -> Self {
        Self { job_id, why, result: result.to_owned(), left: false }
    }
}

/// Finds and undoes, at most [`ATTEMPTS_MAX`] times. `pools`: the pool's partitions, empty where nobody knows them. Also says how many lines of Slurm's could not be read.
///
/// # Errors
/// [`CliError::Slurm`] when the queue cannot be read at all.
pub async fn carry_out(
    slurm: &dyn Slurm,
    clock: &dyn Clock,
    pools: &[String],
    older_than_seconds: f64,
    dry_run: bool,
) -> Result<(Vec<Outcome>, u64), CliError> {
    let scan = read(slurm).await?;
    let dropped_line_count = scan.dropped_line_count;
    let mut due = plan(&scan.jobs, pools, clock.now(), older_than_seconds);
    if dry_run {
        let said = due.iter().map(|undo| Outcome::new(undo.job_id, undo.why.to_string(), "would be undone"));
        return Ok((said.collect(), dropped_line_count));
    }
    let mut outcomes = BTreeMap::new();
    for attempt in 1..=ATTEMPTS_MAX {
        if due.is_empty() {
            break;
        }
        if attempt > 1 {
            tokio::time::sleep(PAUSE).await;
        }
        let mut errors = BTreeMap::new();
        for undo in &due {
            if let Err(error) = slurm.update(&[undo.job_id], &undo.update).await {
                errors.insert(undo.job_id, report(&error));
            }
        }
        let after = read(slurm).await?;
        due.retain(|undo| {
            let outcome = judge(undo, &after, errors.get(&undo.job_id));
            let left = outcome.left;
            outcomes.insert(undo.job_id, outcome);
            left
        });
        // What is left is planned anew from what Slurm says now: the job may have been requeued or held meanwhile.
        let again = plan(&after.jobs, pools, clock.now(), older_than_seconds);
        due.retain_mut(|undo| is_due_again(undo, &again, &mut outcomes));
    }
    Ok((outcomes.into_values().collect(), dropped_line_count))
}

/// Whether a job that could not be given back still has to be, and as what. One that was changed since (moved out of the pool by its
/// user, put back by the scheduler) is nobody's to give back any more: that its update was refused is as it should be.
fn is_due_again(undo: &mut Undo, again: &[Undo], outcomes: &mut BTreeMap<SlurmJobId, Outcome>) -> bool {
    if let Some(new) = again.iter().find(|new| new.job_id == undo.job_id) {
        new.clone_into(undo);
        return true;
    }
    let result = "left: it was changed meanwhile, and needs nothing any more";
    outcomes.insert(undo.job_id, Outcome::new(undo.job_id, undo.why.to_string(), result));
    false
}

/// The queue; any failure is tried again, for a controller that restarts answers with an ordinary error.
async fn read(slurm: &dyn Slurm) -> Result<JobsScan, CliError> {
    let mut attempt = 1;
    loop {
        match slurm.jobs(&[]).await {
            Ok(scan) => return Ok(scan),
            Err(error) if attempt >= ATTEMPTS_MAX => return Err(CliError::Slurm(error)),
            Err(_) => attempt += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What the queue says afterwards counts, not the status of `scontrol`: an update that failed may have been applied in part.
fn judge(undo: &Undo, after: &JobsScan, error: Option<&String>) -> Outcome {
    let job = after.jobs.iter().find(|job| job.id == undo.job_id);
    let result = match job.map(|job| (job, &job.state)) {
        None | Some((_, JobState::Ended(_) | JobState::Completing)) => "ended",
        Some((job, JobState::Pending)) if is_undone(job, undo) => "undone",
        Some((_, JobState::Pending)) => {
            let why = error.map_or("Slurm kept the release without saying why", String::as_str);
            let result = format!("NOT undone: {why}");
            return Outcome { left: true, ..Outcome::new(undo.job_id, undo.why.to_string(), &result) };
        }
        Some((job, JobState::Running)) if is_as_it_waited(job) => "undone and started",
        // It got its device between our scan and our update, as it was released.
        Some(_) => "started",
    };
    Outcome::new(undo.job_id, undo.why.to_string(), result)
}

fn is_as_it_waited(job: &Job) -> bool {
    matches!(&job.mark, Ok(Some(mark)) if updates::asks_as_it_waits(job, mark))
}

fn is_undone(job: &Job, undo: &Undo) -> bool {
    let Ok(Some(mark)) = &job.mark else { return false };
    if undo.why == Why::OutsidePool {
        mark.left
    } else {
        mark.lease_epoch.is_none() && !updates::is_pinned(job, mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::UnixTime;
    use pillion_core::mark::Mark;

    /// Its user moved it out of the pool between our look and our update, which the fence refused.
    #[test]
    fn who_was_changed_meanwhile_is_no_failure() {
        let job_id = SlurmJobId::plain(7);
        let update = updates::leave(&Mark::default());
        let mut undo = Undo { job_id, why: Why::OutsidePool, update };
        let refused = || Outcome { left: true, ..Outcome::new(job_id, String::new(), "NOT undone: fenced") };
        let mut outcomes = BTreeMap::from([(job_id, refused())]);
        let moved = updates::again(&Mark::default(), UnixTime::from_epoch(5), PAUSE);
        let again = Undo { update: moved, ..undo.clone() };
        assert!(is_due_again(&mut undo, std::slice::from_ref(&again), &mut outcomes));
        assert_eq!((&undo.update, outcomes[&job_id].is_left()), (&again.update, true));
        assert!(!is_due_again(&mut undo, &[], &mut outcomes));
        assert!(!outcomes[&job_id].is_left());
        assert!(outcomes[&job_id].result.starts_with("left: "));
    }
}
