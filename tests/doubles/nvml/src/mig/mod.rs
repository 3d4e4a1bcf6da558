//! What MIG has cut a device into: the control file says which instances there are, and the tables below what the driver
//! says of each and where one may lie. There is one compute instance in each GPU instance, and it has all of it.
//!
//! Sources: NVIDIA Multi-Instance GPU user guide, "Supported MIG Profiles" and "MIG Placement"; memory as `nvidia-smi mig
//! -lgip` prints it.

use crate::library::{Library, call, call_device};
use crate::pointer::{Outcome, get, put, put_text};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN,
    nvmlReturn_t,
};
use std::ffi::{c_char, c_uint};
use std::ptr;

/// The most instances that any of these devices can have.
const INSTANCES_MAX: u32 = 7;
/// The compute slices that there are to give; the memory has one slice more.
const COMPUTE_SLICES: u32 = 7;
/// The addresses of the handles of MIG devices and of GPU instances. Nothing stands there.
const MIG_HANDLES: usize = 0x6d69_0000;
const INSTANCE_HANDLES: usize = 0x6769_0000;
const PLACE_STEP: usize = 0x1000;
const HANDLE_STEP: usize = 0x40;

/// A size of instance.
#[derive(Debug, Clone, Copy)]
struct Profile {
    /// As NVIDIA calls it.
    name: &'static str,
    id: c_uint,
    compute_slices: c_uint,
    sms: c_uint,
    mebibytes: u64,
    /// The memory slices of one, and those at which one may begin.
    size: c_uint,
    starts: &'static [c_uint],
    /// The GPU instance at the first of them; the others follow.
    first_instance: c_uint,
}

#[rustfmt::skip]
const A100_40: [Profile; 6] = [
    Profile { name: "1g.5gb", id: 19, compute_slices: 1, sms: 14, mebibytes: 4864, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { name: "1g.10gb", id: 15, compute_slices: 1, sms: 14, mebibytes: 9856, size: 2, starts: &[0, 2, 4, 6], first_instance: 3 },
    Profile { name: "2g.10gb", id: 14, compute_slices: 2, sms: 28, mebibytes: 9856, size: 2, starts: &[0, 2, 4], first_instance: 3 },
    Profile { name: "3g.20gb", id: 9, compute_slices: 3, sms: 42, mebibytes: 19968, size: 4, starts: &[0, 4], first_instance: 1 },
    Profile { name: "4g.20gb", id: 5, compute_slices: 4, sms: 56, mebibytes: 19968, size: 4, starts: &[0], first_instance: 1 },
    Profile { name: "7g.40gb", id: 0, compute_slices: 7, sms: 98, mebibytes: 40192, size: 8, starts: &[0], first_instance: 0 },
];

#[rustfmt::skip]
const H100_80: [Profile; 6] = [
    Profile { name: "1g.10gb", id: 19, compute_slices: 1, sms: 16, mebibytes: 9984, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { name: "1g.20gb", id: 15, compute_slices: 1, sms: 26, mebibytes: 20096, size: 2, starts: &[0, 2, 4, 6], first_instance: 3 },
    Profile { name: "2g.20gb", id: 14, compute_slices: 2, sms: 32, mebibytes: 20096, size: 2, starts: &[0, 2, 4], first_instance: 3 },
    Profile { name: "3g.40gb", id: 9, compute_slices: 3, sms: 60, mebibytes: 40448, size: 4, starts: &[0, 4], first_instance: 1 },
    Profile { name: "4g.40gb", id: 5, compute_slices: 4, sms: 64, mebibytes: 40448, size: 4, starts: &[0], first_instance: 1 },
    Profile { name: "7g.80gb", id: 0, compute_slices: 7, sms: 132, mebibytes: 81152, size: 8, starts: &[0], first_instance: 0 },
];

/// An instance that is there.
#[derive(Debug, Clone, Copy)]
struct Instance {
    profile: Profile,
    start: c_uint,
    /// The driver's number of its GPU instance.
    id: c_uint,
}

impl Instance {
    fn of(profiles: &[Profile], name: &str, start: c_uint) -> Option<Self> {
        let profile = *profiles.iter().find(|profile| profile.name == name)?;
        let place = (0..).zip(profile.starts).find(|(_, allowed)| **allowed == start)?.0;
        Some(Self { profile, start, id: profile.first_instance + place })
    }

    fn slices(&self) -> std::ops::Range<c_uint> {
        self.start..self.start + self.profile.size
    }
}

/// The instances of the device at a place, in the order of the control file. Those that no driver would have made together
/// are a mistake of the test.
fn instances(library: &Library, place: usize) -> Outcome<Vec<Instance>> {
    let profiles: &[Profile] = match library.gpus[place].description.model.as_str() {
        "a100-40" => &A100_40,
        "h100" => &H100_80,
        _ => &[],
    };
    let mut found: Vec<Instance> = Vec::new();
    for wanted in library.control.mig_instances.iter().filter(|it| it.index == library.index(place)) {
        let instance = Instance::of(profiles, &wanted.profile, wanted.start).ok_or(UNKNOWN)?;
        let is_taken = |slice: c_uint| found.iter().any(|other| other.slices().contains(&slice));
        let compute: c_uint = found.iter().map(|other| other.profile.compute_slices).sum();
        if instance.slices().any(is_taken) || compute + instance.profile.compute_slices > COMPUTE_SLICES {
            return Err(UNKNOWN);
        }
        found.push(instance);
    }
    Ok(found)
}

/// The place that a handle is of, and its number there.
fn decode(handle: usize, first: usize, gpu_count: usize) -> Option<(usize, usize)> {
    let offset = handle.checked_sub(first)?;
    let (place, rest) = (offset / PLACE_STEP, offset % PLACE_STEP);
    (place < gpu_count && rest % HANDLE_STEP == 0).then_some((place, rest / HANDLE_STEP))
}

/// A call about one MIG device. A GPU has no answer to it.
fn call_instance(
    handle: nvmlDevice_t,
    body: impl FnOnce(&Library, usize, &Instance) -> Outcome,
) -> nvmlReturn_t {
    call(|library| {
        if (0..library.gpus.len()).any(|place| Library::handle(place) == handle) {
            return Err(NOT_SUPPORTED);
        }
        let (place, number) =
            decode(handle.addr(), MIG_HANDLES, library.gpus.len()).ok_or(INVALID_ARGUMENT)?;
        library.check(place)?;
        let instance = *instances(library, place)?.get(number).ok_or(INVALID_ARGUMENT)?;
        body(library, place, &instance)
    })
}

/// A MIG device's name; `None` for other handles.
pub(crate) fn put_uuid(handle: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> Option<nvmlReturn_t> {
    let is_mig = (MIG_HANDLES..MIG_HANDLES + 0x10_0000).contains(&handle.addr());
    is_mig.then(|| {
        call_instance(handle, |library, place, instance| {
            let parent = library.gpus[place].description.uuid.as_str();
            put_text(uuid, length, &format!("MIG-{}-{:04}", parent.trim_start_matches("GPU-"), instance.id))
        })
    })
}

/// "Zero if MIG is not supported or enabled."
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMaxMigDeviceCount", device, |library, place| {
        put(count, if library.has_mig(place) { INSTANCES_MAX } else { 0 })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    instance: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMigDeviceHandleByIndex", device, |library, place| {
        if !library.has_mig(place) {
            return Err(NOT_SUPPORTED);
        }
        if index >= INSTANCES_MAX {
            return Err(INVALID_ARGUMENT);
        }
        let number = index as usize;
        instances(library, place)?.get(number).ok_or(NOT_FOUND)?;
        put(instance, ptr::without_provenance_mut(MIG_HANDLES + place * PLACE_STEP + number * HANDLE_STEP))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    call_instance(device, |_, _, instance| put(id, instance.id))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    call_instance(device, |_, _, _| put(id, 0))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> nvmlReturn_t {
    call_instance(device, |_, _, instance| {
        let Profile { compute_slices, sms, mebibytes, .. } = instance.profile;
        put(
            attributes,
            nvmlDeviceAttributes_t {
                multiprocessorCount: sms,
                sharedCopyEngineCount: compute_slices,
                sharedDecoderCount: 0,
                sharedEncoderCount: 0,
                sharedJpegCount: 0,
                sharedOfaCount: 0,
                gpuInstanceSliceCount: compute_slices,
                computeInstanceSliceCount: compute_slices,
                memorySizeMB: mebibytes,
            },
        )
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
        if !library.has_mig(place) {
            return Err(NOT_SUPPORTED);
        }
        if library.control.not_root {
            return Err(NO_PERMISSION);
        }
        instances(library, place)?.iter().find(|instance| instance.id == id).ok_or(NOT_FOUND)?;
        let handle = INSTANCE_HANDLES + place * PLACE_STEP + id as usize * HANDLE_STEP;
        put(gpu_instance, ptr::without_provenance_mut(handle))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetInfo(
    gpu_instance: nvmlGpuInstance_t,
    info: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    call(|library| {
        let (place, id) =
            decode(gpu_instance.addr(), INSTANCE_HANDLES, library.gpus.len()).ok_or(INVALID_ARGUMENT)?;
        library.check(place)?;
        let there = instances(library, place)?;
        let instance = there.iter().find(|instance| instance.id as usize == id).ok_or(INVALID_ARGUMENT)?;
        let info = get(info)?;
        info.device = Library::handle(place);
        info.id = instance.id;
        info.profileId = instance.profile.id;
        info.placement = nvmlGpuInstancePlacement_t { start: instance.start, size: instance.profile.size };
        Ok(())
    })
}
