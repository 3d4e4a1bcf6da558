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
use pillion_device::{Backend as _, MpsControl, MpsPlace, MpsStatus};
use std::ffi::{c_uint, c_ulonglong};
use std::path::Path;

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

/// What an MPS server has on a device beside its clients (MIG user guide, MPS: 60 MiB in its example).
const SERVER_BYTES: u64 = 60 << 20;
/// An MPS server's program.
const SERVER_PROGRAM: &str = "nvidia-cuda-mps-server";
/// Where a control daemon writes its pid, in its pipe directory.
const CONTROL_PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// The MPS daemon of a device: its own, or that of a set with it.
fn mps_daemon(library: &mut Library, index: u32) -> Outcome<Option<MpsStatus>> {
    let sets = MpsControl::sets(&mut library.link).map_err(|error| code(&error))?;
    let of_set = sets.into_iter().find(|place| place.indexes().any(|theirs| theirs == index));
    let place = of_set.unwrap_or_else(|| MpsPlace::device(index));
    MpsControl::status(&mut library.link, &place).map_err(|error| code(&error))
}

/// The MPS server of a device, once it has had a client: a compute process like others, but no MPS client itself (type
/// `C` beside the clients' `M+C`, MIG user guide, MPS). It is a child of the control daemon, whose pid stands in a file.
fn mps_server(library: &mut Library, index: u32) -> Outcome<Option<nvmlProcessInfo_t>> {
    let served = mps_daemon(library, index)?.filter(|status| status.server_uid.is_some());
    let pid_file = served.map(|status| status.settings.pipe_directory.join(CONTROL_PID_FILE));
    let text = pid_file.and_then(|file| std::fs::read_to_string(file).ok());
    let control = text.and_then(|text| text.trim().parse().ok());
    Ok(control.and_then(server_of).map(|pid| info(pid, Some(SERVER_BYTES))))
}

/// The child of a control daemon that runs the server's program.
fn server_of(control: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| parent(*pid) == Some(control) && program(*pid).is_some_and(|it| it == SERVER_PROGRAM))
}

/// The fourth field of `/proc/PID/stat`; the second, a name in brackets, may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn program(pid: u32) -> Option<String> {
    let cmdline = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let name = Path::new(cmdline.split('\0').next()?).file_name()?;
    Some(name.to_str()?.to_owned())
}

/// The processes with a context, MPS clients among them.
fn compute(library: &mut Library, place: usize) -> Outcome<Vec<nvmlProcessInfo_t>> {
    let index = library.index(place);
    let processes = library.link.processes(index).map_err(|error| code(&error))?;
    Ok(processes.into_iter().map(|process| info(process.pid, process.memory_bytes)).collect())
}

/// Those that have come into an instance: they have the capability of its compute instance open.
fn in_instances(library: &Library, place: usize) -> Outcome<Vec<nvmlProcessInfo_t>> {
    let cut = library.mig(place)?;
    if cut.instances.is_empty() {
        return Ok(Vec::new());
    }
    let table = library.table(place);
    let mut inside = library.all_occupants(place);
    inside.retain(|(gi, ci, _)| {
        cut.by_id(table, *gi).is_some_and(|it| it.compute.iter().any(|compute| compute.id == *ci))
    });
    library.see_occupants(place, &inside)?;
    let told =
        |(gi, ci, pid)| nvmlProcessInfo_t { gpuInstanceId: gi, computeInstanceId: ci, ..info(pid, None) };
    Ok(inside.into_iter().map(told).collect())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetComputeRunningProcesses_v3", device, |library, place| {
        let mut all = compute(library, place)?;
        let index = library.index(place);
        all.extend(mps_server(library, index)?);
        all.extend(in_instances(library, place)?);
        put_list(infos, count, all)
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
        let pids = mps_daemon(library, index)?.map(|status| status.client_pids).unwrap_or_default();
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
        if library.mig(place)?.is_on() {
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
