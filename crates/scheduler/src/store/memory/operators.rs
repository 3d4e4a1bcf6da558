//! What operators do and ask for, in memory.

use super::super::operators::{change, drained_event, undrained_event};
use super::super::{
    Drain, DrainChange, DrainPlace, Event, EventFilter, LIST_LIMIT_DEFAULT, Requeue, Undrain,
};
use super::state::State;
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

impl State {
    pub(super) fn evict(&mut self, requeue: &Requeue, event: &Event) -> bool {
        let is_new = self.faults.intend(requeue);
        if is_new {
            self.events.push(event.clone());
        }
        is_new
    }

    pub(super) fn drain(&mut self, orders: &[Drain]) -> Vec<DrainChange> {
        let (changes, events) = self.drains.drain(orders);
        self.events.extend(events);
        if changes.contains(&DrainChange::Begun) {
            self.bump();
        }
        changes
    }

    pub(super) fn undrain(&mut self, order: &Undrain) -> Vec<bool> {
        let (opened, events) = self.drains.undrain(order);
        self.events.extend(events);
        if opened.contains(&true) {
            self.bump();
        }
        opened
    }

    pub(super) fn list_events(&self, filter: &EventFilter) -> Vec<Event> {
        let is_owned = |event: &Event, uid| {
            let job = event.job_id.and_then(|id| self.job(id));
            job.is_some_and(|job| job.uid == uid)
        };
        let is_at = |event: &Event| event.node.as_ref().is_some_and(|node| filter.nodes.contains(node));
        let is_of = |event: &Event| event.job_id.is_some_and(|id| filter.job_ids.contains(&id));
        let is_asked_for = |event: &&Event| {
            filter.since.is_none_or(|since| event.at >= since)
                && filter.until.is_none_or(|until| event.at < until)
                && (filter.nodes.is_empty() || is_at(event))
                && (filter.job_ids.is_empty() || is_of(event))
                && (filter.kinds.is_empty() || filter.kinds.contains(&event.kind))
                && filter.uid.is_none_or(|uid| is_owned(event, uid))
        };
        let mut found: Vec<Event> = self.events.iter().filter(is_asked_for).cloned().collect();
        found.sort_by(|a, b| a.at.seconds().total_cmp(&b.at.seconds()));
        let limit = if filter.limit == 0 { LIST_LIMIT_DEFAULT } else { filter.limit };
        let excess = found.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        found.split_off(excess)
    }
}
