//! The control file: where the simulated driver is, and what the library is to do wrong. JSON, read again at each call;
//! absent, everything works.
//!
//! It is the file that `PILLION_NVML_DOUBLE_FAULTS` names, or else the library's own path with `.json` added: so each
//! test that loads a copy of its own has a control file of its own.

use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN, nvmlReturn_t};
use pillion_device::simulated::{SOCKET_VARIABLE, socket_path};
use serde::Deserialize;
use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Names the control file.
const FAULTS_VARIABLE: &str = "PILLION_NVML_DOUBLE_FAULTS";

/// What the control file says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Control {
    /// The simulated driver's socket, if not the environment's.
    pub(crate) socket: Option<PathBuf>,
    /// These devices have fallen off the bus.
    pub(crate) lost: Vec<u32>,
    /// On these devices MIG is on.
    pub(crate) mig: Vec<u32>,
    /// What others have made of them by MIG. What is made and destroyed through this library stands beside the driver's socket.
    pub(crate) mig_instances: Vec<MigInstance>,
    /// What the devices are, in their order, where not what the simulation says.
    pub(crate) models: Vec<String>,
    /// A folder for `dev` and `driver`, the files of devices and capabilities: made when the library comes up.
    pub(crate) files: Option<PathBuf>,
    /// What becomes of the files of capabilities.
    pub(crate) capability_files: CapabilityFiles,
    /// For so long an instance that somebody was in counts as used.
    pub(crate) destroy_busy_ms: u64,
    /// Instances that are not destroyed, whoever is in them: somebody uses them whom nobody lists.
    pub(crate) destroy_stuck: Vec<Stuck>,
    /// How often the machine was booted.
    pub(crate) boots: u32,
    /// A log of resets: entries that are added to it happen once.
    pub(crate) resets: Vec<u32>,
    /// The devices' minor numbers, where they are not their indexes.
    pub(crate) minor_numbers: Vec<u32>,
    /// Nobody may ask anything.
    pub(crate) no_permission: bool,
    /// Whoever asks is not root: settings are refused, and nothing else.
    pub(crate) not_root: bool,
    /// Functions that we may not call, by their names: without `CAP_SYS_ADMIN` a driver may keep its counters from us.
    pub(crate) not_permitted: Vec<String>,
    /// Functions that no device supports, by their names. `field:186` is a field, `gpm:12` a metric.
    pub(crate) not_supported: Vec<String>,
    /// A log of Xids: entries that are added to it are told once.
    pub(crate) xid: Vec<Xid>,
    /// Graphics processes.
    pub(crate) graphics: Vec<Graphics>,
    /// `nvmlClocksThrottleReason..` bits.
    pub(crate) throttle_reasons: u64,
    /// Tensor activity, which the simulated devices do not know.
    pub(crate) tensor_percent: Option<f64>,
    /// NVLink rates in MiB/s, to and from other devices, which the simulated devices do not know.
    pub(crate) nvlink_mebibytes: Option<(f64, f64)>,
    /// How many times, since the library was loaded, the list of MPS clients grows before it is fetched.
    pub(crate) mps_races: u32,
    /// Calls about these devices do not come back before they are taken off this list.
    pub(crate) hung: Vec<u32>,
    /// How long each call about a device hangs, and with it all others: the library is held.
    pub(crate) hang_milliseconds: u64,
}

/// A MIG instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigInstance {
    /// Its device.
    pub(crate) index: u32,
    /// As NVIDIA calls its size.
    pub(crate) profile: String,
    /// Its first memory slice.
    pub(crate) start: u32,
}

/// What becomes of the file of a capability when an instance is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CapabilityFiles {
    /// It is made, or stays as it is.
    #[default]
    Kept,
    /// The driver makes it anew, open to everybody (`ModifyDeviceFiles: 1`).
    Modified,
    /// Nobody makes it.
    Absent,
}

/// An instance that is not destroyed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stuck {
    /// Its device.
    pub(crate) index: u32,
    /// Its first memory slice.
    pub(crate) start: u32,
}

/// An Xid.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Xid {
    pub(crate) index: u32,
    pub(crate) code: u64,
}

/// A graphics process.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Graphics {
    pub(crate) index: u32,
    pub(crate) pid: u32,
    /// Its memory, where the driver is to tell it.
    pub(crate) memory_bytes: Option<u64>,
}

impl Control {
    /// What the file says now.
    pub(crate) fn read() -> Result<Self, nvmlReturn_t> {
        let given = std::env::var_os(FAULTS_VARIABLE).map(PathBuf::from);
        let Some(path) = given.or_else(beside_library) else {
            return Ok(Self::default());
        };
        match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|_| UNKNOWN),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(_) => Err(UNKNOWN),
        }
    }

    /// Where the simulated driver listens.
    pub(crate) fn socket(&self) -> PathBuf {
        let variable = |name| std::env::var(name).ok();
        let named =
            || socket_path(variable(SOCKET_VARIABLE).as_deref(), variable("SLURMD_NODENAME").as_deref());
        self.socket.clone().unwrap_or_else(named)
    }

    /// Whether a function, field or metric is there.
    pub(crate) fn supports(&self, name: &str) -> bool {
        !self.not_supported.iter().any(|missing| missing == name)
    }
}

fn beside_library() -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() -> Option<PathBuf> = beside_library;
    // SAFETY: `found` is a place for the answer, which is filled in if the result is not 0; zeros are valid otherwise.
    let found = unsafe {
        if libc::dladdr(here as *const libc::c_void, found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own name of a library that stays loaded while this runs.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    let mut path = OsStr::from_bytes(name.to_bytes()).to_owned();
    path.push(".json");
    Some(PathBuf::from(path))
}
