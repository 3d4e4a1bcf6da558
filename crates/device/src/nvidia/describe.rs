//! What one device is, as NVML tells it.

use super::mig;
use super::model::model;
use super::trouble::Trouble;
use super::xid_lines::PciAddress;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};
use pillion_core::device::{DeviceDescription, Mechanism, MigInstance};
use pillion_core::{DeviceUuid, GresType};
use std::collections::BTreeMap;

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

/// What the device is that NVML counts by this number. `mechanism`: how it is shared where MIG is off. By whom it was turned on, and
/// what it may be cut into, is not known here: whoever cuts it says so.
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
        mechanism,
        instances: if is_mig_enabled { instances(index, &device) } else { None },
        geometry: None,
        links: BTreeMap::new(),
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
