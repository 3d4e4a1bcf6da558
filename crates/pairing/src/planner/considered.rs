//! Every candidate that a plan evaluated, by what shares and not by job: what the choice was made from. Must not choose.

use crate::model::SpeedEstimate;
use crate::plan::Reason;
use crate::planner::candidates::{Evaluation, Evaluator};
use crate::planner::classes::PlanContext;
use pillion_core::{Fraction, WorkloadKey};
use std::rc::Rc;

/// One candidate that was evaluated, under the caps that suit it best.
#[derive(Debug, Clone)]
pub(crate) struct Considered {
    /// What each tenant runs: those that run already first.
    pub(crate) workloads: Vec<WorkloadKey>,
    /// How many of them run already.
    pub(crate) running_count: usize,
    /// Their caps, in the same order; those that were not chosen yet are none.
    pub(crate) caps: Vec<Option<Fraction>>,
    /// Their speeds, in the same order; empty where a rule forbade it before anything was estimated.
    pub(crate) estimates: Rc<Vec<SpeedEstimate>>,
    /// Sum of speeds less one.
    pub(crate) gain: f64,
    /// The rule that forbids it.
    pub(crate) excluded_by: Option<Reason>,
    /// Whether more promises are expected to break than its tenants may cost.
    pub(crate) is_beyond_budget: bool,
}

/// All that was evaluated.
pub(crate) fn considered(evaluator: &Evaluator<'_, '_>) -> Vec<Considered> {
    let context = evaluator.context;
    let mut all = Vec::new();
    for ((host, joiner, _), evaluation) in evaluator.evaluated_pairs() {
        let workloads = [host, joiner].map(|class| context.classes[class].workload.clone());
        all.push(of_evaluation(context, workloads.to_vec(), &[], &evaluation));
    }
    for ((class, device), evaluation) in evaluator.evaluated_joins() {
        let tenants = &context.devices[device].tenants;
        let running: Option<Vec<WorkloadKey>> =
            tenants.iter().map(|tenant| tenant.workload.clone()).collect();
        let Some(mut workloads) = running else { continue };
        workloads.push(context.classes[class].workload.clone());
        let caps: Vec<Option<Fraction>> = tenants.iter().map(|tenant| tenant.sharing.cap()).collect();
        all.push(of_evaluation(context, workloads, &caps, &evaluation));
    }
    all
}

fn of_evaluation(
    context: &PlanContext<'_>,
    workloads: Vec<WorkloadKey>,
    running_caps: &[Option<Fraction>],
    evaluation: &Evaluation,
) -> Considered {
    let mut caps = evaluation.caps.clone();
    if caps.is_empty() {
        caps = running_caps.to_vec();
        caps.resize(workloads.len(), None);
    }
    Considered {
        workloads,
        running_count: running_caps.len(),
        caps,
        estimates: Rc::clone(&evaluation.estimates),
        gain: evaluation.gain,
        excluded_by: evaluation.excluded_by,
        is_beyond_budget: evaluation.excess(context.policy) > 0.0,
    }
}
