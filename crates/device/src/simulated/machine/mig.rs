//! MIG on the devices of a simulated machine, for whoever may change it.

use super::Machine;
use crate::DeviceError;
use crate::mechanism::mig::{Holder, Instance, Layout};
use crate::simulated::mig::{Division, Presence, Way};
use pillion_core::UserId;
use pillion_core::mig::{Geometry, Slot};
use std::collections::BTreeMap;

impl Machine {
    /// What a device can be cut into.
    ///
    /// # Errors
    /// As `MigControl::geometry`.
    pub fn mig_geometry(&self, index: u32) -> Result<Geometry, DeviceError> {
        Ok(self.division(index)?.geometry().clone())
    }

    /// Whether its mode changes by a reset alone.
    ///
    /// # Errors
    /// As `MigControl::geometry`.
    pub fn mig_needs_reset(&self, index: u32) -> Result<bool, DeviceError> {
        Ok(self.division(index)?.needs_reset())
    }

    /// How it is divided.
    ///
    /// # Errors
    /// As `MigControl::geometry`.
    pub fn mig_layout(&self, index: u32) -> Result<Layout, DeviceError> {
        self.present(index, |presence| Ok(self.division(index)?.layout(presence)))
    }

    /// Makes an instance for `caller`.
    ///
    /// # Errors
    /// As `MigControl::make`.
    pub fn make_instance(&mut self, caller: UserId, index: u32, slot: Slot) -> Result<Instance, DeviceError> {
        let uuid = self.device(index)?.description.uuid.clone();
        self.changed(caller, index)?.make(slot, &uuid)
    }

    /// Destroys one for `caller`.
    ///
    /// # Errors
    /// As `MigControl::destroy`.
    pub fn destroy_instance(&mut self, caller: UserId, index: u32, id: u32) -> Result<(), DeviceError> {
        let mut division = self.changed(caller, index)?.clone();
        if self.device(index)?.daemons.contains_key(&Some(id)) {
            let reason = "In use by another client: an MPS daemon serves it".to_owned();
            return Err(DeviceError::Busy { index, reason });
        }
        let done = self.present(index, |presence| division.destroy(id, presence));
        self.devices[index as usize].division = Some(division);
        done
    }

    /// Turns MIG on or off for `caller`.
    ///
    /// # Errors
    /// As `MigControl::set_mode`.
    pub fn set_mig_mode(&mut self, caller: UserId, index: u32, is_on: bool) -> Result<(), DeviceError> {
        if !self.device(index)?.daemons.is_empty() {
            let reason = "In use by another client: an MPS daemon serves it".to_owned();
            return Err(DeviceError::Busy { index, reason });
        }
        let mut division = self.changed(caller, index)?.clone();
        let done = self.present(index, |presence| division.set_mode(is_on, presence));
        self.devices[index as usize].division = Some(division);
        done
    }

    /// Whose the way to an instance is from now on, for `caller`.
    ///
    /// # Errors
    /// As `MigControl::give`.
    pub fn set_instance_way(
        &mut self,
        caller: UserId,
        index: u32,
        id: u32,
        way: Way,
    ) -> Result<(), DeviceError> {
        self.changed(caller, index)?.set_way(id, way)
    }

    /// The ways to the instances that a device has or had, by number.
    pub fn instance_ways(&self, index: u32) -> BTreeMap<u32, Way> {
        self.division(index).map(|division| division.ways.clone()).unwrap_or_default()
    }

    /// Somebody changed the files themselves.
    pub fn see_instance_way(&mut self, index: u32, id: u32, way: Way) {
        let device = self.devices.get_mut(index as usize);
        if let Some(known) = device.and_then(|device| device.division.as_mut()?.ways.get_mut(&id)) {
            *known = way;
        }
    }

    /// A program opens a device without being a process on it, as monitors do, or closes it.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn hold(&mut self, index: u32, pid: u32, is_open: bool) -> Result<(), DeviceError> {
        self.device(index)?;
        let holders = &mut self.devices[index as usize].holders;
        if is_open {
            holders.push(pid);
        } else if let Some(place) = holders.iter().position(|holder| *holder == pid) {
            holders.remove(place);
        }
        Ok(())
    }

    /// Who has a device open; of their programs nothing is known here.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mig_holders(&self, index: u32) -> Result<Vec<Holder>, DeviceError> {
        let device = self.device(index)?;
        let on_it = self.on(index).filter(|client| client.is_present());
        let on_it = on_it.map(|client| (client.pid, client.uid, client.instance));
        let monitors = device.holders.iter().map(|pid| (*pid, UserId(0), None));
        let file = format!("/dev/nvidia{index}");
        let holder = |(pid, uid, instance): (u32, UserId, Option<u32>)| {
            let gpu_instance_ids = instance.into_iter().collect();
            Holder { pid, uid, program: String::new(), file: file.clone(), gpu_instance_ids }
        };
        Ok(monitors.chain(on_it).map(holder).collect())
    }

    fn division(&self, index: u32) -> Result<&Division, DeviceError> {
        let division = self.device(index)?.division.as_ref();
        division.ok_or_else(|| DeviceError::Unsupported { index, reason: "it has no MIG".to_owned() })
    }

    fn changed(&mut self, caller: UserId, index: u32) -> Result<&mut Division, DeviceError> {
        self.division(index)?;
        if caller != UserId(0) {
            let reason = format!("only root may change instances; this is uid {caller}");
            return Err(DeviceError::Refused { index, reason });
        }
        let division = self.devices[index as usize].division.as_mut();
        division.ok_or_else(|| DeviceError::Unsupported { index, reason: "it has no MIG".to_owned() })
    }

    fn present<T>(
        &self,
        index: u32,
        ask: impl FnOnce(Presence<'_>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let device = self.device(index)?;
        let pids = |instance: Option<u32>| -> Vec<u32> {
            let on_it = self.on(index).filter(|client| client.is_present());
            on_it
                .filter(|client| instance.is_none() || client.instance == instance)
                .map(|client| client.pid)
                .collect()
        };
        ask(Presence {
            pids: &pids,
            is_held: !device.holders.is_empty(),
            busy_seconds: self.config.mig_busy_seconds,
            now: self.now,
        })
    }
}
