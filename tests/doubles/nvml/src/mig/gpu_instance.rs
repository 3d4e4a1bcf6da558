//! GPU instances: what sizes there are, and making and destroying them.

use super::handle::{Key, Kind};
use super::tables::{PROFILE_COUNT, Profile};
use super::{call_instance, check_unused, cut_up, privileged};
use crate::library::{Library, call_device};
use crate::model::Generation;
use crate::pointer::{Outcome, get, put, put_text};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use std::ffi::c_uint;

/// The version of the second form of `nvmlGpuInstanceProfileInfo_t`.
const PROFILE_INFO_VERSION: usize = size_of::<nvmlGpuInstanceProfileInfo_v2_t>() | 2 << 24;

/// A call about a device's sizes, whether or not MIG is on.
fn can_be_cut(library: &Library, place: usize) -> Outcome {
    if library.gpus[place].model.generation == Generation::Volta { Err(NOT_SUPPORTED) } else { Ok(()) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: nvmlDevice_t,
    number: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetGpuInstanceProfileInfoV", device, |library, place| {
        let info = get(info)?;
        if number >= PROFILE_COUNT || info.version as usize != PROFILE_INFO_VERSION {
            return Err(INVALID_ARGUMENT);
        }
        cut_up(library, place)?;
        let table = library.table(place);
        let profile = table.profiles.iter().find(|it| it.number == number).ok_or(NOT_SUPPORTED)?;
        (info.id, info.isP2pSupported) = (profile.id, 0);
        (info.sliceCount, info.instanceCount) = (profile.compute_slices, profile.instances_max);
        (info.multiprocessorCount, info.copyEngineCount) = (profile.sms, profile.compute_slices);
        let media = c_uint::from(profile.has_media);
        (info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount) = (media, 0, media, media);
        info.memorySizeMB = profile.mebibytes;
        put_text((&raw mut info.name).cast(), 96, &format!("MIG {}", profile.name))
    })
}

/// "Regardless of whether MIG is enabled or not." The buffer "must be large enough to accommodate the placements": nobody says how
/// large it is.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: nvmlDevice_t,
    profile_id: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, |library, place| {
        can_be_cut(library, place)?;
        privileged(library)?;
        let profile = library.table(place).by_id(profile_id).ok_or(NOT_SUPPORTED)?;
        put(count, c_uint::try_from(profile.starts.len()).map_err(|_| INVALID_ARGUMENT)?)?;
        if placements.is_null() {
            return Ok(());
        }
        for (number, start) in profile.starts.iter().enumerate() {
            let placement = nvmlGpuInstancePlacement_t { start: *start, size: profile.size };
            put(placements.wrapping_add(number), placement)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: nvmlDevice_t,
    profile_id: c_uint,
    placement: *const nvmlGpuInstancePlacement_t,
    gpu_instance: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceCreateGpuInstanceWithPlacement", device, |library, place| {
        cut_up(library, place)?;
        privileged(library)?;
        let table = library.table(place);
        let (profile, wanted) =
            (table.by_id(profile_id).ok_or(INVALID_ARGUMENT)?, *get(placement.cast_mut())?);
        let id = profile.instance_at(wanted.start).filter(|_| wanted.size == profile.size);
        let id = id.ok_or(INVALID_ARGUMENT)?;
        get(gpu_instance)?;
        let made = library.change_mig(place, |device, serial| {
            device.check_room(table, profile, wanted.start)?;
            device.add(profile, wanted.start, serial());
            Ok(device.by_id(table, id).map(|instance| Key::of(place, instance, None)))
        })?;
        library.make_capability(place, id, None)?;
        let handle = library.instance_handle(Kind::GpuInstance, made.ok_or(INVALID_ARGUMENT)?);
        put(gpu_instance, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceDestroy(gpu_instance: nvmlGpuInstance_t) -> nvmlReturn_t {
    let address = gpu_instance.addr();
    call_instance("nvmlGpuInstanceDestroy", Kind::GpuInstance, address, |library, place| {
        cut_up(library, place)?;
        library.change_mig(place, |device, _| {
            let (instance, _) = library.find_instance(Kind::GpuInstance, address, device)?;
            privileged(library)?;
            if !device.instances[instance].compute.is_empty() {
                return Err(IN_USE);
            }
            check_unused(library, place, device, (instance, None))?;
            device.instances.remove(instance);
            Ok(())
        })
    })
}

/// "The buffer must be large enough to accommodate the instances supported by the profile."
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstances(
    device: nvmlDevice_t,
    profile_id: c_uint,
    gpu_instances: *mut nvmlGpuInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetGpuInstances", device, |library, place| {
        let cut = cut_up(library, place)?;
        privileged(library)?;
        let table = library.table(place);
        let profile: &Profile = table.by_id(profile_id).ok_or(INVALID_ARGUMENT)?;
        let alike = cut.instances.iter().filter(|instance| instance.profile(table).id == profile.id);
        let mut found: c_uint = 0;
        for instance in alike {
            let handle = library.instance_handle(Kind::GpuInstance, Key::of(place, instance, None));
            put(gpu_instances.wrapping_add(found as usize), handle)?;
            found += 1;
        }
        put(count, found)
    })
}

/// "Requires privileged user."
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: nvmlDevice_t,
    id: c_uint,
    gpu_instance: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetGpuInstanceById", device, |library, place| {
        let cut = cut_up(library, place)?;
        privileged(library)?;
        let instance = cut.by_id(library.table(place), id).ok_or(NOT_FOUND)?;
        let handle = library.instance_handle(Kind::GpuInstance, Key::of(place, instance, None));
        put(gpu_instance, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetInfo(
    gpu_instance: nvmlGpuInstance_t,
    info: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    let address = gpu_instance.addr();
    call_instance("nvmlGpuInstanceGetInfo", Kind::GpuInstance, address, |library, place| {
        let cut = cut_up(library, place)?;
        let (instance, _) = library.find_instance(Kind::GpuInstance, address, &cut)?;
        let (instance, table) = (&cut.instances[instance], library.table(place));
        let profile = instance.profile(table);
        let info = get(info)?;
        info.device = Library::handle(place);
        (info.id, info.profileId) = (instance.id(table), profile.id);
        info.placement = nvmlGpuInstancePlacement_t { start: instance.start, size: profile.size };
        Ok(())
    })
}
