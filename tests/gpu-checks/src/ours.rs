//! Our own backend on the GPU that is checked: what the agent would read.

use pillion_core::device::{DeviceDescription, Mechanism, Reading};
use pillion_device::nvidia::{Nvidia, NvidiaSettings};
use pillion_device::{Backend, DeviceState};
use std::path::PathBuf;

/// The backend, and the device of it.
pub struct Ours {
    backend: Nvidia,
    /// The GPU as it is announced.
    pub device: DeviceDescription,
}

impl Ours {
    /// Opens the library (the driver's own where none is named) and finds the GPU with this UUID.
    ///
    /// # Errors
    /// A sentence: why our backend does not work here.
    pub fn open(library: Option<PathBuf>, uuid: &str) -> Result<Self, String> {
        let settings =
            NvidiaSettings { library, mechanism: Mechanism::TimeSliced, ..NvidiaSettings::default() };
        let mut backend = Nvidia::new(settings, None);
        let devices = backend.devices().map_err(|error| pillion_core::report(&error))?;
        let found = devices.into_iter().find(|device| device.uuid.as_str() == uuid);
        let device = found.ok_or("our backend does not find the GPU that nvidia-smi names")?;
        Ok(Self { backend, device })
    }

    /// What the agent asks once a second, of this GPU.
    ///
    /// # Errors
    /// A sentence: what kept the driver from answering.
    pub fn state(&mut self) -> Result<DeviceState, String> {
        let states = self.backend.read_all().map_err(|error| pillion_core::report(&error))?;
        let mine = states.into_iter().find(|(index, _)| *index == self.device.index);
        let (_, state) = mine.ok_or("the device is not among those read")?;
        state.map_err(|error| pillion_core::report(&error))
    }

    /// One reading.
    ///
    /// # Errors
    /// As [`Ours::state`].
    pub fn reading(&mut self) -> Result<Reading, String> {
        self.backend.read(self.device.index).map_err(|error| pillion_core::report(&error))
    }

    /// One round of what the agent does once a second: all devices, and what they tell unasked.
    ///
    /// # Errors
    /// As [`Ours::state`].
    pub fn look(&mut self) -> Result<(), String> {
        let state = self.state();
        self.backend.notices();
        state.map(drop)
    }
}
