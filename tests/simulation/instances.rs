//! What MIG makes of a node's devices in the simulation: an agent that cuts, takes away what is empty, and is refused now and
//! then. Its driver keeps instances that it was told to take away until it is well again.

use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::share::Share;
use pillion_core::{GresType, JobStart, Shards, UnixTime, UserId};
use std::collections::{BTreeMap, BTreeSet};

/// An instance that is there.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    slot: Slot,
    /// Whose it is, or is to be: one's, or several of one user who share it.
    tenants: BTreeMap<JobStart, Tenant>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Tenant {
    uid: UserId,
    shares_it: bool,
    shards: Shards,
}

impl From<&Share> for Tenant {
    fn from(share: &Share) -> Self {
        Self { uid: share.uid, shares_it: share.mechanism().has_daemon(), shards: share.shards }
    }
}

impl Made {
    fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }
}

/// How the devices of a node are cut.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    made: BTreeMap<GresType, Vec<Made>>,
    /// Instances that somebody else has made: nobody touches them.
    foreign: BTreeMap<GresType, Slot>,
    /// Whether the driver refuses to take any away.
    pub(crate) refuses: bool,
    /// Whether the agent tells which stand empty where it cannot take them away.
    tells_empty: bool,
    /// How many were made, and how often the driver refused.
    pub(crate) made_count: usize,
    pub(crate) refused_count: usize,
    /// The most who shared one instance.
    pub(crate) together_max: usize,
}

impl Instances {
    pub(crate) fn new(foreign: BTreeMap<GresType, Slot>, tells_empty: bool) -> Self {
        Self { foreign, tells_empty, ..Self::default() }
    }

    fn of(&self, gres_type: &GresType) -> &[Made] {
        self.made.get(gres_type).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether anybody has one there, or is to have one.
    pub(crate) fn has_tenants(&self, gres_type: &GresType) -> bool {
        self.of(gres_type).iter().any(|made| !made.is_empty())
    }

    /// Makes an instance for a start, as its share says. What stands empty in its way is taken away first.
    pub(crate) fn give(
        &mut self,
        device: &DeviceDescription,
        slot: Slot,
        share: &Share,
    ) -> Result<(), String> {
        let (start, own) = (share.start, Tenant::from(share));
        let geometry = device.geometry.as_ref().ok_or("it cannot be cut")?;
        assert!(
            !self.foreign.contains_key(&device.gres_type),
            "a device with a foreign instance is nobody's to cut"
        );
        let made = self.made.entry(device.gres_type.clone()).or_default();
        if let Some(known) = made.iter().find(|made| made.tenants.contains_key(&start)) {
            return if known.slot == slot { Ok(()) } else { Err("it has another one".to_owned()) };
        }
        if let Some(standing) = made.iter_mut().find(|made| made.slot == slot) {
            let may_share = |other: &Tenant| other.uid == own.uid && other.shares_it && own.shares_it;
            assert!(
                standing.tenants.values().all(|other| other.uid == own.uid),
                "{start} is to share {slot} with another user"
            );
            if !standing.tenants.values().all(may_share) {
                return Err("it is another's".to_owned());
            }
            standing.tenants.insert(start, own);
            self.together_max = self.together_max.max(standing.tenants.len());
            return Ok(());
        }
        let taken: Vec<Slot> = made.iter().filter(|made| !made.is_empty()).map(|made| made.slot).collect();
        geometry.check(&[taken.as_slice(), &[slot]].concat()).map_err(|why| why.to_string())?;
        let all: Vec<Slot> = made.iter().map(|made| made.slot).collect();
        if geometry.check(&[all.as_slice(), &[slot]].concat()).is_err() {
            if self.refuses {
                self.refused_count += 1;
                return Err("held: what stands there cannot be taken away".to_owned());
            }
            made.retain(|made| !made.is_empty());
        }
        made.push(Made { slot, tenants: BTreeMap::from([(start, own)]) });
        self.made_count += 1;
        Ok(())
    }

    /// A start is over, or will not come: its instance is nobody's, and a device that is nobody's rests whole.
    pub(crate) fn take_back(&mut self, start: JobStart) {
        for made in self.made.values_mut().flatten() {
            made.tenants.remove(&start);
        }
        self.rest();
    }

    /// Makes whole what is nobody's.
    pub(crate) fn rest(&mut self) {
        for made in self.made.values_mut() {
            let is_empty = !made.is_empty() && made.iter().all(Made::is_empty);
            if is_empty && self.refuses {
                self.refused_count += 1;
            } else if is_empty {
                made.clear();
            }
        }
    }

    /// Somebody is to have all of a device: those who were to come and do not run yet have to be asked for anew. `false`: it
    /// cannot be made whole.
    pub(crate) fn make_whole(&mut self, gres_type: &GresType, runs: impl Fn(JobStart) -> bool) -> bool {
        for made in self.made.get_mut(gres_type).into_iter().flatten() {
            assert!(
                !made.tenants.keys().copied().any(&runs),
                "{gres_type} is given whole while somebody runs in {}",
                made.slot
            );
            made.tenants.clear();
        }
        self.rest();
        self.of(gres_type).is_empty()
    }

    /// How the devices are, as the agent tells.
    pub(crate) fn conditions(&self, devices: &[DeviceDescription], at: UnixTime) -> Vec<DeviceCondition> {
        let condition = |device: &DeviceDescription| {
            let gres_type = device.gres_type.clone();
            let empty: Vec<Slot> =
                self.of(&gres_type).iter().filter(|made| made.is_empty()).map(|made| made.slot).collect();
            let held = (self.refuses && !empty.is_empty()).then_some(FaultKind::Held);
            let divided = self.foreign.contains_key(&gres_type).then_some(FaultKind::Divided);
            let fault = |kind| DeviceFault { kind, detail: String::new(), since: at };
            DeviceCondition {
                faults: divided.into_iter().chain(held).map(fault).collect(),
                sources: BTreeMap::new(),
                instances_empty: if self.tells_empty { empty } else { Vec::new() },
                gres_type,
            }
        };
        devices.iter().map(condition).collect()
    }

    /// What must hold whatever happens. `runs`: each start that runs in an instance, with where it is.
    pub(crate) fn check(
        &self,
        devices: &[DeviceDescription],
        runs: &[(JobStart, GresType, Slot)],
        is_agent_alive: bool,
    ) {
        for device in devices {
            let made = self.of(&device.gres_type);
            let slots: Vec<Slot> = made.iter().map(|made| made.slot).collect();
            let Some(geometry) = &device.geometry else {
                assert!(slots.is_empty(), "{} cannot be cut", device.gres_type);
                continue;
            };
            assert_eq!(geometry.check(&slots), Ok(()), "instances of {}", device.gres_type);
            check_shards(geometry, &slots);
            for Made { slot, tenants } in made {
                let users: BTreeSet<UserId> = tenants.values().map(|tenant| tenant.uid).collect();
                assert!(users.len() <= 1, "{slot} of {} has tenants of {users:?}", device.gres_type);
                let booked: u32 = tenants.values().map(|tenant| u32::from(tenant.shards.count())).sum();
                let all = u32::from(geometry.shards(slot.profile).count());
                assert!(booked <= all, "{slot} is {all} shards, and {booked} are booked: {tenants:?}");
            }
            let is_anybodys = made.iter().any(|made| !made.is_empty());
            let rests_whole = made.is_empty() || is_anybodys || self.refuses || !is_agent_alive;
            assert!(rests_whole, "{} is nobody's and does not rest whole: {made:?}", device.gres_type);
        }
        for (start, gres_type, slot) in runs {
            let mut here = self.of(gres_type).iter();
            let is_there = here.any(|made| made.slot == *slot && made.tenants.contains_key(start));
            assert!(is_there, "the instance of {start} is gone before it: {slot}");
        }
    }
}

fn check_shards(geometry: &Geometry, slots: &[Slot]) {
    let shards: u32 = slots.iter().map(|slot| u32::from(geometry.shards(slot.profile).count())).sum();
    assert!(shards <= 100, "{slots:?} come to {shards} shards");
}
