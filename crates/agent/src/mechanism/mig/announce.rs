//! What is told of a device that we cut: what it can be cut into, and nothing of the instances that are ours.

use super::{MigPolicy, record};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mig::needs_reset;
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
        if let Some(instances) = &mut device.instances {
            instances.retain(|instance| {
                !known
                    .ours
                    .iter()
                    .any(|ours| ours.made.as_ref().is_some_and(|made| made.uuid == instance.uuid))
            });
            if instances.is_empty() && !known.is_nothing() {
                device.instances = None;
            }
        }
        let Some(control) = backend.mig().filter(|_| self.policy.is_enabled) else { return };
        if let Err(error) = self.offer(control, known.is_mode_ours, device) {
            warn!(device = device.index, error = %pillion_core::report(&error), "the device is not cut by MIG");
        }
    }

    fn offer(
        &self,
        control: &mut dyn MigControl,
        is_mode_ours: bool,
        device: &mut DeviceDescription,
    ) -> Result<(), DeviceError> {
        let geometry = match control.geometry(device.index) {
            Err(DeviceError::Unsupported { .. }) => return Ok(()),
            geometry => geometry?,
        };
        let mode = control.layout(device.index)?.mode;
        let can = match mode {
            MigMode::On => true,
            MigMode::Off => self.policy.may_toggle && !needs_reset(&device.model),
            MigMode::Pending => false,
        };
        if can {
            device.geometry = Some(geometry);
        }
        if mode == MigMode::On && !is_mode_ours {
            device.mechanism = Mechanism::TimeSliced;
        }
        Ok(())
    }
}
