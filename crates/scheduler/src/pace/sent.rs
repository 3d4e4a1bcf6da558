//! What is written down of a promise that is being broken: events, and the intent to send a guest back. Pure. Each text is read by
//! the user of its job, and tells nothing of who is beside it.

use super::estimate::{Estimate, Ground};
use super::guest::Stays;
use pillion_core::event::EventKind;
use pillion_core::{JobStart, NodeName, UnixTime};
use pillion_store::{Event, Member, Requeue, RequeueCause};

const REASON: &str = "a promise was being broken on its GPU, and it had come last";
const REASON_OF_TRIAL: &str =
    "a trial: it was let in to see whether every promise is kept on its GPU, and one was not";

const REASON_OF_GUEST: &str = "a promise was being broken on its GPU, and it is a guest";

/// That a tenant is slower than it was promised.
pub(super) fn breaking(
    start: JobStart,
    node: &NodeName,
    at: UnixTime,
    (estimate, slowdown_ratio_max): (&Estimate, f64),
    is_trial: bool,
) -> Event {
    let Estimate { speed_fraction, error_fraction, seconds, ground } = *estimate;
    let by = match ground {
        Ground::Counter => "its progress counter",
        Ground::Activity => "what its GPU does",
    };
    let trial = if is_trial { " (a trial, which has to be 2 % faster)" } else { "" };
    let detail = format!(
        "it goes at {speed_fraction:.2} of its speed alone (give or take {error_fraction:.2}, by {by} over {seconds:.0} s), and was \
         promised {:.2}{trial}; nobody joins it there any more",
        1.0 / slowdown_ratio_max
    );
    event(start, node, at, EventKind::PromiseBreaking, detail)
}

/// How somebody came to be where a promise is being broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CameAs {
    /// After the others.
    Joiner,
    /// For a trial.
    Trial,
    /// It was submitted as a guest.
    Guest,
}

/// The intent to start a guest again, and the event that tells of it.
pub(super) fn sent_back(guest: &Member, node: &NodeName, at: UnixTime, came: CameAs) -> (Requeue, Event) {
    let start = guest.plan.start;
    let (reason, how) = match came {
        CameAs::Joiner => (REASON, "alone"),
        CameAs::Trial => (REASON_OF_TRIAL, "alone"),
        CameAs::Guest => (REASON_OF_GUEST, "as a guest"),
    };
    let requeue = Requeue {
        cause: if came == CameAs::Guest { RequeueCause::MadeRoom } else { RequeueCause::SentBack },
        start,
        node: node.clone(),
        decided_at: at,
        reason: reason.to_owned(),
    };
    let detail = format!("{reason}; it is to be ended and started again, {how}");
    (requeue, event(start, node, at, EventKind::SentBack, detail))
}

/// That a guest stays all the same.
pub(super) fn stays(guest: &Member, node: &NodeName, at: UnixTime, why: Stays) -> Event {
    let detail = format!("a promise is being broken on its GPU, and it had come last; it stays: {why}");
    event(guest.plan.start, node, at, EventKind::NotSentBack, detail)
}

fn event(start: JobStart, node: &NodeName, at: UnixTime, kind: EventKind, detail: String) -> Event {
    Event { at, kind, job_id: Some(start.job_id), node: Some(node.clone()), detail }
}
