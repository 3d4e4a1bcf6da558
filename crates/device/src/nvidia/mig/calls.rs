//! NVML's calls for MIG, each as nvml.h declares it, in safe Rust: what they mean together is said in [`super::cut`].
//!
//! `nvml-wrapper` has none for making and destroying, its list of places is always empty, and it hides in a success what became
//! of a change of mode. A list is asked for with room for more than any device has, so that nothing is written past its end
//! however it has grown since somebody counted.

#![expect(unsafe_code, reason = "nvml-wrapper has no calls for a device's instances")]

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED as SHARED_ENGINES, nvmlComputeInstance_t,
    nvmlComputeInstanceInfo_t, nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_v2_t,
};
use std::ffi::{CStr, c_char, c_uint};
use std::mem::MaybeUninit;
use std::ptr;

/// More instances, places or compute instances than any device has.
const ROOM: usize = 64;

/// A size of GPU instance, as the driver tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    /// The driver's number of it, which is neither NVML's number of the question nor the same on every device.
    pub(super) id: u32,
    /// As the driver calls it: `MIG 1g.5gb`.
    pub(super) name: String,
    pub(super) compute_slices: u32,
    pub(super) instances_max: u32,
    pub(super) sm_count: u32,
    pub(super) memory_mebibytes: u64,
}

/// Some of a device's memory slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) size: u32,
}

/// A GPU instance of a device. Its handle is worth nothing any more once it is destroyed: every call then fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpuInstance<'device, 'nvml> {
    device: &'device Device<'nvml>,
    handle: nvmlGpuInstance_t,
}

/// What the driver says of a GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GpuInstanceInfo {
    pub(super) id: u32,
    pub(super) profile_id: u32,
    pub(super) place: Place,
}

/// A compute instance of a GPU instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct ComputeInstance<'device, 'nvml> {
    device: &'device Device<'nvml>,
    handle: nvmlComputeInstance_t,
}

/// A size of compute instance within one GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComputeProfile {
    pub(super) id: u32,
    pub(super) compute_slices: u32,
}

/// Calls a function of the library that a device is of.
macro_rules! call {
    ($device:expr, $function:ident($($argument:expr),*)) => {{
        let function = nvml_sym($device.nvml().lib().$function.as_ref())?;
        // SAFETY: the arguments are as nvml.h declares them; handles are of the open library, which `Device` borrows, and what is
        // pointed to lives on this stack until the call is over.
        nvml_try(unsafe { function($($argument),*) })
    }};
}

/// The raw handle of a device or of a MIG device.
fn raw(device: &Device<'_>) -> nvml_wrapper_sys::bindings::nvmlDevice_t {
    // SAFETY: it is only passed on to the library that it is of.
    unsafe { device.handle() }
}

/// NVML's number of the device's architecture (nvml.h, `NVML_DEVICE_ARCH_..`): they ascend with time.
pub(super) fn architecture(device: &Device<'_>) -> Result<u32, NvmlError> {
    let mut number = 0;
    call!(device, nvmlDeviceGetArchitecture(raw(device), &raw mut number))?;
    Ok(number)
}

/// Asks for a mode; what is returned in success is what became of it.
pub(super) fn set_mode(device: &Device<'_>, is_on: bool) -> Result<Result<(), NvmlError>, NvmlError> {
    let mut activation = 0;
    call!(device, nvmlDeviceSetMigMode(raw(device), c_uint::from(is_on), &raw mut activation))?;
    Ok(nvml_try(activation))
}

/// The size of GPU instance that NVML asks for by this number. `NotSupported`: the device does not have it; `InvalidArg`: there are
/// no more numbers.
pub(super) fn profile(device: &Device<'_>, number: u32) -> Result<Profile, NvmlError> {
    let mut info = MaybeUninit::<nvmlGpuInstanceProfileInfo_v2_t>::zeroed();
    let size = c_uint::try_from(size_of::<nvmlGpuInstanceProfileInfo_v2_t>()).unwrap_or(c_uint::MAX);
    // SAFETY: numbers and letters, for which zeros are values.
    let info = unsafe { info.assume_init_mut() };
    info.version = size | 2 << 24;
    call!(device, nvmlDeviceGetGpuInstanceProfileInfoV(raw(device), number, &raw mut *info))?;
    Ok(Profile {
        id: info.id,
        name: text(&info.name),
        compute_slices: info.sliceCount,
        instances_max: info.instanceCount,
        sm_count: info.multiprocessorCount,
        memory_mebibytes: info.memorySizeMB,
    })
}

/// A C string in a buffer, up to its end or the buffer's.
fn text(letters: &[c_char]) -> String {
    let bytes: Vec<u8> = letters.iter().map(|letter| letter.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Where an instance of a size may lie, whatever lies there now.
pub(super) fn places(device: &Device<'_>, profile_id: u32) -> Result<Vec<Place>, NvmlError> {
    let mut places = [nvmlGpuInstancePlacement_t { start: 0, size: 0 }; ROOM];
    let mut count = count_of(ROOM);
    let list = places.as_mut_ptr();
    call!(
        device,
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(raw(device), profile_id, list, &raw mut count)
    )?;
    Ok(places.iter().take(count as usize).map(Place::from).collect())
}

impl From<&nvmlGpuInstancePlacement_t> for Place {
    fn from(placement: &nvmlGpuInstancePlacement_t) -> Self {
        Self { start: placement.start, size: placement.size }
    }
}

fn count_of(room: usize) -> c_uint {
    c_uint::try_from(room).unwrap_or(0)
}

/// The numbers of the GPU instance and of the compute instance of a MIG device.
pub(super) fn numbers(instance: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let (mut gpu_instance_id, mut compute_instance_id) = (0, 0);
    call!(instance, nvmlDeviceGetGpuInstanceId(raw(instance), &raw mut gpu_instance_id))?;
    call!(instance, nvmlDeviceGetComputeInstanceId(raw(instance), &raw mut compute_instance_id))?;
    Ok((gpu_instance_id, compute_instance_id))
}

impl<'device, 'nvml> GpuInstance<'device, 'nvml> {
    /// Makes one, without a compute instance.
    pub(super) fn create(
        device: &'device Device<'nvml>,
        profile_id: u32,
        place: Place,
    ) -> Result<Self, NvmlError> {
        let mut handle = ptr::null_mut();
        let placement = nvmlGpuInstancePlacement_t { start: place.start, size: place.size };
        call!(
            device,
            nvmlDeviceCreateGpuInstanceWithPlacement(
                raw(device),
                profile_id,
                &raw const placement,
                &raw mut handle
            )
        )?;
        Ok(Self { device, handle })
    }

    /// The one of this number; root alone may ask.
    pub(super) fn by_id(device: &'device Device<'nvml>, id: u32) -> Result<Self, NvmlError> {
        let mut handle = ptr::null_mut();
        call!(device, nvmlDeviceGetGpuInstanceById(raw(device), id, &raw mut handle))?;
        Ok(Self { device, handle })
    }

    /// All of a size; root alone may ask.
    pub(super) fn all(device: &'device Device<'nvml>, profile_id: u32) -> Result<Vec<Self>, NvmlError> {
        let mut handles = [ptr::null_mut(); ROOM];
        let mut count = count_of(ROOM);
        let list = handles.as_mut_ptr();
        call!(device, nvmlDeviceGetGpuInstances(raw(device), profile_id, list, &raw mut count))?;
        Ok(handles.into_iter().take(count as usize).map(|handle| Self { device, handle }).collect())
    }

    pub(super) fn info(self) -> Result<GpuInstanceInfo, NvmlError> {
        let mut info = MaybeUninit::<nvmlGpuInstanceInfo_t>::zeroed();
        call!(self.device, nvmlGpuInstanceGetInfo(self.handle, info.as_mut_ptr()))?;
        // SAFETY: numbers and a pointer, for which zeros are values; filled in, since the call succeeded.
        let info = unsafe { info.assume_init() };
        Ok(GpuInstanceInfo { id: info.id, profile_id: info.profileId, place: Place::from(&info.placement) })
    }

    /// The size of compute instance that NVML asks for by this number; `NotSupported` and `InvalidArg` as of [`profile`].
    pub(super) fn compute_profile(self, number: u32) -> Result<ComputeProfile, NvmlError> {
        let mut info = MaybeUninit::<nvmlComputeInstanceProfileInfo_t>::zeroed();
        let to = info.as_mut_ptr();
        call!(
            self.device,
            nvmlGpuInstanceGetComputeInstanceProfileInfo(self.handle, number, SHARED_ENGINES, to)
        )?;
        // SAFETY: numbers, for which zeros are values; filled in, since the call succeeded.
        let info = unsafe { info.assume_init() };
        Ok(ComputeProfile { id: info.id, compute_slices: info.sliceCount })
    }

    /// All compute instances of a size; root alone may ask.
    pub(super) fn compute_instances(
        self,
        profile_id: u32,
    ) -> Result<Vec<ComputeInstance<'device, 'nvml>>, NvmlError> {
        let mut handles = [ptr::null_mut(); ROOM];
        let mut count = count_of(ROOM);
        let list = handles.as_mut_ptr();
        call!(
            self.device,
            nvmlGpuInstanceGetComputeInstances(self.handle, profile_id, list, &raw mut count)
        )?;
        let found = handles.into_iter().take(count as usize);
        Ok(found.map(|handle| ComputeInstance { device: self.device, handle }).collect())
    }

    /// Makes a compute instance in it.
    pub(super) fn create_compute(
        self,
        profile_id: u32,
    ) -> Result<ComputeInstance<'device, 'nvml>, NvmlError> {
        let mut handle = ptr::null_mut();
        call!(self.device, nvmlGpuInstanceCreateComputeInstance(self.handle, profile_id, &raw mut handle))?;
        Ok(ComputeInstance { device: self.device, handle })
    }

    pub(super) fn destroy(self) -> Result<(), NvmlError> {
        call!(self.device, nvmlGpuInstanceDestroy(self.handle))
    }
}

impl ComputeInstance<'_, '_> {
    /// Its number within its GPU instance.
    pub(super) fn id(self) -> Result<u32, NvmlError> {
        let mut info = MaybeUninit::<nvmlComputeInstanceInfo_t>::zeroed();
        call!(self.device, nvmlComputeInstanceGetInfo_v2(self.handle, info.as_mut_ptr()))?;
        // SAFETY: numbers and pointers, for which zeros are values; filled in, since the call succeeded.
        Ok(unsafe { info.assume_init() }.id)
    }

    pub(super) fn destroy(self) -> Result<(), NvmlError> {
        call!(self.device, nvmlComputeInstanceDestroy(self.handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_it_ends_or_where_its_room_does() {
        let letters = |text: &str| text.bytes().map(|byte| c_char::from_ne_bytes([byte])).collect::<Vec<_>>();
        assert_eq!(text(&letters("MIG 1g.5gb\0\0x")), "MIG 1g.5gb");
        assert_eq!(text(&letters("7g")), "7g");
        assert_eq!(text(&[]), "");
    }
}
