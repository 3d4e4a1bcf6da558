//! Who is on a device.

use crate::device::whole;
use crate::library::{Library, call_device, code};
use crate::pointer::{Outcome, put_list};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use pillion_core::{Clock as _, SystemClock};
use pillion_device::Backend as _;
use std::ffi::{c_uint, c_ulonglong};

/// Not in any part of a device.
const NO_INSTANCE: c_uint = c_uint::MAX;
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// How often the driver takes samples of processes.
const SAMPLE_MICROSECONDS: u64 = 166_667;

fn info(pid: u32, memory_bytes: Option<u64>) -> nvmlProcessInfo_t {
    nvmlProcessInfo_t {
        pid,
        usedGpuMemory: memory_bytes.unwrap_or(NOT_AVAILABLE),
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    }
}

/// The processes with a context, MPS clients among them.
fn compute(library: &mut Library, place: usize) -> Outcome<Vec<nvmlProcessInfo_t>> {
    let index = library.index(place);
    let processes = library.link.processes(index).map_err(|error| code(&error))?;
    Ok(processes.into_iter().map(|process| info(process.pid, process.memory_bytes)).collect())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetComputeRunningProcesses_v3", device, |library, place| {
        put_list(infos, count, compute(library, place)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |library, place| {
        let index = library.index(place);
        let here = library.control.graphics.iter().filter(|process| process.index == index);
        put_list(infos, count, here.map(|process| info(process.pid, process.memory_bytes)).collect())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, |library, place| {
        let index = library.index(place);
        let status = library.link.mps(index).map_err(|error| code(&error))?;
        let pids = status.map(|status| status.client_pids).unwrap_or_default();
        let mut clients = compute(library, place)?;
        clients.retain(|process| pids.contains(&process.pid));
        if !infos.is_null() && library.mps_races < library.control.mps_races {
            library.mps_races += 1;
            return Err(INSUFFICIENT_SIZE);
        }
        put_list(infos, count, clients)
    })
}

/// Samples newer than `last_seen` (microseconds since 1970): one a process, while there are any.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    last_seen: c_ulonglong,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetProcessUtilization", device, |library, place| {
        if library.has_mig(place) {
            return Err(NOT_SUPPORTED);
        }
        let processes = compute(library, place)?;
        let now = whole(SystemClock.now().seconds() * 1e6);
        if processes.is_empty() || now.saturating_sub(last_seen) < SAMPLE_MICROSECONDS {
            return Err(NOT_FOUND);
        }
        let totals = library.counters(place)?.totals;
        let busy = c_uint::try_from(whole(100.0 * totals.busy / totals.seconds)).unwrap_or(100);
        let sample = |process: nvmlProcessInfo_t| nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: now,
            smUtil: busy,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        put_list(samples, count, processes.into_iter().map(sample).collect())
    })
}
