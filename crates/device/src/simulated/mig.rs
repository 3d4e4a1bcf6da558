//! MIG on one simulated device: what it is divided into, and what its driver lets anybody do about that. Pure; as strict as drivers
//! are said to be, so that what an agent does wrong shows.
//!
//! * An instance lies where nothing else lies, at a start of its size; there is none with MIG off.
//! * It is not destroyed while a process is in it or a program keeps the device open, nor for a moment after its last process
//!   ended; its compute instance goes before it, also where it then stays itself.
//! * MIG is turned over while nobody is there and nothing is made; on an Ampere by a reset alone, which nobody can do here.
//! * The files that lead to an instance are open to everybody when its number is first given out. They outlive it, closed to all but
//!   root, as whatever destroys one leaves them ([`MigControl`](crate::MigControl)); one that is not destroyed is whose it was.

use super::hardware::{Hardware, Power};
use crate::DeviceError;
use crate::mechanism::mig::{Access, ComputeInstance, Instance, Layout, MigMode};
use pillion_core::mig::{Geometry, Size, Slot, needs_reset};
use pillion_core::{DeviceUuid, UserId};
use std::collections::BTreeMap;

/// Whose the way to an instance is: owner and mode of its capability files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Their owner.
    pub uid: UserId,
    /// Their permissions.
    pub mode: u32,
}

impl Way {
    /// As a driver makes them.
    pub const OPEN: Self = Self { uid: UserId(0), mode: 0o444 };

    /// Whether a user may go it.
    pub const fn lets_in(self, uid: UserId) -> bool {
        uid.0 == 0 || (uid.0 == self.uid.0 && self.mode & 0o400 != 0) || self.mode & 0o004 != 0
    }
}

impl From<Access> for Way {
    fn from(access: Access) -> Self {
        let (uid, mode) = access.owner_and_mode();
        Self { uid: UserId(uid), mode }
    }
}

/// An instance on a device.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) slot: Slot,
    pub(super) gpu_instance_id: u32,
    /// Absent after a destroy that took no more than the compute instance.
    pub(super) uuid: Option<DeviceUuid>,
    /// Seconds at which its last process ended.
    pub(super) left_at: Option<f64>,
}

/// MIG on one device.
#[derive(Debug, Clone)]
pub(super) struct Division {
    index: u32,
    geometry: Geometry,
    needs_reset: bool,
    is_on: bool,
    pub(super) made: Vec<Made>,
    /// By the number of the GPU instance.
    pub(super) ways: BTreeMap<u32, Way>,
    made_count: u64,
}

/// Who is on the device when something is asked of it.
#[derive(Clone, Copy)]
pub(super) struct Presence<'a> {
    /// The pids in an instance, or, on a whole device, on it.
    pub(super) pids: &'a dyn Fn(Option<u32>) -> Vec<u32>,
    /// Whether a program has it open without being a process on it.
    pub(super) is_held: bool,
    /// The seconds for which a destroy is refused after a process ended.
    pub(super) busy_seconds: f64,
    pub(super) now: f64,
}

impl Division {
    /// `None` for a model that has no MIG.
    pub(super) fn new(index: u32, model: &str, is_on: bool) -> Option<Self> {
        let geometry = Geometry::of_model(model)?.clone();
        let needs_reset = needs_reset(model);
        Some(Self {
            index,
            geometry,
            needs_reset,
            is_on,
            made: Vec::new(),
            ways: BTreeMap::new(),
            made_count: 0,
        })
    }

    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) const fn needs_reset(&self) -> bool {
        self.needs_reset
    }

    pub(super) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) fn by_id(&self, gpu_instance_id: u32) -> Option<&Made> {
        self.made.iter().find(|made| made.gpu_instance_id == gpu_instance_id)
    }

    pub(super) fn layout(&self, presence: Presence<'_>) -> Layout {
        let instances = self.made.iter().map(|made| instance(made, presence)).collect();
        Layout { mode: if self.is_on { MigMode::On } else { MigMode::Off }, instances }
    }

    pub(super) fn make(&mut self, slot: Slot, name: &DeviceUuid) -> Result<Instance, DeviceError> {
        let index = self.index;
        if !self.is_on {
            return Err(DeviceError::Refused { index, reason: "MIG is off".to_owned() });
        }
        let is_there = self.geometry.size(slot.profile).is_some_and(|size| size.starts.contains(&slot.start));
        if !is_there {
            return Err(DeviceError::Refused { index, reason: format!("there is no {slot} on it") });
        }
        let all: Vec<Slot> = self.made.iter().map(|made| made.slot).chain([slot]).collect();
        if let Err(why) = self.geometry.check(&all) {
            return Err(DeviceError::Busy { index, reason: format!("Insufficient Resources: {why}") });
        }
        let free = |id: &u32| self.by_id(*id).is_none();
        let gpu_instance_id = (1..=64).find(free).unwrap_or_default();
        self.made_count += 1;
        self.ways.entry(gpu_instance_id).or_insert(Way::OPEN);
        let digits = format!("{:08x}-{:04x}", self.made_count, gpu_instance_id);
        let name = name.as_str().trim_start_matches("GPU-");
        let uuid = DeviceUuid::new(format!("MIG-{digits}-{}", name.get(14..).unwrap_or(name)));
        let made = Made { slot, gpu_instance_id, uuid: Some(uuid), left_at: None };
        self.made.push(made.clone());
        let nobody = Presence { pids: &|_| Vec::new(), is_held: false, busy_seconds: 0.0, now: 0.0 };
        Ok(instance(&made, nobody))
    }

    pub(super) fn destroy(
        &mut self,
        gpu_instance_id: u32,
        presence: Presence<'_>,
    ) -> Result<(), DeviceError> {
        let index = self.index;
        let busy =
            |reason: &str| DeviceError::Busy { index, reason: format!("In use by another client: {reason}") };
        let pids = (presence.pids)(Some(gpu_instance_id));
        let Some(made) = self.made.iter_mut().find(|made| made.gpu_instance_id == gpu_instance_id) else {
            return Ok(());
        };
        if !pids.is_empty() {
            return Err(busy("a process is in it"));
        }
        if made.left_at.is_some_and(|left_at| presence.now - left_at < presence.busy_seconds) {
            return Err(busy("a process has just ended"));
        }
        made.uuid = None;
        if presence.is_held {
            return Err(busy("a program has it open"));
        }
        self.made.retain(|made| made.gpu_instance_id != gpu_instance_id);
        self.ways.insert(gpu_instance_id, Way::from(Access::Root));
        Ok(())
    }

    pub(super) fn set_mode(&mut self, is_on: bool, presence: Presence<'_>) -> Result<(), DeviceError> {
        let index = self.index;
        if self.is_on == is_on {
            return Ok(());
        }
        if self.needs_reset {
            let reason = "MIG is turned over there by a reset of the GPU".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        }
        if presence.is_held || !self.made.is_empty() || !(presence.pids)(None).is_empty() {
            return Err(DeviceError::Busy { index, reason: "In use by another client".to_owned() });
        }
        self.is_on = is_on;
        Ok(())
    }

    pub(super) fn set_way(&mut self, gpu_instance_id: u32, way: Way) -> Result<(), DeviceError> {
        if self.by_id(gpu_instance_id).is_none() {
            let reason = format!("there is no GPU instance {gpu_instance_id}");
            return Err(DeviceError::Refused { index: self.index, reason });
        }
        self.ways.insert(gpu_instance_id, way);
        Ok(())
    }

    /// A process that was in it has ended.
    pub(super) fn was_left(&mut self, gpu_instance_id: u32, now: f64) {
        if let Some(made) = self.made.iter_mut().find(|made| made.gpu_instance_id == gpu_instance_id) {
            made.left_at = Some(now);
        }
    }
}

fn instance(made: &Made, presence: Presence<'_>) -> Instance {
    let compute = made.uuid.iter().map(|uuid| ComputeInstance { id: 0, uuid: uuid.clone() }).collect();
    let pids = (presence.pids)(Some(made.gpu_instance_id));
    Instance { slot: made.slot, gpu_instance_id: made.gpu_instance_id, compute, pids }
}

/// The part of a device that an instance is, as a device of its own: so many of its units, so much of its memory, and of bandwidth
/// and cache what its memory slices are of all. Measured on an A100 the speed in an instance falls between that of its units and that
/// of its bandwidth, by what the work is bound by, which is what becomes of these numbers. Of the watts it has what its units and its
/// bandwidth draw; what the device draws at rest is drawn once.
pub(super) fn slice(whole: &Hardware, geometry: &Geometry, size: &Size) -> Hardware {
    let of_memory = f64::from(size.memory_slices) / f64::from(geometry.whole().memory_slices);
    let unit_count = size.sm_count.min(whole.unit_count).max(1);
    let of_units = f64::from(unit_count) / whole.units();
    let Power { awake_watts, busy_watts, issue_watts, stall_watts, memory_watts, watts_max, .. } =
        whole.power;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bytes"
    )]
    let memory_bytes = size.memory_bytes.unwrap_or((whole.memory_bytes as f64 * of_memory) as u64);
    Hardware {
        memory_bytes: memory_bytes.min(whole.memory_bytes),
        unit_count,
        memory_bytes_per_second: whole.memory_bytes_per_second * of_memory,
        cache_bytes_per_second: whole.cache_bytes_per_second * of_memory,
        cache_bytes: whole.cache_bytes * of_memory,
        power: Power {
            idle_watts: 0.0,
            awake_watts: awake_watts * of_units,
            busy_watts: busy_watts * of_units,
            issue_watts: issue_watts * of_units,
            stall_watts: stall_watts * of_units,
            memory_watts: memory_watts * of_memory,
            watts_max: (watts_max - whole.power.idle_watts) * of_units,
        },
        ..whole.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";

    fn slot(text: &str) -> Slot {
        text.parse().unwrap()
    }

    fn present(pids: &dyn Fn(Option<u32>) -> Vec<u32>, is_held: bool, now: f64) -> Presence<'_> {
        Presence { pids, is_held, busy_seconds: 0.3, now }
    }

    fn nobody(_: Option<u32>) -> Vec<u32> {
        Vec::new()
    }

    #[test]
    fn instances_lie_where_nothing_lies_and_only_with_mig_on() {
        let mut device = Division::new(0, "h100", false).unwrap();
        let uuid = DeviceUuid::new(UUID);
        assert!(matches!(device.make(slot("1g.10gb@0"), &uuid), Err(DeviceError::Refused { .. })));
        device.set_mode(true, present(&nobody, false, 0.0)).unwrap();
        let made = device.make(slot("3g.40gb@4"), &uuid).unwrap();
        assert!(made.compute[0].uuid.as_str().starts_with("MIG-"), "{made:?}");
        assert!(matches!(device.make(slot("1g.10gb@4"), &uuid), Err(DeviceError::Busy { .. })));
        assert!(matches!(device.make(slot("3g.40gb@1"), &uuid), Err(DeviceError::Refused { .. })));
        assert!(matches!(device.make(slot("3g.20gb@0"), &uuid), Err(DeviceError::Refused { .. })));
        assert!(device.set_mode(false, present(&nobody, false, 0.0)).is_err(), "something is made");
        let other = device.make(slot("1g.10gb@0"), &uuid).unwrap();
        assert_ne!(other.compute, made.compute);
    }

    #[test]
    fn nothing_is_destroyed_under_a_process_nor_right_after_it() {
        let mut device = Division::new(0, "h100", true).unwrap();
        let made = device.make(slot("1g.10gb@0"), &DeviceUuid::new(UUID)).unwrap();
        let id = made.gpu_instance_id;
        let somebody = |of: Option<u32>| if of == Some(id) { vec![9] } else { Vec::new() };
        let is_busy = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Busy { .. }));
        assert!(is_busy(device.destroy(id, present(&somebody, false, 1.0))));
        assert_eq!(device.layout(present(&somebody, false, 1.0)).instances[0].pids, [9]);
        device.was_left(id, 2.0);
        assert!(is_busy(device.destroy(id, present(&nobody, false, 2.2))));
        assert_eq!(device.layout(present(&nobody, false, 2.2)).instances[0].compute.len(), 1, "all of it");
        assert!(is_busy(device.destroy(id, present(&nobody, true, 3.0))));
        assert_eq!(device.layout(present(&nobody, true, 3.0)).instances[0].compute.len(), 0, "half of it");
        device.set_way(id, Way::from(Access::User(UserId(1000)))).unwrap();
        assert!(is_busy(device.destroy(id, present(&nobody, true, 3.0))));
        assert!(device.ways[&id].lets_in(UserId(1000)), "it is still his");
        device.destroy(id, present(&nobody, false, 3.0)).unwrap();
        device.destroy(id, present(&nobody, false, 3.0)).unwrap();
        assert!(device.set_way(id, Way::OPEN).is_err(), "it is gone");
        let again = device.make(slot("7g.80gb@0"), &DeviceUuid::new(UUID)).unwrap();
        let way = device.ways[&again.gpu_instance_id];
        assert!(!way.lets_in(UserId(1001)) && !way.lets_in(UserId(1000)), "nor its tenant's before");
    }

    #[test]
    fn an_ampere_is_not_turned_over_and_a_hopper_while_nobody_is_there() {
        let mut ampere = Division::new(0, "a100-40", false).unwrap();
        let refused = ampere.set_mode(true, present(&nobody, false, 0.0));
        assert!(matches!(refused, Err(DeviceError::Unsupported { .. })));
        ampere.set_mode(false, present(&nobody, true, 0.0)).unwrap();
        let mut hopper = Division::new(0, "h200", false).unwrap();
        let somebody = |_: Option<u32>| vec![9];
        assert!(hopper.set_mode(true, present(&somebody, false, 0.0)).is_err());
        assert!(hopper.set_mode(true, present(&nobody, true, 0.0)).is_err());
        hopper.set_mode(true, present(&nobody, false, 0.0)).unwrap();
        assert!(Division::new(0, "v100", false).is_none());
    }

    #[test]
    fn an_instance_is_a_smaller_device() {
        let whole = super::super::hardware::by_name("h100").unwrap();
        let geometry = Geometry::of_model("h100").unwrap();
        let of = |name: &str| slice(&whole, geometry, geometry.size(name.parse().unwrap()).unwrap());
        let all = of("7g.80gb");
        assert_eq!((all.unit_count, all.cache_bytes), (whole.unit_count, whole.cache_bytes));
        let one = of("1g.10gb");
        assert_eq!((one.unit_count, one.memory_bytes), (16, 9_984 << 20));
        assert!((one.memory_bytes_per_second * 8.0 - whole.memory_bytes_per_second).abs() < 1.0);
    }
}
