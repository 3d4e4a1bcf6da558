//! Step 2: which jobs could share a device, and what that would be like: speeds under the caps that suit them best, what it
//! gains and risks, or the rule that forbids it. Estimates are kept by profiles and caps, evaluations by classes and kind.

pub(crate) mod candidate_set;
pub(crate) mod caps;
mod ccs_mode;
mod evaluation;
mod screening;
pub(crate) mod worth;

pub(crate) use evaluation::Evaluation;
pub(crate) use screening::{Appraisal, UncappedEstimates, UncappedPair};

use crate::plan::Reason;
use crate::planner::admit::{self, Owner};
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::view::{DeviceView, Tenant};
use caps::{CAP_GAIN_MIN, CapSlot};
use pillion_core::{Fraction, SlowdownRatio, WorkloadKey};
use std::rc::Rc;

/// A lone tenant in a part of a card must lose no more than this, or it gets the whole card and cannot be joined.
const SPEED_ALONE_IN_PART_MIN: f64 = 0.95;
/// The mode of a card that two share, and of one on which a job starts that may be joined
/// (docs/principles.md#order-of-service).
pub(crate) const CCS_MODE_SHARED: u8 = 2;

/// A tenant of a candidate: a job that would share, or shares already.
#[derive(Clone, Copy)]
pub(crate) struct CandidateTenant<'a> {
    profile: ProfileIndex,
    memory_bytes: u64,
    promise: SlowdownRatio,
    owner: Owner<'a>,
    cap: CapSlot,
    /// How long it would still run alone, in typical runs.
    runs: f64,
}

impl<'a> PlanContext<'a> {
    /// Two waiting jobs, by class, that start together. Evaluated once for both orders.
    pub(crate) fn pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Rc<Evaluation> {
        if let Some(evaluation) = self.found.pairs.borrow().get(&(host, joiner, kind)) {
            return Rc::clone(evaluation);
        }
        let (first, second) = (host.min(joiner), host.max(joiner));
        let straight = Rc::new(self.evaluate_pair(first, second, kind).unwrap_or_else(Evaluation::excluded));
        let mut turned = Evaluation::clone(&straight);
        turned.caps.reverse();
        turned.estimates = Rc::new(straight.estimates.iter().rev().cloned().collect());
        let turned = Rc::new(turned);
        self.found.pairs.borrow_mut().insert((second, first, kind), Rc::clone(&turned));
        self.found.pairs.borrow_mut().insert((first, second, kind), Rc::clone(&straight));
        if host == first { straight } else { turned }
    }

    fn evaluate_pair(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Result<Evaluation, Reason> {
        self.in_best_mode([host, joiner], self.pair_tenants(host, joiner, kind)?, kind)
    }

    /// A waiting job, by class, that joins what runs on a device.
    pub(crate) fn join(&self, class: ClassIndex, device: DeviceIndex) -> Rc<Evaluation> {
        let device = self.alike[device];
        if let Some(evaluation) = self.found.joins.borrow().get(&(class, device)) {
            return Rc::clone(evaluation);
        }
        let evaluation = Rc::new(self.evaluate_join(class, device).unwrap_or_else(Evaluation::excluded));
        self.found.joins.borrow_mut().insert((class, device), Rc::clone(&evaluation));
        evaluation
    }

    fn evaluate_join(&self, class: ClassIndex, device: DeviceIndex) -> Result<Evaluation, Reason> {
        let host = &self.devices[device];
        let tenants = self.tenants_with(class, device)?;
        self.evaluate(&tenants, host, host.tenants.iter().find_map(|tenant| tenant.sharing.ccs_mode()))
    }

    /// What two waiting jobs would be like, for an explanation: without caps where they were not evaluated, which costs too much.
    pub(crate) fn shown_pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Rc<Evaluation> {
        let is_known = self.found.pairs.borrow().contains_key(&(host, joiner, kind));
        if is_known || !self.is_screened(self.kinds[kind]) {
            return self.pair(host, joiner, kind);
        }
        let tenants = self.pair_tenants(host, joiner, kind);
        let evaluation = tenants.and_then(|tenants| self.without_caps(&tenants, self.kinds[kind]));
        Rc::new(evaluation.unwrap_or_else(Evaluation::excluded))
    }

    /// Likewise what a job would be like beside what runs on a device.
    pub(crate) fn shown_join(&self, class: ClassIndex, device: DeviceIndex) -> Rc<Evaluation> {
        let device = self.alike[device];
        let host = &self.devices[device];
        let is_known = self.found.joins.borrow().contains_key(&(class, device));
        if is_known || !self.is_screened(host) {
            return self.join(class, device);
        }
        let evaluation =
            self.tenants_with(class, device).and_then(|tenants| self.without_caps(&tenants, host));
        Rc::new(evaluation.unwrap_or_else(Evaluation::excluded))
    }

    /// What runs on a device, and last a job that joins it.
    fn tenants_with(
        &self,
        class: ClassIndex,
        device: DeviceIndex,
    ) -> Result<Vec<CandidateTenant<'a>>, Reason> {
        admit::may_be_joined(&self.devices[device], self.policy)?;
        let mut tenants = self.running_tenants(device)?;
        tenants.push(self.waiting_tenant(class, self.kind_of[device])?);
        Ok(tenants)
    }

    fn without_caps(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &DeviceView,
    ) -> Result<Evaluation, Reason> {
        self.may_meet(tenants, device)?;
        let slots: Vec<CapSlot> = tenants.iter().map(|tenant| tenant.cap).collect();
        self.evaluation(tenants, &caps::without_caps(&slots), device, None)
    }

    /// Every candidate of two waiting jobs that was evaluated, by class (host, joiner) and kind, in one of both orders.
    pub(crate) fn evaluated_pairs(&self) -> Vec<((ClassIndex, ClassIndex, KindIndex), Rc<Evaluation>)> {
        let pairs = self.found.pairs.borrow();
        let once = pairs.iter().filter(|((host, joiner, _), _)| host <= joiner);
        let mut all: Vec<_> = once.map(|(key, evaluation)| (*key, Rc::clone(evaluation))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Every candidate of a class with what runs on a device that was evaluated.
    pub(crate) fn evaluated_joins(&self) -> Vec<((ClassIndex, DeviceIndex), Rc<Evaluation>)> {
        let joins = self.found.joins.borrow();
        let mut all: Vec<_> = joins.iter().map(|(key, evaluation)| (*key, Rc::clone(evaluation))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn pair_tenants(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Result<[CandidateTenant<'a>; 2], Reason> {
        Ok([self.waiting_tenant(host, kind)?, self.waiting_tenant(joiner, kind)?])
    }

    fn waiting_tenant(&self, class: ClassIndex, kind: KindIndex) -> Result<CandidateTenant<'a>, Reason> {
        let (profile, memory_bytes) = self.sharers[class][kind]?;
        let job = self.classes[class];
        let promise = job.slowdown_ratio_max;
        let known = self.profiles[profile].duration_seconds;
        let runs = self.typical.of(job.duration_seconds_expected.or(known));
        Ok(CandidateTenant { profile, memory_bytes, promise, owner: job.into(), cap: CapSlot::Free, runs })
    }

    fn running_tenants(&self, device: DeviceIndex) -> Result<Vec<CandidateTenant<'a>>, Reason> {
        let host = &self.devices[device];
        host.tenants.iter().map(|tenant| self.running_tenant(tenant, host)).collect()
    }

    fn running_tenant(
        &self,
        tenant: &'a Tenant,
        device: &'a DeviceView,
    ) -> Result<CandidateTenant<'a>, Reason> {
        let workload = tenant.workload.as_ref().ok_or(Reason::NotShareable)?;
        let profile = self.profile_index.get(&(workload, device.model.as_str())).copied();
        let profile = profile.ok_or(Reason::UnknownWorkload)?;
        let need = tenant.memory_bytes.or_else(|| admit::memory_need(None, self.profiles[profile]));
        Ok(CandidateTenant {
            profile,
            memory_bytes: need.ok_or(Reason::MemoryUnknown)?,
            promise: tenant.slowdown_ratio_max,
            owner: tenant.into(),
            cap: CapSlot::Fixed(tenant.sharing.cap()),
            runs: self.typical.of(worth::remaining_seconds(tenant, self.view.taken_at)),
        })
    }

    /// The rules that need no estimate.
    fn may_meet(&self, tenants: &[CandidateTenant<'a>], device: &DeviceView) -> Result<(), Reason> {
        let (joiner, hosts) = tenants.split_last().ok_or(Reason::NotShareable)?;
        if hosts.iter().any(|host| !admit::owners_may_share(self.policy, host.owner, joiner.owner)) {
            return Err(Reason::UserPolicy);
        }
        let need = tenants.iter().map(|tenant| tenant.memory_bytes).fold(0_u64, u64::saturating_add);
        if need > admit::memory_usable(device, self.policy) {
            return Err(Reason::MemoryDoesNotFit);
        }
        Ok(())
    }

    /// What tenants of a device would be like together; the last one is new. Every rule but those on the node and the
    /// order of placement.
    fn evaluate(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        self.may_meet(tenants, device)?;
        let mut untried = self.sets_of_caps(tenants, device).into_iter();
        let first = untried.next().ok_or(Reason::NotAllowed)?;
        let mut chosen = self.evaluation(tenants, &first, device, mode)?;
        if sets_a_cap(tenants, &first) && !self.neighbours_are_safe(tenants, &first, device, mode) {
            chosen.excluded_by = chosen.excluded_by.or(Some(Reason::PromiseAtRisk));
        }
        if chosen.needs_no_caps(chosen.estimates.iter(), self.policy) {
            return Ok(chosen);
        }
        for set in untried {
            let other = self.evaluation(tenants, &set, device, mode)?;
            let least = match chosen.is_admitted() {
                true if !sets_a_cap(tenants, &chosen.caps) => chosen.value() + CAP_GAIN_MIN,
                true => chosen.value(),
                false => f64::NEG_INFINITY,
            };
            let is_better = other.is_admitted() && other.value() > least;
            if is_better && self.neighbours_are_safe(tenants, &set, device, mode) {
                chosen = other;
            }
        }
        Ok(chosen)
    }

    /// The sets of caps that are tried, no caps first where that is allowed.
    fn sets_of_caps(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &DeviceView,
    ) -> Vec<Vec<Option<Fraction>>> {
        let slots: Vec<CapSlot> = tenants.iter().map(|tenant| tenant.cap).collect();
        let may_cap = device.mechanism.can_cap() && self.policy.caps;
        if let Some(allowed) = &self.policy.allowed {
            let workloads: Vec<&WorkloadKey> =
                tenants.iter().map(|tenant| &self.profiles[tenant.profile].workload).collect();
            return caps::allowed_sets(&slots, &workloads, allowed, may_cap);
        }
        let mut all = vec![caps::without_caps(&slots)];
        if may_cap {
            all.extend(caps::cap_sets(&slots));
        }
        all
    }

    /// A cap in the environment can be taken off by the job that has it, so what neighbours are promised must hold
    /// without it (docs/principles.md#caps), unless all tenants are one user's.
    fn neighbours_are_safe(
        &self,
        tenants: &[CandidateTenant<'a>],
        set: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> bool {
        if tenants.windows(2).all(|pair| pair[0].owner.uid == pair[1].owner.uid) {
            return true;
        }
        (0..tenants.len()).all(|own| {
            let only_own: Vec<Option<Fraction>> =
                set.iter().enumerate().map(|(index, cap)| cap.filter(|_| index == own)).collect();
            let estimates = self.predict(tenants, &only_own, device, mode);
            estimates.is_ok_and(|estimates| admit::keeps_promise(&estimates[own], tenants[own].promise))
        })
    }

    /// Whether a job that starts alone may be joined later without being slower for it meanwhile.
    pub(crate) fn may_host(&self, class: ClassIndex, kind: KindIndex) -> Result<(), Reason> {
        let tenant = self.waiting_tenant(class, kind)?;
        let device = self.kinds[kind];
        if !device.mechanism.has_modes() {
            return Ok(());
        }
        let estimates = self.predict(&[tenant], &[None], device, Some(CCS_MODE_SHARED))?;
        let suffices = estimates[0].speed_fraction >= SPEED_ALONE_IN_PART_MIN
            && admit::keeps_promise(&estimates[0], tenant.promise);
        if suffices { Ok(()) } else { Err(Reason::PromiseAtRisk) }
    }
}

/// Whether a tenant that may be capped is: those that run already keep what they have.
fn sets_a_cap(tenants: &[CandidateTenant<'_>], set: &[Option<Fraction>]) -> bool {
    tenants.iter().zip(set).any(|(tenant, cap)| tenant.cap == CapSlot::Free && cap.is_some())
}
