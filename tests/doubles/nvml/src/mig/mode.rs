//! The mode of a device.

use crate::library::call_device;
use crate::model::Generation;
use crate::pointer::{get, put};
use nvml_wrapper_sys::bindings::{
    NVML_DEVICE_ARCH_AMPERE, NVML_DEVICE_ARCH_HOPPER, NVML_DEVICE_ARCH_VOLTA, nvmlDevice_t,
    nvmlDeviceArchitecture_t, nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
    nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED as RESET_REQUIRED, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
    nvmlReturn_t,
};
use pillion_device::Backend as _;
use std::ffi::c_uint;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetArchitecture(
    device: nvmlDevice_t,
    architecture: *mut nvmlDeviceArchitecture_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetArchitecture", device, |library, place| {
        let number = match library.gpus[place].model.generation {
            Generation::Volta => NVML_DEVICE_ARCH_VOLTA,
            Generation::Ampere => NVML_DEVICE_ARCH_AMPERE,
            Generation::Hopper => NVML_DEVICE_ARCH_HOPPER,
        };
        put(architecture, number)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMigMode", device, |library, place| {
        if library.gpus[place].model.generation == Generation::Volta {
            return Err(NOT_SUPPORTED);
        }
        let device = library.mig(place)?;
        put(current, c_uint::from(device.is_on()))?;
        put(pending, c_uint::from(device.is_pending()))
    })
}

/// "Requires root user." What became of the change is told beside the success of the call; one that is refused waits.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetMigMode(
    device: nvmlDevice_t,
    mode: c_uint,
    activation: *mut nvmlReturn_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceSetMigMode", device, |library, place| {
        let generation = library.gpus[place].model.generation;
        if generation == Generation::Volta {
            return Err(NOT_SUPPORTED);
        }
        if mode > 1 {
            return Err(INVALID_ARGUMENT);
        }
        let activation = get(activation)?;
        super::privileged(library)?;
        let is_on = mode == 1;
        let index = library.index(place);
        let has_processes = !library.link.processes(index).unwrap_or_default().is_empty();
        let is_open = has_processes || library.is_open(place);
        *activation = library.change_mig(place, |device, _| {
            device.set_pending(is_on);
            if device.is_on() == is_on {
                return Ok(SUCCESS);
            }
            if generation < Generation::Hopper {
                return Ok(RESET_REQUIRED);
            }
            if is_open || !device.instances.is_empty() {
                return Ok(IN_USE);
            }
            device.set_current(is_on);
            Ok(SUCCESS)
        })?;
        Ok(())
    })
}
