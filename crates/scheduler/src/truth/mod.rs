//! What of an agent's word counts: only what Slurm says ran on that very node, within its times and within what a device can
//! do. Pure: who asks has the facts.
//!
//! ```text
//! report ─► verdict ─► counts ─► store
//!              ├─► not yet: Slurm was not scanned since; the agent keeps it and reports it again
//!              └─► dropped: counted by reason, an event of the node now and then (distrust)
//! ```

mod distrust;
mod doubt;
mod observed;
mod reporter;
mod samples;

pub(crate) use distrust::Distrust;
pub(crate) use doubt::Doubt;
pub(crate) use observed::observed_run;
pub(crate) use reporter::Reporter;
pub(crate) use samples::cleaned;

use crate::scan::Scan;
use pillion_core::metric::Metric;
use pillion_core::report::{JobSummary, Launch, ShareResult};
use pillion_core::{JobStart, NodeName, UnixTime};
use pillion_slurm::{Job, JobState};
use pillion_store::{Decision, SlurmStart};
use samples::POWER_WATTS_MAX;
use std::borrow::Cow;
use std::time::Duration;

/// How much what was counted up from samples a second apart may be beyond the time that it was counted in.
const SAMPLE_SECONDS: f64 = 2.0;
/// How long after something was reported a scan must have been taken to say that Slurm does not know of it.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// A start is reported no earlier before Slurm's own time for it: clocks are set by the second, and tasks begin after it.
const EARLY_SECONDS_MAX: f64 = 30.0;
/// Processes may outlive their job on a node that is slow to end them.
const LATE_SECONDS_MAX: f64 = 600.0;

/// What becomes of something that an agent reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is believed.
    Counts,
    /// Slurm was not scanned since: nobody can say yet.
    NotYet,
    /// It may be true, and is not kept: the job runs on several nodes, and this is not the first of them.
    PassedOver,
    /// It is not.
    Dropped(Doubt),
}

/// What Slurm says of a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'a> {
    /// Of a managed job's.
    pub(crate) start: Option<&'a SlurmStart>,
    /// The last scan.
    pub(crate) scan: Option<&'a Scan>,
}

impl<'a> Word<'a> {
    /// The job of that start as the last scan shows it, where it has begun.
    fn begun(&self, start: JobStart) -> Option<&'a Job> {
        let job = self.scan.and_then(|scan| scan.job_of(start));
        job.filter(|job| !matches!(job.state, JobState::Pending))
    }

    /// Where and when it ran. What a scan shows first is written a moment after it, later where the store was away: until then
    /// the scan itself is the word.
    fn start_of(&self, start: JobStart) -> Option<Cow<'a, SlurmStart>> {
        if let Some(start) = self.start {
            return Some(Cow::Borrowed(start));
        }
        let job = self.begun(start)?;
        let (node, started_at) = (job.nodes.first()?.clone(), job.started_at?);
        Some(Cow::Owned(SlurmStart { node, started_at, ended_at: job.ended_at }))
    }
}

/// A task that began: by our decision for that node, or where Slurm says.
pub(crate) fn launch(
    reported: &Launch,
    by: Reporter<'_>,
    word: Word<'_>,
    decision: Option<&Decision>,
) -> Verdict {
    // Slurm may have forgotten that it started a job: who was given it for this node is believed.
    if decision.is_some_and(|decision| gives(decision, reported.start, by.node)) {
        return Verdict::Counts;
    }
    where_it_ran(reported.start, reported.at, by, word)
}

/// A start that ended.
pub(crate) fn summary(reported: &JobSummary, by: Reporter<'_>, word: Word<'_>) -> Verdict {
    match where_it_ran(reported.start, reported.ended_at, by, word) {
        Verdict::Counts => {}
        other => return other,
    }
    let Some(start) = word.start_of(reported.start) else { return Verdict::NotYet };
    if !is_within(reported, by, &start) {
        return Verdict::Dropped(Doubt::Times);
    }
    // A device that is gone is not announced any more, and how its last job ended is reported all the same.
    let memory_bytes = by.devices.get(&reported.gres_type).copied().unwrap_or(0);
    doubt_of(reported, memory_bytes).map_or(Verdict::Counts, Verdict::Dropped)
}

/// An answer to a share.
pub(crate) fn share(reported: &ShareResult, node: &NodeName, decision: Option<&Decision>) -> Verdict {
    if decision.is_some_and(|decision| gives(decision, reported.start, node)) {
        Verdict::Counts
    } else {
        Verdict::Dropped(Doubt::OtherShare)
    }
}

fn gives(decision: &Decision, start: JobStart, node: &NodeName) -> bool {
    decision.node == *node && decision.members.iter().any(|member| member.plan.start == start)
}

fn where_it_ran(start: JobStart, at: UnixTime, by: Reporter<'_>, word: Word<'_>) -> Verdict {
    let runs_now = word.begun(start);
    let node = word.start.map(|start| &start.node).or_else(|| runs_now.and_then(|job| job.nodes.first()));
    match node {
        Some(node) if node == by.node => Verdict::Counts,
        Some(_) if runs_now.is_some_and(|job| job.nodes.contains(by.node)) => Verdict::PassedOver,
        Some(_) => Verdict::Dropped(Doubt::OtherNode),
        None => {
            let reported_at = by.seconds(at).min(by.now.seconds());
            let is_settled =
                word.scan.is_some_and(|scan| scan.at.seconds() >= reported_at + SETTLED_AFTER.as_secs_f64());
            if is_settled { Verdict::Dropped(Doubt::UnknownStart) } else { Verdict::NotYet }
        }
    }
}

fn is_within(reported: &JobSummary, by: Reporter<'_>, start: &SlurmStart) -> bool {
    let (from, until) = (by.seconds(reported.started_at), by.seconds(reported.ended_at));
    let end = start.ended_at.map_or(by.now.seconds(), UnixTime::seconds);
    from <= until
        && from >= start.started_at.seconds() - EARLY_SECONDS_MAX
        && until <= end.min(by.now.seconds()) + LATE_SECONDS_MAX
}

/// What of a summary cannot be, whoever reports it.
fn doubt_of(reported: &JobSummary, memory_bytes: u64) -> Option<Doubt> {
    let elapsed = reported.ended_at.seconds() - reported.started_at.seconds();
    let most = elapsed + SAMPLE_SECONDS;
    let seconds = [
        reported.shared_seconds,
        reported.shared_device_seconds.unwrap_or(0.0),
        reported.solo.seconds,
        reported.shared.seconds,
    ];
    let is_too_long = seconds.iter().any(|seconds| *seconds > most);
    if is_too_long {
        Some(Doubt::Seconds)
    } else if reported.energy_joules.is_some_and(|joules| joules > POWER_WATTS_MAX * most) {
        Some(Doubt::Energy)
    } else if memory_bytes > 0 && reported.memory_bytes_peak.is_some_and(|peak| peak > memory_bytes) {
        Some(Doubt::Memory)
    } else if reported
        .solo_means
        .as_ref()
        .and_then(|means| means.0.get(Metric::PowerWatts))
        .is_some_and(|watts| watts > POWER_WATTS_MAX)
    {
        Some(Doubt::Reading)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
