//! Who is on a device: NVML keeps three lists, of compute processes, of graphics processes and of MPS clients. A client of
//! MPS stands in two of them, with the same memory (Volta and later; MIG user guide, MPS).

use super::convert;
use super::trouble::Trouble;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use pillion_core::device::DeviceProcess;
use std::collections::{BTreeMap, BTreeSet};

/// How often a list may grow between the question for its length and that for its entries.
const TRIES: usize = 5;

/// The processes on one device, by pid: those of the node, as long as we run in its pid namespace.
///
/// # Errors
/// If the list of compute processes cannot be had, or the device is gone.
pub(super) fn processes(device: &Device<'_>) -> Result<Vec<DeviceProcess>, Trouble> {
    let all = listed(device)?;
    Ok(union(all.into_iter().map(|process| (process.pid, convert::process_bytes(&process.used_gpu_memory)))))
}

/// Who is in each GPU instance of a device, by the driver's number of it.
///
/// # Errors
/// As [`processes`].
pub(super) fn by_instance(device: &Device<'_>) -> Result<BTreeMap<u32, BTreeSet<u32>>, Trouble> {
    let mut found: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for process in listed(device)? {
        if let Some(instance) = process.gpu_instance_id {
            found.entry(instance).or_default().insert(process.pid);
        }
    }
    Ok(found)
}

/// The entries of all lists.
fn listed(device: &Device<'_>) -> Result<Vec<ProcessInfo>, Trouble> {
    let mut all = whole(|| device.running_compute_processes())?;
    // Drivers from before R510 do not know the question for MPS clients; they list them as compute processes.
    for others in
        [whole(|| device.running_graphics_processes()), whole(|| device.mps_running_compute_processes())]
    {
        match others.map_err(Trouble::from) {
            Ok(others) => all.extend(others),
            Err(Trouble::Absent(_)) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(all)
}

/// Asks again while the list grows under our hands.
fn whole(
    mut ask: impl FnMut() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    for _ in 1..TRIES {
        match ask() {
            Err(NvmlError::InsufficientSize(_)) => {}
            answer => return answer,
        }
    }
    ask()
}

/// One entry a pid, with the most memory that any list tells.
fn union(entries: impl Iterator<Item = (u32, Option<u64>)>) -> Vec<DeviceProcess> {
    let mut all: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for (pid, memory_bytes) in entries {
        let kept = all.entry(pid).or_default();
        *kept = memory_bytes.max(*kept);
    }
    all.into_iter().map(|(pid, memory_bytes)| DeviceProcess { pid, memory_bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_is_one_process_with_what_any_list_tells() {
        let lists = [(7, Some(100)), (9, None), (7, Some(100)), (9, Some(5)), (8, None)];
        let process = |pid, memory_bytes| DeviceProcess { pid, memory_bytes };
        assert_eq!(union(lists.into_iter()), [process(7, Some(100)), process(8, None), process(9, Some(5))]);
    }

    #[test]
    fn a_growing_list_is_asked_for_again_but_not_for_ever() {
        let mut asked = 0;
        let second = whole(|| {
            asked += 1;
            if asked < 2 { Err(NvmlError::InsufficientSize(None)) } else { Ok(Vec::new()) }
        });
        assert!(second.unwrap().is_empty());
        let mut asked = 0;
        let never = whole(|| {
            asked += 1;
            Err(NvmlError::InsufficientSize(None))
        });
        assert!(matches!(never, Err(NvmlError::InsufficientSize(_))));
        assert_eq!(asked, TRIES);
        let mut asked = 0;
        let lost = whole(|| {
            asked += 1;
            Err(NvmlError::GpuLost)
        });
        assert!(matches!(lost, Err(NvmlError::GpuLost)));
        assert_eq!(asked, 1);
    }
}
