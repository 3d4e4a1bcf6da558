//! Loads `libnvidia-ml.so.1` and initialises it.

#![expect(unsafe_code, reason = "a variable that switches NVML off must leave the environment")]

use super::trouble::Trouble;
use crate::DeviceError;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;

/// The name that every NVIDIA driver installs.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";
/// With this set, NVML enumerates MPS's locality domains and refuses every other call (nvml.h 13.5, `nvmlInit_v2`).
const MPS_ENUMERATION: &str = "NVML_MPS_DEVICE_ENUMERATION";

/// Opens the library of this driver, or the one that the configuration names.
///
/// # Errors
/// [`DeviceError::NoLibrary`]; [`DeviceError::Unreachable`] without a kernel driver; [`DeviceError::Refused`].
pub(super) fn open(library: Option<&Path>) -> Result<Nvml, DeviceError> {
    if std::env::var_os(MPS_ENUMERATION).is_some() {
        // SAFETY: Rust code shares a lock around the environment. C code that reads it meanwhile could only be the
        // resolver's or another driver's: the agent asks for its devices first, before it looks any name up, and this
        // happens once.
        unsafe { std::env::remove_var(MPS_ENUMERATION) };
    }
    let path = library.unwrap_or(Path::new(LIBRARY));
    Nvml::builder().lib_path(path.as_os_str()).init().map_err(|error| match error {
        NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_) => DeviceError::NoLibrary {
            library: path.display().to_string(),
            reason: pillion_core::report(&error),
        },
        error => Trouble::from(error).of(0),
    })
}
