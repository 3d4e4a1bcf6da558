//! What shares want of a device that is cut, and whether that can lie on it. Pure.

use super::record::Tenant;
use super::step::Wanted;
use crate::mechanism::MechanismError;
use pillion_core::device::DeviceDescription;
use pillion_core::mig::Slot;
use pillion_core::share::Share;
use std::collections::{BTreeMap, BTreeSet};

/// What a share of an instance wants of its device.
pub(super) fn wanted_by(share: &Share, is_to_be_made: bool) -> Option<Wanted> {
    let tenant = Tenant { start: share.start, uid: share.uid };
    let is_shared = share.mechanism().has_daemon();
    share.sharing.mig_slot().map(|slot| Wanted { slot, tenant, is_shared, is_to_be_made })
}

/// What shares want of their device, each instance once: one that several share is told by the first of their starts, and made if
/// any of them needs it. That all of them are one user's is seen to where shares are admitted; should they ever not be, it is the first's.
pub(super) fn merged(wanted: impl Iterator<Item = Wanted>) -> Vec<Wanted> {
    let mut merged: BTreeMap<Slot, Wanted> = BTreeMap::new();
    for one in wanted {
        let known = merged.entry(one.slot).or_insert(one);
        known.is_to_be_made |= one.is_to_be_made && one.tenant.uid == known.tenant.uid;
        if one.tenant.uid == known.tenant.uid && one.tenant.start < known.tenant.start {
            known.tenant = one.tenant;
        }
    }
    merged.into_values().collect()
}

pub(super) fn refusal(device: &DeviceDescription, why: &str) -> MechanismError {
    MechanismError::NotCut { gres_type: device.gres_type.clone(), why: why.to_owned() }
}

/// Whether `share` can lie beside these on its device, by what the driver says of it. Pure.
///
/// # Errors
/// [`MechanismError`], which says why not.
pub(in crate::mechanism) fn check(
    device: &DeviceDescription,
    others: &[&Share],
    share: &Share,
    slot: Slot,
) -> Result<(), MechanismError> {
    let Some(geometry) = &device.geometry else {
        return Err(refusal(device, "it is not offered for that on this node ([agent.mig])"));
    };
    // Who shares it has it already: nobody else may.
    let is_beside =
        |other: &&&Share| share.mechanism().has_daemon() && other.sharing.mig_slot() == Some(slot);
    let (beside, apart): (Vec<&&Share>, Vec<&&Share>) = others.iter().partition(is_beside);
    let taken: BTreeSet<Slot> = apart.iter().filter_map(|other| other.sharing.mig_slot()).collect();
    let all: Vec<Slot> = taken.into_iter().chain([slot]).collect();
    geometry.check(&all).map_err(|why| refusal(device, &why.to_string()))?;
    let (profile, needed) = (slot.profile, geometry.shards(slot.profile));
    if share.mechanism().has_daemon() {
        let counts = beside.iter().map(|other| other.shards).chain([share.shards]);
        let booked: u32 = counts.map(|shards| u32::from(shards.count())).sum();
        let is_within = booked <= u32::from(needed.count());
        return if is_within {
            Ok(())
        } else {
            Err(MechanismError::SharedBeyond { profile, most: needed, booked })
        };
    }
    if share.shards != needed {
        return Err(MechanismError::OtherShards { profile, needed, booked: share.shards });
    }
    Ok(())
}
