//! What a candidate is worth at the price of one estimate, without caps, where an evaluation under all caps would cost
//! many. What two are like depends on their profiles alone, whichever of them runs already: it is estimated once for all
//! that could meet.

use super::caps::CapSlot;
use super::{CandidateTenant, Evaluation};
use crate::model::{SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::planner::classes::{Found, PlanContext};
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::view::DeviceView;
use pillion_core::share::Sharing;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// What caps win at most, in speed, of all but one pair in ten that were measured (KACE: 0.29 beside no caps).
const CAPS_WIN_MAX: f64 = 0.3;

/// What is known of a candidate, screened or evaluated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Appraisal {
    /// What it is worth; absent = it is not allowed, as far as is known.
    pub(crate) weight: Option<f64>,
    /// How many of its tenants are expected to run slower than promised.
    pub(crate) risk: f64,
    /// What caps could make it worth, at most but for one in ten; absent = what is known is final.
    pub(crate) weight_bound: Option<f64>,
}

impl Appraisal {
    const NOTHING: Self = Self { weight: None, risk: 0.0, weight_bound: None };

    /// After the evaluation.
    pub(crate) fn of(evaluation: &Evaluation) -> Self {
        Self {
            weight: evaluation.is_admitted().then_some(evaluation.weight),
            risk: evaluation.risk,
            weight_bound: None,
        }
    }
}

/// Two without caps: the kind of device, and their profiles, the lower first.
pub(crate) type UncappedPair = (KindIndex, ProfileIndex, ProfileIndex);

/// How fast two are without caps, in the order of their profiles; absent = nothing can be said. Terms are left out: there
/// may be a hundred thousand of them.
pub(crate) type UncappedEstimates = Arc<FxHashMap<UncappedPair, Option<[SpeedEstimate; 2]>>>;

impl<'a> PlanContext<'a> {
    /// How to make another that knows these estimates, on another thread: what a context remembers besides is its own.
    pub(crate) fn fork(&self) -> impl Fn() -> PlanContext<'a> + Sync + use<'a> {
        let (view, model, policy) = (self.view, self.model, self.policy);
        let uncapped = Arc::clone(&self.found.uncapped.borrow());
        move || {
            let found = Found { uncapped: RefCell::new(Arc::clone(&uncapped)), ..Found::default() };
            PlanContext { found, ..PlanContext::new(view, model, policy) }
        }
    }

    /// Whether these were estimated.
    pub(crate) fn has_uncapped(&self, pair: &UncappedPair) -> bool {
        self.found.uncapped.borrow().contains_key(pair)
    }

    /// From now on this is known too.
    pub(crate) fn remember(&self, answers: impl Iterator<Item = (UncappedPair, Option<[SpeedEstimate; 2]>)>) {
        Arc::make_mut(&mut self.found.uncapped.borrow_mut()).extend(answers);
    }

    /// The two waiting jobs, by class, whom screening would estimate.
    pub(crate) fn uncapped_of_pair(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Option<UncappedPair> {
        let device = Some(self.kinds[kind]).filter(|device| self.is_screened(device))?;
        self.uncapped_pair(&self.pair_tenants(host, joiner, kind).ok()?, device)
    }

    /// The job, by class, and the one that runs on a device.
    pub(crate) fn uncapped_of_join(&self, class: ClassIndex, device: DeviceIndex) -> Option<UncappedPair> {
        let host = Some(&self.devices[device]).filter(|host| self.is_screened(host))?;
        self.uncapped_pair(&self.tenants_with(class, device).ok()?, host)
    }

    fn uncapped_pair(&self, tenants: &[CandidateTenant<'a>], device: &DeviceView) -> Option<UncappedPair> {
        let [one, other] = tenants else { return None };
        let is_plain =
            [one, other].iter().all(|tenant| matches!(tenant.cap, CapSlot::Free | CapSlot::Fixed(None)));
        let (lower, higher) = (one.profile.min(other.profile), one.profile.max(other.profile));
        is_plain.then(|| (self.model_of(device), lower, higher))
    }

    /// How fast two are without caps.
    pub(crate) fn estimate_uncapped(
        &self,
        (kind, lower, higher): UncappedPair,
    ) -> Option<[SpeedEstimate; 2]> {
        let device = self.kinds[kind];
        let sharing = Sharing::by(device.mechanism, None, None);
        let inputs = [lower, higher].map(|profile| TenantInput { profile: self.profiles[profile], sharing });
        let estimates = self.model.predict(&inputs, &device.model).ok()?;
        let without_terms =
            estimates.into_iter().map(|estimate| SpeedEstimate { terms: Arc::default(), ..estimate });
        without_terms.collect::<Vec<_>>().try_into().ok()
    }

    /// Two waiting jobs, by class, at the price of one estimate where an evaluation would cost many.
    pub(crate) fn screen_pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Appraisal {
        let device = self.kinds[kind];
        if !self.is_screened(device) {
            return Appraisal::of(&self.pair(host, joiner, kind));
        }
        let tenants = self.pair_tenants(host, joiner, kind);
        tenants.and_then(|tenants| self.screen(&tenants, device)).unwrap_or(Appraisal::NOTHING)
    }

    /// A job, by class, that joins what runs on a device, likewise.
    pub(crate) fn screen_join(&self, class: ClassIndex, device: DeviceIndex) -> Appraisal {
        let host = &self.devices[device];
        if !self.is_screened(host) {
            return Appraisal::of(&self.join(class, device));
        }
        let appraisal = self.tenants_with(class, device).and_then(|tenants| self.screen(&tenants, host));
        appraisal.unwrap_or(Appraisal::NOTHING)
    }

    /// Whether candidates on it are screened first: not where they are few, where a list says which caps may be tried, or
    /// where a card has modes.
    pub(super) fn is_screened(&self, device: &DeviceView) -> bool {
        !self.is_thorough && self.policy.allowed.is_none() && !device.mechanism.has_modes()
    }

    /// What they are like without caps, and what caps could make of that.
    fn screen(&self, tenants: &[CandidateTenant<'a>], device: &DeviceView) -> Result<Appraisal, Reason> {
        let uncapped = self.found.uncapped.borrow();
        let known = self.uncapped_pair(tenants, device).and_then(|pair| uncapped.get(&pair));
        let Some(known) = known else {
            let evaluation = self.without_caps(tenants, device)?;
            let estimates: Vec<&SpeedEstimate> = evaluation.estimates.iter().collect();
            return Ok(self.screened(tenants, device, &evaluation, &estimates));
        };
        self.may_meet(tenants, device)?;
        let [lower, higher] = known.as_ref().ok_or(Reason::UnknownWorkload)?;
        let is_turned = tenants[0].profile > tenants[1].profile;
        let estimates = if is_turned { [higher, lower] } else { [lower, higher] };
        let evaluation = self.judged(tenants, &[None, None], &estimates, device, None)?;
        Ok(self.screened(tenants, device, &evaluation, &estimates))
    }

    fn screened(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &DeviceView,
        evaluation: &Evaluation,
        estimates: &[&SpeedEstimate],
    ) -> Appraisal {
        let could_cap = device.mechanism.can_cap() && self.policy.caps;
        let is_final = !could_cap
            || evaluation.needs_no_caps(estimates.iter().copied(), self.policy)
            || !caps_could_help(tenants, evaluation, estimates);
        let weight_bound =
            (!is_final).then(|| evaluation.weight + CAPS_WIN_MAX * evaluation.weight_of_speed());
        Appraisal { weight_bound, ..Appraisal::of(evaluation) }
    }
}

/// Whether there are caps under which the promises could be kept, as far as one estimate without any tells.
fn caps_could_help(
    tenants: &[CandidateTenant<'_>],
    without: &Evaluation,
    estimates: &[&SpeedEstimate],
) -> bool {
    if without.is_admitted() {
        return true;
    }
    // A cap slows the one that has it: neighbours of another user cannot be helped by what he could take off.
    let is_one_user = tenants.windows(2).all(|pair| pair[0].owner.uid == pair[1].owner.uid);
    let lacking = tenants.iter().zip(estimates);
    let lacking: f64 =
        lacking.map(|(tenant, own)| tenant.promise.value().recip() - own.speed_fraction_low).sum();
    (is_one_user || without.excluded_by != Some(Reason::PromiseAtRisk)) && lacking <= CAPS_WIN_MAX
}
