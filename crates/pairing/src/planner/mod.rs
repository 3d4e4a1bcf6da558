//! From a snapshot of the cluster to a plan, in six steps, each a folder or a file of that name; before them jobs that get whole
//! devices are given theirs ([`whole`]), and the rest is planned as if there were no others:
//!
//! 1. [`classes`]: what is alike becomes one. Thousands of jobs fall into classes, devices into kinds and places, so that what
//!    follows grows with the workloads and not with the queue.
//! 2. [`candidates`]: which jobs could share a device, and what that would be like: speeds, caps, gain, risk, or the rule that
//!    forbids it. Evaluated no further than the choice needs.
//! 3. [`selection`]: of all candidates those that gain most together, within the budget of broken promises.
//! 4. [`placement`]: devices are handed out in the order of the queue, to those that were selected and to those alone.
//! 5. [`instances`]: devices that can be cut are, for those who would wait, where that does more and every promise holds.
//! 6. [`explanation`]: shares and limits, and for each job a reason and the partners that were considered.
//!
//! Selection and placement are repeated ([`rounds`]) until the plan passes nobody over and keeps its budget. Steps know those
//! before them and none behind. Must not know a clock, a socket, SQL or chance.
//!
//! Beside the steps: rules of who may share ([`admit`]), of how many copies of one workload ([`copies`]), of first runs ([`first_run`]), of interactive jobs ([`session`]) and of room ([`room`]); what is free
//! ([`free_capacity`]); what is known of trials ([`trial`]), how many one choice began ([`tries`]) and who waits for a verdict
//! ([`verdicts`]); all that was evaluated, for whoever wants to see it ([`considered`]).

pub(crate) mod admit;
pub(crate) mod candidates;
pub(crate) mod classes;
pub(crate) mod considered;
pub(crate) mod copies;
pub(crate) mod ends;
mod explanation;
pub(crate) mod first_run;
mod free_capacity;
mod guests;
pub(crate) mod index;
mod instances;
pub(crate) mod placement;
mod room;
mod rounds;
mod selection;
mod session;
#[cfg(test)]
mod tests;
mod trial;
mod tries;
mod verdicts;
mod whole;

pub use admit::{OBSERVED_PEAK_RATIO, known, memory_need};
pub use first_run::may_be_joined as may_join_first_run;
pub use guests::{Room, RoomMade, make_room};
pub use room::{Demands, leaves_room};

use crate::model::{Hope, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use crate::plan::{Pairing, Plan};
use crate::policy::Policy;
use crate::view::ClusterView;
use candidates::Evaluator;
use candidates::candidate_set::CandidateSet;
use classes::PlanContext;
use considered::Considered;

/// Decides what starts now, where and with whom, and gives a reason for every waiting job.
///
/// Each waiting job stands exactly once, in `pairings` or in `left_waiting`. Pure and deterministic: equal input gives an
/// equal plan.
pub fn plan(view: &ClusterView, model: &dyn InterferenceModel, policy: &Policy) -> Plan {
    whole::plan_around(view, (model.name(), policy), |view| {
        // 1. What is alike.
        let context = PlanContext::new(view, model, policy);
        plan_in(&Evaluator::new(&context), false)
    })
}

/// How much is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As much as [`plan`] does: of few ways of sharing all, under all sets of caps.
    OfPlan,
    /// However few there are, they are screened first as those of a long queue: a third of the estimates. A pair that only caps could
    /// help, and much, is passed over.
    Screened,
}

/// The pairings of [`plan`] without what explains them to people: no partners that were considered, and nothing of who is left
/// waiting. For whoever plans a hundred thousand times and reads none of it.
pub fn pairings(
    view: &ClusterView,
    model: &dyn InterferenceModel,
    policy: &Policy,
    effort: Effort,
) -> Vec<Pairing> {
    let model = Unexplained(model);
    let plan = whole::plan_around(view, (model.name(), policy), |view| {
        let mut context = PlanContext::new(view, &model, policy);
        context.is_thorough &= effort == Effort::OfPlan;
        plan_in(&Evaluator::new(&context), true)
    });
    plan.pairings
}

/// A model that does not say what made its estimates, which are the same.
struct Unexplained<'m>(&'m dyn InterferenceModel);

impl InterferenceModel for Unexplained<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        let any = Hope { least: &[], lacking_max: f64::INFINITY };
        Ok(self.0.predict_if(tenants, device_model, &any)?.unwrap_or_default())
    }
    fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: &Hope<'_>,
    ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
        self.0.predict_if(tenants, device_model, hope)
    }
    fn misfit_probability(&self, tenants: &[TenantInput<'_>], device_model: &str) -> f64 {
        self.0.misfit_probability(tenants, device_model)
    }
    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64> {
        self.0.power_watts(tenants, device_model)
    }
}

/// The same, with every candidate that was evaluated on the way.
pub(crate) fn plan_with_considered(
    view: &ClusterView,
    model: &dyn InterferenceModel,
    policy: &Policy,
) -> (Plan, Vec<Considered>) {
    let mut all = Vec::new();
    let plan = whole::plan_around(view, (model.name(), policy), |view| {
        let context = PlanContext::new(view, model, policy);
        let evaluator = Evaluator::new(&context);
        let plan = plan_in(&evaluator, false);
        all.extend(considered::considered(&evaluator));
        plan
    });
    (plan, all)
}

fn plan_in(evaluator: &Evaluator<'_, '_>, is_brief: bool) -> Plan {
    // 2. Who could share: empty at first, filled as the selection asks.
    let mut candidates = CandidateSet::new(evaluator);
    // 3. and 4. Select, hand out devices, and again while devices are spared, somebody is passed over or the budget is exceeded.
    let placement = rounds::settle(&mut candidates);
    // 5. Instances for those who would wait.
    let placement = instances::divide(evaluator, placement);
    // 6. Say why.
    explanation::explain(evaluator, &placement, is_brief)
}
