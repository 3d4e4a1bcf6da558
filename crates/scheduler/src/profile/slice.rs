//! What a run in an instance of its own teaches of its workload there: whether it has room, and how fast it is.

use super::has_surely_run_out;
use super::sharing::has_launched;
use super::speed::MeasuredSpeed;
use pillion_core::event::EventKind;
use pillion_slurm::Ending;
use pillion_store::{MeasuredRun, SliceLesson, Store, StoreError};

/// `None` where it had no instance, or may not have had it.
pub(super) async fn slice_lesson(
    store: &dyn Store,
    run: &MeasuredRun,
    measured: Option<MeasuredSpeed>,
) -> Result<Option<SliceLesson>, StoreError> {
    let (Some(decision), Some(own)) = (&run.decision, run.own_member()) else { return Ok(None) };
    let Some(slot) = own.plan.sharing.mig_slot() else { return Ok(None) };
    // What a run did beside another says neither how fast it is there nor how much room it has.
    if !own.plan.sharing.mechanism().meets_nobody() {
        return Ok(None);
    }
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
        ran_out_of_memory: has_surely_run_out(run),
        speed_fraction: measured.map(|measured| measured.speed_fraction).filter(|speed| *speed > 0.0),
    }))
}
