//! What operators do and ask for, in memory.

use super::MemoryStore;
use crate::store::operators::{change, drained_event, undrained_event};
use crate::store::{Drain, DrainChange, DrainPlace, Event, Operators, StoreError, Undrain};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// By place: the order of nodes, and of a node's devices after the node.
#[derive(Debug, Clone, Default)]
pub(super) struct Drains(BTreeMap<DrainPlace, Drain>);

impl Drains {
    pub(super) fn all(&self) -> Vec<Drain> {
        self.0.values().cloned().collect()
    }

    /// Gives the events that this makes.
    pub(super) fn drain(&mut self, orders: &[Drain]) -> (Vec<DrainChange>, Vec<Event>) {
        let (mut changes, mut events) = (Vec::new(), Vec::new());
        for order in orders {
            let before = self.0.get(&order.place);
            let change = change(before, order);
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
    pub(super) fn undrain(&mut self, order: &Undrain) -> (Vec<bool>, Vec<Event>) {
        let mut events = Vec::new();
        let opened = order.places.iter().map(|place| {
            let was_drained = self.0.remove(place).is_some();
            events.extend(was_drained.then(|| undrained_event(place, order)));
            was_drained
        });
        (opened.collect(), events)
    }
}

#[async_trait]
impl Operators for MemoryStore {
    async fn drains(&self) -> Result<Vec<Drain>, StoreError> {
        self.with("reading what is drained", |state| state.drains.all())
    }

    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError> {
        self.with("draining", |state| {
            let (changes, events) = state.drains.drain(orders);
            state.events.extend(events);
            if changes.contains(&DrainChange::Begun) {
                state.bump();
            }
            changes
        })
    }

    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError> {
        self.with("undraining", |state| {
            let (opened, events) = state.drains.undrain(order);
            state.events.extend(events);
            if opened.contains(&true) {
                state.bump();
            }
            opened
        })
    }
}
