//! How fast a shared run went, by the job's own counter or by how long it took.

use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{JobSummary, ProgressPart};
use pillion_core::units::SPEED_FRACTIONS;
use pillion_slurm::Ending;
use pillion_store::MeasuredRun;
use std::ops::RangeInclusive;

/// A run is solo if at most this part of it was shared.
const SHARED_FRACTION_MAX: f64 = 0.02;
/// Durations tell a speed only where they vary by less than this (docs/principles.md#outcomes-are-measured-or-unknown).
const DURATION_VARIATION_MAX: f64 = 0.10;
/// A speed that may be this far off tells nothing: the shared part was too short beside what the durations vary by.
const SPEED_DEVIATION_MAX: f64 = 0.2;
/// Progress a second that is believed: a job may write anything into its counter.
const RATES: RangeInclusive<f64> = 1e-9..=1e15;

/// How fast a shared run went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredSpeed {
    /// Against the workload's solo runs.
    pub(super) speed_fraction: f64,
    /// One standard deviation of it, from how much the solo runs vary; not known of a counter.
    pub(super) deviation: Option<f64>,
    /// It comes from the job's own counter.
    pub(super) is_self_reported: bool,
}

impl MeasuredSpeed {
    fn is_possible(&self) -> bool {
        SPEED_FRACTIONS.contains(&self.speed_fraction)
    }
}

/// How fast a run went that did not have its device alone, against the workload's solo runs; `None` where that is not known. In an
/// instance that is all of the run, whoever else was on the device.
pub(super) fn measured_speed(run: &MeasuredRun, profile: Option<&WorkloadProfile>) -> Option<MeasuredSpeed> {
    let summary = &run.summary;
    let (part, seconds) = if run.is_in_instance() {
        (together(summary), summary.ended_at.seconds_since(summary.started_at))
    } else if is_solo(run) {
        return None;
    } else {
        (summary.shared, summary.shared_seconds)
    };
    let profile = profile?;
    let by_progress = speed_by_progress(&part, profile).filter(MeasuredSpeed::is_possible);
    by_progress.or_else(|| speed_by_duration(run, seconds, profile).filter(MeasuredSpeed::is_possible))
}

/// How far it came in all, in the seconds in which it counted.
fn together(summary: &JobSummary) -> ProgressPart {
    let counted = || [&summary.solo, &summary.shared].into_iter().filter(|part| part.progress.is_some());
    ProgressPart {
        progress: counted().next().map(|_| counted().filter_map(|part| part.progress).sum()),
        seconds: counted().map(|part| part.seconds).sum(),
    }
}

/// By the job's own counter, against the rate at which its workload goes alone.
fn speed_by_progress(part: &ProgressPart, profile: &WorkloadProfile) -> Option<MeasuredSpeed> {
    let rate_alone = profile.throughput_per_second.filter(|rate| is_rate(*rate))?;
    let speed_fraction = rate_of(part)? / rate_alone;
    Some(MeasuredSpeed { speed_fraction, deviation: None, is_self_reported: true })
}

/// By how long the whole job took, against how long its workload takes alone. `seconds`: in which it did not have all of its device.
fn speed_by_duration(run: &MeasuredRun, seconds: f64, profile: &WorkloadProfile) -> Option<MeasuredSpeed> {
    let solo_seconds = profile.duration_seconds?;
    let variation = profile.duration_variation_fraction.filter(|part| *part < DURATION_VARIATION_MAX)?;
    if run.job.ending != Some(Ending::Completed) || seconds <= 0.0 {
        return None;
    }
    // Alone it went at full speed: the rest of its work was done in those seconds.
    let elapsed = run.summary.ended_at.seconds_since(run.summary.started_at);
    let alone = (elapsed - seconds).max(0.0);
    let speed_fraction = (solo_seconds - alone) / seconds;
    let deviation = variation * solo_seconds / seconds;
    let is_known = deviation <= SPEED_DEVIATION_MAX;
    is_known.then_some(MeasuredSpeed { speed_fraction, deviation: Some(deviation), is_self_reported: false })
}

/// How long a run beside others would have taken alone: what it counted at the rate of its workload alone, and the time in which it did
/// not count. `None` where it did not complete, or no counter tells it.
pub(super) fn alone_seconds(run: &MeasuredRun, profile: &WorkloadProfile) -> Option<f64> {
    let part = together(&run.summary);
    let speed = speed_by_progress(&part, profile).filter(MeasuredSpeed::is_possible)?;
    let elapsed = run.summary.ended_at.seconds_since(run.summary.started_at);
    let seconds = (elapsed - part.seconds).max(0.0) + part.seconds * speed.speed_fraction;
    (run.job.ending == Some(Ending::Completed)).then_some(seconds)
}

/// How fast a job counted; `None` where it did not, or by what nobody can count.
pub(crate) fn rate_of(part: &ProgressPart) -> Option<f64> {
    part.progress.map(|progress| progress / part.seconds).filter(|rate| is_rate(*rate))
}

fn is_rate(rate: f64) -> bool {
    RATES.contains(&rate)
}

pub(super) fn is_solo(run: &MeasuredRun) -> bool {
    let elapsed = run.summary.ended_at.seconds_since(run.summary.started_at);
    run.summary.shared_seconds <= SHARED_FRACTION_MAX * elapsed
}
