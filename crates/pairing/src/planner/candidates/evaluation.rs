//! Estimates, and what follows from them: which promise they keep, what the sharing is worth, what it risks.

use super::CandidateTenant;
use super::caps::FAST_ENOUGH_FRACTION;
use super::worth::{self, Stay};
use crate::model::{SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::classes::PlanContext;
use crate::planner::index::KindIndex;
use crate::policy::{Objective, Policy};
use crate::view::DeviceView;
use pillion_core::Fraction;
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;
use std::rc::Rc;

/// What a broken promise costs, in typical runs: more than any sharing saves.
const RISK_PRICE: f64 = 4.0;
/// Tenants that will more probably not fit than this are not tried together.
const MISFIT_MAX: f64 = 0.5;
/// So many estimates are kept: beyond that, memory costs more than to estimate again.
const PREDICTIONS_MAX: usize = 20_000;

/// What a sharing would be like.
#[derive(Debug, Clone)]
pub(crate) struct Evaluation {
    /// For each tenant: those that run already, then those that start.
    pub(crate) caps: Vec<Option<Fraction>>,
    /// In the same order; empty where nothing could be said.
    pub(crate) estimates: Rc<Vec<SpeedEstimate>>,
    /// The card's mode.
    pub(crate) ccs_mode: Option<u8>,
    /// Sum of speeds less one, after.
    pub(crate) gain: f64,
    /// What the plan maximises: what is won against before.
    pub(crate) weight: f64,
    /// How many of its tenants are expected to run slower than promised.
    pub(crate) risk: f64,
    /// The rule that forbids it.
    pub(crate) excluded_by: Option<Reason>,
}

impl Evaluation {
    /// Of which nothing is said yet.
    fn unknown() -> Self {
        Self {
            caps: Vec::new(),
            estimates: Rc::default(),
            ccs_mode: None,
            gain: 0.0,
            weight: 0.0,
            risk: 0.0,
            excluded_by: None,
        }
    }
    pub(super) fn excluded(reason: Reason) -> Self {
        Self { excluded_by: Some(reason), ..Self::unknown() }
    }
    /// What it is worth, less what its broken promises are expected to cost.
    pub(super) fn value(&self) -> f64 {
        self.weight - RISK_PRICE * self.risk
    }
    /// What a little more speed is worth.
    pub(super) fn weight_of_speed(&self) -> f64 {
        if self.gain.abs() > 0.05 { (self.weight / self.gain).abs() } else { 1.0 }
    }
    pub(crate) fn is_admitted(&self) -> bool {
        self.excluded_by.is_none()
    }
    /// Whether caps are not worth trying: without any it is allowed, fast, and no riskier than its tenants may be.
    pub(super) fn needs_no_caps<'e>(
        &self,
        mut estimates: impl ExactSizeIterator<Item = &'e SpeedEstimate>,
        policy: &Policy,
    ) -> bool {
        let is_within_budget = self.risk <= policy.broken_budget(estimates.len());
        let is_fast = estimates.all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION);
        self.is_admitted() && is_fast && is_within_budget
    }
    /// How many more promises are expected to break than its tenants may cost.
    pub(crate) fn excess(&self, policy: &Policy) -> f64 {
        self.risk - policy.broken_budget(self.caps.len())
    }
}

impl<'a> PlanContext<'a> {
    pub(super) fn evaluation(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        let estimates = self.predict(tenants, caps, device, mode)?;
        let judged = self.judged(tenants, caps, &estimates.iter().collect::<Vec<_>>(), device, mode)?;
        Ok(Evaluation { caps: caps.to_vec(), estimates, ..judged })
    }

    /// What follows from estimates, which are not kept with it.
    pub(super) fn judged(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        estimates: &[&SpeedEstimate],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        let sum: f64 = estimates.iter().map(|estimate| estimate.speed_fraction).sum();
        let before = if let [_, _] = tenants { 1.0 } else { self.sum_before(tenants, caps, device, mode)? };
        let mut promises = estimates.iter().zip(tenants);
        let are_kept = promises.all(|(estimate, tenant)| admit::keeps_promise(estimate, tenant.promise));
        let inputs = self.inputs(tenants, caps, device, mode);
        let misfit = self.model.misfit_probability(&inputs, &device.model);
        let risks = estimates.iter().zip(tenants).map(|(own, tenant)| own.break_probability(tenant.promise));
        let risk: f64 = risks.map(|risk| misfit + (1.0 - misfit) * risk).sum();
        let weight = self.weight(tenants, &inputs, estimates, before, device) * (1.0 - misfit)
            - misfit * worth::MISFIT_COST;
        let excluded_by = if misfit >= MISFIT_MAX {
            Some(Reason::MemoryDoesNotFit)
        } else if !are_kept {
            Some(Reason::PromiseAtRisk)
        } else if sum - before < self.policy.gain_min || weight <= 0.0 {
            Some(Reason::GainTooSmall)
        } else {
            None
        };
        Ok(Evaluation { ccs_mode: mode, gain: sum - 1.0, weight, risk, excluded_by, ..Evaluation::unknown() })
    }

    /// The sum of speeds without the last tenant.
    fn sum_before(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<f64, Reason> {
        let count = tenants.len() - 1;
        let estimates = self.predict(&tenants[..count], &caps[..count], device, mode)?;
        Ok(estimates.iter().map(|estimate| estimate.speed_fraction).sum())
    }

    /// What the site's objective makes of a sharing, in typical runs on a device of its own. Without known power,
    /// throughput counts.
    fn weight(
        &self,
        tenants: &[CandidateTenant<'_>],
        inputs: &[TenantInput<'_>],
        estimates: &[&SpeedEstimate],
        before: f64,
        device: &DeviceView,
    ) -> f64 {
        let stays: Vec<Stay> = tenants
            .iter()
            .zip(inputs)
            .zip(estimates)
            .map(|((tenant, input), own)| Stay {
                runs: tenant.runs,
                speed: own.speed_fraction,
                contested: if own.has_heavy_tail { own.spread() } else { 0.0 },
                watts: input.profile.metrics.get(Metric::PowerWatts),
            })
            .collect();
        let together = match self.policy.objective {
            Objective::Throughput => None,
            Objective::Energy | Objective::ThroughputPerWatt => self.model.power_watts(inputs, &device.model),
        };
        worth::worth(&stays, before, together, self.policy.objective)
    }

    fn inputs(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Vec<TenantInput<'a>> {
        let capped = tenants.iter().zip(caps);
        let inputs = capped.map(|(tenant, cap)| TenantInput {
            profile: self.profiles[tenant.profile],
            sharing: Sharing::by(device.mechanism, *cap, mode),
        });
        inputs.collect()
    }

    pub(super) fn predict(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Rc<Vec<SpeedEstimate>>, Reason> {
        let capped = tenants.iter().zip(caps);
        let capped =
            capped.map(|(tenant, cap)| (tenant.profile, cap.map_or(f64::MAX, Fraction::value).to_bits()));
        let key = (self.model_of(device), mode, capped.collect());
        if let Some(known) = self.found.predictions.borrow().get(&key) {
            return known.clone().ok_or(Reason::UnknownWorkload);
        }
        let inputs = self.inputs(tenants, caps, device, mode);
        let estimates = self.model.predict(&inputs, &device.model).ok().map(Rc::new);
        if self.found.predictions.borrow().len() < PREDICTIONS_MAX {
            self.found.predictions.borrow_mut().insert(key, estimates.clone());
        }
        estimates.ok_or(Reason::UnknownWorkload)
    }

    /// The first kind of devices of this model and mechanism: estimates know no other difference.
    pub(super) fn model_of(&self, device: &DeviceView) -> KindIndex {
        let alike =
            self.kinds.position(|kind| kind.model == device.model && kind.mechanism == device.mechanism);
        alike.unwrap_or(KindIndex::from(0))
    }
}
