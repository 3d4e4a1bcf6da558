//! How a job of a canary stands, by what the scheduler says of it, and by what Slurm says before it counts as over. Pure.

use super::plan::{Measured, Outcome, Run, Work};
use crate::characterize::campaign::{self, Outcome as Taught, RunStatus};
use crate::characterize::fate::{InSlurm, objection};
use pillion_api::JobStatus;
use pillion_core::profile::LessonKind;
use pillion_core::{CapStep, SlurmJobId, UnixTime};

/// A speed is told within moments of the lesson of its run; after this it will never be.
const UNTOLD_SECONDS_MAX: f64 = 30.0;

/// How a job stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Stands {
    /// It waits, runs, or has ended and is not measured yet: in one word, and why.
    Open(&'static str, String),
    Over(Outcome),
}

/// What Slurm makes of a job that counts as over. `is_known`: whether the scheduler knows it.
pub(super) fn judged(stands: Stands, is_known: bool, slurm: &InSlurm) -> Stands {
    objection(is_known, slurm).map_or(stands, from_alone)
}

/// How a job stands, by its status.
pub fn stands(run: &Run, job_id: SlurmJobId, job: Option<&JobStatus>, now: UnixTime) -> Stands {
    if matches!(run.work, Work::Alone { .. }) {
        let own =
            campaign::Run { cap: CapStep::WHOLE, job_id, submitted_at: run.submitted_at, outcome: None };
        return from_alone(campaign::status(&own, job, None, now));
    }
    // Who waits for its begin may not be seen before.
    let since = run.begin.filter(|begin| *begin > run.submitted_at).unwrap_or(run.submitted_at);
    let (job, ending) = match campaign::ended(since, job, now) {
        Ok(over) => over,
        Err(stands) => return from_alone(stands),
    };
    if ending != "completed" {
        return from_alone(RunStatus::failed(&format!("it ended as {ending}; see what it printed")));
    }
    if job.lesson().is_none() {
        return from_alone(campaign::untaught(job));
    }
    if job.neighbour_count > 1 {
        return from_alone(RunStatus::failed(
            "a third job came to the same GPU; the same command tries both anew",
        ));
    }
    let measured = measured(job);
    let was_shared =
        job.lesson() == Some(LessonKind::Shared) || job.shared_fraction().is_some_and(|part| part > 0.0);
    if job.restart_count > 0 && !was_shared {
        // Its node went down, or somebody put it back into the queue: it was not decided so, it came to be so.
        return from_alone(RunStatus::failed(
            "it was started again, without its other; the same command tries both anew",
        ));
    }
    let since = job.ended_at_seconds.map_or(0.0, |ended| job.now_seconds - ended);
    if measured.speed_fraction.is_none() && was_shared && since < UNTOLD_SECONDS_MAX {
        return Stands::Open("ended", "its speed is on its way".to_owned());
    }
    Stands::Over(Outcome::Beside(measured))
}

fn from_alone(status: RunStatus) -> Stands {
    match status {
        RunStatus::Open { state, detail } => Stands::Open(state, detail),
        RunStatus::Over(Taught::Taught) => Stands::Over(Outcome::Alone),
        RunStatus::Over(Taught::Failed(why)) => Stands::Over(Outcome::Failed(why)),
    }
}

fn measured(job: &JobStatus) -> Measured {
    let member = job.member();
    Measured {
        group_id: job.decision.as_ref().map(|decision| decision.group_id),
        expected_speed_fraction: member.and_then(|member| member.predicted_speed_fraction),
        bound_speed_fraction: member.and_then(|member| member.predicted_speed_fraction_low),
        speed_fraction: member.and_then(|member| member.measured_speed_fraction),
        slowdown_ratio_max: member.and_then(|member| member.slowdown_ratio_max),
        reason: job.job.as_ref().map(|queued| queued.reason.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
