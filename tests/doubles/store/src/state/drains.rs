//! What is remembered of drains.

use pillion_store::changes::{drained_event, of_drain, undrained_event};
use pillion_store::{Drain, DrainChange, DrainPlace, Event, Undrain};
use std::collections::BTreeMap;

/// By place: the order of nodes, and of a node's devices after the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drains(BTreeMap<DrainPlace, Drain>);

impl Drains {
    pub(crate) fn all(&self) -> Vec<Drain> {
        self.0.values().cloned().collect()
    }

    /// Gives the events that this makes.
    pub(crate) fn drain(&mut self, orders: &[Drain]) -> (Vec<DrainChange>, Vec<Event>) {
        let (mut changes, mut events) = (Vec::new(), Vec::new());
        for order in orders {
            let before = self.0.get(&order.place);
            let change = of_drain(before, order);
            if change != DrainChange::Unchanged {
                let since = before.map_or(order.since, |before| before.since);
                self.0.insert(order.place.clone(), Drain { since, ..order.clone() });
                events.push(drained_event(order));
            }
            changes.push(change);
        }
        (changes, events)
    }

    /// Gives the events that this makes.
    pub(crate) fn undrain(&mut self, order: &Undrain) -> (Vec<bool>, Vec<Event>) {
        let mut events = Vec::new();
        let opened = order.places.iter().map(|place| {
            let was_drained = self.0.remove(place).is_some();
            events.extend(was_drained.then(|| undrained_event(place, order)));
            was_drained
        });
        (opened.collect(), events)
    }
}
