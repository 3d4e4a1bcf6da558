//! Who may open a device, set through NVML: rarely, by whoever starts or ends an MPS daemon, and from its own opening of
//! the library, so that a look at the devices is never in the way.

use super::NvidiaSettings;
use super::trouble::Trouble;
use super::work::{self, Question};
use crate::DeviceError;
use crate::mps::{ComputeMode, ComputeModes};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlMode;
use pillion_core::DeviceUuid;

/// Sets compute modes as NVML does; needs root.
#[derive(Debug, Clone)]
pub struct NvmlComputeModes {
    settings: NvidiaSettings,
}

impl NvmlComputeModes {
    /// Nothing is loaded until a mode is set.
    pub fn new(settings: NvidiaSettings) -> Self {
        Self { settings }
    }
}

impl ComputeModes for NvmlComputeModes {
    fn set_compute_mode(&mut self, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError> {
        let worker = work::start(&self.settings)?;
        worker.ask(|answer| Question::SetComputeMode(device.clone(), mode, answer))
    }
}

/// Sets it.
///
/// # Errors
/// [`DeviceError::Refused`] if not root, or where the device has no such mode; [`DeviceError::Gone`].
pub(super) fn set(nvml: &Nvml, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError> {
    let wanted = match mode {
        ComputeMode::Default => NvmlMode::Default,
        ComputeMode::ExclusiveProcess => NvmlMode::ExclusiveProcess,
    };
    let failed = |error| Trouble::from(error).of(0);
    let mut device = nvml.device_by_uuid(device.as_str()).map_err(failed)?;
    let index = device.index().map_err(failed)?;
    device.set_compute_mode(wanted).map_err(|error| Trouble::from(error).of(index))
}
