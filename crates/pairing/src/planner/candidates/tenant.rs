//! The tenants of a candidate: jobs that would share, by class, and what runs on a device.

use super::caps::CapSlot;
use super::evaluator::Evaluator;
use super::worth;
use crate::plan::Reason;
use crate::planner::admit::{self, Owner};
use crate::planner::first_run;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::view::{DeviceView, Tenant};
use pillion_core::SlowdownRatio;

/// A tenant of a candidate: a job that would share, or shares already.
#[derive(Clone, Copy)]
pub(super) struct CandidateTenant<'a> {
    pub(super) profile: ProfileIndex,
    pub(super) memory_bytes: u64,
    pub(super) promise: SlowdownRatio,
    pub(super) owner: Owner<'a>,
    pub(super) cap: CapSlot,
    /// How long it would still run alone, in typical runs.
    pub(super) runs: f64,
    /// It starts again: it is not made to go back once more.
    pub(super) is_restarted: bool,
    /// Whether it may be tried with another.
    pub(super) may_be_tried: bool,
}

impl<'a> Evaluator<'_, 'a> {
    /// What runs on a device, and last a job that joins it.
    pub(super) fn tenants_with(
        &self,
        class: ClassIndex,
        device: DeviceIndex,
    ) -> Result<Vec<CandidateTenant<'a>>, Reason> {
        let host = &self.context.devices[device];
        admit::may_be_joined(host, self.context.policy)?;
        let mut tenants = self.running_tenants(device)?;
        let joiner = self.waiting_tenant(class, self.context.kind_of[device])?;
        // Whoever came by minutes of measurement alone must be able to go back.
        if !joiner.owner.rules.is_parted && host.tenants.iter().any(|tenant| tenant.first_run.is_some()) {
            return Err(Reason::UnknownWorkload);
        }
        tenants.push(joiner);
        Ok(tenants)
    }

    /// Two waiting jobs, by class.
    pub(super) fn pair_tenants(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Result<[CandidateTenant<'a>; 2], Reason> {
        Ok([self.waiting_tenant(host, kind)?, self.waiting_tenant(joiner, kind)?])
    }

    pub(super) fn waiting_tenant(
        &self,
        class: ClassIndex,
        kind: KindIndex,
    ) -> Result<CandidateTenant<'a>, Reason> {
        let (profile, memory_bytes) = self.context.sharers[class][kind]?;
        let job = self.context.classes[class];
        let promise = job.slowdown_ratio_max;
        let known = self.context.profiles[profile].duration_seconds;
        let runs = self.typical.of(job.duration_seconds_expected.or(known));
        let is_restarted = job.start.restart_count > 0;
        let trials = self.context.trials.as_ref();
        let owner = Owner::of_waiting(job, self.context.policy);
        let may_be_tried =
            owner.rules.trials && trials.is_some_and(|trials| trials.may_try(job.start.job_id));
        Ok(CandidateTenant {
            profile,
            memory_bytes,
            promise,
            owner,
            cap: CapSlot::of_new(owner.rules),
            runs,
            is_restarted,
            may_be_tried,
        })
    }

    fn running_tenants(&self, device: DeviceIndex) -> Result<Vec<CandidateTenant<'a>>, Reason> {
        let host = &self.context.devices[device];
        host.tenants.iter().map(|tenant| self.running_tenant(tenant, host)).collect()
    }

    fn running_tenant(
        &self,
        tenant: &'a Tenant,
        device: &'a DeviceView,
    ) -> Result<CandidateTenant<'a>, Reason> {
        let workload = tenant.workload.as_ref().ok_or(Reason::NotShareable)?;
        let (profile, need) = match &tenant.first_run {
            Some(first) => {
                let profile = self.context.first_run_index.get(&tenant.job_id).copied();
                (profile, Some(first_run::memory_need(first)?))
            }
            None => (self.context.profile_index.get(&(workload, device.model.as_str())).copied(), None),
        };
        let profile = profile.ok_or(Reason::UnknownWorkload)?;
        let need =
            need.or(tenant.memory_bytes).or_else(|| admit::memory_need(None, self.context.profiles[profile]));
        let owner = Owner::of_tenant(tenant, self.context.policy);
        Ok(CandidateTenant {
            profile,
            memory_bytes: need.ok_or(Reason::MemoryUnknown)?,
            promise: tenant.slowdown_ratio_max,
            owner,
            cap: CapSlot::Fixed(tenant.sharing.cap()),
            runs: self.typical.of(worth::remaining_seconds(tenant, self.context.view.taken_at)),
            is_restarted: false,
            // Whoever joins it is the one that goes back.
            may_be_tried: owner.rules.trials,
        })
    }
}
