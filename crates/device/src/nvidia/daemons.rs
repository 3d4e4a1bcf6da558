//! The MPS control daemons of the devices that NVML finds.

use crate::MpsControl;
use crate::mps::{ModeControl, MpsDaemons, Scopes};
use pillion_core::device::{DeviceDescription, DeviceNotice};
use std::path::PathBuf;

/// One control daemon for each device that is shared by MPS. Those of an earlier agent are taken over once the devices are
/// known.
pub struct NodeDaemons {
    control_binary: PathBuf,
    directory: PathBuf,
    /// Until the daemons have it.
    modes: Option<ModeControl>,
    daemons: Option<MpsDaemons>,
}

impl NodeDaemons {
    /// `directory`: what all daemons' own directories lie beneath. `modes`: as [`MpsDaemons::new`] has them.
    pub fn new(control_binary: PathBuf, directory: PathBuf, modes: Option<ModeControl>) -> Self {
        Self { control_binary, directory, modes, daemons: None }
    }

    /// These devices are there; told again when more are found.
    pub(super) fn found(&mut self, devices: &[DeviceDescription]) {
        let shared = devices.iter().filter(|device| device.mechanism.has_daemon());
        let shared = shared.map(|device| (device.index, device.uuid.clone()));
        if let Some(daemons) = &mut self.daemons {
            daemons.add_devices(shared);
        } else {
            let (binary, modes) = (self.control_binary.clone(), self.modes.take());
            let daemons = MpsDaemons::new(binary, &self.directory, modes, shared);
            self.daemons = Some(daemons.with_scopes(Scopes::of_systemd()));
        }
    }

    /// Once the devices are known.
    pub(super) fn control(&mut self) -> Option<&mut dyn MpsControl> {
        self.daemons.as_mut().map(|daemons| daemons as &mut dyn MpsControl)
    }

    /// What daemons told unasked since the last call.
    pub(super) fn notices(&mut self) -> Vec<DeviceNotice> {
        self.daemons.as_mut().map(MpsDaemons::notices).unwrap_or_default()
    }
}
