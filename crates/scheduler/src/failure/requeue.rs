//! Carries out requeues that `Judge` decided (victims, and who ran out of device memory), evictions that an operator ordered, guests
//! that `pace` sends back, jobs that `trend` foretells to run out of memory, and guests that make room (`engine`): one `scontrol requeue`, and what became of it. Slurm
//! itself refuses it for a job whose user asked for `--no-requeue`. Nothing is chosen here but when to leave it: a doubt leaves the job
//! as it is.
//!
//! The job comes back with its old pin and the mark of its release, which nobody stands behind any more: `release` puts its
//! own request back at once, and it runs alone (`Mark::undone`), or waits for a decision with more memory where it ran out of it
//! or was about to (`Mark::again`), and once more as a guest where it made room (`Mark::once_more`). A job whose mark cannot be read would come back with the
//! pin for good, so it is not requeued.

use crate::analysis::mebibytes;
use crate::context::Context;
use crate::failure::endings::{Answer, Harm, Ready};
use crate::scan::{Scan, mark_of, workload_of};
use crate::step::predates;
use crate::tick_error::TickError;
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::fault::REQUEUE_AGE_SECONDS_MAX;
use pillion_core::{JobStart, SlurmJobId, UnixTime, WorkloadKey, report};
use pillion_slurm::{Ending, Job, JobState, Requeued, SlurmError};
use pillion_store::{Decision, Event, Requeue, RequeueCause, RequeueOutcome};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{info, warn};

/// How old the ground for ending somebody who runs may be, where no operator ordered it.
const SENT_BACK_AGE_SECONDS_MAX: f64 = 120.0;

pub struct Requeuer {
    context: Arc<Context>,
    /// When Slurm was last asked, and what it refused with: only a later scan tells what became of it.
    asked: Mutex<BTreeMap<SlurmJobId, (UnixTime, Option<String>)>>,
}

/// What comes next for a requeue.
#[derive(Debug, Clone, PartialEq)]
enum Next {
    Wait,
    Ask,
    Settle(RequeueOutcome, String),
}

impl Requeuer {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, asked: Mutex::default() }
    }

    /// Takes every requeue as far as it can go now.
    ///
    /// # Errors
    /// The first [`TickError`]; the others were still tried.
    pub async fn tick(&self) -> Result<(), TickError> {
        if !self.context.is_active() {
            // Whoever leads meanwhile settles them.
            self.lock().clear();
            return Ok(());
        }
        let Some(scan) = self.context.fresh_scan() else { return Ok(()) };
        let open = self.context.store.open_requeues().await?;
        if open.is_empty() {
            self.lock().clear();
            return Ok(());
        }
        let decisions = self.context.store.active_decisions().await?;
        self.lock().retain(|id, _| open.iter().any(|requeue| requeue.start.job_id == *id));
        let mut first_error = None;
        for requeue in &open {
            let driven = self.drive(requeue, &scan, &decisions).await;
            if let Err(error) =
                driven.or_else(|error| self.context.pass_over("requeue", requeue.start, error))
            {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn drive(&self, requeue: &Requeue, scan: &Scan, decisions: &[Decision]) -> Result<(), TickError> {
        let asked = self.lock().get(&requeue.start.job_id).cloned();
        match next(requeue, scan, decisions, asked.as_ref()) {
            // Slurm has no fence for these: whoever was followed meanwhile would end the next start.
            Next::Ask if !self.context.may_act_by(scan) => Ok(()),
            Next::Ask => match self.ready(requeue, scan, decisions) {
                Ready::Now => self.ask(requeue).await,
                Ready::NotYet => Ok(()),
                Ready::Never(harm) => self.spare(requeue, &harm).await,
            },
            Next::Wait => Ok(()),
            Next::Settle(outcome, detail) => self.settle(requeue, outcome, detail).await,
        }
    }

    /// A tenant beside others stands still first, so that its clients can be ended before signals come.
    fn ready(&self, requeue: &Requeue, scan: &Scan, decisions: &[Decision]) -> Ready {
        let context = &self.context;
        if !requeue.cause.ends_the_job() {
            return Ready::Now;
        }
        context.endings.ready(context, requeue, decisions, is_ordered(requeue, scan, decisions))
    }

    /// A guest whose end could harm those for whose sake it goes back stays. Where nobody can be held so would the next one: no more is
    /// begun that ends so.
    async fn spare(&self, requeue: &Requeue, harm: &Harm) -> Result<(), TickError> {
        let why = &harm.why;
        let is_first =
            harm.is_everybodys && !std::mem::replace(&mut self.context.board_mut().is_parting_unsafe, true);
        if is_first {
            warn!(start = %requeue.start, node = %requeue.node, why, "a guest cannot leave without harm to its neighbours: nobody is tried \
                and no first run is joined until the scheduler is started again (ProctrackType=proctrack/cgroup is what it takes)");
        }
        let detail = format!(
            "it is not started again: its end could take its neighbours along, for it cannot be held: {why}"
        );
        self.settle(requeue, RequeueOutcome::Refused, detail).await
    }

    async fn ask(&self, requeue: &Requeue) -> Result<(), TickError> {
        let job_id = requeue.start.job_id;
        self.lock().insert(job_id, (self.context.now(), None));
        let answer = self.context.slurm.requeue(job_id, which(requeue.cause)).await;
        let refusal = match &answer {
            Err(error @ SlurmError::Failed { .. }) => Some(report(error)),
            _ => None,
        };
        let is_refused = refusal.is_some();
        let said = match &answer {
            Ok(()) => Answer::Taken,
            Err(_) if is_refused => Answer::Refused,
            Err(_) => Answer::Lost,
        };
        self.context.endings.answered(&self.context, requeue.start, said);
        self.lock().insert(job_id, (self.context.now(), refusal));
        self.context.nudges.watch.notify_one();
        match answer {
            Err(error) if !is_refused => Err(TickError::slurm("requeue a job")(error)),
            _ => Ok(()),
        }
    }

    async fn settle(
        &self,
        requeue: &Requeue,
        outcome: RequeueOutcome,
        detail: String,
    ) -> Result<(), TickError> {
        let kind = match outcome {
            RequeueOutcome::Requeued => EventKind::Requeued,
            RequeueOutcome::Refused => EventKind::RequeueRefused,
        };
        info!(start = %requeue.start, %kind, detail, "requeue settled");
        // It may stand still, and Slurm was not even asked.
        self.context.endings.answered(&self.context, requeue.start, Answer::Refused);
        let event = Event {
            at: self.context.now(),
            kind: kind.clone(),
            job_id: Some(requeue.start.job_id),
            node: Some(requeue.node.clone()),
            detail,
        };
        if self.context.store.settle_requeue(requeue.start, outcome, &event).await? {
            self.context.tally.event(&kind);
        }
        self.context.nudges.release.notify_one();
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SlurmJobId, (UnixTime, Option<String>)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next(
    requeue: &Requeue,
    scan: &Scan,
    decisions: &[Decision],
    asked: Option<&(UnixTime, Option<String>)>,
) -> Next {
    let refused =
        |why: String| Next::Settle(RequeueOutcome::Refused, format!("it is not started again: {why}"));
    if predates(scan, asked.map(|(at, _)| *at)) || predates(scan, Some(requeue.decided_at)) {
        return Next::Wait;
    }
    let Some(job) = scan.jobs.get(&requeue.start.job_id) else {
        return refused("Slurm does not know it any more".to_owned());
    };
    let is_as_it_was = match requeue.cause {
        RequeueCause::Victim | RequeueCause::OutOfMemory { .. } => matches!(job.state, JobState::Ended(_)),
        RequeueCause::Evicted
        | RequeueCause::SentBack
        | RequeueCause::MadeRoom
        | RequeueCause::Growing { .. } => job.state != JobState::Pending,
    };
    if job.restart_count != requeue.start.restart_count || !is_as_it_was {
        let is_guest = scan.is_guest(job.id);
        let how = match requeue.cause.memory_bytes() {
            Some(memory_bytes) => format!("with at least {}", mebibytes(memory_bytes)),
            None if is_guest => "as a guest, when nobody else needs a GPU".to_owned(),
            None => "alone".to_owned(),
        };
        let detail = format!("it is started again, {how}: {}", requeue.reason);
        return Next::Settle(RequeueOutcome::Requeued, detail);
    }
    if which(requeue.cause) == Requeued::Running && matches!(job.state, JobState::Completing) {
        // Slurm is ending it: by our word, by its user's or by its own.
        return Next::Wait;
    }
    if let Some(refusal) = asked.and_then(|(_, refusal)| refusal.clone()) {
        return refused(refusal);
    }
    let obstacle = match requeue.cause {
        RequeueCause::Victim => obstacle_of_failed(job, scan),
        RequeueCause::OutOfMemory { .. } => obstacle_of_failed(job, scan).or_else(|| given_more(job)),
        RequeueCause::Evicted => obstacle_of_evicted(job, decisions),
        RequeueCause::SentBack => obstacle_of_sent_back(requeue, job, scan, decisions),
        RequeueCause::MadeRoom => {
            ended_before(job).or_else(|| too_late(requeue, scan)).or_else(|| overwritten(job))
        }
        RequeueCause::Growing { .. } => obstacle_of_growing(requeue, job, scan),
    };
    if let Some(obstacle) = obstacle {
        return refused(obstacle);
    }
    Next::Ask
}

/// As what Slurm is to find the job: one whose end we did not see yet is not started again against its user's will.
const fn which(cause: RequeueCause) -> Requeued {
    match cause {
        RequeueCause::Victim | RequeueCause::OutOfMemory { .. } => Requeued::Over,
        RequeueCause::Evicted
        | RequeueCause::SentBack
        | RequeueCause::MadeRoom
        | RequeueCause::Growing { .. } => Requeued::Running,
    }
}

/// Why a job that died with another, or ran out of memory, should not be requeued any more.
fn obstacle_of_failed(job: &Job, scan: &Scan) -> Option<String> {
    if job.state != JobState::Ended(Ending::Failed) {
        Some("it did not end by failing".to_owned())
    } else if job.ended_at.is_none_or(|ended_at| scan.at.seconds_since(ended_at) > REQUEUE_AGE_SECONDS_MAX) {
        Some("it could not be done in time".to_owned())
    } else if has_successor(job, scan) {
        Some("another job of the same work has followed it, and two would work on the same files".to_owned())
    } else {
        overwritten(job)
    }
}

/// It is written in the job itself too: stores have been restored from backups.
fn given_more(job: &Job) -> Option<String> {
    let was = mark_of(job).is_some_and(|mark| mark.again_lease_epoch.is_some());
    was.then(|| "it was given more memory once before".to_owned())
}

/// Why a job that an operator evicted should go on after all. However late it is: the order stands.
fn obstacle_of_evicted(job: &Job, decisions: &[Decision]) -> Option<String> {
    let is_alone = || !has_company(job.start(), decisions);
    ended_before(job)
        .or_else(|| is_alone().then(|| "it has its GPU to itself by now".to_owned()))
        .or_else(|| overwritten(job))
}

/// Why a guest should not go back any more.
fn obstacle_of_sent_back(
    requeue: &Requeue,
    job: &Job,
    scan: &Scan,
    decisions: &[Decision],
) -> Option<String> {
    too_late(requeue, scan).or_else(|| obstacle_of_evicted(job, decisions))
}

/// Whether a job is ended also where that may harm its neighbours: by an operator's word, and where they are guests as it is, who go
/// with it.
pub(super) fn is_ordered(requeue: &Requeue, scan: &Scan, decisions: &[Decision]) -> bool {
    match requeue.cause {
        RequeueCause::SentBack | RequeueCause::Growing { .. } => false,
        RequeueCause::Evicted | RequeueCause::Victim | RequeueCause::OutOfMemory { .. } => true,
        RequeueCause::MadeRoom => {
            neighbours(requeue.start, decisions).all(|start| scan.is_guest(start.job_id))
        }
    }
}

/// Why a job whose memory grows should go on after all.
fn obstacle_of_growing(requeue: &Requeue, job: &Job, scan: &Scan) -> Option<String> {
    let lets_end = mark_of(job).is_some_and(|mark| mark.restart.lets_end());
    ended_before(job)
        .or_else(|| too_late(requeue, scan))
        .or_else(|| given_more(job))
        .or_else(|| overwritten(job))
        .or_else(|| (!lets_end).then(|| "its user does not let it be ended for that any more".to_owned()))
}

/// What was measured of one who runs holds for a while: later, the sharing is another.
fn too_late(requeue: &Requeue, scan: &Scan) -> Option<String> {
    let is_old = scan.at.seconds_since(requeue.decided_at) > SENT_BACK_AGE_SECONDS_MAX;
    is_old.then(|| "it could not be done in time".to_owned())
}

fn ended_before(job: &Job) -> Option<String> {
    let runs = matches!(job.state, JobState::Running | JobState::Suspended);
    (!runs).then(|| "it ended by itself before".to_owned())
}

fn overwritten(job: &Job) -> Option<String> {
    let text = "its AdminComment was overwritten, and with it what it had asked for";
    (!comes_back_alone(job)).then(|| text.to_owned())
}

/// Whether the mark of this start's release is there: by it `release` knows to put the job's own request back.
pub(crate) fn comes_back_alone(job: &Job) -> bool {
    mark_of(job)
        .is_some_and(|mark| mark.lease_epoch.is_some() && mark.lease_restart_count == Some(job.restart_count))
}

/// Whether somebody else is on a device of this start, or about to be.
pub(crate) fn has_company(start: JobStart, decisions: &[Decision]) -> bool {
    neighbours(start, decisions).next().is_some()
}

/// Who else is on a device of this start, or about to be.
fn neighbours(start: JobStart, decisions: &[Decision]) -> impl Iterator<Item = JobStart> {
    let own = decisions.iter().find(|decision| starts_there(decision).any(|there| there == start));
    let here = own.into_iter().flat_map(move |own| {
        decisions.iter().filter(|other| other.places().any(|place| own.places().any(|own| own == place)))
    });
    here.flat_map(starts_there).filter(move |there| *there != start)
}

/// The starts of this decision that are on its device, or about to be.
fn starts_there(decision: &Decision) -> impl Iterator<Item = JobStart> {
    let there = decision
        .members
        .iter()
        .filter(|member| matches!(member.state, MemberState::Released | MemberState::Running));
    there.map(|member| member.plan.start)
}

/// Whether the user, or a dependency on this end, has let another run of the same workload come after it.
fn has_successor(job: &Job, scan: &Scan) -> bool {
    let Some(ended_at) = job.ended_at else { return true };
    let workload = marked_workload(job);
    let mut others = scan.jobs.values().filter(|other| other.id != job.id && other.uid == job.uid);
    others.any(|other| {
        let is_later = other.submitted_at >= ended_at || other.started_at.is_some_and(|at| at >= ended_at);
        is_later && marked_workload(other) == workload
    })
}

fn marked_workload(job: &Job) -> Option<WorkloadKey> {
    Some(workload_of(job, mark_of(job)?))
}

#[cfg(test)]
mod tests;
