//! Which instances can be added to those that are there, and where they then lie.

use super::{Geometry, Slot};
use std::collections::BTreeMap;

/// How many instances of each plain size could still be made, the largest first: what a layout leaves open.
type Room = Vec<usize>;

impl Geometry {
    /// Each instance of a plain size that could be made beside those that are there.
    pub fn additions(&self, taken: &[Slot]) -> Vec<Slot> {
        let places = self
            .plain()
            .flat_map(|size| size.starts.iter().map(|start| Slot { profile: size.profile, start: *start }));
        places.filter(|slot| self.check(&[taken, &[*slot]].concat()).is_ok()).collect()
    }

    /// Everything that could be added to what is there, as sets of plain sizes: each once, where it leaves most room for what may
    /// come, with its larger instances first, as they are to be made. The empty set is not among them.
    pub fn sets(&self, taken: &[Slot]) -> Vec<Vec<Slot>> {
        let mut found: BTreeMap<Vec<Slot>, (Room, Vec<Slot>)> = BTreeMap::new();
        self.extend(taken, &mut Vec::new(), &self.additions(taken), &mut found);
        found.into_values().map(|(_, slots)| slots).rev().collect()
    }

    /// The sets to which nothing can be added: none of them is a part of another. Twelve on an empty A100, four on an A30.
    pub fn maximal_sets(&self, taken: &[Slot]) -> Vec<Vec<Slot>> {
        let sets = self.sets(taken);
        let counts: Vec<Room> = sets.iter().map(|set| self.counts(set)).collect();
        let is_part = |one: &Room, of: &Room| one != of && one.iter().zip(of).all(|(one, of)| one <= of);
        let is_maximal: Vec<bool> =
            counts.iter().map(|one| !counts.iter().any(|other| is_part(one, other))).collect();
        sets.into_iter().zip(is_maximal).filter_map(|(set, is_maximal)| is_maximal.then_some(set)).collect()
    }

    /// How many instances of each plain size could be made one at a time beside these, the largest first.
    pub fn room(&self, slots: &[Slot]) -> Vec<usize> {
        self.counts(&self.additions(slots))
    }

    /// Adds each of the rest that still fits, and goes on from there.
    fn extend(
        &self,
        taken: &[Slot],
        added: &mut Vec<Slot>,
        rest: &[Slot],
        found: &mut BTreeMap<Vec<Slot>, (Room, Vec<Slot>)>,
    ) {
        for (index, slot) in rest.iter().enumerate() {
            added.push(*slot);
            let all = [taken, added.as_slice()].concat();
            if self.check(&all).is_ok() {
                let room = self.room(&all);
                let sizes = added.iter().map(|slot| Slot { start: 0, ..*slot }).collect();
                let entry = found.entry(sizes).or_insert_with(|| (room.clone(), added.clone()));
                if room > entry.0 {
                    *entry = (room, added.clone());
                }
                self.extend(taken, added, &rest[index + 1..], found);
            }
            added.pop();
        }
    }

    fn counts(&self, slots: &[Slot]) -> Room {
        let of_size = |profile| slots.iter().filter(|slot| slot.profile == profile).count();
        self.plain().map(|size| of_size(size.profile)).collect()
    }
}
