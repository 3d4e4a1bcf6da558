//! What is told of a device that we cut: what it can be cut into, and nothing of the instances that are ours.

use super::{MigPolicy, record};
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mig::{Geometry, resolve};
use pillion_device::mechanism::mig::MigMode;
use pillion_device::{Backend, DeviceError, MigControl};
use std::path::PathBuf;
use tracing::warn;

/// Completes what a backend says of its devices.
#[derive(Debug, Clone)]
pub struct Announcer {
    /// What the site wants.
    pub policy: MigPolicy,
    /// Where it is written down what is ours.
    pub record: PathBuf,
    /// The machine's boot.
    pub boot_id: String,
}

impl Announcer {
    /// Says of a device what it can be cut into, where we do that, and leaves out of its instances those that are ours.
    ///
    /// One that is in MIG mode by somebody else's will rests in one instance: in it there is no sharing by MPS.
    pub fn complete(&self, backend: &mut dyn Backend, device: &mut DeviceDescription) {
        let known = record::peek(&self.record, &self.boot_id, &device.uuid);
        let is_ours = |uuid: &DeviceUuid| {
            known.ours.iter().any(|ours| ours.made.as_ref().is_some_and(|made| made.uuid == *uuid))
        };
        let mut is_on = device.instances.is_some();
        if let Some(instances) = &mut device.instances {
            instances.retain(|instance| !is_ours(&instance.uuid));
        }
        if let Some(control) = backend.mig().filter(|_| self.policy.is_enabled) {
            match self.offer(control, device) {
                Ok((mode, geometry)) => {
                    is_on |= mode == Some(MigMode::On);
                    device.geometry = geometry;
                }
                Err(error) => {
                    warn!(device = device.index, error = %pillion_core::report(&error), "the device is not cut by MIG");
                }
            }
        }
        if is_on && !known.is_mode_ours {
            device.mechanism = Mechanism::TimeSliced;
        }
        // Where there is none but ours, what there is to come is ours to make.
        let is_left_to_us = device.geometry.is_some() || !known.is_nothing();
        device.instances.take_if(|instances| instances.is_empty() && is_left_to_us);
    }

    /// Whether MIG is on there, and what the device may be cut into; `None`: it has no MIG, and it may not be cut now. Its driver
    /// goes before our table; the table stands in where a driver says nothing as long as MIG is off.
    fn offer(
        &self,
        control: &mut dyn MigControl,
        device: &DeviceDescription,
    ) -> Result<(Option<MigMode>, Option<Geometry>), DeviceError> {
        let index = device.index;
        let mode = match control.layout(index) {
            Err(DeviceError::Unsupported { .. }) => return Ok((None, None)),
            layout => layout?.mode,
        };
        let can = match mode {
            MigMode::On => true,
            MigMode::Off => self.policy.may_toggle && !control.needs_reset(index)?,
            MigMode::Pending => false,
        };
        if !can {
            return Ok((Some(mode), None));
        }
        let told = match control.geometry(index) {
            Err(DeviceError::Unsupported { .. }) => None,
            told => Some(told?),
        };
        Ok((Some(mode), resolve(told, &device.model).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::mig::double::Double;
    use crate::mechanism::mig::record::{OfDevice, Record, path};
    use pillion_core::device::MigInstance;
    use std::time::Duration;

    const ALL: MigPolicy = MigPolicy { is_enabled: true, may_toggle: true };

    /// How a device of this model is told, with MIG as it comes up there.
    fn told(model: &'static str, policy: MigPolicy, known: OfDevice) -> DeviceDescription {
        let disk = tempfile::tempdir().unwrap();
        let mut double = Double::new(model);
        let mut device = double.devices().unwrap().remove(0);
        let mut record = Record::open(path(disk.path()), "boot", Duration::from_secs(6)).unwrap();
        record.put(&device.uuid, known).unwrap();
        let announcer = Announcer { policy, record: path(disk.path()), boot_id: "boot".to_owned() };
        announcer.complete(&mut double, &mut device);
        device
    }

    #[test]
    fn what_may_be_cut_is_decided_by_the_site_the_mode_and_whether_that_needs_a_reset() {
        let nothing = OfDevice::default;
        let only_on = MigPolicy { may_toggle: false, ..ALL };
        for (model, policy, is_cut, mechanism) in [
            ("h100", ALL, true, Mechanism::Mps),
            ("h100", only_on, false, Mechanism::Mps),
            ("h100", MigPolicy::default(), false, Mechanism::Mps),
            ("a100-40", ALL, true, Mechanism::TimeSliced),
            ("a100-40", only_on, true, Mechanism::TimeSliced),
        ] {
            let device = told(model, policy, nothing());
            assert_eq!(device.geometry.as_ref(), Geometry::of_model(model).filter(|_| is_cut), "{model}");
            assert_eq!(device.mechanism, mechanism, "{model}");
        }
    }

    #[test]
    fn with_mig_on_by_us_it_is_shared_as_it_was_and_by_others_in_turns() {
        let of = |is_mode_ours| {
            let known = OfDevice { is_mode_ours, ..OfDevice::default() };
            told("a100-40", ALL, known).mechanism
        };
        assert_eq!((of(true), of(false)), (Mechanism::Mps, Mechanism::TimeSliced));
    }

    #[test]
    fn instances_that_nobody_else_made_are_not_told_as_somebodys() {
        let of = |policy, instances: &[MigInstance]| {
            let announcer = Announcer { policy, record: "/nowhere".into(), boot_id: String::new() };
            let mut double = Double::new("a100-40");
            let mut device = double.devices().unwrap().remove(0);
            device.instances = Some(instances.to_vec());
            announcer.complete(&mut double, &mut device);
            device.instances
        };
        let foreign = MigInstance {
            uuid: DeviceUuid::new("MIG-1"),
            gpu_instance_id: 1,
            compute_instance_id: 0,
            profile: "1g.5gb".to_owned(),
            placement: None,
            sm_count: 14,
            memory_bytes: 5 << 30,
        };
        assert_eq!(of(ALL, &[]), None, "there will be ours");
        assert_eq!(of(MigPolicy::default(), &[]), Some(vec![]), "MIG is on, and nobody of us makes any");
        assert_eq!(of(ALL, std::slice::from_ref(&foreign)), Some(vec![foreign]));
    }
}
