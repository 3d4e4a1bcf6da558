//! NVIDIA's Multi-Process Service: one control daemon a device, an instance of one that tenants of one user share, or a set of devices
//! whose tenants use all of them, each in directories of its own, so that a fault stays where it is. The default directory
//! (`/tmp/nvidia-mps`) is never used: a program that finds a daemon there by chance would share what nobody decided.

use super::error::MechanismError;
use super::variable::Variable;
use pillion_core::device::DeviceDescription;
use pillion_core::mig::Slot;
use pillion_core::share::Share;
use pillion_core::{DeviceUuid, Fraction, GresType, UserId};
use pillion_device::{MpsPlace, MpsSettings};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Where the daemons' directories lie.
pub(crate) fn directory(runtime_directory: &Path) -> PathBuf {
    runtime_directory.join("mps")
}

/// What one daemon serves: devices that are not cut, most often one, or an instance of one.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) place: MpsPlace,
    /// The name of its directory.
    name: String,
    /// The memory that its clients share, of each device.
    memory_bytes: u64,
}

impl Served {
    /// Devices that are not cut: the first, and those that clients see beside it.
    pub(super) fn devices(first: &DeviceDescription, beside: &[DeviceDescription]) -> Self {
        let gres_types = std::iter::once(first).chain(beside).map(|device| &device.gres_type);
        let memory = beside.iter().map(|device| device.memory_bytes);
        Self {
            place: MpsPlace::set(first.index, beside.iter().map(|device| device.index).collect()),
            name: directory_name(gres_types, None),
            memory_bytes: memory.fold(first.memory_bytes, u64::max),
        }
    }

    /// An instance of one. Where the driver does not say how much memory that has, it is the device's that it is held to.
    pub(super) fn instance(device: &DeviceDescription, slot: Slot, name: DeviceUuid) -> Self {
        let size = device.geometry.as_ref().and_then(|geometry| geometry.size(slot.profile));
        Self {
            place: MpsPlace::instance(device.index, name),
            name: directory_name(std::iter::once(&device.gres_type), Some(slot)),
            memory_bytes: size.and_then(|size| size.memory_bytes).unwrap_or(device.memory_bytes),
        }
    }
}

/// The name of a daemon's directory: of its devices, or of its instance there. Without a comma: containers are told paths in lists.
fn directory_name<'a>(gres_types: impl Iterator<Item = &'a GresType>, slot: Option<Slot>) -> String {
    let devices = gres_types.map(GresType::as_str).collect::<Vec<_>>().join("+");
    slot.map_or_else(|| devices.clone(), |slot| format!("{devices}-{slot}"))
}

/// The same of the daemon whose clients a share's processes are, if they are any's.
pub(crate) fn directory_name_of(share: &Share) -> Option<String> {
    share.mechanism().has_daemon().then(|| name_of(share))
}

fn name_of(share: &Share) -> String {
    directory_name(share.gres_types.iter(), share.sharing.mig_slot())
}

/// Where the daemon of a share's devices and its clients meet.
pub(super) fn pipe_directory_of(runtime_directory: &Path, share: &Share) -> PathBuf {
    pipe_directory(runtime_directory, &name_of(share))
}

fn pipe_directory(runtime_directory: &Path, name: &str) -> PathBuf {
    directory(runtime_directory).join(name).join("pipe")
}

/// Those of a device's shares whose processes are clients of its daemon.
pub(super) fn tenants<'a>(shares: impl Iterator<Item = &'a Share>) -> Vec<&'a Share> {
    shares.filter(|share| share.mechanism().has_daemon()).collect()
}

/// How a daemon is run for these tenants. It holds every client to the largest limit and cap among them, whatever
/// the client's environment says: no less, for it cannot tell one tenant from another.
pub(super) fn settings(
    runtime_directory: &Path,
    served: &Served,
    multi_user: bool,
    tenants: &[&Share],
) -> MpsSettings {
    let (cap_default, memory_limit_bytes_default) = largest_limits(tenants, served.memory_bytes);
    let log_directory = directory(runtime_directory).join(&served.name).join("log");
    MpsSettings {
        pipe_directory: pipe_directory(runtime_directory, &served.name),
        log_directory,
        multi_user,
        partitions: false,
        users: users(tenants),
        cap_default,
        memory_limit_bytes_default,
    }
}

/// Who has business with the daemon.
fn users(tenants: &[&Share]) -> BTreeSet<UserId> {
    tenants.iter().map(|tenant| tenant.uid).collect()
}

/// These settings for other tenants.
pub(super) fn for_tenants(settings: &MpsSettings, served: &Served, tenants: &[&Share]) -> MpsSettings {
    let (cap_default, memory_limit_bytes_default) = largest_limits(tenants, served.memory_bytes);
    MpsSettings { users: users(tenants), cap_default, memory_limit_bytes_default, ..settings.clone() }
}

/// The largest cap and the largest memory limit. One tenant without a cap frees all of it, one without a memory limit may
/// have all that there is: said as a number, because MPS takes a limit back from no server.
fn largest_limits(tenants: &[&Share], memory_bytes: u64) -> (Option<Fraction>, Option<u64>) {
    let caps: Option<Vec<Fraction>> = tenants.iter().map(|tenant| tenant.sharing.cap()).collect();
    let cap = caps.and_then(|caps| caps.into_iter().max_by(|a, b| a.value().total_cmp(&b.value())));
    let limits = tenants.iter().map(|tenant| tenant.sharing.memory_limit_bytes().unwrap_or(memory_bytes));
    (cap, limits.max().map(|bytes| bytes.max(MIB)))
}

/// Whether the limits can be written as MPS reads them.
pub(super) fn check(cap: Option<Fraction>, memory_limit_bytes: Option<u64>) -> Result<(), MechanismError> {
    if cap.is_some_and(|cap| percent(cap.value()) <= 0.0) {
        return Err(MechanismError::NoCompute);
    }
    match memory_limit_bytes {
        Some(bytes) if bytes < MIB => Err(MechanismError::NoMemory(bytes)),
        _ => Ok(()),
    }
}

/// Hundredths, to two places: what a fraction is in MPS's words.
fn percent(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 100.0
}

/// The variables of a client. What it sees, devices or an instance, goes by uuid: a daemon renumbers what it serves. Limits name all that it
/// sees and nothing else, by its own numbers: a client that is told a limit of a device that it does not see keeps none, the daemon's neither
/// (NVIDIA, MPS r615).
///
/// `partition`: the name of the tenant's own SM partition; percentages do not count beside it.
pub(crate) fn environment(
    (cap, memory_limit_bytes): (Option<Fraction>, Option<u64>),
    visible: &[&DeviceUuid],
    pipe_directory: &Path,
    partition: Option<&str>,
) -> Vec<Variable> {
    let mut variables = vec![
        ("CUDA_VISIBLE_DEVICES".to_owned(), listed(visible.iter().map(ToString::to_string))),
        ("CUDA_MPS_PIPE_DIRECTORY".to_owned(), pipe_directory.display().to_string()),
    ];
    if let Some(partition) = partition {
        variables.push(("CUDA_MPS_SM_PARTITION".to_owned(), partition.to_owned()));
    } else if let Some(cap) = cap {
        variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_owned(), percent(cap.value()).to_string()));
    }
    if let Some(bytes) = memory_limit_bytes {
        let limits = (0..visible.len()).map(|number| format!("{number}={}M", bytes / MIB));
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".to_owned(), listed(limits)));
    }
    variables
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::{device, share};
    use pillion_core::device::Mechanism;
    use pillion_core::share::Sharing;

    fn tenant(cap: Option<f64>, memory_limit_bytes: Option<u64>) -> Share {
        let sharing = Sharing::Mps { cap: cap.map(Fraction::clamped), memory_limit_bytes };
        Share { sharing, ..share(1, Mechanism::Mps) }
    }

    #[test]
    fn everybody_is_held_to_the_largest_limits_among_the_tenants() {
        let nvidia = device(Mechanism::Mps);
        let limits =
            |tenants: &[Share]| largest_limits(&tenants.iter().collect::<Vec<_>>(), nvidia.memory_bytes);
        let (small, large) = (tenant(Some(0.3), Some(1 << 30)), tenant(Some(0.6), Some(8 << 30)));
        assert_eq!(limits(&[small.clone(), large]), (Some(Fraction::clamped(0.6)), Some(8 << 30)));
        let free = tenant(None, None);
        assert_eq!(limits(&[small, free]), (None, Some(nvidia.memory_bytes)), "one without any");
    }
}
