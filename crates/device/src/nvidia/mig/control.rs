//! What the agent is given to cut NVIDIA's devices with.

use super::cut;
use super::holders::holders;
use super::worker::Worker;
use crate::mechanism::mig::{Access, Holder, Instance, Layout, MigControl};
use crate::nvidia::Nvidia;
use crate::{Backend as _, DeviceError};
use nvml_wrapper::Device;
use pillion_core::device::DeviceDescription;
use pillion_core::mig::{Geometry, Slot};
use std::collections::btree_map::Entry;

impl Nvidia {
    fn known(&mut self, index: u32) -> Result<&DeviceDescription, DeviceError> {
        if self.known.is_empty() {
            self.devices()?;
        }
        self.known.get(&index).ok_or(DeviceError::NoSuchDevice { index })
    }

    /// Asks the thread that changes a device.
    fn ask_mig<T: Send + 'static>(
        &mut self,
        index: u32,
        question: impl FnOnce(&Device<'_>, u32) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        let device = self.known(index)?.clone();
        let thread = match self.mig_threads.entry(index) {
            Entry::Occupied(entry) if entry.get().is_alive() => entry.into_mut(),
            entry => {
                let new = Worker::start(&self.settings, &self.library, device)?;
                entry.insert_entry(new).into_mut()
            }
        };
        thread.ask(question)
    }
}

impl MigControl for Nvidia {
    fn geometry(&mut self, index: u32) -> Result<Geometry, DeviceError> {
        self.ask_mig(index, cut::geometry)
    }

    fn needs_reset(&mut self, index: u32) -> Result<bool, DeviceError> {
        self.ask_mig(index, cut::needs_reset)
    }

    fn layout(&mut self, index: u32) -> Result<Layout, DeviceError> {
        self.ask_mig(index, cut::layout)
    }

    fn make(&mut self, index: u32, slot: Slot) -> Result<Instance, DeviceError> {
        let files = self.settings.mig_files.clone();
        self.ask_mig(index, move |device, index| cut::make(device, index, slot, &files))
    }

    fn destroy(&mut self, index: u32, gpu_instance_id: u32) -> Result<(), DeviceError> {
        let files = self.settings.mig_files.clone();
        self.ask_mig(index, move |device, index| cut::destroy(device, index, gpu_instance_id, &files))
    }

    fn set_mode(&mut self, index: u32, is_on: bool) -> Result<(), DeviceError> {
        self.ask_mig(index, move |device, index| cut::set_mode(device, index, is_on))
    }

    fn give(&mut self, index: u32, ways: &[(Instance, Access)]) -> Result<(), DeviceError> {
        let (files, ways) = (self.settings.mig_files.clone(), ways.to_vec());
        self.ask_mig(index, move |device, index| cut::give(device, index, &ways, &files))
    }

    fn holders(&mut self, index: u32) -> Result<Vec<Holder>, DeviceError> {
        self.known(index)?;
        // The kernel is asked, not the driver, which may hang just now.
        holders(&self.settings.mig_files, index).map_err(|error| DeviceError::NotReady {
            index,
            reason: format!("/proc cannot be read: {error}"),
        })
    }
}
