//! MIG devices: a compute instance, as CUDA sees it. A GPU instance without one is no device.

use super::handle::{Key, Kind};
use super::state::{Compute, Instance};
use super::{INSTANCES_MAX, call_instance, cut_up};
use crate::library::{Library, call, call_device};
use crate::pointer::{Outcome, put, put_text};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use std::ffi::{c_char, c_uint};

/// A call about one MIG device. A GPU has no answer to it.
fn call_mig(
    function: &str,
    handle: nvmlDevice_t,
    body: impl FnOnce(&Library, usize, &Instance, Compute) -> Outcome,
) -> nvmlReturn_t {
    let mut is_gpu = false;
    let found = call(|library| {
        is_gpu = (0..library.gpus.len()).any(|place| Library::handle(place) == handle);
        if is_gpu { Err(NOT_SUPPORTED) } else { Ok(()) }
    });
    if is_gpu {
        return found;
    }
    call_instance(function, Kind::MigDevice, handle.addr(), |library, place| {
        let cut = cut_up(library, place).map_err(|_| INVALID_ARGUMENT)?;
        let (instance, compute) = library.find_instance(Kind::MigDevice, handle.addr(), &cut)?;
        let instance = &cut.instances[instance];
        body(library, place, instance, instance.compute[compute.ok_or(INVALID_ARGUMENT)?])
    })
}

/// A MIG device's name, which is the same whenever an instance is made there; `None` for other handles.
pub(crate) fn put_uuid(handle: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> Option<nvmlReturn_t> {
    Kind::MigDevice.has(handle.addr()).then(|| {
        call_mig("nvmlDeviceGetUUID", handle, |library, place, instance, compute| {
            let parent = library.gpus[place].description.uuid.as_str().trim_start_matches("GPU-");
            let number = 100 * compute.id + instance.id(library.table(place));
            put_text(uuid, length, &format!("MIG-{parent}-{number:04}"))
        })
    })
}

/// "Zero if MIG is not supported or enabled."
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMaxMigDeviceCount", device, |library, place| {
        put(count, if library.mig(place)?.is_on() { INSTANCES_MAX } else { 0 })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    instance: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMigDeviceHandleByIndex", device, |library, place| {
        let cut = cut_up(library, place)?;
        if index >= INSTANCES_MAX {
            return Err(INVALID_ARGUMENT);
        }
        let all = cut.instances.iter().flat_map(|it| it.compute.iter().map(move |compute| (it, compute)));
        let (found, compute) = all.into_iter().nth(index as usize).ok_or(NOT_FOUND)?;
        put(instance, library.instance_handle(Kind::MigDevice, Key::of(place, found, Some(compute))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    call_mig("nvmlDeviceGetGpuInstanceId", device, |library, place, instance, _| {
        put(id, instance.id(library.table(place)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    call_mig("nvmlDeviceGetComputeInstanceId", device, |_, _, _, compute| put(id, compute.id))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> nvmlReturn_t {
    call_mig("nvmlDeviceGetAttributes_v2", device, |library, place, instance, compute| {
        let profile = instance.profile(library.table(place));
        let slices = compute.slices();
        let slices = slices.end - slices.start;
        put(
            attributes,
            nvmlDeviceAttributes_t {
                multiprocessorCount: profile.sms * slices / profile.compute_slices,
                sharedCopyEngineCount: profile.compute_slices,
                sharedDecoderCount: 0,
                sharedEncoderCount: 0,
                sharedJpegCount: 0,
                sharedOfaCount: 0,
                gpuInstanceSliceCount: profile.compute_slices,
                computeInstanceSliceCount: slices,
                memorySizeMB: profile.mebibytes,
            },
        )
    })
}
