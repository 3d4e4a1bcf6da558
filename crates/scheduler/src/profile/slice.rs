//! What a run in an instance of its own teaches of its workload there: whether it has room, and how fast it is.

use super::sharing::has_launched;
use super::speed::MeasuredSpeed;
use crate::failure::verdict;
use pillion_core::event::EventKind;
use pillion_core::fault::FailureKind;
use pillion_slurm::Ending;
use pillion_store::{MeasuredRun, SliceLesson, Store, StoreError};

/// How sure a lack of memory has to be so that the size is gone for good: as what device libraries alone print makes by itself.
const OUT_OF_MEMORY_SURE: f64 = 0.8;

/// `None` where it had no instance, or may not have had it.
pub(super) async fn slice_lesson(
    store: &dyn Store,
    run: &MeasuredRun,
    measured: Option<MeasuredSpeed>,
) -> Result<Option<SliceLesson>, StoreError> {
    let (Some(decision), Some(own)) = (&run.decision, run.own_member()) else { return Ok(None) };
    let Some(slot) = own.plan.sharing.mig_slot() else { return Ok(None) };
    let start = run.summary.start;
    if !has_launched(store, start, decision).await? {
        return Ok(None);
    }
    let events = store.events(start.job_id).await?;
    if events.iter().any(|event| event.kind == EventKind::ShareFailed) {
        return Ok(None);
    }
    let is_same = run.job.restart_count == start.restart_count;
    Ok(Some(SliceLesson {
        device_model: run.device_model.clone(),
        profile: slot.profile,
        memory_bytes: own.plan.memory_bytes,
        has_completed: is_same && run.job.ending == Some(Ending::Completed),
        ran_out_of_memory: is_same && has_surely_run_out(run),
        speed_fraction: measured.map(|measured| measured.speed_fraction).filter(|speed| *speed > 0.0),
    }))
}

fn has_surely_run_out(run: &MeasuredRun) -> bool {
    verdict(run).is_some_and(|verdict| {
        verdict.rule.kind() == FailureKind::OutOfMemory && verdict.confidence.value() >= OUT_OF_MEMORY_SURE
    })
}
