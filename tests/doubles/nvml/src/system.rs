//! Calls about the library and the node: coming up, going down, finding devices.

use crate::library::{Library, call, call_pair, hang, init, shutdown};
use crate::pointer::{Outcome, put, put_text};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_UNKNOWN as P2P_UNKNOWN, nvmlGpuP2PCapsIndex_t,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED as P2P_NOT_SUPPORTED,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK as P2P_OK, nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use pillion_core::link::Link;
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

/// What the simulated machine says of the way between two devices; `None`: nothing.
fn way(library: &Library, places: [usize; 2]) -> Option<Link> {
    let [one, other] = places.map(|place| &library.gpus[place].description);
    one.links.get(&other.index).copied()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    level: *mut nvmlGpuTopologyLevel_t,
) -> nvmlReturn_t {
    call_pair("nvmlDeviceGetTopologyCommonAncestor", [device1, device2], |library, places| {
        // nvml.h, nvmlGpuTopologyLevel_t. NVLink is no part of it: such devices hang on bridges of one NUMA node or of two.
        put(
            level,
            match way(library, places).ok_or(NOT_SUPPORTED)? {
                Link::Pix => 10,
                Link::Pxb => 20,
                Link::Phb => 30,
                Link::NvLink | Link::Node => 40,
                Link::Sys => 50,
            },
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    capability: nvmlGpuP2PCapsIndex_t,
    status: *mut nvmlGpuP2PStatus_t,
) -> nvmlReturn_t {
    call_pair("nvmlDeviceGetP2PStatus", [device1, device2], |library, places| {
        if capability >= P2P_UNKNOWN {
            return Err(INVALID_ARGUMENT);
        }
        let is_by_nvlink = way(library, places) == Some(Link::NvLink);
        put(status, if is_by_nvlink { P2P_OK } else { P2P_NOT_SUPPORTED })
    })
}
