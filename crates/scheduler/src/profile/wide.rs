//! What a start on several devices teaches. Its first device tells of it, once all were heard of, with the most that any of them did: a
//! gang is as fast as its slowest rank, so whoever shares its devices has to get on with the busiest one, and needs as much memory as
//! the one that needs most.

use super::{Joining, joining};
use pillion_core::UnixTime;
use pillion_core::report::{ActivityMeans, JobSummary};
use pillion_store::{MeasuredRun, Store, StoreError};
use std::borrow::Cow;

/// How long the others are waited for after its end: an agent tells of all of them at once.
const HEARD_SECONDS_MAX: f64 = 60.0;

/// The run, with what its other devices say where it tells of them; or why it teaches nothing.
pub(super) type Heard<'r> = Result<Cow<'r, MeasuredRun>, &'static str>;

/// What was heard of all devices of a start; `None`: the others may still come.
///
/// # Errors
/// Those of the store.
pub(super) async fn heard<'r>(
    store: &dyn Store,
    run: &'r MeasuredRun,
    now: UnixTime,
) -> Result<Option<Heard<'r>>, StoreError> {
    let named = run.gres_types();
    if named.len() < 2 || run.is_told_by_another() {
        return Ok(Some(Ok(Cow::Borrowed(run))));
    }
    let mut others = store.summaries(run.summary.start).await?;
    others.retain(|other| other.gres_type != run.summary.gres_type && named.contains(&other.gres_type));
    if others.len() + 1 < named.len() {
        let is_late = now.seconds_since(run.summary.ended_at) > HEARD_SECONDS_MAX;
        return Ok(is_late.then_some(Err("one of its GPUs was not heard of")));
    }
    let summary = others.iter().fold(run.summary.clone(), with_other);
    Ok(Some(Ok(Cow::Owned(MeasuredRun { summary, ..run.clone() }))))
}

/// One more of its devices: of each value the greater.
fn with_other(own: JobSummary, other: &JobSummary) -> JobSummary {
    let memory_bytes_peak = most_bytes([&own, other], |one| one.memory_bytes_peak);
    let process_memory_bytes_peak = most_bytes([&own, other], |one| one.process_memory_bytes_peak);
    JobSummary {
        memory_bytes_peak,
        process_memory_bytes_peak,
        process_count_peak: own.process_count_peak.max(other.process_count_peak),
        solo_means: own.solo_means.map(|means| most(means, other.solo_means.as_ref())),
        ..own
    }
}

/// Of a device that some process used and nobody could say how much of, nothing is known.
fn most_bytes(both: [&JobSummary; 2], of: impl Fn(&JobSummary) -> Option<u64>) -> Option<u64> {
    let is_known = both.iter().all(|one| one.process_count_peak == 0 || of(one).is_some());
    both.into_iter().filter_map(of).max().filter(|_| is_known)
}

fn most(ActivityMeans(mut own): ActivityMeans, other: Option<&ActivityMeans>) -> ActivityMeans {
    for (metric, value) in other.iter().flat_map(|other| other.0.iter()) {
        let is_more = own.get(metric).is_none_or(|own| value.value > own);
        match joining(metric, own.source(metric), value.source) {
            Joining::Anew => own.put(metric, value),
            Joining::Mean if is_more => own.put(metric, value),
            Joining::Mean | Joining::Nothing => {}
        }
    }
    ActivityMeans(own)
}

#[cfg(test)]
mod tests;
