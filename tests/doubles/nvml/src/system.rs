//! Calls about the library and the node: coming up, going down, finding devices.

use crate::library::{Library, call, hang, init, shutdown};
use crate::pointer::{Outcome, put, put_text};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND, nvmlReturn_t,
};
use std::ffi::{CStr, c_char, c_uint};

/// The driver that the library belongs to.
const DRIVER_VERSION: &str = "580.95.05";

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_: c_uint) -> nvmlReturn_t {
    init()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    shutdown()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    call(|_| put_text(version, length, DRIVER_VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    call(|library| put(count, c_uint::try_from(library.gpus.len()).map_err(|_| INVALID_ARGUMENT)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    hang(|_| usize::try_from(index).ok());
    call(|library| {
        let place = usize::try_from(index).ok().filter(|place| *place < library.gpus.len());
        let place = place.ok_or(INVALID_ARGUMENT)?;
        library.check(place)?;
        put(device, Library::handle(place))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    hang(|library| by_uuid(library, uuid).ok());
    call(|library| {
        let place = by_uuid(library, uuid)?;
        library.check(place)?;
        put(device, Library::handle(place))
    })
}

fn by_uuid(library: &Library, uuid: *const c_char) -> Outcome<usize> {
    if uuid.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null; a C string by the caller's part of the contract.
    let uuid = unsafe { CStr::from_ptr(uuid) };
    let is_it = |name: &str| name.as_bytes() == uuid.to_bytes();
    library.gpus.iter().position(|gpu| is_it(gpu.description.uuid.as_str())).ok_or(NOT_FOUND)
}
