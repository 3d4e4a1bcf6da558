//! NVIDIA's Multi-Process Service: one control daemon a device, each in directories of its own, so that a fault stays on
//! its device. The default directory (`/tmp/nvidia-mps`) is never used: a program that finds a daemon there by chance would
//! share what nobody decided.

use super::MechanismError;
use super::Variable;
use pillion_core::GresType;
use pillion_core::device::DeviceDescription;
use pillion_core::share::Share;
use pillion_device::MpsSettings;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Where the daemons' directories lie.
pub(crate) fn directory(runtime_directory: &Path) -> PathBuf {
    runtime_directory.join("mps")
}

/// Where a device's daemon and its clients meet.
pub(super) fn pipe_directory(runtime_directory: &Path, gres_type: &GresType) -> PathBuf {
    directory(runtime_directory).join(gres_type.as_str()).join("pipe")
}

/// How a device's daemon is run. No default cap or limit: tenants of one daemon have different ones.
pub(super) fn settings(runtime_directory: &Path, gres_type: &GresType, multi_user: bool) -> MpsSettings {
    MpsSettings {
        pipe_directory: pipe_directory(runtime_directory, gres_type),
        log_directory: directory(runtime_directory).join(gres_type.as_str()).join("log"),
        multi_user,
        partitions: false,
        cap_default: None,
        memory_limit_bytes_default: None,
    }
}

/// Whether the limits can be written as MPS reads them.
pub(super) fn check(share: &Share) -> Result<(), MechanismError> {
    if share.cap_fraction.is_some_and(|cap| percent(cap.value()) <= 0.0) {
        return Err(MechanismError::NoCompute);
    }
    match share.memory_limit_bytes {
        Some(bytes) if bytes < MIB => Err(MechanismError::NoMemory(bytes)),
        _ => Ok(()),
    }
}

/// Hundredths, to two places: what a fraction is in MPS's words.
fn percent(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 100.0
}

/// The variables of a client. The device goes by its uuid: a daemon that serves one device renumbers them.
///
/// `partition`: the name of the tenant's own SM partition; percentages do not count beside it.
pub(crate) fn environment(
    share: &Share,
    device: &DeviceDescription,
    pipe_directory: &Path,
    partition: Option<&str>,
) -> Vec<Variable> {
    let mut variables = vec![
        ("CUDA_VISIBLE_DEVICES".to_owned(), device.uuid.to_string()),
        ("CUDA_MPS_PIPE_DIRECTORY".to_owned(), pipe_directory.display().to_string()),
    ];
    if let Some(partition) = partition {
        variables.push(("CUDA_MPS_SM_PARTITION".to_owned(), partition.to_owned()));
    } else if let Some(cap) = share.cap_fraction {
        variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_owned(), percent(cap.value()).to_string()));
    }
    if let Some(bytes) = share.memory_limit_bytes {
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".to_owned(), format!("0={}M", bytes / MIB)));
    }
    variables
}
