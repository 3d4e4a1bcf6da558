//! What operators did: drains, and the question for events. Pure.

use super::{Event, StoreError};
use async_trait::async_trait;
use pillion_core::event::EventKind;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime, UserId};
use std::fmt;

/// What can be drained: a node, or one device of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainPlace {
    pub node: NodeName,
    /// The device; absent = all of the node.
    pub gres_type: Option<GresType>,
}

impl DrainPlace {
    /// Whether this device lies in it.
    pub fn covers(&self, node: &NodeName, gres_type: &GresType) -> bool {
        self.node == *node && self.gres_type.as_ref().is_none_or(|own| own == gres_type)
    }
}

impl fmt::Display for DrainPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gres_type {
            None => write!(f, "{}", self.node),
            Some(gres_type) => write!(f, "{}:{gres_type}", self.node),
        }
    }
}

/// A place that takes no new tenants because an operator said so. Who runs there goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Drain {
    pub place: DrainPlace,
    /// Who said so: a user name.
    pub by: String,
    /// Why, in his words.
    pub reason: String,
    /// Since when; who drains it again changes the reason and not this.
    pub since: UnixTime,
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drained by {}: {}", self.by, self.reason)
    }
}

/// What an order to drain a place did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainChange {
    /// It was open.
    Begun,
    /// It was drained, by another or for another reason.
    ReasonChanged,
    /// It was drained in the same words.
    Unchanged,
}

/// An order to open places again.
#[derive(Debug, Clone, PartialEq)]
pub struct Undrain {
    pub places: Vec<DrainPlace>,
    /// Who says so.
    pub by: String,
    /// Why, where he said.
    pub reason: Option<String>,
    pub at: UnixTime,
}

/// Why a device takes no new tenants: the drain of its node goes before its own.
pub fn drain_of<'a>(drains: &'a [Drain], node: &NodeName, gres_type: &GresType) -> Option<&'a Drain> {
    let mut covering = drains.iter().filter(|drain| drain.place.covers(node, gres_type));
    covering.clone().find(|drain| drain.place.gres_type.is_none()).or_else(|| covering.next())
}

/// How an order differs from what is in force there.
pub fn change(before: Option<&Drain>, order: &Drain) -> DrainChange {
    match before {
        None => DrainChange::Begun,
        Some(before) if before.by == order.by && before.reason == order.reason => DrainChange::Unchanged,
        Some(_) => DrainChange::ReasonChanged,
    }
}

/// The event of a drain that begins or is told anew, at the time of the order.
pub fn drained_event(order: &Drain) -> Event {
    event(EventKind::Drained, &order.place, order.since, order.to_string())
}

/// The event of a place that is open again.
pub fn undrained_event(place: &DrainPlace, order: &Undrain) -> Event {
    let why = order.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    event(EventKind::Undrained, place, order.at, format!("open again, by {}{why}", order.by))
}

fn event(kind: EventKind, place: &DrainPlace, at: UnixTime, detail: String) -> Event {
    let detail = match &place.gres_type {
        None => detail,
        Some(gres_type) => format!("{gres_type}: {detail}"),
    };
    Event { at, kind, job_id: None, node: Some(place.node.clone()), detail }
}

/// Which events to list; the newest, in the order of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventFilter {
    /// At or after.
    pub since: Option<UnixTime>,
    /// Events before this.
    pub until: Option<UnixTime>,
    /// On one of these nodes; empty: anywhere, and of no node.
    pub nodes: Vec<NodeName>,
    /// Of one of these jobs; empty: of any, and of none.
    pub job_ids: Vec<SlurmJobId>,
    /// Of one of these kinds; empty: of any.
    pub kinds: Vec<EventKind>,
    /// Of jobs of this user: what a user may see.
    pub uid: Option<UserId>,
    /// At most so many; 0 = [`super::LIST_LIMIT_DEFAULT`].
    pub limit: u32,
}

/// What operators closed.
#[async_trait]
pub trait Operators: Send + Sync {
    /// What is drained, in the order of places.
    async fn drains(&self) -> Result<Vec<Drain>, StoreError>;
    /// In one transaction: drains places, with an event for each that was not drained in the same words; says for each
    /// what changed. A new revision, where one was open.
    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError>;
    /// In one transaction: opens places again, with an event for each that was drained; says for each whether it was. A new
    /// revision, where one was.
    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(gres_type: Option<&str>, reason: &str) -> Drain {
        let place = DrainPlace { node: NodeName::new("n1"), gres_type: gres_type.map(GresType::new) };
        Drain { place, by: "alice".to_owned(), reason: reason.to_owned(), since: UnixTime::from_epoch(5) }
    }

    #[test]
    fn a_drain_of_the_node_holds_for_each_of_its_devices() {
        let drains = [drain(Some("g1"), "ecc"), drain(None, "fan noise")];
        let of = |node: &str, device: &str| {
            drain_of(&drains, &NodeName::new(node), &GresType::new(device)).map(ToString::to_string)
        };
        assert_eq!(of("n1", "g1").as_deref(), Some("drained by alice: fan noise"));
        assert_eq!(of("n1", "g2").as_deref(), Some("drained by alice: fan noise"));
        assert_eq!(of("n2", "g1"), None);
        let own = drain_of(&drains[..1], &NodeName::new("n1"), &GresType::new("g1"));
        assert_eq!(own.map(|drain| drain.reason.as_str()), Some("ecc"));
        assert!(drain_of(&drains[..1], &NodeName::new("n1"), &GresType::new("g0")).is_none());
    }

    #[test]
    fn an_event_names_the_device_and_who_said_so() {
        assert_eq!(drained_event(&drain(Some("g1"), "ecc")).detail, "g1: drained by alice: ecc");
        let order = |reason: Option<&str>| Undrain {
            places: Vec::new(),
            by: "bob".to_owned(),
            reason: reason.map(str::to_owned),
            at: UnixTime::from_epoch(9),
        };
        let place = drain(None, "").place;
        assert_eq!(undrained_event(&place, &order(None)).detail, "open again, by bob");
        assert_eq!(undrained_event(&place, &order(Some("new fan"))).detail, "open again, by bob: new fan");
    }
}
