//! The way through the rooms, from a snapshot to a plan.

use crate::considered::{self, Considered};
use crate::explain;
use crate::model::InterferenceModel;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::serve;
use crate::session::Session;
use crate::view::ClusterView;

/// Decides what starts now, where and with whom, and gives a reason for every waiting job.
///
/// Each waiting job stands exactly once, in `pairings` or in `left_waiting`. Pure and deterministic: equal input gives an
/// equal plan.
pub fn plan(view: &ClusterView, model: &dyn InterferenceModel, policy: &Policy) -> Plan {
    let session = Session::new(view, model, policy);
    let service = serve::serve(&session);
    explain::explained(&session, &service)
}

/// The same, with every sharing that was looked at on the way.
pub(crate) fn plan_with_considered(
    view: &ClusterView,
    model: &dyn InterferenceModel,
    policy: &Policy,
) -> (Plan, Vec<Considered>) {
    let session = Session::new(view, model, policy);
    let service = serve::serve(&session);
    let plan = explain::explained(&session, &service);
    (plan, considered::considered(&session))
}
