//! One job as its user sees it: the answer to `Job`, for `why` and `report`.

use super::{DecisionRow, EventRow, JobRow, some_positive, some_text};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::JobSummary;
use pillion_proto::v1 as wire;
use serde::Serialize;

/// A job and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobStory {
    /// Who and what.
    pub job: JobRow,
    /// Which start of it.
    pub restart_count: u32,
    /// Where; absent before it runs.
    pub node: Option<String>,
    /// When it started.
    pub started_at_seconds: Option<f64>,
    /// When it ended.
    pub ended_at_seconds: Option<f64>,
    /// completed, failed, ..; absent: it has not ended.
    pub ending: Option<String>,
    /// `memory=`.
    pub memory_bytes_declared: Option<u64>,
    /// The decision that this start came under, with its own row alone.
    pub decision: Option<DecisionRow>,
    /// What was measured of this start.
    pub run: Option<JobSummary>,
    /// How many others were beside it.
    pub neighbour_count: u32,
    /// How its workload runs alone.
    pub profile: Option<WorkloadProfile>,
    /// The part of its time alone in which power or heat held the clock down.
    pub throttled_fraction: Option<f64>,
    /// Speed of the whole run over its workload's speed alone.
    pub speed_fraction: Option<f64>,
    /// What made it slow, the greatest first.
    pub slow_causes: Vec<SlowCause>,
    /// What to do next time.
    pub advice: Option<String>,
    /// What happened to it.
    pub events: Vec<EventRow>,
    /// The scheduler's clock.
    pub now_seconds: f64,
    /// What this start taught of its workload; absent: nobody looked at it yet.
    pub lesson_kind: Option<LessonKind>,
    /// Why nothing.
    pub lesson_detail: Option<String>,
}

/// Whom it was, and what shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowCause {
    /// neighbour, own-phase or throttling.
    pub kind: String,
    /// One sentence.
    pub evidence: String,
}

impl JobStory {
    /// `None`: the job is not known to the caller.
    pub fn from_wire(response: wire::JobResponse) -> Option<Self> {
        let wire::JobResponse {
            found,
            job,
            restart_count,
            node,
            started_at_seconds,
            ended_at_seconds,
            ending,
            memory_bytes_declared,
            decision,
            run,
            neighbour_count,
            profile_json,
            throttled_fraction,
            speed_fraction,
            slow_causes,
            advice,
            events,
            now_seconds,
            lesson_kind,
            lesson_detail,
        } = response;
        let cause = |wire::SlowCause { kind, evidence }| SlowCause { kind, evidence };
        Some(Self {
            job: job.filter(|_| found)?.into(),
            restart_count,
            node: some_text(node),
            started_at_seconds: started_at_seconds.and_then(some_positive),
            ended_at_seconds: ended_at_seconds.and_then(some_positive),
            ending: some_text(ending),
            memory_bytes_declared,
            decision: decision.map(DecisionRow::from),
            // What a later scheduler measured in another way is left out, as what was not measured.
            run: run.and_then(|run| JobSummary::try_from(run).ok()),
            neighbour_count,
            profile: serde_json::from_str(&profile_json).ok(),
            throttled_fraction,
            speed_fraction,
            slow_causes: slow_causes.into_iter().map(cause).collect(),
            advice: some_text(advice),
            events: events.into_iter().map(EventRow::from).collect(),
            now_seconds,
            lesson_kind: lesson_kind.parse().ok(),
            lesson_detail: some_text(lesson_detail),
        })
    }

    /// How long this start has run.
    pub fn elapsed_seconds(&self) -> Option<f64> {
        let until = self.ended_at_seconds.unwrap_or(self.now_seconds);
        Some((until - self.started_at_seconds?).max(0.0))
    }

    /// The part of its time on the device that it was beside others.
    pub fn shared_fraction(&self) -> Option<f64> {
        let run = self.run.as_ref()?;
        let seconds = run.ended_at.seconds_since(run.started_at);
        (seconds > 0.0).then(|| (run.shared_seconds / seconds).clamp(0.0, 1.0))
    }
}
