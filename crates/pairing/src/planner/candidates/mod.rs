//! Step 2: which jobs could share a device, and what that would be like: speeds under the caps that suit them best, what it
//! gains and risks, or the rule that forbids it. Estimates are kept by profiles and caps, evaluations by classes and kind.

pub(crate) mod candidate_set;
pub(crate) mod caps;
mod ccs_mode;
mod estimates;
mod evaluation;
mod evaluator;
mod screening;
mod tenant;
pub(crate) mod trial;
mod worth;

pub(crate) use ccs_mode::CCS_MODE_SHARED;
pub(crate) use evaluation::{Evaluation, Trial};
pub(crate) use evaluator::Evaluator;

use crate::plan::Reason;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex};
use crate::planner::{admit, copies};
use crate::view::DeviceView;
use caps::{CAP_GAIN_MIN, CapSlot};
use pillion_core::{Fraction, WorkloadKey};
use std::rc::Rc;
use tenant::CandidateTenant;

/// A lone tenant in a part of a card must lose no more than this, or it gets the whole card and cannot be joined.
const SPEED_ALONE_IN_PART_MIN: f64 = 0.95;
impl<'a> Evaluator<'_, 'a> {
    /// Two waiting jobs, by class, that start together. Evaluated once for both orders.
    pub(crate) fn pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Rc<Evaluation> {
        if let Some(evaluation) = self.found.pairs.borrow().get(&(host, joiner, kind)) {
            return Rc::clone(evaluation);
        }
        let (first, second) = (host.min(joiner), host.max(joiner));
        let straight = Rc::new(self.evaluate_pair(first, second, kind).unwrap_or_else(Evaluation::excluded));
        let turned = Rc::new(straight.turned());
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
        let device = self.context.alike[device];
        if let Some(evaluation) = self.found.joins.borrow().get(&(class, device)) {
            return Rc::clone(evaluation);
        }
        let evaluation = Rc::new(self.evaluate_join(class, device).unwrap_or_else(Evaluation::excluded));
        self.found.joins.borrow_mut().insert((class, device), Rc::clone(&evaluation));
        evaluation
    }

    fn evaluate_join(&self, class: ClassIndex, device: DeviceIndex) -> Result<Evaluation, Reason> {
        let host = &self.context.devices[device];
        let tenants = self.tenants_with(class, device)?;
        self.evaluate(&tenants, host, host.tenants.iter().find_map(|tenant| tenant.sharing.ccs_mode()))
    }

    /// What two waiting jobs would be like, for an explanation: without caps where they were not evaluated, which costs too much.
    pub(crate) fn shown_pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Rc<Evaluation> {
        let is_known = self.found.pairs.borrow().contains_key(&(host, joiner, kind));
        if is_known || !self.is_screened(self.context.kinds[kind]) {
            return self.pair(host, joiner, kind);
        }
        let tenants = self.pair_tenants(host, joiner, kind);
        let evaluation = tenants.and_then(|tenants| self.without_caps(&tenants, self.context.kinds[kind]));
        Rc::new(evaluation.unwrap_or_else(Evaluation::excluded))
    }

    /// Likewise what a job would be like beside what runs on a device.
    pub(crate) fn shown_join(&self, class: ClassIndex, device: DeviceIndex) -> Rc<Evaluation> {
        let device = self.context.alike[device];
        let host = &self.context.devices[device];
        let is_known = self.found.joins.borrow().contains_key(&(class, device));
        if is_known || !self.is_screened(host) {
            return self.join(class, device);
        }
        let evaluation =
            self.tenants_with(class, device).and_then(|tenants| self.without_caps(&tenants, host));
        Rc::new(evaluation.unwrap_or_else(Evaluation::excluded))
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

    /// The rules that need no estimate.
    fn may_meet(&self, tenants: &[CandidateTenant<'a>], device: &DeviceView) -> Result<(), Reason> {
        let (joiner, hosts) = tenants.split_last().ok_or(Reason::NotShareable)?;
        for host in hosts {
            admit::owners_may_share(host.owner, joiner.owner)?;
        }
        if tenants.len() > tenants_max(tenants, device) as usize {
            return Err(Reason::NotShareable);
        }
        admit::are_served(
            tenants.iter().map(|tenant| self.context.profiles[tenant.profile]),
            device.mechanism,
        )?;
        let need = tenants.iter().map(|tenant| tenant.memory_bytes).fold(0_u64, u64::saturating_add);
        if need > admit::memory_usable(device, self.context.policy) {
            let mut profiles = tenants.iter().map(|tenant| self.context.profiles[tenant.profile]);
            let is_doubtful = profiles.any(|profile| admit::looks_preallocated(profile, device.memory_bytes));
            return Err(if is_doubtful { Reason::MemoryLooksPreallocated } else { Reason::MemoryDoesNotFit });
        }
        Ok(())
    }

    /// What tenants of a device would be like together; the last one is new. Every rule but those on the node and the
    /// order of placement.
    fn evaluate(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &'a DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        self.may_meet(tenants, device)?;
        let sets = self.sets_of_caps(tenants, device);
        let chosen = self.within_bounds(tenants, &sets, device, mode)?;
        Ok(self.or_trial(chosen, tenants, &sets, device, mode))
    }

    /// The best of these sets of caps by what is allowed without a trial.
    fn within_bounds(
        &self,
        tenants: &[CandidateTenant<'a>],
        sets: &[Vec<Option<Fraction>>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        let (first, untried) = sets.split_first().ok_or(Reason::NotAllowed)?;
        let mut chosen = self.evaluation(tenants, first, device, mode)?;
        if sets_a_cap(tenants, first) && !self.neighbours_are_safe(tenants, first, device, mode) {
            chosen.excluded_by = chosen.excluded_by.or(Some(Reason::PromiseAtRisk));
        }
        if chosen.needs_no_caps(chosen.estimates.iter(), self.context.policy) {
            return Ok(chosen);
        }
        for set in untried {
            let other = self.evaluation(tenants, set, device, mode)?;
            let least = match chosen.is_admitted() {
                true if !sets_a_cap(tenants, &chosen.caps) => chosen.value() + CAP_GAIN_MIN,
                true => chosen.value(),
                false => f64::NEG_INFINITY,
            };
            let is_better = other.is_admitted() && other.value() > least;
            if is_better && self.neighbours_are_safe(tenants, set, device, mode) {
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
        let may_cap = device.mechanism.can_cap();
        if let Some(allowed) = &self.context.policy.allowed {
            let workloads: Vec<&WorkloadKey> =
                tenants.iter().map(|tenant| &self.context.profiles[tenant.profile].workload).collect();
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
        let device = self.context.kinds[kind];
        if !device.mechanism.has_modes() {
            return Ok(());
        }
        let estimates = self.predict(&[tenant], &[None], device, Some(CCS_MODE_SHARED))?;
        let suffices = estimates[0].speed_fraction >= SPEED_ALONE_IN_PART_MIN
            && admit::keeps_promise(&estimates[0], tenant.promise);
        if suffices { Ok(()) } else { Err(Reason::PromiseAtRisk) }
    }
}

/// How many the strictest of them lets a device have.
fn tenants_max(tenants: &[CandidateTenant<'_>], device: &DeviceView) -> u32 {
    copies::tenants_max(tenant::wanted(tenants), tenant::are_copies(tenants), device.mechanism)
}

/// Whether a tenant that may be capped is: those that run already keep what they have.
fn sets_a_cap(tenants: &[CandidateTenant<'_>], set: &[Option<Fraction>]) -> bool {
    tenants.iter().zip(set).any(|(tenant, cap)| tenant.cap == CapSlot::Free && cap.is_some())
}
