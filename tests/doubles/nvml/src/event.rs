//! Event sets: Xids come from the control file's log.

use crate::library::{Library, Set, call, call_device, guarded, with_library};
use crate::pointer::{Outcome, put};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeXidCriticalError,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT,
    nvmlReturn_t,
};
use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::time::Duration;

/// The only events that these devices tell.
const XID: c_ulonglong = nvmlEventTypeXidCriticalError as c_ulonglong;
/// Not in any part of a device.
const NO_INSTANCE: c_uint = c_uint::MAX;

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    call(|library| {
        let handle = library.new_handle();
        put(set, ptr::without_provenance_mut(handle))?;
        // What happened before nobody hears.
        let seen_count = library.control.xid.len();
        library.sets.insert(handle, Set { seen_count, ..Set::default() });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    call(|library| library.sets.remove(&set.addr()).map(drop).ok_or(INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: nvmlDevice_t,
    types: *mut c_ulonglong,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetSupportedEventTypes", device, |_, _| put(types, XID))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceRegisterEvents", device, |library, place| {
        if types & !XID != 0 {
            return Err(NOT_SUPPORTED);
        }
        let index = library.index(place);
        let set = library.sets.get_mut(&set.addr()).ok_or(INVALID_ARGUMENT)?;
        *set.registered.entry(index).or_default() |= types;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_milliseconds: c_uint,
) -> nvmlReturn_t {
    guarded(|| {
        for waited in 0.. {
            if let Some(event) = with_library(|library| next_event(library, set.addr()))? {
                return put(data, event);
            }
            if waited >= timeout_milliseconds {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(TIMEOUT)
    })
}

/// The next entry of the log that this set listens for.
fn next_event(library: &mut Library, handle: usize) -> Outcome<Option<nvmlEventData_t>> {
    let Library { control, sets, gpus, .. } = library;
    let set = sets.get_mut(&handle).ok_or(INVALID_ARGUMENT)?;
    while let Some(xid) = control.xid.get(set.seen_count) {
        set.seen_count += 1;
        let place = gpus.iter().position(|gpu| gpu.description.index == xid.index);
        if let Some(place) = place.filter(|_| set.registered.get(&xid.index) == Some(&XID)) {
            return Ok(Some(nvmlEventData_t {
                device: Library::handle(place),
                eventType: XID,
                eventData: xid.code,
                gpuInstanceId: NO_INSTANCE,
                computeInstanceId: NO_INSTANCE,
            }));
        }
    }
    Ok(None)
}
