//! The tenants of a candidate: jobs that would share, by class, and what runs on a device.

use super::caps::CapSlot;
use super::evaluator::Evaluator;
use super::worth;
use crate::copies::CopyKind;
use crate::plan::Reason;
use crate::planner::admit::{self, Owner};
use crate::planner::copies::{self, Ladder};
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::planner::{first_run, session};
use crate::view::{DeviceView, Tenant};
use pillion_core::SlowdownRatio;
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;

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
        if host.tenants.iter().any(|tenant| tenant.session.is_some()) {
            let guests = tenants.iter().zip(&host.tenants).filter(|(_, tenant)| tenant.session.is_none());
            let beside = guests.map(|(guest, _)| guest.profile).chain([joiner.profile]);
            let uses = beside.map(|guest| self.context.profiles[guest].metrics.get(Metric::SmActiveFraction));
            session::may_come(joiner.owner.is_guest, uses)?;
        }
        tenants.push(joiner);
        self.climbed(tenants, host)
    }

    /// The same, where they are copies of one workload of which more than four may be: under one cap, and each step after the one
    /// before it was measured. Whoever is none needs the shards that anybody needs.
    fn climbed(
        &self,
        mut tenants: Vec<CandidateTenant<'a>>,
        host: &DeviceView,
    ) -> Result<Vec<CandidateTenant<'a>>, Reason> {
        if host.shards_free < copies::shards_min(climb(&tenants)) {
            return Err(Reason::NoShardsLeft);
        }
        let count = tenants.len();
        if count <= 2 || !climb(&tenants) {
            return Ok(tenants);
        }
        let CapSlot::Fixed(cap) = tenants[0].cap else { return Err(Reason::CopiesUnmeasured) };
        if tenants[count - 1].cap == CapSlot::Free {
            tenants[count - 1].cap = CapSlot::Fixed(cap);
        }
        if tenants.iter().any(|tenant| tenant.cap != CapSlot::Fixed(cap)) {
            return Err(Reason::CopiesUnmeasured);
        }
        // A cap in the environment its job can take off: what a copy of another user is promised must hold without it.
        if cap.is_some() && tenants.iter().any(|tenant| tenant.owner.uid != tenants[0].owner.uid) {
            return Err(Reason::PromiseAtRisk);
        }
        let mode = host.tenants.iter().find_map(|tenant| tenant.sharing.ccs_mode());
        let promises = tenants.iter().map(|tenant| tenant.promise);
        let strictest = promises.min_by(|a, b| a.value().total_cmp(&b.value()));
        let ladder = self.ladder(&tenants, Sharing::by(host.mechanism, cap, mode), &host.model);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        ladder.may_be(count, strictest.ok_or(Reason::NotShareable)?)?;
        Ok(tenants)
    }

    /// What is known of copies of what the first of these runs.
    pub(super) fn ladder(
        &self,
        tenants: &[CandidateTenant<'_>],
        sharing: Sharing,
        device_model: &str,
    ) -> Ladder<'a> {
        let policy = self.context.policy;
        // How fast a counter counts is its user's to say: of others that is believed where the site says so.
        let mut owners = tenants.iter().map(|tenant| [tenants[0].owner, tenant.owner]);
        let believes_counters =
            owners.all(|both| policy.watch_believes.lets(both.map(|owner| (owner.uid, owner.account))));
        let workload = &self.context.profiles[tenants[0].profile].workload;
        let kind = CopyKind::new(workload, device_model, sharing);
        Ladder { book: &self.context.view.copies, kind, believes_counters }
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
            cap: CapSlot::of_new(owner.rules, self.context.profiles[profile]),
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
        let seen = self.context.seen_index.get(&tenant.job_id).copied();
        let (profile, need) = match &tenant.first_run {
            Some(first) => (seen, Some(first_run::memory_need(first)?)),
            None if tenant.session.is_some() => (seen, None),
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

/// How many the strictest of their rules lets a device have.
pub(super) fn wanted(tenants: &[CandidateTenant<'_>]) -> u32 {
    tenants.iter().map(|tenant| tenant.owner.rules.tenants_max).min().unwrap_or(1)
}

/// Whether all run the same, by one profile: of minutes, each has its own.
pub(super) fn are_copies(tenants: &[CandidateTenant<'_>]) -> bool {
    tenants.windows(2).all(|two| two[0].profile == two[1].profile)
}

/// Whether they go up step by step.
pub(super) fn climb(tenants: &[CandidateTenant<'_>]) -> bool {
    copies::climb(wanted(tenants), are_copies(tenants))
}
