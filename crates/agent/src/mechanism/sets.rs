//! Devices that one MPS daemon serves together: a tenant that uses several is a client of one daemon, so who joins has just these. No device
//! has two daemons, so what an earlier tenancy left of another one goes first.

use super::undo::Undo;
use super::{MechanismError, Mechanisms};
use pillion_core::share::Share;
use pillion_core::{GresType, GresTypes};
use pillion_device::{Backend, MpsControl, MpsPlace};
use tracing::debug;

impl Mechanisms {
    /// Ends the daemons of others' devices that nobody wants any more where they are in the way of one of `wanted`.
    pub(super) fn make_way(
        &mut self,
        backend: &mut dyn Backend,
        wanted: &GresTypes,
    ) -> Result<(), MechanismError> {
        let is_in_the_way = |other: &&GresTypes| {
            *other != wanted
                && other.count() + wanted.count() > 2
                && other.iter().any(|own| wanted.contains(own))
        };
        let others: Vec<GresTypes> = self.draining.keys().filter(is_in_the_way).cloned().collect();
        for other in others {
            if let Some(place) = self.place(&other) {
                backend.mps_on(place.index)?.release(&place)?;
            }
            self.draining.remove(&other);
        }
        Ok(())
    }

    /// What the daemon of these devices serves; `None`: one of them was never here.
    fn place(&self, gres_types: &GresTypes) -> Option<MpsPlace> {
        let indexes: Option<Vec<u32>> = gres_types.iter().map(|own| self.indexes.get(own).copied()).collect();
        let (index, beside) = indexes.as_deref()?.split_first()?;
        Some(MpsPlace::set(*index, beside.to_vec()))
    }

    /// Lets the daemons of sets drain that an earlier agent left and nobody holds a share of. Asked until the driver has answered.
    pub(super) fn find_sets(&mut self, backend: &mut dyn Backend, shares: &[Share]) {
        if self.has_found_sets {
            return;
        }
        let found = backend.mps().map_or_else(|| Ok(Vec::new()), MpsControl::sets);
        let sets = match found {
            Ok(sets) => sets,
            Err(error) => {
                debug!(error = %pillion_core::report(&error), "which MPS daemons serve several devices is not known yet");
                return;
            }
        };
        self.has_found_sets = true;
        for place in sets {
            let names: Option<Vec<GresType>> = place.indexes().map(|index| self.gres_type(index)).collect();
            let Some(set) = names.and_then(|names| GresTypes::try_new(names).ok()) else { continue };
            let is_held = |share: &Share| share.device_groups().contains(&set);
            if !shares.iter().any(is_held) {
                self.draining.insert(set, Undo::default());
            }
        }
    }

    fn gres_type(&self, index: u32) -> Option<GresType> {
        self.indexes.iter().find(|(_, own)| **own == index).map(|(gres_type, _)| gres_type.clone())
    }
}

#[cfg(test)]
mod tests;
