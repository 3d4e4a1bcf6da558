//! Eviction: a job that shares a device is started again, alone. Written down here, carried out by `failure::requeue`.

use super::order::{name_of, operators_only, reason};
use crate::context::Context;
use crate::failure::requeue::{comes_back_alone, has_company};
use crate::grpc::auth::Caller;
use crate::grpc::status;
use crate::scan::{Scan, mark_of};
use crate::tick_error::TickError;
use pillion_api as api;
use pillion_core::event::EventKind;
use pillion_core::heartbeat::Mode;
use pillion_core::{NodeName, SlurmJobId};
use pillion_slurm::{Job, JobState};
use pillion_store::{Decision, Event, Requeue, RequeueCause};
use std::time::Duration;
use tonic::Status;

/// How long an answer may wait for a newer scan of Slurm.
const SCAN_WAIT: Duration = Duration::from_secs(3);

/// Evicts a job.
pub(in crate::grpc) async fn evict(
    context: &Context,
    caller: Caller,
    request: api::EvictRequest,
) -> Result<api::EvictResponse, Status> {
    operators_only(caller, "evict jobs")?;
    let api::EvictRequest { job_id, reason: text } = request;
    let id: SlurmJobId = job_id.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
    let reason = reason(&text)?;
    if context.settings.mode != Mode::Active {
        let mode = context.settings.mode.as_str();
        return Err(Status::failed_precondition(format!(
            "the scheduler acts in mode active only, and this is mode {mode}; scontrol requeue {id} restarts the job"
        )));
    }
    let scan =
        context.fresh_scan().ok_or_else(|| Status::unavailable("Slurm's queue was not read lately"))?;
    let decisions = context.store.active_decisions().await.map_err(|error| status::from_store(&error))?;
    // Before anybody is told that a job does not run, Slurm is asked again: it may have started since.
    let (scan, decisions) = if eligible(id, &scan, &decisions).is_ok() {
        (scan, decisions)
    } else {
        let newer = context.newer_scan(&scan, SCAN_WAIT).await.unwrap_or(scan);
        let now = context.store.active_decisions().await;
        (newer, now.map_err(|error| status::from_store(&error))?)
    };
    let (job, node) = eligible(id, &scan, &decisions).map_err(|why| refused(id, &why))?;
    let allowed = context.slurm.allows_requeue(id).await.map_err(TickError::slurm("ask for a job"));
    if !allowed.map_err(|error| status::from_tick(&error))? {
        return Err(refused(id, "was submitted with --no-requeue: Slurm does not start it again"));
    }
    let at = context.now();
    let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let reason = format!("evicted by {}{why}", name_of(caller).await);
    let requeue = Requeue {
        cause: RequeueCause::Evicted,
        start: job.start(),
        node: node.clone(),
        decided_at: at,
        reason: reason.clone(),
    };
    let detail = format!("{reason}; it is to be ended and started again, alone");
    let event = Event { at, kind: EventKind::Evicted, job_id: Some(id), node: Some(node.clone()), detail };
    let is_new =
        context.store.intend_requeue(&requeue, &event).await.map_err(|error| status::from_store(&error))?;
    if !is_new {
        return Err(refused(id, "is being started again already; see 'pillion why'"));
    }
    context.nudges.requeue.notify_one();
    Ok(api::EvictResponse { job_id: id.to_string(), node: node.to_string(), reason })
}

/// `why`: the rest of a sentence that begins with the job.
fn refused(id: SlurmJobId, why: &str) -> Status {
    Status::failed_precondition(format!("job {id} {why}"))
}

/// The job and its node, or why it cannot be evicted: the rest of a sentence that begins with the job.
fn eligible<'a>(
    id: SlurmJobId,
    scan: &'a Scan,
    decisions: &[Decision],
) -> Result<(&'a Job, &'a NodeName), String> {
    let unknown =
        "is not known to Pillion; only jobs of the pool that were submitted with --colocate can be evicted";
    let job = scan.jobs.get(&id).filter(|job| !matches!(job.mark, Ok(None))).ok_or(unknown)?;
    match &job.state {
        JobState::Running | JobState::Suspended => {}
        JobState::Pending => return Err("does not run: it waits".to_owned()),
        JobState::Completing => return Err("does not run any more: Slurm is ending it".to_owned()),
        JobState::Ended(ending) => return Err(format!("does not run: it is over ({})", ending.as_str())),
        JobState::Other(word) => return Err(format!("does not run: Slurm calls it {word}")),
    }
    if mark_of(job).is_some_and(|mark| mark.alone) || !has_company(job.start(), decisions) {
        return Err("runs alone already: nobody shares its GPU".to_owned());
    }
    if !comes_back_alone(job) {
        return Err(
            "cannot be put back: its AdminComment was overwritten, and with it what it had asked for"
                .to_owned(),
        );
    }
    let node = job.nodes.first().ok_or("has no node")?;
    Ok((job, node))
}
