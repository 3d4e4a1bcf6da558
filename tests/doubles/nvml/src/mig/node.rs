//! The files of devices and capabilities, plain files in a folder of the control file's, and who has them open. Their owners, their
//! modes and whoever opens them are real.

use crate::control::{CapabilityFiles, Control};
use crate::library::Library;
use crate::pointer::Outcome;
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN;
use std::ffi::c_uint;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// How many GPU instances a driver has capabilities for on each device, and how many compute instances in each.
const GPU_INSTANCES: c_uint = 15;
const COMPUTE_INSTANCES: c_uint = 8;
/// The first minor number that is an instance's; those of `config` and `monitor` come before.
const FIRST_MINOR: c_uint = 3;
/// As the driver makes a capability of an instance: `DeviceFileMode: 292`.
const MODE: u32 = 0o444;

/// The number of a capability's file.
fn minor(device: c_uint, gpu_instance: c_uint, compute_instance: Option<c_uint>) -> c_uint {
    let step = 1 + COMPUTE_INSTANCES;
    let first = FIRST_MINOR + (device * GPU_INSTANCES + gpu_instance) * step;
    compute_instance.map_or(first, |id| first + 1 + id)
}

/// What `mig-minors` says for so many devices.
fn minors(devices: &[c_uint]) -> String {
    let mut text = "config 1\nmonitor 2\n".to_owned();
    for device in devices {
        for gi in 0..GPU_INSTANCES {
            let _ = writeln!(text, "gpu{device}/gi{gi}/access {}", minor(*device, gi, None));
            for ci in 0..COMPUTE_INSTANCES {
                let _ = writeln!(text, "gpu{device}/gi{gi}/ci{ci}/access {}", minor(*device, gi, Some(ci)));
            }
        }
    }
    text
}

/// A file in its place, if it is not there or says something else.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

impl Library {
    /// What the driver makes when it is loaded.
    pub(crate) fn make_files(&self) -> Outcome {
        let Some(folder) = &self.control.files else { return Ok(()) };
        let devices: Vec<c_uint> = (0..self.gpus.len()).map(|place| self.minor_number(place)).collect();
        let modifies = c_uint::from(self.control.capability_files == CapabilityFiles::Modified);
        let params = format!("EnableMSI: 1\nModifyDeviceFiles: {modifies}\nDeviceFileMode: 438\n");
        let made = write(&folder.join("driver/nvidia-caps/mig-minors"), &minors(&devices))
            .and_then(|()| write(&folder.join("driver/nvidia/params"), &params))
            .and_then(|()| fs::create_dir_all(folder.join("dev/nvidia-caps")))
            .and_then(|()| {
                devices.iter().try_for_each(|device| {
                    let path = folder.join(format!("dev/nvidia{device}"));
                    if path.exists() { Ok(()) } else { write(&path, "") }
                })
            });
        made.map_err(|_| UNKNOWN)
    }

    /// The file of an instance's capability; `None` where the control file gives no folder.
    fn capability(&self, place: usize, gi: c_uint, ci: Option<c_uint>) -> Option<PathBuf> {
        let folder = self.control.files.as_ref()?;
        let minor = minor(self.minor_number(place), gi, ci);
        Some(folder.join(format!("dev/nvidia-caps/nvidia-cap{minor}")))
    }

    /// Makes the file of a new instance. One of an earlier instance stays as it was, unless the driver modifies them.
    pub(crate) fn make_capability(&self, place: usize, gi: c_uint, ci: Option<c_uint>) -> Outcome {
        let Some(path) = self.capability(place, gi, ci) else { return Ok(()) };
        match self.control.capability_files {
            CapabilityFiles::Absent => return Ok(()),
            CapabilityFiles::Kept if path.exists() => return Ok(()),
            CapabilityFiles::Kept | CapabilityFiles::Modified => {}
        }
        let made = fs::write(&path, "")
            .and_then(|()| std::os::unix::fs::chown(&path, Some(0), Some(0)).or(Ok(())))
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(MODE)));
        made.map_err(|_| UNKNOWN)
    }

    /// Who has the file of a capability open.
    pub(crate) fn occupants(&self, place: usize, gi: c_uint, ci: Option<c_uint>) -> Vec<u32> {
        self.capability(place, gi, ci).map(|path| openers(|open| open == path)).unwrap_or_default()
    }

    /// Who is in which instance of a device, by the capability of a compute instance: the GPU instance, the compute instance, the
    /// process.
    pub(crate) fn all_occupants(&self, place: usize) -> Vec<(c_uint, c_uint, u32)> {
        let Some(folder) = &self.control.files else { return Vec::new() };
        let capabilities = folder.join("dev/nvidia-caps");
        let device = self.minor_number(place);
        let mut found = Vec::new();
        each_open(|pid, open| {
            if open.parent() != Some(&capabilities) {
                return;
            }
            for gi in 0..GPU_INSTANCES {
                for ci in 0..COMPUTE_INSTANCES {
                    let name = format!("nvidia-cap{}", minor(device, gi, Some(ci)));
                    if open.file_name().is_some_and(|it| *it == *name) {
                        found.push((gi, ci, pid));
                    }
                }
            }
        });
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether another program has the device or an instance of it open.
    pub(crate) fn is_open(&self, place: usize) -> bool {
        let Control { files: Some(folder), .. } = &self.control else { return false };
        let device = self.minor_number(place);
        let path = folder.join(format!("dev/nvidia{device}"));
        let capabilities = folder.join("dev/nvidia-caps");
        let own = minor(device, 0, None)..minor(device + 1, 0, None);
        let is_own = |open: &Path| {
            let name =
                open.file_name().and_then(|name| name.to_str()?.strip_prefix("nvidia-cap")?.parse().ok());
            open.parent() == Some(&capabilities) && name.is_some_and(|minor: c_uint| own.contains(&minor))
        };
        !openers(|open| open == path || is_own(open)).is_empty()
    }
}

/// The other processes that have a file open.
fn openers(is_it: impl Fn(&Path) -> bool) -> Vec<u32> {
    let mut found = Vec::new();
    each_open(|pid, open| {
        if is_it(open) {
            found.push(pid);
        }
    });
    found.dedup();
    found
}

/// Every open file of every other process; those that end meanwhile are left out.
fn each_open(mut see: impl FnMut(u32, &Path)) {
    let own = std::process::id();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else { continue };
        for open in fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            if let Ok(path) = fs::read_link(open.path()) {
                see(pid, &path);
            }
        }
    }
}
