//! The threads that change devices: one a device, beside the one that reads it, so that a change that takes long keeps nobody
//! from knowing what its tenants do. Each asks by the opening of the library that the readers share, and holds none itself: an
//! idle thread must not keep a driver that went away from being opened anew.

use crate::DeviceError;
use crate::nvidia::describe::without_handle;
use crate::nvidia::library::Library;
use crate::nvidia::open::LIBRARY;
use crate::nvidia::settings::NvidiaSettings;
use crate::worker;
use nvml_wrapper::{Device, Nvml};
use pillion_core::device::DeviceDescription;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// What is asked: it is given the opened library, or what keeps it from being opened, and says whether the driver went away.
type Question = Box<dyn FnOnce(Result<&Nvml, DeviceError>) -> bool + Send>;

/// The thread of one device.
pub(in crate::nvidia) struct Worker {
    device: DeviceDescription,
    thread: worker::Worker<Question>,
}

impl Worker {
    /// Nothing is opened yet.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`] if the system gives us no thread.
    pub(super) fn start(
        settings: &NvidiaSettings,
        library: &Arc<Library>,
        device: DeviceDescription,
    ) -> Result<Self, DeviceError> {
        let path = settings.library.clone().unwrap_or_else(|| PathBuf::from(LIBRARY));
        let library = Arc::clone(library);
        let work = move |asked: &Receiver<Question>| work(&library, asked);
        Ok(Self { device, thread: worker::Worker::start("nvml-mig", path, settings.deadline, work)? })
    }

    /// Whether it can be asked at all.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.is_alive()
    }

    /// Asks about the device, and waits for the answer until the deadline. What is late may still be done: whoever asked has to
    /// look.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`]; what kept the library or the device from being asked; or the answer's own.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Device<'_>, u32) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        let (index, uuid) = (self.device.index, self.device.uuid.clone());
        self.thread.ask(|answer| {
            Box::new(move |opened| {
                let told = opened.and_then(|nvml| {
                    let device = nvml.device_by_uuid(uuid.as_str());
                    let device = device.map_err(|error| without_handle(error).of(index))?;
                    question(&device, index)
                });
                let is_closed = matches!(told, Err(DeviceError::Unreachable { .. }));
                // What comes too late is of no use.
                drop(answer.give(told));
                is_closed
            })
        })
    }
}

fn work(library: &Library, asked: &Receiver<Question>) {
    while let Ok(question) = asked.recv() {
        match library.open() {
            Ok(nvml) => {
                if question(Ok(&nvml)) {
                    library.close();
                }
                library.release(nvml);
            }
            Err(error) => {
                question(Err(error));
            }
        }
    }
}
