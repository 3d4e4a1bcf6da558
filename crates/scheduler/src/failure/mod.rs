//! Why runs failed: joins what the agent saw with how Slurm says the job ended, each run once. What is found becomes an
//! event of the job; a tenant that died with another of its device is requeued, once and alone
//! (docs/principles.md#who-may-share), and one that ran out of device memory once with more, where its user lets it.
//!
//! ```text
//!  summary (agent) ──┐
//!  job's end (Slurm) ┴─► judge ─► event, job_requeue ─► requeue ─► scontrol requeue ─► release puts it back, alone
//! ```

pub mod ending;
pub(crate) mod endings;
pub(crate) mod memory;
pub mod requeue;
mod victim;

use crate::analysis::mebibytes;
use crate::context::Context;
use crate::scan::{Scan, mark_of};
use crate::tick_error::TickError;
use memory::{Restart, restart};
use pillion_core::event::EventKind;
use pillion_core::fault::{self, Ending, FaultVerdict, REQUEUE_AGE_SECONDS_MAX, StartSeen};
use pillion_core::health::FaultKind;
use pillion_core::{JobStart, UnixTime};
use pillion_slurm::{Ending as JobEnding, JobState};
use pillion_store::{Event, Judgement, MeasuredRun, Requeue, RequeueCause, Store};
use std::sync::Arc;
use tracing::{info, warn};
use victim::{Fate, Tenant, Victim, judge};

/// Runs that are judged in one tick.
const RUNS_PER_TICK: u32 = 100;
/// So long before the end an Xid is taken for its cause.
const XID_SECONDS: f64 = 120.0;

pub struct Judge {
    context: Arc<Context>,
}

impl Judge {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Judges the runs whose end has become known since. Only who leads does: he knows whom he was about to end.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let Some(scan) = self.context.fresh_scan().filter(|_| self.context.is_leading()) else {
            return Ok(());
        };
        for run in self.context.store.unjudged_runs(RUNS_PER_TICK).await? {
            let Err(error) = self.judge(&run, &scan).await else { continue };
            let (start, gres_type) = (run.summary.start, &run.summary.gres_type);
            self.context.pass_over("judge", start, error)?;
            // Nothing is found of it, or it would be in the way for ever.
            if let Err(error) = self.context.store.judge_run(start, gres_type, &Judgement::default()).await {
                self.context.pass_over("judge", start, error.into())?;
            }
        }
        Ok(())
    }

    async fn judge(&self, run: &MeasuredRun, scan: &Scan) -> Result<(), TickError> {
        let Some(judgement) = self.judgement(run, scan).await? else { return Ok(()) };
        let start = run.summary.start;
        if self.context.store.judge_run(start, &run.summary.gres_type, &judgement).await? {
            for event in &judgement.events {
                warn!(%start, node = %run.node, kind = %event.kind, "{}", event.detail);
                self.context.tally.event(&event.kind);
            }
            if judgement.requeue.is_some() {
                self.context.nudges.requeue.notify_one();
            }
        }
        Ok(())
    }

    /// `None`: it is too early to say.
    async fn judgement(&self, run: &MeasuredRun, scan: &Scan) -> Result<Option<Judgement>, TickError> {
        let verdict = verdict(run);
        let victim = match candidate(run, verdict.as_ref()) {
            Some(ending) => {
                let fates = fates(self.context.store.as_ref(), run, scan).await?;
                let mps_died_at = self.mps_died_at(run).await?;
                judge(&Tenant { run, ending, fates, mps_died_at, scan_at: scan.at })
            }
            None => Victim::No,
        };
        let now = self.context.now();
        let mut judgement = Judgement::default();
        let own_xid = verdict.is_none().then(|| named_by_driver(run)).flatten();
        judgement.events.extend(own_xid.map(|detail| event(run, now, EventKind::ProgramFault, detail)));
        if let Some(verdict) = verdict {
            let restart = self.restart(run, &verdict, scan);
            if matches!(restart, Restart::With { .. }) && self.is_being_ended(run, now).await? {
                return Ok(None);
            }
            let detail = format!("{verdict}{}", in_words(&restart));
            judgement.events.push(event(run, now, verdict.rule.kind().into(), detail));
            judgement.requeue = more_memory(run, &restart, now);
        }
        match victim {
            Victim::Undecided => return Ok(None),
            Victim::No => {}
            Victim::Of(reason) => {
                let is_fresh = run
                    .job
                    .ended_at
                    .is_some_and(|ended_at| now.seconds_since(ended_at) <= REQUEUE_AGE_SECONDS_MAX);
                let then = if is_fresh {
                    "it is to be started again once, alone"
                } else {
                    "too long ago to start it again"
                };
                judgement.events.push(event(run, now, EventKind::Victim, format!("{reason}; {then}")));
                judgement.requeue = is_fresh.then(|| Requeue {
                    cause: RequeueCause::Victim,
                    start: run.summary.start,
                    node: run.node.clone(),
                    decided_at: now,
                    reason,
                });
            }
        }
        if judgement.events.is_empty() {
            info!(start = %run.summary.start, ending = ?run.job.ending, "nothing shows a fault");
        }
        Ok(Some(judgement))
    }

    /// What is done about a start that ran out of device memory.
    fn restart(&self, run: &MeasuredRun, verdict: &FaultVerdict, scan: &Scan) -> Restart {
        if !verdict.is_surely_out_of_memory() {
            return Restart::Unwanted;
        }
        let start = run.summary.start;
        let job = scan.jobs.get(&start.job_id).filter(|job| job.restart_count == start.restart_count);
        let is_let = self.context.settings.restarts_by_consent;
        restart(run, job.and_then(mark_of), is_let, self.context.now())
    }

    /// Whether it was to be ended for what it ran out of, and nobody knows yet that it was faster: only then may it be started again
    /// for that.
    async fn is_being_ended(&self, run: &MeasuredRun, now: UnixTime) -> Result<bool, TickError> {
        let open = self.context.store.open_requeues().await?;
        let is_its = |requeue: &&Requeue| {
            requeue.start == run.summary.start && matches!(requeue.cause, RequeueCause::Growing { .. })
        };
        let asked = open.iter().find(is_its);
        Ok(asked.is_some_and(|asked| now.seconds_since(asked.decided_at) <= REQUEUE_AGE_SECONDS_MAX))
    }

    /// That of an instance may be another one's: nobody says which.
    async fn mps_died_at(&self, run: &MeasuredRun) -> Result<Vec<UnixTime>, TickError> {
        if run.is_in_instance() {
            return Ok(Vec::new());
        }
        let (node, device) = (&run.node, &run.summary.gres_type);
        let faults = self.context.store.device_faults(node, device, run.summary.started_at).await?;
        let died = faults.iter().filter(|fault| fault.kind == FaultKind::MpsDied);
        Ok(died.map(|fault| fault.since).collect())
    }
}

/// How this start ended; `None` where nobody says, because the job has been started again meanwhile.
fn ending_of(run: &MeasuredRun) -> Option<Ending> {
    if run.job.restart_count != run.summary.start.restart_count {
        return None;
    }
    match run.job.ending? {
        JobEnding::Completed => Some(Ending::Exited(0)),
        JobEnding::Failed => match run.job.exit? {
            (status, 0) => u8::try_from(status).ok().map(Ending::Exited),
            (_, signal) => u8::try_from(signal).ok().map(Ending::Signalled),
        },
        JobEnding::Cancelled
        | JobEnding::Timeout
        | JobEnding::NodeFail
        | JobEnding::Preempted
        | JobEnding::OutOfMemory
        | JobEnding::Revoked => Some(Ending::EndedBySlurm),
    }
}

/// The agent dated its samples and the end by one clock; Slurm's is another.
pub(crate) fn verdict(run: &MeasuredRun) -> Option<FaultVerdict> {
    let ended = ending_of(run).map(|ending| (run.summary.ended_at, ending));
    fault::verdict(&StartSeen { ended, signs: run.summary.signs.clone()? })
}

/// Whether the run may have died with another tenant, and how it ended: it failed by itself, and nothing else explains it.
fn candidate(run: &MeasuredRun, verdict: Option<&FaultVerdict>) -> Option<Ending> {
    // One daemon serves all devices of a start: what came over it from a neighbour is seen on each, and judged once.
    if run.is_told_by_another() {
        return None;
    }
    // Without the agent's signs (one of an earlier release) nobody knows that there was no reason of its own.
    run.summary.signs.as_ref()?;
    let ending = ending_of(run).filter(|ending| fault::failed_by_itself(*ending))?;
    (run.job.ending == Some(JobEnding::Failed) && verdict.is_none()).then_some(ending)
}

/// What follows a verdict in its sentence.
fn in_words(restart: &Restart) -> String {
    match restart {
        Restart::Unwanted => String::new(),
        Restart::No(why) => format!("; it is not started again: {why}"),
        Restart::With { memory_bytes, .. } => {
            format!("; it is to be started again once, with at least {}", mebibytes(*memory_bytes))
        }
    }
}

fn more_memory(run: &MeasuredRun, restart: &Restart, now: UnixTime) -> Option<Requeue> {
    let Restart::With { memory_bytes, had_bytes } = *restart else { return None };
    Some(Requeue {
        cause: RequeueCause::OutOfMemory { memory_bytes },
        start: run.summary.start,
        node: run.node.clone(),
        decided_at: now,
        reason: format!("it ran out of device memory with {}", mebibytes(had_bytes)),
    })
}

fn event(run: &MeasuredRun, at: UnixTime, kind: EventKind, detail: String) -> Event {
    Event { at, kind, job_id: Some(run.summary.start.job_id), node: Some(run.node.clone()), detail }
}

/// That the driver named a process of this very job, where that tells why it failed: operators see whose error took the
/// others along.
fn named_by_driver(run: &MeasuredRun) -> Option<String> {
    ending_of(run).filter(|ending| fault::failed_by_itself(*ending))?;
    let ended_at = run.summary.ended_at;
    let own = run.summary.signs.iter().flat_map(|signs| &signs.xids).filter(|xid| xid.is_own == Some(true));
    let (seconds, code) = own
        .map(|xid| (ended_at.seconds_since(xid.at), xid.code))
        .filter(|(seconds, _)| *seconds <= XID_SECONDS)
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("the driver named a process of this job in Xid {code} {seconds:.0} s before its end"))
}

/// What became of those who were beside it.
async fn fates(store: &dyn Store, run: &MeasuredRun, scan: &Scan) -> Result<Vec<Fate>, TickError> {
    let mut fates = Vec::new();
    for neighbour in run.summary.neighbours.iter().filter(|neighbour| could_take_along(run, **neighbour)) {
        fates.push(fate(store, *neighbour, run, scan).await?);
    }
    Ok(fates)
}

/// Whether somebody who was on the device had the same MPS server: in an instance that are those who were planned into it together.
fn could_take_along(run: &MeasuredRun, neighbour: JobStart) -> bool {
    let Some(decision) = run.decision.as_ref().filter(|_| run.is_in_instance()) else { return true };
    decision.members.iter().any(|member| member.plan.start == neighbour)
}

async fn fate(
    store: &dyn Store,
    neighbour: JobStart,
    run: &MeasuredRun,
    scan: &Scan,
) -> Result<Fate, TickError> {
    let Some(record) = store.job(neighbour.job_id).await? else { return Ok(Fate::Unknown) };
    if record.restart_count > neighbour.restart_count {
        // Slurm does not say any more when it ended: both ends by the node's clock then.
        let own = store.summary(neighbour).await?.filter(|own| own.gres_type == run.summary.gres_type);
        // One that we started again was somebody's victim itself: it must not make a victim of its culprit.
        let by_us = store.events(neighbour.job_id).await?.iter().any(|event| event.kind == EventKind::Victim);
        return Ok(match own {
            _ if by_us => Fate::Unknown,
            Some(own) => {
                Fate::StartedAgain { seconds_before: run.summary.ended_at.seconds() - own.ended_at.seconds() }
            }
            None => Fate::Ending,
        });
    }
    let is_ending = scan.jobs.get(&neighbour.job_id).is_some_and(|job| job.state == JobState::Completing);
    Ok(match (record.ended_at, record.ending, run.job.ended_at) {
        (Some(ended_at), Some(ending), Some(own_end)) => {
            Fate::Ended { ending, seconds_before: own_end.seconds() - ended_at.seconds() }
        }
        _ if is_ending => Fate::Ending,
        _ => Fate::Running,
    })
}

#[cfg(test)]
mod tests;
