//! What is known of a candidate: all of it once it was evaluated, and what the choice needs of it.

use super::caps::FAST_ENOUGH_FRACTION;
use crate::model::SpeedEstimate;
use crate::plan::Reason;
use crate::policy::Policy;
use pillion_core::Fraction;
use std::rc::Rc;

/// What a broken promise costs, in typical runs: more than any sharing saves.
const RISK_PRICE: f64 = 4.0;

/// A sharing that is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trial {
    /// How probably both keep their promises, 0..=1.
    pub(crate) keep_probability: f64,
    /// Whether that is so probable that more of the kind need not wait for the verdict.
    pub(crate) is_sure: bool,
}

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
    /// That it is tried, where the bounds do not admit it.
    pub(crate) trial: Option<Trial>,
    /// Of a trial, what it is where one of its kind is tried already, and that is allowed.
    pub(crate) otherwise: Option<Rc<Evaluation>>,
}

impl Evaluation {
    /// Of which nothing is said yet.
    pub(super) fn unknown() -> Self {
        Self {
            caps: Vec::new(),
            estimates: Rc::default(),
            ccs_mode: None,
            gain: 0.0,
            weight: 0.0,
            risk: 0.0,
            excluded_by: None,
            trial: None,
            otherwise: None,
        }
    }
    pub(super) fn excluded(reason: Reason) -> Self {
        Self { excluded_by: Some(reason), ..Self::unknown() }
    }
    /// The same in the other order of tenants.
    pub(super) fn turned(&self) -> Self {
        let caps = self.caps.iter().rev().copied().collect();
        let estimates = Rc::new(self.estimates.iter().rev().cloned().collect());
        let otherwise = self.otherwise.as_ref().map(|bounded| Rc::new(bounded.turned()));
        Self { caps, estimates, otherwise, ..*self }
    }
    /// Whether it is a trial whose verdict the next of its kind waits for.
    pub(crate) fn is_limited(&self) -> bool {
        self.trial.is_some_and(|trial| !trial.is_sure)
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
        estimates: impl ExactSizeIterator<Item = &'e SpeedEstimate>,
        policy: &Policy,
    ) -> bool {
        let is_within_budget = self.risk <= policy.broken_budget(estimates.len());
        is_within_budget && self.is_allowed_and_fast(estimates)
    }
    /// Whether it is allowed, and all its tenants are as good as alone.
    pub(super) fn is_allowed_and_fast<'e>(
        &self,
        mut estimates: impl Iterator<Item = &'e SpeedEstimate>,
    ) -> bool {
        self.is_admitted() && estimates.all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION)
    }
    /// How many more promises are expected to break than its tenants may cost.
    pub(crate) fn excess(&self, policy: &Policy) -> f64 {
        self.risk - policy.broken_budget(self.caps.len())
    }
}

/// What is known of a candidate, screened or evaluated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Appraisal {
    /// What it is worth; absent = it is not allowed, as far as is known.
    pub(crate) weight: Option<f64>,
    /// How many of its tenants are expected to run slower than promised.
    pub(crate) risk: f64,
    /// What caps could make it worth, at most but for one in ten; absent = what is known is final.
    pub(crate) weight_bound: Option<f64>,
    /// That it is a trial whose verdict the next of its kind waits for.
    pub(crate) is_limited: bool,
    /// Of such a one, weight and risk without a trial; absent = it is not allowed then.
    pub(crate) otherwise: Option<(f64, f64)>,
}

impl Appraisal {
    pub(super) const NOTHING: Self =
        Self { weight: None, risk: 0.0, weight_bound: None, is_limited: false, otherwise: None };

    /// After the evaluation.
    pub(crate) fn of(evaluation: &Evaluation) -> Self {
        Self {
            weight: evaluation.is_admitted().then_some(evaluation.weight),
            risk: evaluation.risk,
            weight_bound: None,
            is_limited: evaluation.is_limited(),
            otherwise: evaluation.otherwise.as_ref().map(|bounded| (bounded.weight, bounded.risk)),
        }
    }
}
