//! What was not believed, by node: reported as an event now and then, so that nobody fills the events with it.

use super::doubt::Doubt;
use pillion_core::event::EventKind;
use pillion_core::{NodeName, UnixTime};
use pillion_store::Event;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// At most one event of a node in so long.
const EVENT_PAUSE: Duration = Duration::from_mins(10);
/// More nodes than this are not told apart: their names come from Hellos.
const NODES_MAX: usize = 10_000;

/// Since the last event of a node.
#[derive(Debug, Clone, Copy)]
struct Since {
    reported_at: UnixTime,
    count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Distrust(Mutex<BTreeMap<NodeName, Since>>);

impl Distrust {
    /// Something that a node reported is not believed: the event to keep, if it is time for one.
    pub(crate) fn of(&self, node: &NodeName, what: &str, doubt: Doubt, now: UnixTime) -> Option<Event> {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= NODES_MAX && !nodes.contains_key(node) {
            return None;
        }
        let before = nodes.get(node).copied();
        let is_due = before.is_none_or(|since| now >= since.reported_at + EVENT_PAUSE);
        let count = before.map_or(0, |since| since.count) + 1;
        let reported_at = before.filter(|_| !is_due).map_or(now, |since| since.reported_at);
        nodes.insert(node.clone(), Since { reported_at, count: if is_due { 0 } else { count } });
        is_due.then(|| {
            let more =
                if count > 1 { format!(" ({count} since the last word of this)") } else { String::new() };
            Event {
                at: now,
                kind: EventKind::ReportDropped,
                job_id: None,
                node: Some(node.clone()),
                detail: format!("{what} was not believed: {}{more}", doubt.phrase()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_now_and_then_and_says_how_many_there_were() {
        let (distrust, node) = (Distrust::default(), NodeName::new("n1"));
        let reported = |seconds: u64| {
            let now = UnixTime::from_epoch(1000 + seconds);
            distrust.of(&node, "a summary of 7+0", Doubt::OtherNode, now).map(|event| event.detail)
        };
        let first = reported(0).unwrap();
        assert_eq!(first, "a summary of 7+0 was not believed: Slurm says that it ran on another node");
        assert_eq!((reported(1), reported(599)), (None, None));
        assert!(reported(600).unwrap().ends_with("(3 since the last word of this)"));
        let other = distrust.of(&NodeName::new("n2"), "a launch", Doubt::Times, UnixTime::from_epoch(1001));
        assert!(other.is_some(), "each node has its own");
    }
}
