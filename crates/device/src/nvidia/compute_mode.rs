//! Who may open a device, set through NVML: rarely, by whoever starts or ends an MPS daemon, and from its own opening of
//! the library, so that a sample of the devices is never in the way.

use super::NvidiaSettings;
use super::library::Library;
use super::thread::{self, Question};
use super::trouble::Trouble;
use crate::DeviceError;
use crate::mps::{ComputeMode, ComputeModes};
use crate::worker::Worker;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlMode;
use pillion_core::DeviceUuid;

/// Sets compute modes as NVML does; needs root.
#[derive(Debug)]
pub struct NvmlComputeModes {
    settings: NvidiaSettings,
    /// One for all calls: while one is late no other is begun, which it would undo.
    worker: Option<Worker<Question>>,
}

impl NvmlComputeModes {
    /// Nothing is loaded until a mode is set.
    pub fn new(settings: NvidiaSettings) -> Self {
        Self { settings, worker: None }
    }
}

impl ComputeModes for NvmlComputeModes {
    fn set_compute_mode(&mut self, device: &DeviceUuid, mode: ComputeMode) -> Result<(), DeviceError> {
        let worker = match self.worker.take().filter(Worker::is_alive) {
            Some(worker) => worker,
            None => thread::start(&self.settings, &Library::new(self.settings.library.clone()), None)?,
        };
        let worker = self.worker.insert(worker);
        worker.ask(|answer| Question::SetComputeMode(device.clone(), mode, answer))
    }
}

/// Sets it.
///
/// # Errors
/// What NVML said, and its index of the device: [`Trouble::Refused`] if not root, [`Trouble::Absent`] where the device has
/// no such mode, [`Trouble::Gone`].
pub(super) fn set(nvml: &Nvml, device: &DeviceUuid, mode: ComputeMode) -> Result<(), (u32, Trouble)> {
    let wanted = match mode {
        ComputeMode::Default => NvmlMode::Default,
        ComputeMode::ExclusiveProcess => NvmlMode::ExclusiveProcess,
    };
    let mut device = nvml.device_by_uuid(device.as_str()).map_err(|error| (0, Trouble::from(error)))?;
    let index = device.index().map_err(|error| (0, Trouble::from(error)))?;
    device.set_compute_mode(wanted).map_err(|error| (index, Trouble::from(error)))
}
