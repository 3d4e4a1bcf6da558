//! What is to be done next with one device, from what it is divided into, what of that is ours, and who is to have what. Pure.
//!
//! ```text
//!  empty: whole ──► MIG on (where it is off) ──► an instance a tenant ──► who has left goes ──► whole again
//! ```
//!
//! One act at a time, and the device is looked at again after each: whoever stops between two of them leaves something from which
//! the next act is found. Nothing is done to an instance that is not ours, and none is destroyed that is wanted.

use super::record::{Made, OfDevice, Ours, Tenant};
use pillion_core::mig::{Geometry, Slot};
use pillion_device::mechanism::mig::{Instance, Layout, MigMode};
use std::collections::BTreeSet;

/// An instance that somebody is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub slot: Slot,
    /// Who; of several of one user who share it, the first.
    pub tenant: Tenant,
    /// Whether others of his user may be in it, or come.
    pub is_shared: bool,
    /// Whether it is made where it is not there. Not for one whose tasks have gone, and who is only not forgotten yet.
    pub is_to_be_made: bool,
}

/// How a device is to be when nobody has an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Whole: MIG off where we turned it on, else in the one instance that is all of it.
    Whole,
    /// MIG off, and in no instance: somebody is to share it in another way.
    Off,
}

/// What the driver has refused since the device was last looked at afresh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// To make these.
    pub make: BTreeSet<Slot>,
    /// To destroy these.
    pub destroy: BTreeSet<Slot>,
    /// To end the daemons of these, which somebody else was to have.
    pub hand: BTreeSet<Slot>,
    /// To turn MIG on.
    pub on: bool,
    /// To turn it off.
    pub off: bool,
}

/// All that is known of one device.
#[derive(Debug)]
pub struct View<'a> {
    /// What it can be cut into.
    pub geometry: &'a Geometry,
    /// What it is divided into.
    pub layout: &'a Layout,
    /// What of that is ours.
    pub record: &'a OfDevice,
    /// Who is to have what.
    pub wanted: &'a [Wanted],
    /// What it is to be when that is nobody.
    pub rest: Rest,
    /// Whether MIG may be turned on.
    pub may_turn_on: bool,
    /// What was refused.
    pub refused: &'a Refused,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// It is not there any more, or was never made: out of the record.
    Forget(Slot),
    /// An earlier agent made it and could not say so any more.
    Adopt(Slot, Made),
    /// From now on it is to go, whether the driver lets it at once or not.
    Leave(Slot),
    /// It was to go, is whole still, and somebody wants it.
    Stay(Slot),
    /// It is somebody else's from now on; absent: the device rests in it.
    Hand(Slot, Option<Tenant>),
    /// To be destroyed, by the driver's number.
    Destroy(Slot, u32),
    /// To be made.
    Make(Slot, Option<Tenant>),
    /// MIG on.
    TurnOn,
    /// MIG off.
    TurnOff,
    /// It is off: no mode of ours any more.
    ForgetMode,
}

/// Why nothing more can be done, though not all is as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// All is as it should be.
    Done,
    /// Somebody else has cut it too.
    Foreign(Vec<Slot>),
    /// MIG was told to change, and does so at the next reset.
    Pending,
    /// MIG is off and may not be turned on.
    Off,
    /// One that is in the way is used by somebody.
    Occupied(Slot),
    /// What the driver refused is in the way.
    Refused,
}

/// What is next.
///
/// # Errors
/// [`Stop`] when there is nothing to do, or nothing that can be done.
pub fn next(view: &View<'_>) -> Result<Act, Stop> {
    let mut entries = view.record.ours.iter();
    if let Some(act) = entries.find_map(|ours| of_entry(view, ours)) {
        return Ok(act);
    }
    let foreign = view.record.foreign(view.layout);
    if !foreign.is_empty() {
        return Err(Stop::Foreign(foreign.into_iter().map(|instance| instance.slot).collect()));
    }
    if view.layout.mode == MigMode::Pending {
        return Err(Stop::Pending);
    }
    if view.wanted.is_empty() { rest(view) } else { serve(view) }
}

/// What is to become of the instance at a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// There is to be none.
    Gone,
    /// It is to be there, for somebody; without one the device rests in it.
    There(Option<Tenant>),
}

fn wish(view: &View<'_>, slot: Slot) -> Wish {
    match view.wanted.iter().find(|wanted| wanted.slot == slot) {
        Some(wanted) => Wish::There(Some(wanted.tenant)),
        None if view.wanted.is_empty() && slot == whole(view.geometry) && rests_whole(view) => {
            Wish::There(None)
        }
        None => Wish::Gone,
    }
}

/// The instance that is all of a device.
pub fn whole(geometry: &Geometry) -> Slot {
    let size = geometry.whole();
    Slot { profile: size.profile, start: size.starts.first().copied().unwrap_or(0) }
}

/// Whether an empty device is to rest in one instance rather than with MIG off. Where MIG could not be turned off it does, until
/// somebody has had it: with MIG on and nothing made it would be no CUDA device at all.
fn rests_whole(view: &View<'_>) -> bool {
    if view.layout.mode == MigMode::Off {
        return false;
    }
    let does = || {
        view.record
            .at(whole(view.geometry))
            .is_some_and(|ours| ours.tenant.is_none() && is_intact(view, ours))
    };
    !view.record.is_mode_ours || view.refused.off || (view.rest == Rest::Whole && does())
}

/// Whether all of an instance is there.
fn is_intact(view: &View<'_>, ours: &Ours) -> bool {
    ours.made.is_some() && ours.find(view.layout).is_some_and(|instance| instance.compute.len() == 1)
}

/// What one entry of the record calls for.
fn of_entry(view: &View<'_>, ours: &Ours) -> Option<Act> {
    let slot = ours.slot;
    let Some(instance) = ours.find(view.layout) else {
        let is_coming = ours.made.is_none()
            && !ours.is_leaving
            && !view.refused.make.contains(&slot)
            && wish(view, slot) != Wish::Gone;
        return (!is_coming).then_some(Act::Forget(slot));
    };
    let wish = wish(view, slot);
    if ours.is_leaving {
        if wish != Wish::Gone && is_intact(view, ours) {
            return Some(Act::Stay(slot));
        }
        let is_refused = view.refused.destroy.contains(&slot);
        return (!is_refused).then_some(Act::Destroy(slot, instance.gpu_instance_id));
    }
    match (&ours.made, instance.compute.as_slice()) {
        // Half of an instance is of no use to anybody.
        (_, [] | [_, _, ..]) => Some(Act::Leave(slot)),
        _ if wish == Wish::Gone => Some(Act::Leave(slot)),
        (None, [compute]) => {
            let Instance { gpu_instance_id, .. } = *instance;
            Some(Act::Adopt(slot, Made { uuid: compute.uuid.clone(), gpu_instance_id }))
        }
        (Some(_), [_]) => {
            let is_free =
                !view.refused.hand.contains(&slot) && (instance.pids.is_empty() || goes_on(view, slot));
            match wish {
                Wish::There(tenant) if tenant != ours.tenant && is_free => Some(Act::Hand(slot, tenant)),
                Wish::There(_) | Wish::Gone => None,
            }
        }
    }
}

/// Whether an instance that several of one user share is his still, whichever of them was the first: the way to it is as it was, and
/// whoever is in it may stay.
pub fn goes_on(view: &View<'_>, slot: Slot) -> bool {
    let wanted = view.wanted.iter().find(|wanted| wanted.slot == slot && wanted.is_shared);
    let tenant = view.record.at(slot).and_then(|ours| ours.tenant);
    wanted.zip(tenant).is_some_and(|(wanted, tenant)| wanted.tenant.uid == tenant.uid)
}

/// Somebody is to have instances: MIG on, and the larger ones first, as drivers want it.
fn serve(view: &View<'_>) -> Result<Act, Stop> {
    let mut missing: Vec<&Wanted> = Vec::new();
    for wanted in view.wanted {
        let standing = view.record.at(wanted.slot).filter(|ours| ours.made.is_some() && !ours.is_leaving);
        match standing {
            Some(ours) if ours.tenant != Some(wanted.tenant) => return Err(Stop::Occupied(wanted.slot)),
            None if wanted.is_to_be_made => missing.push(wanted),
            Some(_) | None => {}
        }
    }
    if missing.is_empty() {
        return Err(Stop::Done);
    }
    if view.layout.mode == MigMode::Off {
        return match (view.may_turn_on, view.refused.on) {
            (true, false) => Ok(Act::TurnOn),
            (true, true) => Err(Stop::Refused),
            (false, _) => Err(Stop::Off),
        };
    }
    missing.sort_by_key(|wanted| std::cmp::Reverse(wanted.slot));
    let there: Vec<Slot> = view.layout.instances.iter().map(|instance| instance.slot).collect();
    let fits = |slot: Slot| view.geometry.check(&[there.as_slice(), &[slot]].concat()).is_ok();
    let makeable =
        missing.iter().find(|wanted| fits(wanted.slot) && !view.refused.make.contains(&wanted.slot));
    makeable.map(|wanted| Act::Make(wanted.slot, Some(wanted.tenant))).ok_or(Stop::Refused)
}

/// Nobody is: whole.
fn rest(view: &View<'_>) -> Result<Act, Stop> {
    if view.layout.mode == MigMode::Off {
        return if view.record.is_mode_ours { Ok(Act::ForgetMode) } else { Err(Stop::Done) };
    }
    let slot = whole(view.geometry);
    if !rests_whole(view) {
        // Those that are left could not be destroyed.
        return if view.layout.instances.is_empty() { Ok(Act::TurnOff) } else { Err(Stop::Refused) };
    }
    match view.layout.instances.as_slice() {
        [] if view.refused.make.contains(&slot) => Err(Stop::Refused),
        [] => Ok(Act::Make(slot, None)),
        [only] if only.slot == slot => match view.record.at(slot) {
            Some(ours) if ours.is_leaving => Err(Stop::Refused),
            Some(ours) if ours.tenant.is_some() => Err(Stop::Occupied(slot)),
            _ => Err(Stop::Done),
        },
        _ => Err(Stop::Refused),
    }
}
