//! What one device is, as NVML tells it.

use super::mig;
use super::model::model;
use super::settings::MigSettings;
use super::trouble::Trouble;
use super::xid_lines::PciAddress;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};
use pillion_core::device::{DeviceDescription, Mechanism, MigInstance};
use pillion_core::mig::Geometry;
use pillion_core::{DeviceUuid, GresType};

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
pub(super) fn describe(
    nvml: &Nvml,
    index: u32,
    mechanism: Mechanism,
    mig_settings: &MigSettings,
) -> Result<Found, Trouble> {
    let device = nvml.device_by_index(index).map_err(without_handle)?;
    // What Slurm names devices by, whose files are /dev/nvidiaMINOR. NVML counts along the PCI bus, which may differ.
    let index = device.minor_number().unwrap_or(index);
    let memory = device.memory_info()?;
    let is_mig_enabled = mig::is_on(&device);
    let model = model(&device.name()?, memory.total);
    let description = DeviceDescription {
        index,
        uuid: DeviceUuid::new(device.uuid()?),
        geometry: geometry(&device, &model, mig_settings),
        model,
        // What processes can have: the driver keeps the rest.
        memory_bytes: memory.total.saturating_sub(memory.reserved),
        gres_type: GresType::new(format!("g{index}")),
        // Where it is cut for tenants, whoever cuts it knows what is in force between two of them.
        mechanism: if is_mig_enabled && !mig_settings.cuts { Mechanism::TimeSliced } else { mechanism },
        instances: if is_mig_enabled { instances(index, &device) } else { None },
    };
    Ok(Found { description, address: address_of(&device), is_mig_enabled })
}

/// What it can be cut into, where it may be. Its driver goes before our table; the table stands in where a driver says nothing as
/// long as MIG is off.
fn geometry(device: &Device<'_>, model: &str, settings: &MigSettings) -> Option<Geometry> {
    let is_cut = settings.cuts && mig::can_be_cut(device, settings.toggles);
    if is_cut { pillion_core::mig::resolve(mig::geometry(device, 0).ok(), model).0 } else { None }
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
