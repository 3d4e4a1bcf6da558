//! A machine of this very process as a backend: for the simulation of a whole cluster, which steps the machine itself.

use super::machine::Machine;
use super::meter::Totals;
use super::mig::Way;
use crate::mechanism::mig::{Access, Holder, Instance, Layout};
use crate::{
    Backend, CcsControl, DeviceError, DeviceState, DeviceStates, MigControl, MpsControl, MpsPlace,
    MpsSettings, MpsStatus,
};
use pillion_core::device::{DeviceDescription, DeviceProcess, Reading};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::{DeviceUuid, UserId};
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

    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        Some(self)
    }
}

impl MpsControl for InProcess {
    fn prepare(&mut self, place: &MpsPlace, settings: &MpsSettings) -> Result<(), DeviceError> {
        self.machine().start_mps(ROOT, place, settings)
    }

    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        self.machine().stop_mps(ROOT, place)
    }

    fn status(&mut self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        self.machine().mps(place)
    }

    fn terminate_client(&mut self, place: &MpsPlace, pid: u32) -> Result<(), DeviceError> {
        self.machine().terminate_mps_client(ROOT, place, pid)
    }

    fn instances(&mut self, index: u32) -> Result<Vec<DeviceUuid>, DeviceError> {
        self.machine().mps_instances(index)
    }

    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError> {
        Ok(self.machine().mps_sets())
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

impl MigControl for InProcess {
    fn geometry(&mut self, index: u32) -> Result<Geometry, DeviceError> {
        self.machine().mig_geometry(index)
    }

    fn needs_reset(&mut self, index: u32) -> Result<bool, DeviceError> {
        self.machine().mig_needs_reset(index)
    }

    fn layout(&mut self, index: u32) -> Result<Layout, DeviceError> {
        self.machine().mig_layout(index)
    }

    fn make(&mut self, index: u32, slot: Slot) -> Result<Instance, DeviceError> {
        self.machine().make_instance(ROOT, index, slot)
    }

    fn destroy(&mut self, index: u32, gpu_instance_id: u32) -> Result<(), DeviceError> {
        self.machine().destroy_instance(ROOT, index, gpu_instance_id)
    }

    fn set_mode(&mut self, index: u32, is_on: bool) -> Result<(), DeviceError> {
        self.machine().set_mig_mode(ROOT, index, is_on)
    }

    fn give(&mut self, index: u32, ways: &[(Instance, Access)]) -> Result<(), DeviceError> {
        let mut machine = self.machine();
        ways.iter().try_for_each(|(instance, to)| {
            machine.set_instance_way(ROOT, index, instance.gpu_instance_id, Way::from(*to))
        })
    }

    fn holders(&mut self, index: u32) -> Result<Vec<Holder>, DeviceError> {
        self.machine().mig_holders(index)
    }
}
