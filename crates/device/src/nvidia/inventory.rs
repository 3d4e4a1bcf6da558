//! Which devices there are: asked of all of them at once, each by a thread that stays its own.

use super::thread::{self, Question};
use super::{Finder, Nvidia};
use crate::DeviceError;
use crate::worker::{Answer, Pending};
use pillion_core::device::DeviceDescription;
use std::collections::btree_map::Entry;

impl Nvidia {
    fn begin_to_find<T>(
        &mut self,
        finder: Finder,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<Pending<T>, DeviceError> {
        let finder = match self.finders.entry(finder) {
            Entry::Occupied(entry) if entry.get().is_alive() => entry.into_mut(),
            entry => entry.insert_entry(thread::start(&self.settings, &self.library, None)?).into_mut(),
        };
        finder.begin(question)
    }

    /// Finds out which devices there are, all at once; those that hang are waited for together.
    pub(super) fn find(&mut self) -> Result<(), DeviceError> {
        let count = self.begin_to_find(Finder::Count, Question::Count).and_then(Pending::wait)?;
        let asked: Vec<_> = (0..count)
            .map(|place| {
                (place, self.begin_to_find(Finder::Device(place), |answer| Question::Describe(place, answer)))
            })
            .collect();
        let mut failure = None;
        for (place, pending) in asked {
            match pending.and_then(Pending::wait) {
                Ok(description) => self.found(place, description),
                Err(error) => {
                    self.not_described(place, &error);
                    failure.get_or_insert(error);
                }
            }
        }
        failure.filter(|_| self.known.is_empty()).map_or(Ok(()), Err)
    }

    /// Finds out how the devices reach each other, where nobody has yet. That it cannot be told is no reason to know nothing of the
    /// devices: the next search asks again.
    pub(super) fn find_links(&mut self) {
        if self.has_links || self.known.len() < 2 {
            return;
        }
        let found = self.begin_to_find(Finder::Links, Question::Links).and_then(Pending::wait);
        self.finders.retain(|_, finder| finder.is_busy());
        match found {
            Ok(links) => {
                self.has_links = true;
                for (one, other, link) in links {
                    for (own, its) in [(one, other), (other, one)] {
                        self.known.get_mut(&own).map(|device| device.links.insert(its, link));
                    }
                }
            }
            Err(error) => {
                let error = pillion_core::report(&error);
                tracing::warn!(error, "how the devices reach each other cannot be told");
            }
        }
    }

    /// Whoever found a new device is its thread from now on: NVML counts anew after a device was lost, and who was known by
    /// an index keeps it.
    fn found(&mut self, place: u32, description: DeviceDescription) {
        self.nameless.remove(&place);
        let index = description.index;
        let is_known = self.known.values().any(|known| known.uuid == description.uuid);
        if is_known || self.known.contains_key(&index) {
            return;
        }
        self.known.insert(index, description);
        self.has_links = false;
        self.threads.extend(self.finders.remove(&Finder::Device(place)).map(|finder| (index, finder)));
    }

    /// Tells it once: it is asked for again and again.
    fn not_described(&mut self, place: u32, error: &DeviceError) {
        let why = pillion_core::report(error);
        // A thread that hangs says so in other words when it is asked again.
        let is_new =
            self.nameless.get(&place).is_none_or(|reported| *reported != why && !error.is_transient());
        if is_new {
            tracing::warn!(index = place, error = why, "device cannot be described");
            self.nameless.insert(place, why);
        }
    }
}
