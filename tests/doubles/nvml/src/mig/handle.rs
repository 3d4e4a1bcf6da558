//! Handles of instances. Each is of one instance and of no later one, even if that has its number: NVML's become invalid with what
//! they are of.

use super::state::{Compute, Device, Instance};
use crate::library::Library;
use crate::pointer::Outcome;
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT;
use std::ptr;

/// The addresses of the first handles of each kind. Nothing stands there.
const MIG_DEVICES: usize = 0x6d69_0000;
const GPU_INSTANCES: usize = 0x6769_0000;
const COMPUTE_INSTANCES: usize = 0x6369_0000;
/// From one handle to the next, and how far they can go.
const STEP: usize = 0x40;
const SPAN: usize = 0x0100_0000;

/// What a handle may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A compute instance, as a device.
    MigDevice,
    GpuInstance,
    ComputeInstance,
}

impl Kind {
    fn first(self) -> usize {
        match self {
            Self::MigDevice => MIG_DEVICES,
            Self::GpuInstance => GPU_INSTANCES,
            Self::ComputeInstance => COMPUTE_INSTANCES,
        }
    }

    pub(crate) fn has(self, address: usize) -> bool {
        (self.first()..self.first() + SPAN).contains(&address)
    }
}

/// One instance: the place of its device, and the serial numbers of the GPU instance and, if it is one, of the compute instance;
/// those of the control file have no serial numbers, but places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    place: usize,
    instance: (u64, u32),
    compute: Option<(u64, u32)>,
}

impl Key {
    pub(crate) fn of(place: usize, instance: &Instance, compute: Option<&Compute>) -> Self {
        let compute = compute.map(|it| (it.serial, it.id));
        Self { place, instance: (instance.serial, instance.start), compute }
    }
}

impl Library {
    /// The handle of an instance.
    pub(crate) fn instance_handle<T>(&mut self, kind: Kind, key: Key) -> *mut T {
        let known = self.instance_handles.iter().position(|it| *it == key);
        let number = known.unwrap_or_else(|| {
            self.instance_handles.push(key);
            self.instance_handles.len() - 1
        });
        ptr::without_provenance_mut(kind.first() + number * STEP)
    }

    fn key(&self, kind: Kind, address: usize) -> Outcome<Key> {
        let offset = address.checked_sub(kind.first()).filter(|offset| offset % STEP == 0);
        let key = offset.and_then(|offset| self.instance_handles.get(offset / STEP));
        let is_right = |key: &&Key| key.compute.is_some() != (kind == Kind::GpuInstance);
        key.filter(is_right).copied().ok_or(INVALID_ARGUMENT)
    }

    /// The place of the device that the instance of a handle is on.
    pub(crate) fn place_of_instance(&self, kind: Kind, address: usize) -> Outcome<usize> {
        Ok(self.key(kind, address)?.place)
    }

    /// The number in the list of the instance that a handle is of, and of the compute instance in it, if it is one's.
    pub(crate) fn find_instance(
        &self,
        kind: Kind,
        address: usize,
        device: &Device,
    ) -> Outcome<(usize, Option<usize>)> {
        let key = self.key(kind, address)?;
        let is_it = |instance: &Instance| (instance.serial, instance.start) == key.instance;
        let place = device.instances.iter().position(is_it).ok_or(INVALID_ARGUMENT)?;
        let Some(wanted) = key.compute else { return Ok((place, None)) };
        let is_it = |compute: &Compute| (compute.serial, compute.id) == wanted;
        let compute = device.instances[place].compute.iter().position(is_it);
        Ok((place, Some(compute.ok_or(INVALID_ARGUMENT)?)))
    }
}
