//! A device with MIG in memory, that refuses what a driver refuses, and at which an agent can be made to die between any two steps.

use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceProcess, Mechanism, Reading};
use pillion_core::mig::{Geometry, Slot, needs_reset};
use pillion_device::mechanism::mig::{Access, ComputeInstance, Holder, Instance, Layout, MigMode};
use pillion_device::{Backend, DeviceError, MigControl, MpsControl, MpsPlace, MpsSettings, MpsStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;

/// What is thrown where the agent dies.
pub(super) struct Killed;

/// The device.
#[derive(Debug)]
pub(super) struct Double {
    pub(super) model: &'static str,
    pub(super) mode: MigMode,
    pub(super) instances: Vec<Instance>,
    /// By the number of the GPU instance: it outlives the instance, as the files do.
    pub(super) ways: BTreeMap<u32, Access>,
    /// The instances that have an MPS daemon, by name.
    pub(super) daemons: BTreeSet<DeviceUuid>,
    /// Numbers of instances that somebody else has made: nothing of ours may be done to them.
    pub(super) foreign: BTreeSet<u32>,
    /// Whether a monitor has the device open: no destroy, no change of the mode.
    pub(super) holder: Option<Holder>,
    /// How often the next destroys are refused, as after a process has ended.
    pub(super) busy_count: u32,
    /// How many edges of calls pass before the agent dies.
    pub(super) dies_after: Option<u32>,
    /// How often it was looked for who holds it.
    pub(super) holders_count: u32,
    /// What was done that must never be.
    pub(super) wrongs: Vec<String>,
    next: u32,
}

impl Double {
    pub(super) fn new(model: &'static str) -> Self {
        Self {
            model,
            mode: if needs_reset(model) { MigMode::On } else { MigMode::Off },
            instances: Vec::new(),
            ways: BTreeMap::new(),
            daemons: BTreeSet::new(),
            foreign: BTreeSet::new(),
            holder: None,
            busy_count: 0,
            dies_after: None,
            holders_count: 0,
            wrongs: Vec::new(),
            next: 0,
        }
    }

    pub(super) fn table(&self) -> &'static Geometry {
        Geometry::of_model(self.model).unwrap()
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        self.instances.iter().map(|instance| instance.slot).collect()
    }

    pub(super) fn at(&mut self, slot: Slot) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.slot == slot)
    }

    /// As an administrator makes one.
    pub(super) fn make_foreign(&mut self, slot: Slot) -> bool {
        let is_made = self.mode == MigMode::On && self.fits(slot);
        if is_made {
            let made = self.add(slot);
            self.foreign.insert(made.gpu_instance_id);
        }
        is_made
    }

    pub(super) fn destroy_foreign(&mut self) {
        let foreign = std::mem::take(&mut self.foreign);
        self.instances.retain(|instance| !foreign.contains(&instance.gpu_instance_id));
    }

    /// The machine comes up again.
    pub(super) fn reboot(&mut self) {
        let Self { model, next, .. } = *self;
        *self = Self { next, ..Self::new(model) };
    }

    fn fits(&self, slot: Slot) -> bool {
        self.table().check(&[self.slots().as_slice(), &[slot]].concat()).is_ok()
    }

    fn add(&mut self, slot: Slot) -> Instance {
        let gpu_instance_id =
            (0..64).find(|id| !self.instances.iter().any(|it| it.gpu_instance_id == *id)).unwrap();
        self.next += 1;
        let compute = vec![ComputeInstance { id: 0, uuid: DeviceUuid::new(format!("MIG-{}", self.next)) }];
        let made = Instance { slot, gpu_instance_id, compute, pids: Vec::new() };
        self.instances.push(made.clone());
        made
    }

    /// Between two steps, where the agent may die.
    fn edge(&mut self) {
        match &mut self.dies_after {
            Some(0) => {
                self.dies_after = None;
                resume_unwind(Box::new(Killed));
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    fn own(&mut self, what: &str, id: u32) {
        if self.foreign.contains(&id) {
            self.wrongs.push(format!("{what} of somebody else's instance {id}"));
        }
    }

    fn busy(reason: &str) -> DeviceError {
        DeviceError::Busy { index: 3, reason: reason.to_owned() }
    }
}

impl Backend for Double {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        let mechanism = Mechanism::Mps;
        Ok(vec![DeviceDescription { model: self.model.to_owned(), mechanism, ..pillion_test_kit::device(3) }])
    }
    fn read(&mut self, _: u32) -> Result<Reading, DeviceError> {
        Ok(Reading::default())
    }
    fn processes(&mut self, _: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        Ok(Vec::new())
    }
    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        Some(self)
    }
    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        Some(self)
    }
}

impl MpsControl for Double {
    fn prepare(&mut self, place: &MpsPlace, _: &MpsSettings) -> Result<(), DeviceError> {
        self.edge();
        let name = place.instance.clone().expect("the whole device is not shared here");
        if !self.instances.iter().any(|it| it.compute.iter().any(|compute| compute.uuid == name)) {
            self.wrongs.push(format!("a daemon is to serve {name}, which is not there"));
        }
        self.daemons.insert(name);
        self.edge();
        Ok(())
    }
    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        self.edge();
        let name = place.instance.clone().expect("the whole device is not shared here");
        let inside = self.instances.iter().find(|it| it.compute.iter().any(|compute| compute.uuid == name));
        if inside.is_some_and(|instance| !instance.pids.is_empty()) {
            return Err(Self::busy("its MPS daemon has clients"));
        }
        self.daemons.remove(&name);
        self.edge();
        Ok(())
    }
    fn status(&mut self, _: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        Ok(None)
    }
    fn terminate_client(&mut self, _: &MpsPlace, _: u32) -> Result<(), DeviceError> {
        Err(Self::busy("nobody is ended here"))
    }
    fn instances(&mut self, _: u32) -> Result<Vec<DeviceUuid>, DeviceError> {
        Ok(self.daemons.iter().cloned().collect())
    }
    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError> {
        Ok(Vec::new())
    }
}

impl MigControl for Double {
    fn geometry(&mut self, _: u32) -> Result<Geometry, DeviceError> {
        Ok(self.table().clone())
    }

    fn needs_reset(&mut self, _: u32) -> Result<bool, DeviceError> {
        Ok(needs_reset(self.model))
    }

    fn layout(&mut self, _: u32) -> Result<Layout, DeviceError> {
        Ok(Layout { mode: self.mode, instances: self.instances.clone() })
    }

    fn make(&mut self, index: u32, slot: Slot) -> Result<Instance, DeviceError> {
        self.edge();
        if self.mode != MigMode::On {
            return Err(DeviceError::Refused { index, reason: "MIG is off".into() });
        }
        if !self.fits(slot) {
            return Err(Self::busy("others lie there"));
        }
        let made = self.add(slot);
        let compute = self.at(slot).map(|it| std::mem::take(&mut it.compute)).unwrap();
        // Half of it is there.
        self.edge();
        self.at(slot).unwrap().compute = compute;
        self.edge();
        Ok(made)
    }

    fn destroy(&mut self, _: u32, id: u32) -> Result<(), DeviceError> {
        self.edge();
        self.own("a destroy", id);
        let Some(found) = self.instances.iter_mut().find(|instance| instance.gpu_instance_id == id) else {
            return Ok(());
        };
        if !found.pids.is_empty() || self.holder.is_some() {
            return Err(Self::busy("In use by another client"));
        }
        let compute = std::mem::take(&mut found.compute);
        if let Some(served) = compute.iter().find(|compute| self.daemons.contains(&compute.uuid)) {
            self.wrongs.push(format!("{} is destroyed under its MPS daemon", served.uuid));
        }
        if self.busy_count > 0 {
            self.busy_count -= 1;
            return Err(Self::busy("In use by another client"));
        }
        self.ways.insert(id, Access::Root);
        self.edge();
        self.instances.retain(|instance| instance.gpu_instance_id != id);
        self.edge();
        Ok(())
    }

    fn set_mode(&mut self, index: u32, is_on: bool) -> Result<(), DeviceError> {
        self.edge();
        let wanted = if is_on { MigMode::On } else { MigMode::Off };
        if self.mode == wanted {
            return Ok(());
        }
        if needs_reset(self.model) {
            self.wrongs.push("MIG was to be turned over on an Ampere".into());
            return Err(DeviceError::Unsupported { index, reason: "it needs a reset".into() });
        }
        if self.holder.is_some() || !self.instances.is_empty() {
            return Err(Self::busy("In use by another client"));
        }
        self.mode = wanted;
        self.edge();
        Ok(())
    }

    fn give(&mut self, _: u32, ways: &[(Instance, Access)]) -> Result<(), DeviceError> {
        for (instance, to) in ways {
            self.edge();
            self.own("a giving", instance.gpu_instance_id);
            self.ways.insert(instance.gpu_instance_id, *to);
        }
        Ok(())
    }

    fn holders(&mut self, _: u32) -> Result<Vec<Holder>, DeviceError> {
        self.holders_count += 1;
        Ok(self.holder.iter().cloned().collect())
    }
}
