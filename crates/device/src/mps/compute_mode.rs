//! Compute modes: which devices are closed to all but their MPS server while a daemon is up. How a mode is set is a driver's
//! business.

use crate::DeviceError;
use pillion_core::DeviceUuid;
use serde::{Deserialize, Serialize};

/// Who may open a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ComputeMode {
    /// Any process (`DEFAULT`).
    #[default]
    Default,
    /// One process: the MPS server, whose clients do not count (`EXCLUSIVE_PROCESS`).
    ExclusiveProcess,
}

/// Sets compute modes, as root: NVML does.
pub trait ComputeModes: Send {
    /// Sets the mode of one device.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] or what else kept the driver from it.
    fn set_compute_mode(&mut self, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError>;
}

/// What sets a node's compute modes, and whether the site wants each device closed to all but its MPS server while a daemon
/// is up. What an earlier agent closed is opened either way.
pub struct ModeControl {
    /// How the mode of a device is set.
    pub modes: Box<dyn ComputeModes>,
    /// Whether devices are closed.
    pub is_strict: bool,
}

impl ModeControl {
    /// Closes a daemon's devices if the site is strict.
    pub(super) fn close<'a>(
        &mut self,
        mut devices: impl Iterator<Item = &'a DeviceUuid>,
    ) -> Result<(), DeviceError> {
        if !self.is_strict {
            return Ok(());
        }
        devices.try_for_each(|device| self.modes.set_compute_mode(device, ComputeMode::ExclusiveProcess))
    }

    /// Gives a daemon's devices back to everybody. `is_closed`: they are written down as closed; under a strict site any may be.
    pub(super) fn open<'a>(
        &mut self,
        devices: impl Iterator<Item = &'a DeviceUuid>,
        is_closed: bool,
    ) -> Result<(), DeviceError> {
        if !self.is_strict && !is_closed {
            return Ok(());
        }
        // One that cannot be opened keeps none of the others shut.
        let opened = devices.map(|device| self.modes.set_compute_mode(device, ComputeMode::Default));
        opened.fold(Ok(()), Result::and)
    }
}
