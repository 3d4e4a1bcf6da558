//! Who runs the MPS control daemons of NVIDIA devices: NVML knows nothing of them.

use crate::{DeviceError, MpsSettings, MpsStatus};
use pillion_core::Fraction;
use pillion_core::device::{DeviceDescription, DeviceNotice};
use std::collections::BTreeSet;

/// The MPS part of a `Backend`, for devices by index; each method as the one of that name there.
pub trait MpsControl: Send {
    /// These devices are there; told before any of them is named, and again when more are found.
    fn found(&mut self, devices: &[DeviceDescription]);

    /// Starts the control daemon of one device.
    ///
    /// # Errors
    /// As `Backend::start_mps`.
    fn start_mps(&mut self, index: u32, settings: &MpsSettings) -> Result<(), DeviceError>;

    /// Stops the control daemon of one device.
    ///
    /// # Errors
    /// As `Backend::stop_mps`.
    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError>;

    /// The control daemon of one device, if it runs.
    ///
    /// # Errors
    /// As `Backend::mps`.
    fn mps(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError>;

    /// Ends one client in the clean way.
    ///
    /// # Errors
    /// As `Backend::terminate_mps_client`.
    fn terminate_mps_client(&mut self, index: u32, pid: u32) -> Result<(), DeviceError>;

    /// Gives one tenant compute units of its own.
    ///
    /// # Errors
    /// As `Backend::add_mps_partition`.
    fn add_mps_partition(&mut self, index: u32, tenant: &str, cap: Fraction) -> Result<String, DeviceError>;

    /// Takes the partitions of all but these tenants back.
    ///
    /// # Errors
    /// As `Backend::keep_mps_partitions`.
    fn keep_mps_partitions(&mut self, index: u32, tenants: &BTreeSet<String>) -> Result<(), DeviceError>;

    /// What daemons told unasked since the last call.
    fn notices(&mut self) -> Vec<DeviceNotice>;
}

/// No MPS: for sites that share their devices by time slices only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMps;

fn refuse<T>(index: u32) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported { index, reason: "MPS is turned off on this node".to_owned() })
}

impl MpsControl for NoMps {
    fn found(&mut self, _: &[DeviceDescription]) {}

    fn start_mps(&mut self, index: u32, _: &MpsSettings) -> Result<(), DeviceError> {
        refuse(index)
    }

    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError> {
        refuse(index)
    }

    fn mps(&mut self, _: u32) -> Result<Option<MpsStatus>, DeviceError> {
        Ok(None)
    }

    fn terminate_mps_client(&mut self, index: u32, _: u32) -> Result<(), DeviceError> {
        refuse(index)
    }

    fn add_mps_partition(&mut self, index: u32, _: &str, _: Fraction) -> Result<String, DeviceError> {
        refuse(index)
    }

    fn keep_mps_partitions(&mut self, _: u32, _: &BTreeSet<String>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        Vec::new()
    }
}
