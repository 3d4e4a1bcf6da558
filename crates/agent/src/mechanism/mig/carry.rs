//! Carries out what [`super::step`] says, one act after the other, each written down before it is done.

use super::record::{Made, OfDevice, Ours, Record, Tenant};
use super::step::{Act, Refused, Rest, Stop, View, Wanted, goes_on, next};
use crate::mechanism::MechanismError;
use pillion_core::DeviceUuid;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::text::{named, quoted};
use pillion_device::mechanism::mig::{Access, Holder, Instance, Layout};
use pillion_device::{Backend, DeviceError, MigControl, MpsPlace};

/// More acts than any change of a device takes: forget, destroy and make all of it, twice over.
const ACTS_MAX: usize = 96;
/// How many holders are named.
const NAMED_MAX: usize = 4;

/// One device, and what of it is ours.
pub(super) struct Cut<'a> {
    pub(super) backend: &'a mut dyn Backend,
    pub(super) record: &'a mut Record,
    pub(super) index: u32,
    pub(super) uuid: &'a DeviceUuid,
    pub(super) geometry: &'a Geometry,
}

/// How a device is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal<'a> {
    pub(super) wanted: &'a [Wanted],
    pub(super) rest: Rest,
    pub(super) may_turn_on: bool,
}

/// How far it came.
#[derive(Debug)]
pub(super) struct Tried {
    /// Why it ended there.
    pub(super) stop: Stop,
    /// How the device is divided then.
    pub(super) layout: Layout,
    /// What was refused.
    pub(super) refused: Refused,
    /// In the driver's words, the last of it.
    pub(super) reason: Option<String>,
    /// Whether the way to every instance is whose it should be; else what the driver said.
    pub(super) unguarded: Option<String>,
}

impl Tried {
    /// Whether all is as it was to be, but for those who could not leave.
    pub(super) fn is_served(&self) -> bool {
        self.stop == Stop::Done
    }

    /// Whether somebody who has left could not be taken away.
    pub(super) fn is_refused(&self) -> bool {
        self.stop == Stop::Refused || !self.refused.destroy.is_empty()
    }
}

impl Cut<'_> {
    pub(super) fn control(&mut self) -> Result<&mut dyn MigControl, DeviceError> {
        self.backend.mig_on(self.index)
    }

    /// Goes as far as the driver lets it.
    ///
    /// # Errors
    /// [`MechanismError::Unwritten`] if it cannot be written down, and what keeps the device from being looked at.
    pub(super) fn carry_out(&mut self, goal: Goal<'_>) -> Result<Tried, MechanismError> {
        let (mut refused, mut reason) = (Refused::default(), None);
        for _ in 0..ACTS_MAX {
            let index = self.index;
            let layout = self.control()?.layout(index)?;
            let record = self.record.device(self.uuid);
            let view = View {
                geometry: self.geometry,
                layout: &layout,
                record: &record,
                wanted: goal.wanted,
                rest: goal.rest,
                may_turn_on: goal.may_turn_on,
                refused: &refused,
            };
            match next(&view) {
                Ok(act) => {
                    let keeps_daemon = matches!(act, Act::Hand(slot, _) if goes_on(&view, slot));
                    if let Err(error) = self.act(&act, keeps_daemon, &mut refused)? {
                        tracing::debug!(index = self.index, ?act, error = %pillion_core::report(&error), "refused");
                        reason = Some(pillion_core::report(&error));
                    }
                }
                Err(stop) => {
                    self.end_strays(&record);
                    let unguarded =
                        self.guard(&record, &layout).err().map(|error| pillion_core::report(&error));
                    return Ok(Tried { stop, layout, refused, reason, unguarded });
                }
            }
        }
        let reason = "its driver shows other instances each time it is asked".to_owned();
        Err(DeviceError::NotReady { index: self.index, reason }.into())
    }

    /// Does one thing. The inner error is the driver's refusal, which is noted.
    fn act(
        &mut self,
        act: &Act,
        keeps_daemon: bool,
        refused: &mut Refused,
    ) -> Result<Result<(), DeviceError>, MechanismError> {
        match act {
            Act::Forget(slot) => self.write(|of| of.ours.retain(|ours| ours.slot != *slot))?,
            Act::Adopt(slot, made) => {
                self.write_entry(*slot, |ours| ours.made = Some(made.clone()))?;
            }
            Act::Leave(slot) => self.write_entry(*slot, |ours| ours.is_leaving = true)?,
            Act::Stay(slot) => self.write_entry(*slot, |ours| ours.is_leaving = false)?,
            Act::Hand(slot, tenant) => {
                // Whoever has it next has nobody's daemon in it.
                if !keeps_daemon && let Err(error) = self.end_daemon(*slot) {
                    refused.hand.insert(*slot);
                    return Ok(Err(error));
                }
                self.write_entry(*slot, |ours| ours.tenant = *tenant)?;
            }
            Act::ForgetMode => self.write(|of| of.is_mode_ours = false)?,
            Act::TurnOn => {
                self.write(|of| of.is_mode_ours = true)?;
                let index = self.index;
                let done = self.control().and_then(|control| control.set_mode(index, true));
                refused.on = done.is_err();
                return Ok(done);
            }
            Act::TurnOff => {
                let index = self.index;
                let done = self.control().and_then(|control| control.set_mode(index, false));
                refused.off = done.is_err();
                return Ok(done);
            }
            Act::Destroy(slot, id) => {
                let index = self.index;
                // Its daemon goes first: a server in it would keep it, and one that outlived it would serve nobody.
                let done = self
                    .end_daemon(*slot)
                    .and_then(|()| self.control().and_then(|control| control.destroy(index, *id)));
                if done.is_err() {
                    refused.destroy.insert(*slot);
                }
                return Ok(done);
            }
            Act::Make(slot, tenant) => return self.make(*slot, *tenant, refused),
        }
        Ok(Ok(()))
    }

    fn make(
        &mut self,
        slot: Slot,
        tenant: Option<Tenant>,
        refused: &mut Refused,
    ) -> Result<Result<(), DeviceError>, MechanismError> {
        self.write(|of| {
            of.ours.retain(|ours| ours.slot != slot);
            of.ours.push(Ours { slot, made: None, is_leaving: false, tenant });
        })?;
        let index = self.index;
        match self.control().and_then(|control| control.make(index, slot)) {
            Ok(Instance { gpu_instance_id, compute, .. }) => {
                if let [compute] = compute.as_slice() {
                    let made = Made { uuid: compute.uuid.clone(), gpu_instance_id };
                    self.write_entry(slot, |ours| ours.made = Some(made))?;
                }
                Ok(Ok(()))
            }
            Err(error) => {
                refused.make.insert(slot);
                Ok(Err(error))
            }
        }
    }

    /// Each instance is its tenant's alone; what a device rests in is open to whoever Slurm starts there.
    fn guard(&mut self, record: &OfDevice, layout: &Layout) -> Result<(), DeviceError> {
        let mut ways: Vec<(Instance, Access)> = Vec::new();
        for ours in record.ours.iter().filter(|ours| ours.made.is_some()) {
            let access = ours.tenant.map_or(Access::Everybody, |tenant| Access::User(tenant.uid));
            // Of one that is to go and is not given up the way stays whose it was, as long as all of it is there.
            let there = ours.find(layout).filter(|instance| !ours.is_leaving || instance.compute.len() == 1);
            ways.extend(there.map(|instance| (instance.clone(), access)));
        }
        let index = self.index;
        if ways.is_empty() { Ok(()) } else { self.control()?.give(index, &ways) }
    }

    /// Ends the MPS daemon of our instance at this place, if it has one.
    fn end_daemon(&mut self, slot: Slot) -> Result<(), DeviceError> {
        let of_device = self.record.device(self.uuid);
        let made = of_device.at(slot).and_then(|ours| ours.made.as_ref());
        let served = self.served();
        match (made, self.backend.mps()) {
            (Some(made), Some(mps)) if served.contains(&made.uuid) => {
                mps.release(&MpsPlace::instance(self.index, made.uuid.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Ends daemons whose instance is none of ours any more: gone without us, with the driver or by an administrator.
    fn end_strays(&mut self, record: &OfDevice) {
        let is_ours = |name: &DeviceUuid| {
            record.ours.iter().any(|ours| ours.made.as_ref().is_some_and(|it| it.uuid == *name))
        };
        let strays: Vec<DeviceUuid> = self.served().into_iter().filter(|name| !is_ours(name)).collect();
        let Some(mps) = self.backend.mps() else { return };
        for name in strays {
            if let Err(error) = mps.release(&MpsPlace::instance(self.index, name)) {
                tracing::debug!(index = self.index, error = %pillion_core::report(&error), "an MPS daemon outlives its instance still");
            }
        }
    }

    /// The instances of the device that have a daemon; a device that is not shared by MPS has none.
    fn served(&mut self) -> Vec<DeviceUuid> {
        let index = self.index;
        self.backend.mps().and_then(|mps| mps.instances(index).ok()).unwrap_or_default()
    }

    fn write(&mut self, change: impl FnOnce(&mut OfDevice)) -> Result<(), MechanismError> {
        let mut of_device = self.record.device(self.uuid);
        change(&mut of_device);
        self.record.put(self.uuid, of_device).map_err(MechanismError::Unwritten)
    }

    fn write_entry(&mut self, slot: Slot, change: impl FnOnce(&mut Ours)) -> Result<(), MechanismError> {
        self.write(|of| {
            if let Some(ours) = of.at_mut(slot) {
                change(ours);
            }
        })
    }

    /// Who may be meant where the driver says that somebody uses what nobody should, by pid.
    pub(super) fn holders(&mut self) -> Vec<Holder> {
        let index = self.index;
        let mut holders = self.control().and_then(|control| control.holders(index)).unwrap_or_default();
        holders.sort_by_key(|holder| holder.pid);
        holders.dedup_by_key(|holder| holder.pid);
        holders
    }
}

/// What stands in the way, for operators.
pub(super) fn sentence(tried: &Tried, holders: &[Holder]) -> String {
    let listed = |slots: &[Slot]| slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(", ");
    let what = match &tried.stop {
        Stop::Foreign(slots) => return format!("somebody else has cut it: {}", listed(slots)),
        Stop::Pending => return "MIG is to change when it is reset".to_owned(),
        Stop::Off => return "MIG is off, and mig.toggle does not let the agent turn it on".to_owned(),
        Stop::Occupied(slot) => format!("somebody is in {slot} still"),
        Stop::Done | Stop::Refused => {
            let stuck: Vec<Slot> = tried.refused.destroy.iter().copied().collect();
            if stuck.is_empty() {
                "the driver refused".to_owned()
            } else {
                format!("{} is not given up", listed(&stuck))
            }
        }
    };
    let told = |it: &Holder| format!("{} (process {}, {})", quoted(&it.program), it.pid, quoted(&it.file));
    match (named(in_the_way(tried, holders).into_iter().map(told), NAMED_MAX), &tried.reason) {
        (Some(holders), _) => format!("{what}; held by {holders}"),
        (None, Some(reason)) => format!("{what}: {reason}"),
        (None, None) => what,
    }
}

/// Whom the driver may mean: who has a way into what is in the way, and then who has the device open and no instance of it, as what
/// reads meters does. The tenants of other instances are where they should be.
fn in_the_way<'h>(tried: &Tried, holders: &'h [Holder]) -> Vec<&'h Holder> {
    let is_in_the_way = |instance: &&Instance| {
        tried.refused.destroy.contains(&instance.slot) || tried.stop == Stop::Occupied(instance.slot)
    };
    let (stuck, others): (Vec<&Instance>, Vec<&Instance>) =
        tried.layout.instances.iter().partition(is_in_the_way);
    if stuck.is_empty() {
        return holders.iter().collect();
    }
    let has = |holder: &Holder, of: &[&Instance]| {
        of.iter()
            .any(|it| holder.gpu_instance_ids.contains(&it.gpu_instance_id) || it.pids.contains(&holder.pid))
    };
    let (first, rest): (Vec<&Holder>, Vec<&Holder>) = holders.iter().partition(|it| has(it, &stuck));
    first.into_iter().chain(rest.into_iter().filter(|it| !has(it, &others))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::UserId;
    use pillion_device::mechanism::mig::MigMode;

    fn holder(pid: u32, program: &str, ids: &[u32]) -> Holder {
        Holder {
            pid,
            uid: UserId(1001),
            program: program.to_owned(),
            file: "/dev/nvidia0".to_owned(),
            gpu_instance_ids: ids.iter().copied().collect(),
        }
    }

    fn instance(slot: &str, gpu_instance_id: u32, pids: &[u32]) -> Instance {
        Instance { slot: slot.parse().unwrap(), gpu_instance_id, compute: Vec::new(), pids: pids.to_vec() }
    }

    #[test]
    fn of_a_device_with_other_tenants_only_who_may_be_in_the_way_is_named() {
        let instances = vec![
            instance("1g.10gb@0", 7, &[]),
            instance("1g.10gb@1", 8, &[20]),
            instance("1g.10gb@2", 9, &[]),
        ];
        let tried = |refused: Refused, stop| Tried {
            stop,
            layout: Layout { mode: MigMode::On, instances: instances.clone() },
            refused,
            reason: None,
            unguarded: None,
        };
        let stuck = Refused { destroy: ["1g.10gb@0".parse().unwrap()].into(), ..Refused::default() };
        let holders = [
            holder(10, "monitor", &[]),
            holder(20, "tenant", &[]),
            holder(30, "neighbour", &[9]),
            holder(40, "left-over", &[7]),
        ];
        assert_eq!(
            sentence(&tried(stuck, Stop::Done), &holders),
            "1g.10gb@0 is not given up; held by left-over (process 40, /dev/nvidia0), monitor (process 10, /dev/nvidia0)"
        );
        let occupied = Stop::Occupied("1g.10gb@1".parse().unwrap());
        assert_eq!(
            sentence(&tried(Refused::default(), occupied), &holders[1..]),
            "somebody is in 1g.10gb@1 still; held by tenant (process 20, /dev/nvidia0)"
        );
        let mode = Refused { off: true, ..Refused::default() };
        let text = sentence(&tried(mode, Stop::Refused), &holders);
        assert!(
            text.starts_with("the driver refused; held by monitor") && text.contains("left-over"),
            "{text}"
        );
    }
}
