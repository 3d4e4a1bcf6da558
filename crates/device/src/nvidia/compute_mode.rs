//! Who may open a device, set through NVML: rarely, by whoever starts or ends an MPS daemon, and from its own opening of
//! the library, so that a sample of the devices is never in the way.

use super::library::Library;
use super::settings::NvidiaSettings;
use super::thread::{self, Question};
use crate::DeviceError;
use crate::mps::{ComputeMode, ComputeModes};
use crate::worker::Worker;
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
