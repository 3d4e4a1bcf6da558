//! Compute instances: parts of a GPU instance's compute slices. Each has the size that NVML numbers.

use super::handle::{Key, Kind};
use super::state::Compute;
use super::tables::{COMPUTE_REV1, COMPUTE_SLICES};
use super::{call_instance, check_unused, cut_up, privileged};
use crate::library::Library;
use crate::pointer::{Outcome, get, put};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t,
    nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES as INSUFFICIENT_RESOURCES,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use std::ffi::c_uint;

/// The slices of a size of compute instance, if a GPU instance of so many has it.
fn slices(number: c_uint, all: c_uint) -> Outcome<c_uint> {
    let slices = *COMPUTE_SLICES.get(number as usize).ok_or(INVALID_ARGUMENT)?;
    if slices > all || number == COMPUTE_REV1 { Err(NOT_SUPPORTED) } else { Ok(slices) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    gpu_instance: nvmlGpuInstance_t,
    number: c_uint,
    engines: c_uint,
    info: *mut nvmlComputeInstanceProfileInfo_t,
) -> nvmlReturn_t {
    let (name, address) = ("nvmlGpuInstanceGetComputeInstanceProfileInfo", gpu_instance.addr());
    call_instance(name, Kind::GpuInstance, address, |library, place| {
        let cut = cut_up(library, place)?;
        let (instance, _) = library.find_instance(Kind::GpuInstance, address, &cut)?;
        let profile = cut.instances[instance].profile(library.table(place));
        if engines != 0 {
            return Err(INVALID_ARGUMENT);
        }
        let slices = slices(number, profile.compute_slices)?;
        let info = get(info)?;
        (info.id, info.sliceCount) = (number, slices);
        info.instanceCount = profile.compute_slices / slices;
        info.multiprocessorCount = profile.sms * slices / profile.compute_slices;
        info.sharedCopyEngineCount = profile.compute_slices;
        (info.sharedDecoderCount, info.sharedEncoderCount) = (0, 0);
        (info.sharedJpegCount, info.sharedOfaCount) = (0, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    gpu_instance: nvmlGpuInstance_t,
    profile_id: c_uint,
    compute_instance: *mut nvmlComputeInstance_t,
) -> nvmlReturn_t {
    let (name, address) = ("nvmlGpuInstanceCreateComputeInstance", gpu_instance.addr());
    call_instance(name, Kind::GpuInstance, address, |library, place| {
        cut_up(library, place)?;
        get(compute_instance)?;
        let table = library.table(place);
        let (gi, ci, key) = library.change_mig(place, |device, serial| {
            let (instance, _) = library.find_instance(Kind::GpuInstance, address, device)?;
            privileged(library)?;
            let instance = &mut device.instances[instance];
            let all = instance.profile(table).compute_slices;
            let slices = slices(profile_id, all)?;
            let is_free = |start: c_uint| {
                let overlaps = |other: &Compute| start < other.slices().end && other.start < start + slices;
                !instance.compute.iter().any(overlaps)
            };
            let start = (0..=all - slices).find(|start| is_free(*start)).ok_or(INSUFFICIENT_RESOURCES)?;
            let is_new = |id: &c_uint| instance.compute.iter().all(|other| other.id != *id);
            let id = (0..all).find(is_new).ok_or(INSUFFICIENT_RESOURCES)?;
            let made = Compute { id, serial: serial(), number: profile_id, start };
            instance.compute.push(made);
            Ok((instance.id(table), id, Key::of(place, instance, Some(&made))))
        })?;
        library.make_capability(place, gi, Some(ci))?;
        let handle = library.instance_handle(Kind::ComputeInstance, key);
        put(compute_instance, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlComputeInstanceDestroy(compute_instance: nvmlComputeInstance_t) -> nvmlReturn_t {
    let address = compute_instance.addr();
    call_instance("nvmlComputeInstanceDestroy", Kind::ComputeInstance, address, |library, place| {
        cut_up(library, place)?;
        library.change_mig(place, |device, _| {
            let (instance, compute) = library.find_instance(Kind::ComputeInstance, address, device)?;
            privileged(library)?;
            check_unused(library, place, device, (instance, compute))?;
            device.instances[instance].compute.remove(compute.ok_or(INVALID_ARGUMENT)?);
            Ok(())
        })
    })
}

/// "The buffer must be large enough to accommodate the instances supported by the profile."
#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstances(
    gpu_instance: nvmlGpuInstance_t,
    profile_id: c_uint,
    compute_instances: *mut nvmlComputeInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    let (name, address) = ("nvmlGpuInstanceGetComputeInstances", gpu_instance.addr());
    call_instance(name, Kind::GpuInstance, address, |library, place| {
        let cut = cut_up(library, place)?;
        let (instance, _) = library.find_instance(Kind::GpuInstance, address, &cut)?;
        privileged(library)?;
        let instance = &cut.instances[instance];
        slices(profile_id, instance.profile(library.table(place)).compute_slices)?;
        let mut found: c_uint = 0;
        for compute in instance.compute.iter().filter(|compute| compute.number == profile_id) {
            let key = Key::of(place, instance, Some(compute));
            put(
                compute_instances.wrapping_add(found as usize),
                library.instance_handle(Kind::ComputeInstance, key),
            )?;
            found += 1;
        }
        put(count, found)
    })
}

/// "Requires privileged user."
#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceById(
    gpu_instance: nvmlGpuInstance_t,
    id: c_uint,
    compute_instance: *mut nvmlComputeInstance_t,
) -> nvmlReturn_t {
    let (name, address) = ("nvmlGpuInstanceGetComputeInstanceById", gpu_instance.addr());
    call_instance(name, Kind::GpuInstance, address, |library, place| {
        let cut = cut_up(library, place)?;
        let (instance, _) = library.find_instance(Kind::GpuInstance, address, &cut)?;
        privileged(library)?;
        let instance = &cut.instances[instance];
        let compute = instance.compute.iter().find(|it| it.id == id).ok_or(NOT_FOUND)?;
        let handle = library.instance_handle(Kind::ComputeInstance, Key::of(place, instance, Some(compute)));
        put(compute_instance, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlComputeInstanceGetInfo_v2(
    compute_instance: nvmlComputeInstance_t,
    info: *mut nvmlComputeInstanceInfo_t,
) -> nvmlReturn_t {
    let address = compute_instance.addr();
    call_instance("nvmlComputeInstanceGetInfo_v2", Kind::ComputeInstance, address, |library, place| {
        let cut = cut_up(library, place)?;
        let (instance, compute) = library.find_instance(Kind::ComputeInstance, address, &cut)?;
        let instance = &cut.instances[instance];
        let compute = instance.compute[compute.ok_or(INVALID_ARGUMENT)?];
        let info = get(info)?;
        info.device = Library::handle(place);
        info.gpuInstance = library.instance_handle(Kind::GpuInstance, Key::of(place, instance, None));
        (info.id, info.profileId) = (compute.id, compute.number);
        let slices = compute.slices();
        info.placement =
            nvmlComputeInstancePlacement_t { start: slices.start, size: slices.end - slices.start };
        Ok(())
    })
}
