//! What MIG has cut a device into. Read only: instances are made, destroyed and given by others.

#![expect(unsafe_code, reason = "nvml-wrapper has no call for the numbers and the place of an instance")]

use super::trouble::Trouble;
use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use pillion_core::DeviceUuid;
use pillion_core::device::{MigInstance, MigPlacement};
use std::mem::MaybeUninit;
use std::ptr;

/// More instances than any device has: what a driver says beyond that is not believed.
const INSTANCES_MAX: u32 = 64;

/// Whether MIG is on.
pub(super) fn is_on(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current == 1)
}

/// The instances of a device with MIG on.
///
/// # Errors
/// What NVML said: a part of the list is no list.
pub(super) fn instances(device: &Device<'_>) -> Result<Vec<MigInstance>, Trouble> {
    let mut found = Vec::new();
    for index in 0..device.mig_device_count()?.min(INSTANCES_MAX) {
        match device.mig_device_by_index(index) {
            Ok(instance) => found.push(describe(device, &instance)?),
            // The count is of the most that there can be.
            Err(NvmlError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn describe(device: &Device<'_>, instance: &Device<'_>) -> Result<MigInstance, NvmlError> {
    let library = device.nvml().lib();
    let gpu_instance_of = nvml_sym(library.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute_instance_of = nvml_sym(library.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu_instance_id, mut compute_instance_id) = (0, 0);
    // SAFETY: as nvml.h declares them; the handle is of the open library, and the numbers are written within the call.
    unsafe {
        nvml_try(gpu_instance_of(instance.handle(), &raw mut gpu_instance_id))?;
        nvml_try(compute_instance_of(instance.handle(), &raw mut compute_instance_id))?;
    }
    let attributes = instance.attributes()?;
    Ok(MigInstance {
        uuid: DeviceUuid::new(instance.uuid()?),
        gpu_instance_id,
        compute_instance_id,
        profile: profile(attributes.gpu_instance_slice_count, attributes.memory_size_mb),
        placement: match placement(device, gpu_instance_id) {
            Ok(placement) => Some(placement),
            Err(NvmlError::NoPermission | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(error) => return Err(error),
        },
        sm_count: attributes.multiprocessor_count,
        memory_bytes: bytes(attributes.memory_size_mb),
    })
}

/// Where a GPU instance lies; root alone may ask (nvml.h, `nvmlDeviceGetGpuInstanceById`).
fn placement(device: &Device<'_>, gpu_instance_id: u32) -> Result<MigPlacement, NvmlError> {
    let library = device.nvml().lib();
    let by_id = nvml_sym(library.nvmlDeviceGetGpuInstanceById.as_ref())?;
    let info_of = nvml_sym(library.nvmlGpuInstanceGetInfo.as_ref())?;
    let (mut instance, mut info) = (ptr::null_mut(), MaybeUninit::zeroed());
    // SAFETY: as nvml.h declares them; the handle is of the open library. `info` is numbers and a pointer, for which zeros
    // are values, and it is filled in where the call succeeds.
    let info = unsafe {
        nvml_try(by_id(device.handle(), gpu_instance_id, &raw mut instance))?;
        nvml_try(info_of(instance, info.as_mut_ptr()))?;
        info.assume_init()
    };
    Ok(MigPlacement { start: info.placement.start, size: info.placement.size })
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
