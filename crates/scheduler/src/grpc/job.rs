//! One job as its user sees it: what is stored of it, with what `analysis` makes of that. Neighbours are never named here,
//! whoever asks (docs/principles.md#who-may-share); `explain` names them to operators.

use super::auth::Caller;
use super::{idle, listing};
use crate::analysis::{self, AdviceFacts, RunSeen, Usual};
use pillion_api as api;
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{JobSummary, ProgressPart};
use pillion_core::{Fraction, JobStart, NodeName, UnixTime};
use pillion_slurm::{Ending, Job};
use pillion_store::{Decision, Event, JobRecord, Lesson, Member, ObservedJob, Store, StoreError};
use std::collections::BTreeMap;

/// Collects the answer about `record`, which the caller may see. `queue_row`: its place in the queue, while it waits.
pub(super) async fn status(
    store: &dyn Store,
    record: JobRecord,
    queue_row: Option<api::QueueJob>,
    caller: Caller,
    now: UnixTime,
) -> Result<api::JobStatus, StoreError> {
    let start = JobStart { job_id: record.id, restart_count: record.restart_count };
    let decision = decision_of(store, start).await?;
    let member = decision.as_ref().and_then(|decision| decision.members.first());
    let summary = store.summary(start).await?;
    let profile = match &decision {
        Some(decision) => store.profile(&record.workload, &decision.device_model).await?,
        None => None,
    };
    let profile = profile.map(|stored| stored.profile);
    // While it was alone: over all its time nobody adds it up, and the samples of a long run are too many to read here.
    let throttled_fraction =
        summary.as_ref().and_then(|run| run.solo_means.as_ref()?.0.fraction(Metric::Throttles));
    let throttled_fraction = throttled_fraction.map(f64::from);
    let seen = run_seen(&record, member, summary.as_ref(), profile.as_ref(), throttled_fraction);
    let lesson = store.lesson(start).await?;
    let events = store.events(record.id).await?;
    let causes = analysis::slow_causes(&seen);
    let advice = advice_facts(&record, member, summary.as_ref(), profile.as_ref(), &events)
        .and_then(|facts| analysis::advise(&AdviceFacts { causes: &causes, ..facts }));
    let users = BTreeMap::from([(record.id, record.user.clone())]);
    Ok(api::JobStatus {
        restart_count: record.restart_count,
        node: record.node.as_ref().map(ToString::to_string),
        started_at_seconds: record.started_at.and_then(listing::known),
        ended_at_seconds: record.ended_at.and_then(listing::known),
        ending: record.ending.map(|ending| ending.as_str().to_owned()),
        memory_bytes_declared: record.memory_bytes_declared,
        decision: decision.as_ref().map(|decision| listing::decision(decision, &users, caller)),
        neighbour_count: summary
            .as_ref()
            .map_or(0, |run| u32::try_from(run.neighbours.len()).unwrap_or(u32::MAX)),
        run: summary.map(|run| JobSummary { neighbours: Vec::new(), signs: None, ..run }.into()),
        profile: profile.as_ref().map(api::Profile::from),
        throttled_fraction,
        speed_fraction: analysis::speed_fraction(&seen),
        slow_causes: causes.into_iter().map(slow_cause).collect(),
        advice,
        events: events.into_iter().map(listing::event_row).collect(),
        now_seconds: now.seconds(),
        lesson_kind: lesson.as_ref().map(|lesson| lesson.kind.to_string()),
        lesson_detail: lesson.and_then(|lesson| listing::some_text(lesson.detail)),
        held_devices: Vec::new(),
        rightsizing: Vec::new(),
        shadow: None,
        job: Some(queue_row.unwrap_or_else(|| listing::past_job(&record))),
    })
}

/// The answer about a start that is only observed: nothing was decided of it, and nobody was put beside it.
pub(super) fn observed_status(job: &ObservedJob, lesson: Option<Lesson>, now: UnixTime) -> api::JobStatus {
    let state = job.ending.map_or("running", Ending::as_str);
    let state = if job.ending.is_none() && job.ended_at.is_some() { "ended" } else { state };
    let nodes: Vec<&str> = job.nodes.iter().map(NodeName::as_str).collect();
    api::JobStatus {
        restart_count: job.start.restart_count,
        node: Some(nodes.join(",")).filter(|nodes| !nodes.is_empty()),
        started_at_seconds: listing::known(job.started_at),
        ended_at_seconds: job.ended_at.and_then(listing::known),
        ending: job.ending.map(|ending| ending.as_str().to_owned()),
        now_seconds: now.seconds(),
        lesson_kind: lesson.as_ref().map(|lesson| lesson.kind.to_string()),
        lesson_detail: lesson.and_then(|lesson| listing::some_text(lesson.detail)),
        held_devices: idle::held_devices(job),
        job: Some(api::QueueJob {
            job_id: job.start.job_id.to_string(),
            user: job.user.clone(),
            account: job.account.clone(),
            partition: job.partition.clone(),
            workload: listing::some_text(job.workload.to_string()),
            workload_name: None,
            submitted_at_seconds: listing::known(job.submitted_at),
            starts_alone_at_seconds: None,
            state: state.to_owned(),
            reason: String::new(),
            slowdown_ratio_max: None,
        }),
        ..api::JobStatus::default()
    }
}

/// The answer about a job that waits in an observed partition: Slurm's own word for why.
pub(super) fn observed_waiting(job: &Job, now: UnixTime) -> api::JobStatus {
    api::JobStatus {
        restart_count: job.restart_count,
        now_seconds: now.seconds(),
        job: Some(api::QueueJob {
            job_id: job.id.to_string(),
            user: job.user.to_string(),
            account: job.account.to_string(),
            partition: job.partition.to_string(),
            submitted_at_seconds: listing::known(job.submitted_at),
            state: "waiting".to_owned(),
            reason: job.reason.to_string(),
            ..api::QueueJob::default()
        }),
        ..api::JobStatus::default()
    }
}

fn slow_cause(cause: analysis::SlowCause) -> api::SlowCause {
    api::SlowCause { kind: cause.kind.as_str().to_owned(), evidence: cause.evidence }
}

/// The newest decision that this start came under, or is to, with its own member alone.
async fn decision_of(store: &dyn Store, start: JobStart) -> Result<Option<Decision>, StoreError> {
    for mut decision in store.decisions_of(start.job_id).await? {
        let members = &mut decision.members;
        members.retain(|member| member.plan.start == start && member.state != MemberState::Undone);
        if !members.is_empty() {
            return Ok(Some(decision));
        }
    }
    Ok(None)
}

fn run_seen(
    record: &JobRecord,
    member: Option<&Member>,
    summary: Option<&JobSummary>,
    profile: Option<&WorkloadProfile>,
    throttled_fraction: Option<f64>,
) -> RunSeen {
    let elapsed = summary.map(|run| run.ended_at.seconds_since(run.started_at));
    let usual = profile.map_or_else(Usual::default, |profile| Usual {
        seconds: profile.duration_seconds,
        variation_fraction: profile.duration_variation_fraction,
        rate: profile.throughput_per_second,
        throttled_fraction: profile.metrics.get(Metric::Throttles),
    });
    RunSeen {
        completed_seconds: elapsed.filter(|_| record.ending == Some(Ending::Completed)),
        shared_fraction: summary.zip(elapsed).map_or(0.0, |(run, elapsed)| shared_fraction(run, elapsed)),
        shared_speed_fraction: member.and_then(|member| member.measured_speed_fraction),
        rate_alone: summary.and_then(|run| rate(run.solo)),
        rate_shared: summary.and_then(|run| rate(run.shared)),
        throttled_fraction,
        usual,
    }
}

/// Progress a second, and the seconds in which it was counted.
fn rate(part: ProgressPart) -> Option<(f64, f64)> {
    Some((part.progress? / part.seconds, part.seconds)).filter(|_| part.seconds > 0.0)
}

fn shared_fraction(run: &JobSummary, elapsed: f64) -> f64 {
    if elapsed > 0.0 { (run.shared_seconds / elapsed).clamp(0.0, 1.0) } else { 0.0 }
}

/// `None` while it has not ended.
fn advice_facts(
    record: &JobRecord,
    member: Option<&Member>,
    summary: Option<&JobSummary>,
    profile: Option<&WorkloadProfile>,
    events: &[Event],
) -> Option<AdviceFacts<'static>> {
    let own_active = summary.and_then(|run| run.solo_means.as_ref()?.0.fraction(Metric::SmActiveFraction));
    let active =
        own_active.or(profile.and_then(|profile| profile.metrics.fraction(Metric::SmActiveFraction)));
    Some(AdviceFacts {
        ending: record.ending?,
        is_out_of_device_memory: events.iter().any(|event| {
            event.kind == EventKind::OutOfMemory
                && record.started_at.is_some_and(|started_at| event.at >= started_at)
        }),
        has_shared: summary.is_some_and(|run| run.shared_seconds > 0.0),
        memory_bytes_peak: summary.and_then(|run| run.memory_bytes_peak),
        memory_bytes_declared: record.memory_bytes_declared,
        slowdown_ratio_max: member.map_or(f64::INFINITY, |member| member.plan.slowdown_ratio_max),
        shared_speed_fraction: member.and_then(|member| member.measured_speed_fraction),
        sm_active_fraction: active.map(Fraction::into),
        has_profile: profile.is_some_and(|profile| profile.run_count > 1),
        causes: &[],
    })
}

#[cfg(test)]
mod tests;
