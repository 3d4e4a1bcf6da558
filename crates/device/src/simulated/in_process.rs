//! A machine of this very process as a backend: for the simulation of a whole cluster, which steps the machine itself.

use super::machine::Machine;
use super::meter::Totals;
use crate::{
    Backend, CcsControl, DeviceError, DeviceState, DeviceStates, MpsControl, MpsSettings, MpsStatus,
};
use pillion_core::UserId;
use pillion_core::device::{DeviceDescription, DeviceProcess, Reading};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Calls as root into a shared machine.
#[derive(Debug, Clone)]
pub struct InProcess {
    machine: Arc<Mutex<Machine>>,
    marks: BTreeMap<u32, Option<Totals>>,
}

const ROOT: UserId = UserId(0);

impl InProcess {
    /// A backend with its own memory of when it last looked.
    pub fn new(machine: Arc<Mutex<Machine>>) -> Self {
        Self { machine, marks: BTreeMap::new() }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        // The machine keeps no half-made change across a panic of a caller.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for InProcess {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        Ok(self.machine().descriptions())
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        let mut mark = self.marks.remove(&index).flatten();
        let reading = self.machine().read(index, &mut mark);
        self.marks.insert(index, mark);
        reading
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.machine().processes(index)
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        let Self { machine, marks } = self;
        let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
        let indexes: Vec<u32> = machine.descriptions().into_iter().map(|device| device.index).collect();
        let mut states = DeviceStates::new();
        for index in indexes {
            let reading = machine.read(index, marks.entry(index).or_default());
            let state =
                reading.and_then(|reading| Ok(DeviceState { reading, processes: machine.processes(index)? }));
            states.push((index, state));
        }
        Ok(states)
    }

    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        Some(self)
    }

    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        Some(self)
    }
}

impl MpsControl for InProcess {
    fn prepare(&mut self, index: u32, settings: &MpsSettings) -> Result<(), DeviceError> {
        self.machine().start_mps(ROOT, index, settings)
    }

    fn release(&mut self, index: u32) -> Result<(), DeviceError> {
        self.machine().stop_mps(ROOT, index)
    }

    fn status(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError> {
        self.machine().mps(index)
    }

    fn terminate_client(&mut self, index: u32, pid: u32) -> Result<(), DeviceError> {
        self.machine().terminate_mps_client(ROOT, index, pid)
    }
}

impl CcsControl for InProcess {
    fn prepare(&mut self, index: u32, mode: u8) -> Result<(), DeviceError> {
        self.machine().set_ccs_mode(ROOT, index, mode)
    }

    fn status(&mut self, index: u32) -> Result<Option<u8>, DeviceError> {
        self.machine().ccs_mode(index)
    }
}
