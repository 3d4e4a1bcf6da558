//! The MPS control daemons of the devices that NVML finds.

use super::mps::MpsControl;
use crate::mps::{ModeControl, MpsDaemons};
use crate::{DeviceError, MpsSettings, MpsStatus};
use pillion_core::Fraction;
use pillion_core::device::{DeviceDescription, DeviceNotice};
use std::collections::BTreeSet;
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

    fn known(&mut self, index: u32) -> Result<&mut MpsDaemons, DeviceError> {
        self.daemons.as_mut().ok_or(DeviceError::NoSuchDevice { index })
    }
}

impl MpsControl for NodeDaemons {
    fn found(&mut self, devices: &[DeviceDescription]) {
        let shared = devices.iter().filter(|device| device.mechanism.has_daemon());
        let shared = shared.map(|device| (device.index, device.uuid.clone()));
        if let Some(daemons) = &mut self.daemons {
            daemons.add_devices(shared);
        } else {
            let (binary, modes) = (self.control_binary.clone(), self.modes.take());
            self.daemons = Some(MpsDaemons::new(binary, &self.directory, modes, shared));
        }
    }

    fn start_mps(&mut self, index: u32, settings: &MpsSettings) -> Result<(), DeviceError> {
        self.known(index)?.start_mps(index, settings)
    }

    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError> {
        self.known(index)?.stop_mps(index)
    }

    fn mps(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError> {
        self.known(index)?.mps(index)
    }

    fn terminate_mps_client(&mut self, index: u32, pid: u32) -> Result<(), DeviceError> {
        self.known(index)?.terminate_mps_client(index, pid)
    }

    fn add_mps_partition(&mut self, index: u32, tenant: &str, cap: Fraction) -> Result<String, DeviceError> {
        self.known(index)?.add_mps_partition(index, tenant, cap)
    }

    fn keep_mps_partitions(&mut self, index: u32, tenants: &BTreeSet<String>) -> Result<(), DeviceError> {
        self.known(index)?.keep_mps_partitions(index, tenants)
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        self.daemons.as_mut().map(MpsDaemons::notices).unwrap_or_default()
    }
}
