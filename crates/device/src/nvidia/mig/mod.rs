//! MIG over NVML: what a device is cut into, for whoever asks; and what cuts it ([`crate::MigControl`]), where the agent may.
//!
//! ```text
//!  control: MigControl ── asks, until a deadline ──► worker: a thread a device, beside the one that reads it
//!    └─ holders: who has its files open (/proc)         ├─ cut: geometry, layout, making, destroying, the mode   (shell)
//!                                                       │    └─ calls: NVML's own                               (unsafe)
//!                                                       └─ files: whose the way to an instance is, in /dev
//! ```

mod calls;
mod control;
mod cut;
mod files;
mod holders;
mod worker;

pub use files::MigFiles;
pub use holders::holders;

pub(super) use worker::Worker as MigWorker;

use super::trouble::Trouble;
use calls::GpuInstance;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use pillion_core::DeviceUuid;
use pillion_core::device::{MigInstance, MigPlacement};

/// More instances than any device has: what a driver says beyond that is not believed.
const INSTANCES_MAX: u32 = 64;

/// Whether MIG is on.
pub(super) fn is_on(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current == 1)
}

/// The instances of a device with MIG on, as anybody may list them.
///
/// # Errors
/// What NVML said: a part of the list is no list.
pub(super) fn instances(device: &Device<'_>) -> Result<Vec<MigInstance>, Trouble> {
    let found = mig_devices(device)?;
    Ok(found.iter().map(|instance| describe(device, instance)).collect::<Result<_, NvmlError>>()?)
}

/// The MIG devices of a device: one a compute instance.
fn mig_devices<'nvml>(device: &Device<'nvml>) -> Result<Vec<Device<'nvml>>, NvmlError> {
    let mut found = Vec::new();
    for index in 0..device.mig_device_count()?.min(INSTANCES_MAX) {
        match device.mig_device_by_index(index) {
            Ok(instance) => found.push(instance),
            // The count is of the most that there can be.
            Err(NvmlError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn describe(device: &Device<'_>, instance: &Device<'_>) -> Result<MigInstance, NvmlError> {
    let (gpu_instance_id, compute_instance_id) = calls::numbers(instance)?;
    let attributes = instance.attributes()?;
    // Root alone may ask where a GPU instance lies (nvml.h, `nvmlDeviceGetGpuInstanceById`).
    let place = GpuInstance::by_id(device, gpu_instance_id).and_then(|it| Ok(it.info()?.place));
    Ok(MigInstance {
        uuid: DeviceUuid::new(instance.uuid()?),
        gpu_instance_id,
        compute_instance_id,
        profile: profile(attributes.gpu_instance_slice_count, attributes.memory_size_mb),
        placement: match place {
            Ok(place) => Some(MigPlacement { start: place.start, size: place.size }),
            Err(NvmlError::NoPermission | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(error) => return Err(error),
        },
        sm_count: attributes.multiprocessor_count,
        memory_bytes: bytes(attributes.memory_size_mb),
    })
}

/// The name of a size, as Slurm makes it from the same numbers (`gpu_nvml.c`, `_handle_mig`): an H100's whole is `7g.79gb`
/// there, whatever NVIDIA calls it.
fn profile(slice_count: u32, memory_mebibytes: u64) -> String {
    format!("{slice_count}g.{}gb", memory_mebibytes.saturating_add(512) / 1024)
}

/// "Device memory size in MiB" (nvml.h, `nvmlDeviceAttributes_t`), in bytes.
fn bytes(mebibytes: u64) -> u64 {
    mebibytes.saturating_mul(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_as_slurm_names_them() {
        for (slices, mebibytes, name) in [
            (1, 4_864, "1g.5gb"),
            (1, 9_856, "1g.10gb"),
            (2, 9_856, "2g.10gb"),
            (3, 19_968, "3g.20gb"),
            (3, 40_192, "3g.39gb"),
            (7, 81_152, "7g.79gb"),
        ] {
            assert_eq!(profile(slices, mebibytes), name);
        }
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(bytes(4_864), 5_100_273_664);
        assert_eq!(bytes(u64::MAX), u64::MAX, "whatever a driver says");
    }
}
