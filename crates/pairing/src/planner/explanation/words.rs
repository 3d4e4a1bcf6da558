//! The sentences of an explanation that are about this start, and not about a rule alone.

use crate::mig::SliceSpeed;
use crate::plan::{Candidate, Reason};
use crate::planner::candidates::Evaluation;
use crate::planner::placement::Instance;
use crate::policy::JobRules;
use crate::view::Tenant;
use pillion_core::mig::Slot;
use pillion_core::{Fraction, SlowdownRatio};

/// Of more than these not each one's speed is told.
const SPEEDS_NAMED_MAX: usize = 4;

/// A job whose user has it measured under a cap.
pub(super) fn measured_text(cap: Fraction) -> String {
    format!("starts alone with {:.0} % of the device: {}", cap.value() * 100.0, Reason::MeasuredAlone.text())
}

/// An interactive job that guests may come to.
pub(super) const SESSION_TEXT: &str =
    "starts alone, and guests may join while it leaves the device idle: it is interactive";

/// What a tenant is called that has something to itself; `None` of any other.
pub(super) fn host_text(tenant: &Tenant) -> Option<String> {
    if tenant.session.is_some() {
        return Some(
            "an interactive job that leaves the device idle, and goes as soon as it does not".to_owned(),
        );
    }
    let minutes = tenant.first_run.as_ref()?.measured_seconds / 60.0;
    Some(format!("the first run of a workload, measured alone for {minutes:.0} minutes"))
}

/// Why a job starts here and so. `host`: beside whom, where that is no job as any other.
pub(super) fn member_text(
    reason: Reason,
    evaluation: Option<&Evaluation>,
    best: Option<&Candidate>,
    host: Option<String>,
) -> String {
    let estimates = evaluation.iter().flat_map(|evaluation| evaluation.estimates.iter());
    let speeds = speeds_text(estimates.map(|own| own.speed_fraction));
    let gain = evaluation.map_or(0.0, |evaluation| evaluation.gain);
    match reason {
        Reason::Paired => format!("shares a device: expected speeds {speeds} of solo, gain {gain:.2}"),
        Reason::Joined => {
            let host = host.unwrap_or_else(|| "a running job".to_owned());
            format!("joins {host}: expected speeds {speeds} of solo, gain {gain:.2}")
        }
        Reason::Trial => {
            let keep = evaluation
                .and_then(|evaluation| evaluation.trial)
                .map_or(0.0, |trial| trial.keep_probability);
            format!(
                "a trial: shares a device, every promise is kept with a probability of {:.0} %, and whoever came last goes back \
                 if not; expected speeds {speeds} of solo, gain {gain:.2}",
                100.0 * keep
            )
        }
        Reason::AloneJoinable => match best.and_then(|candidate| candidate.excluded_by) {
            None => "starts alone, and others may join: there was nobody to share with".to_owned(),
            Some(why) => {
                format!("starts alone, and others may join; beside the best partner: {}", why.text())
            }
        },
        Reason::FirstRun => {
            "starts alone, and others may join once its first minutes were measured: nothing is known of the \
             workload on this device model yet"
                .to_owned()
        }
        Reason::PromiseAtRisk => {
            "starts alone with the whole device: a part of it would slow the job more than promised"
                .to_owned()
        }
        other => format!("starts alone with the whole device: {}", other.text()),
    }
}

/// Of many, who are copies then, the slowest stands for all.
fn speeds_text(speeds: impl Iterator<Item = f64>) -> String {
    let speeds: Vec<f64> = speeds.collect();
    if speeds.len() > SPEEDS_NAMED_MAX {
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        return format!("{slowest:.2} or more (of {})", speeds.len());
    }
    let speeds: Vec<String> = speeds.iter().map(|speed| format!("{speed:.2}")).collect();
    speeds.join(" and ")
}

/// A job that has an instance to itself.
pub(super) fn instance_text(instance: Instance, promise: SlowdownRatio) -> String {
    let Instance { slot, speed, is_tried, together: _ } = instance;
    let how = if speed.is_measured() { "measured" } else { "foretold" };
    let less = if is_tried { ", once with less memory than it held at most (restart=yes)" } else { "" };
    format!(
        "starts in an instance of its own, {slot}{less}: speed {:.2} of solo ({how}), where {:.2} is promised",
        speed.speed_fraction,
        promise.value().recip()
    )
}

/// A job that shares an instance with another of its user.
pub(super) fn shared_instance_text(slot: Slot, speed: SliceSpeed, promise: SlowdownRatio) -> String {
    format!(
        "shares the instance {slot} with another job of its user, by MPS: expected speed {:.2} of solo, where {:.2} is promised",
        speed.speed_fraction,
        promise.value().recip()
    )
}

/// With which part of the site's policy was applied to the job, where one is for some jobs only.
pub(super) fn with_rules(text: String, rules: Option<JobRules>) -> String {
    match rules.and_then(|rules| rules.from_override) {
        Some(number) => format!("{text} (by the site's policy.override[{number}])"),
        None => text,
    }
}
