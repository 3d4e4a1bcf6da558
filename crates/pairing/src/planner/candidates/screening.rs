//! What a candidate is worth at the price of one estimate, without caps, where an evaluation under all caps would cost
//! many. What two are like depends on their profiles alone, whichever of them runs already: it is estimated once for all
//! that could meet.

use super::caps::CapSlot;
use super::evaluation::{Appraisal, Evaluation};
use super::evaluator::{Evaluator, Uncapped, UncappedAnswer, UncappedPair};
use super::tenant::CandidateTenant;
use crate::model::{Hope, SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex};
use crate::view::DeviceView;
use pillion_core::share::Sharing;

/// What caps win at most, in speed, of all but one pair in ten that were measured (KACE: 0.29 beside no caps).
const CAPS_WIN_MAX: f64 = 0.3;

impl<'a> Evaluator<'_, 'a> {
    /// The two waiting jobs, by class, whom screening would estimate.
    pub(super) fn uncapped_of_pair(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Option<UncappedPair> {
        let device = Some(self.context.kinds[kind]).filter(|device| self.is_screened(device))?;
        self.uncapped_pair(&self.pair_tenants(host, joiner, kind).ok()?, device)
    }

    /// The job, by class, and the one that runs on a device.
    pub(super) fn uncapped_of_join(&self, class: ClassIndex, device: DeviceIndex) -> Option<UncappedPair> {
        let host = Some(&self.context.devices[device]).filter(|host| self.is_screened(host))?;
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
    pub(super) fn estimate_uncapped(
        &self,
        (kind, lower, higher): UncappedPair,
    ) -> UncappedAnswer<[Uncapped; 2]> {
        let device = self.context.kinds[kind];
        let sharing = Sharing::by(device.mechanism, None, None);
        let inputs =
            [lower, higher].map(|profile| TenantInput { profile: self.context.profiles[profile], sharing });
        let least = [lower, higher].map(|profile| self.context.least_speeds[profile]);
        let hope = Hope { least: &least, lacking_max: CAPS_WIN_MAX };
        let Ok(estimates) = self.context.model.predict_if(&inputs, &device.model, &hope) else {
            return UncappedAnswer::Unknown;
        };
        let Some(estimates) = estimates else { return UncappedAnswer::Hopeless };
        let estimates = self.doubted(estimates, [lower, higher]);
        if !hope.allows(estimates.iter().map(|estimate| estimate.speed_fraction_low)) {
            return UncappedAnswer::Hopeless;
        }
        let both: Vec<Uncapped> = estimates.into_iter().map(Uncapped::from).collect();
        both.try_into().map_or(UncappedAnswer::Unknown, UncappedAnswer::Speeds)
    }

    /// Two waiting jobs, by class, at the price of one estimate where an evaluation would cost many.
    pub(super) fn screen_pair(&self, host: ClassIndex, joiner: ClassIndex, kind: KindIndex) -> Appraisal {
        let device = self.context.kinds[kind];
        if !self.is_screened(device) {
            return Appraisal::of(&self.pair(host, joiner, kind));
        }
        let tenants = self.pair_tenants(host, joiner, kind);
        tenants.and_then(|tenants| self.screen(&tenants, device)).unwrap_or(Appraisal::NOTHING)
    }

    /// A job, by class, that joins what runs on a device, likewise.
    pub(super) fn screen_join(&self, class: ClassIndex, device: DeviceIndex) -> Appraisal {
        let host = &self.context.devices[device];
        if !self.is_screened(host) {
            return Appraisal::of(&self.join(class, device));
        }
        let appraisal = self.tenants_with(class, device).and_then(|tenants| self.screen(&tenants, host));
        appraisal.unwrap_or(Appraisal::NOTHING)
    }

    /// Whether candidates on it are screened first: not where they are few, where a list says which caps may be tried, or
    /// where a card has modes.
    pub(super) fn is_screened(&self, device: &DeviceView) -> bool {
        !self.context.is_thorough && self.context.policy.allowed.is_none() && !device.mechanism.has_modes()
    }

    /// What they are like without caps, and what caps could make of that.
    fn screen(&self, tenants: &[CandidateTenant<'a>], device: &'a DeviceView) -> Result<Appraisal, Reason> {
        let Some(known) = self.uncapped_pair(tenants, device).and_then(|pair| self.uncapped(&pair)) else {
            let evaluation = self.without_caps(tenants, device)?;
            let estimates: Vec<&SpeedEstimate> = evaluation.estimates.iter().collect();
            return Ok(self.screened(tenants, device, evaluation.clone(), &estimates));
        };
        self.may_meet(tenants, device)?;
        let [lower, higher] = match &known {
            UncappedAnswer::Speeds(speeds) => speeds,
            UncappedAnswer::Hopeless => return Ok(Appraisal::NOTHING),
            UncappedAnswer::Unknown => return Err(Reason::UnknownWorkload),
        };
        let is_turned = tenants[0].profile > tenants[1].profile;
        let estimates = if is_turned { [higher, lower] } else { [lower, higher] };
        // Where pairs outside the bounds may be tried, it is told later.
        if self.context.trials.is_none() && is_hopeless(tenants, &estimates) {
            return Ok(Appraisal::NOTHING);
        }
        let evaluation = self.judged(tenants, &[None, None], &estimates, device, None)?;
        Ok(self.screened(tenants, device, evaluation, &estimates))
    }

    fn screened(
        &self,
        tenants: &[CandidateTenant<'a>],
        device: &'a DeviceView,
        evaluation: Evaluation,
        estimates: &[&SpeedEstimate],
    ) -> Appraisal {
        let could_cap =
            device.mechanism.can_cap() && tenants.iter().any(|tenant| tenant.cap == CapSlot::Free);
        // One that is fast and too risky is left as it is: in a queue so long there are others, and to evaluate it costs much.
        let is_final = !could_cap
            || evaluation.is_allowed_and_fast(estimates.iter().copied())
            || !caps_could_help(tenants, &evaluation, estimates);
        let weight_bound =
            (!is_final).then(|| evaluation.weight + CAPS_WIN_MAX * evaluation.weight_of_speed());
        Appraisal {
            weight_bound,
            ..Appraisal::of(&self.or_uncapped_trial(evaluation, tenants, estimates, device))
        }
    }
}

/// Whether a promise is not kept without caps, and no caps could help: what such a sharing would be worth need not be known.
fn is_hopeless(tenants: &[CandidateTenant<'_>], estimates: &[&SpeedEstimate]) -> bool {
    let mut promises = estimates.iter().zip(tenants);
    let are_kept = promises.all(|(estimate, tenant)| admit::keeps_promise(estimate, tenant.promise));
    !are_kept && lacking(tenants, estimates) > CAPS_WIN_MAX
}

/// How much speed the bounds lack to what was promised, all tenants together.
fn lacking(tenants: &[CandidateTenant<'_>], estimates: &[&SpeedEstimate]) -> f64 {
    let lacking = tenants.iter().zip(estimates);
    lacking.map(|(tenant, own)| tenant.promise.value().recip() - own.speed_fraction_low).sum()
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
    (is_one_user || without.excluded_by != Some(Reason::PromiseAtRisk))
        && lacking(tenants, estimates) <= CAPS_WIN_MAX
}
