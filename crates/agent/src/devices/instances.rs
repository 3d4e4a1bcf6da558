//! Devices that are cut: settled at every look, and made whole for a job that Slurm started there alone.

use super::Devices;
use crate::looks;
use crate::share::Own;
use pillion_core::share::Share;
use pillion_core::{GresType, JobStart, UnixTime};
use std::collections::BTreeSet;
use tracing::{info, warn};

impl Devices {
    /// Whether a device is divided by us, or was.
    pub(super) fn is_cut_by_us(&self, index: u32) -> bool {
        let devices = self.node.devices();
        let mut own = devices.iter().filter(|device| device.index == index);
        own.any(|device| self.mechanisms.mig().is_managed(device))
    }

    /// Takes away the instances of those who have left, makes whole what is empty, and tells what cannot be.
    /// Nothing to do where nothing is cut and nothing was.
    pub(super) fn settle_instances(&mut self, now: UnixTime, shares: &[Share]) {
        if !self.mechanisms.mig().has_record() {
            return;
        }
        let devices = self.node.devices();
        // Where somebody is without a share, nothing is made for those who wait for what they cannot get.
        let waiting: BTreeSet<JobStart> = shares
            .iter()
            .filter(|share| share.mechanism().has_instances() && !self.sampler.is_tracked(share.start))
            .filter(|share| self.without_share(share).is_some())
            .map(|share| share.start)
            .collect();
        let sampler = &self.sampler;
        let is_over = |start| sampler.is_over(start) || waiting.contains(&start);
        self.mechanisms.settle_instances(self.backend.as_mut(), &devices, (shares, &is_over), now);
        let mig = self.mechanisms.mig();
        let mut sized: Vec<(JobStart, u64)> = Vec::new();
        let mut without_daemon: BTreeSet<GresType> = BTreeSet::new();
        for device in devices.iter() {
            if mig.is_managed(device) {
                let (fault, empty) = (mig.fault(&device.gres_type), mig.instances_empty(&device.gres_type));
                self.health.cut(device.index, fault, empty);
            }
            let on_it = shares.iter().filter(|share| share.gres_types.contains(&device.gres_type));
            for share in on_it.filter(|share| share.mechanism().has_instances()) {
                // Made anew, after its driver had forgotten it.
                if let Some(instance) = mig.instance_of(device, share) {
                    let own = self.node.own(share.start);
                    if share.mechanism().has_daemon() && own.instance.as_ref() != Some(&instance) {
                        without_daemon.insert(device.gres_type.clone());
                    }
                    self.node.set_own(share.start, Own { instance: Some(instance), ..own });
                }
                let size = share.sharing.mig_slot().zip(device.geometry.as_ref());
                let size = size.and_then(|(slot, geometry)| geometry.size(slot.profile));
                if let Some(bytes) =
                    size.and_then(|size| size.memory_bytes).filter(|_| self.sampler.is_tracked(share.start))
                {
                    sized.push((share.start, bytes));
                }
            }
        }
        self.node.set_cut(mig.cut());
        for (start, bytes) in sized {
            self.sampler.has_instance(start, bytes);
        }
        for gres_type in without_daemon {
            let here = shares.iter().filter(|share| share.gres_types.contains(&gres_type));
            self.restore_mechanisms(&here.cloned().collect::<Vec<_>>());
        }
        looks::tell(&self.health, &self.node, &self.conditions);
    }

    /// A start of another job whose tasks have a device of this share's, and no share of it.
    pub(super) fn without_share(&self, share: &Share) -> Option<JobStart> {
        let here = share.gres_types.iter().flat_map(|own| self.sampler.on_device(own));
        let mut others = here.filter(|start| start.job_id != share.start.job_id);
        others.find(|start| self.node.share(*start).is_none())
    }

    /// A start begins that has no instance of this device, which is cut: what those have left who are over goes at once, and not
    /// only when two looks have confirmed it. Slurm gave it the device, so nobody who waits for an instance of it comes meanwhile.
    ///
    /// # Errors
    /// What is in the way. Whoever still has a task there is never disturbed, whatever Slurm is said to have booked.
    pub(super) fn make_whole(&mut self, gres_type: &GresType, start: JobStart) -> Result<(), String> {
        let device = self.node.device(gres_type).ok_or("the device is not here")?;
        let others = self.node.shares_on(gres_type);
        let others = others.iter().filter(|other| other.start.job_id != start.job_id);
        for other in others {
            if self.sampler.is_tracked(other.start) && !self.sampler.is_over(other.start) {
                return Err(format!("start {} is there", other.start));
            }
        }
        let done = self.mechanisms.make_whole(self.backend.as_mut(), &device);
        self.node.set_cut(self.mechanisms.mig().cut());
        match done {
            Ok(()) => {
                info!(%start, %gres_type, "made whole for a start that has no instance");
                Ok(())
            }
            Err(error) => {
                let why = pillion_core::report(&error);
                warn!(%start, %gres_type, why, "not whole for a start that has no instance");
                Err(why)
            }
        }
    }
}
