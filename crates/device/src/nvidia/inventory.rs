//! Which devices there are: asked of all of them at once, each by a thread that stays its own.

use super::model::model;
use super::thread::{self, Question};
use super::trouble::Trouble;
use super::xid_lines::PciAddress;
use super::{Nvidia, mig};
use crate::DeviceError;
use crate::worker::{Answer, Pending};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};
use pillion_core::device::{DeviceDescription, Mechanism, MigInstance};
use pillion_core::{DeviceUuid, GresType};
use std::collections::btree_map::Entry;

impl Nvidia {
    fn begin_to_find<T>(
        &mut self,
        place: Option<u32>,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<Pending<T>, DeviceError> {
        let finder = match self.finders.entry(place) {
            Entry::Occupied(entry) if entry.get().is_alive() => entry.into_mut(),
            entry => entry.insert_entry(thread::start(&self.settings, &self.library, None)?).into_mut(),
        };
        finder.begin(question)
    }

    /// Finds out which devices there are, all at once; those that hang are waited for together.
    pub(super) fn find(&mut self) -> Result<(), DeviceError> {
        let count = self.begin_to_find(None, Question::Count).and_then(Pending::wait)?;
        let asked: Vec<_> = (0..count)
            .map(|place| (place, self.begin_to_find(Some(place), |answer| Question::Describe(place, answer))))
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
        self.threads.extend(self.finders.remove(&Some(place)).map(|finder| (index, finder)));
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

/// Why a device has no handle: without one, nothing of it is there.
pub(super) fn without_handle(error: NvmlError) -> Trouble {
    match Trouble::from(error) {
        Trouble::Absent(reason) => Trouble::Gone(reason),
        trouble => trouble,
    }
}

/// A device that NVML has.
pub(super) struct Found {
    pub(super) description: DeviceDescription,
    pub(super) address: Option<PciAddress>,
    /// Whether MIG is on. Its instances are no devices of ours: Slurm books them by files and types of their own.
    pub(super) is_mig_enabled: bool,
}

/// What the device is that NVML counts by this number.
///
/// # Errors
/// What NVML says.
pub(super) fn describe(nvml: &Nvml, index: u32, mechanism: Mechanism) -> Result<Found, Trouble> {
    let device = nvml.device_by_index(index).map_err(without_handle)?;
    // What Slurm names devices by, whose files are /dev/nvidiaMINOR. NVML counts along the PCI bus, which may differ.
    let index = device.minor_number().unwrap_or(index);
    let memory = device.memory_info()?;
    let is_mig_enabled = mig::is_on(&device);
    let description = DeviceDescription {
        index,
        uuid: DeviceUuid::new(device.uuid()?),
        model: model(&device.name()?, memory.total),
        // What processes can have: the driver keeps the rest.
        memory_bytes: memory.total.saturating_sub(memory.reserved),
        gres_type: GresType::new(format!("g{index}")),
        mechanism: if is_mig_enabled { Mechanism::TimeSliced } else { mechanism },
        instances: if is_mig_enabled { instances(index, &device) } else { None },
    };
    Ok(Found { description, address: address_of(&device), is_mig_enabled })
}

/// Where it is on the bus, if NVML says so.
pub(super) fn address_of(device: &Device<'_>) -> Option<PciAddress> {
    let PciInfo { domain, bus, device, .. } = device.pci_info().ok()?;
    Some(PciAddress { domain, bus, device })
}

/// What MIG has cut a device into. That they cannot be told is no reason to know nothing of the device.
fn instances(index: u32, device: &Device<'_>) -> Option<Vec<MigInstance>> {
    let instances = mig::instances(device).map_err(|trouble| trouble.of(index));
    if let Err(error) = &instances {
        tracing::warn!(index, error = %pillion_core::report(error), "its MIG instances cannot be listed");
    }
    instances.ok()
}
