//! What would have been done with a job, in one sentence for its user: nothing of whose the others are. Pure.

use pillion_core::UnixTime;
use pillion_core::shadow::ShadowOutcome;
use pillion_pairing::Role;
use pillion_store::{ShadowBeside, ShadowDecision, ShadowScore};

/// Of a start that was decided on. `started_at`: when Slurm started it, if it has.
pub(crate) fn sentence(
    decision: &ShadowDecision,
    score: Option<&ShadowScore>,
    started_at: Option<UnixTime>,
) -> String {
    let place = format!("{}'s GPU {}", decision.node, decision.gres_type);
    if decision.member.role != Role::Joiner {
        let why = decision.member.explanation.as_ref().map(|it| it.text.trim_end_matches('.').to_owned());
        let why = why.filter(|why| !why.is_empty()).map_or_else(String::new, |why| format!(": {why}"));
        return match decision.member.role {
            Role::Host => format!("it would have run on {place}, where others may join it{why}"),
            Role::Alone | Role::Joiner => format!("it would have had {place} to itself{why}"),
        };
    }
    let others = match decision.beside.len() {
        1 => "another job".to_owned(),
        count => format!("{count} other jobs"),
    };
    let sooner =
        started_at.map(|at| at.seconds_since(decision.decided_at)).filter(|seconds| *seconds >= 60.0);
    let sooner = sooner.map_or_else(String::new, |seconds| format!("{} sooner, ", span(seconds)));
    let speed = decision.member.estimate.as_ref().map(|it| (it.speed_fraction * 100.0).round());
    let speed =
        speed.map_or_else(String::new, |speed| format!(", at {speed} % of its speed alone as predicted"));
    let what = format!("it would have started {sooner}on {place} beside {others}{speed}");
    match score {
        None => what,
        Some(ShadowScore { outcome: ShadowOutcome::Scored, beside: Some(beside), .. }) => {
            format!("{what}; {}", told(beside))
        }
        Some(score) => format!("{what}; {}", score.outcome.text()),
    }
}

fn told(beside: &ShadowBeside) -> String {
    if beside.overlap_seconds < 1.0 {
        return "the other one had ended by then".to_owned();
    }
    format!("{}, and they would have been together for {}", beside.fit.text(), span(beside.overlap_seconds))
}

/// `3 h 20 min`, `45 s`.
fn span(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and no span is below zero"
    )]
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
