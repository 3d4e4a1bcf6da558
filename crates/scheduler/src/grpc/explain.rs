//! Everything that is stored about one job, as its caller may see it
//! (docs/principles.md#everything-is-explained, docs/principles.md#who-may-ask).

use super::auth::Caller;
use super::{listing, naming};
use crate::store::{DecisionFilter, Store, StoreError};
use pillion_core::{Revision, SlurmJobId, UnixTime};
use pillion_pairing::{Candidate, Explanation};
use pillion_proto::v1;
use std::collections::{BTreeMap, BTreeSet};

/// Collects the answer; `Ok(None)` where the job is not known, or is somebody else's and the caller is no operator.
pub(super) async fn explain(
    store: &dyn Store,
    id: SlurmJobId,
    queue_row: Option<v1::QueueJob>,
    caller: Caller,
) -> Result<Option<v1::ExplainResponse>, StoreError> {
    let Some(record) = store.job(id).await?.filter(|record| caller.may_see(record.uid)) else {
        return Ok(None);
    };
    let filter = DecisionFilter { job_id: Some(id), include_single: true, ..DecisionFilter::default() };
    let mut decisions = store.decisions(&filter).await?;
    decisions.reverse();
    let users = users_of(store, &decisions).await?;
    let explanations = store.explanations(id).await?;
    let row = |(revision, at, explanation): (Revision, UnixTime, Explanation)| {
        shown(revision, at, explanation, caller)
    };
    Ok(Some(v1::ExplainResponse {
        found: true,
        job: Some(queue_row.unwrap_or_else(|| listing::past_job(&record))),
        decisions: decisions.iter().map(|decision| listing::decision(decision, &users, caller)).collect(),
        explanations: explanations.into_iter().map(row).collect(),
        events: store.events(id).await?.into_iter().map(listing::event_row).collect(),
    }))
}

/// An explanation as its reader may see it.
pub(super) fn shown(
    revision: Revision,
    at: UnixTime,
    explanation: Explanation,
    caller: Caller,
) -> v1::JobExplanation {
    let visible = if caller.is_operator { explanation } else { without_partners(explanation) };
    v1::JobExplanation {
        revision: revision.0,
        at_seconds: at.seconds(),
        workload_names: naming::places(visible.candidates.iter().map(|candidate| &candidate.workload)),
        explanation_json: serde_json::to_string(&visible).unwrap_or_default(),
    }
}

/// Names of the users of all members.
pub(super) async fn users_of(
    store: &dyn Store,
    decisions: &[crate::store::Decision],
) -> Result<BTreeMap<SlurmJobId, String>, StoreError> {
    let members = decisions.iter().flat_map(|decision| &decision.members);
    let ids: BTreeSet<SlurmJobId> = members.map(|member| member.plan.start.job_id).collect();
    let jobs = store.jobs(&ids.into_iter().collect::<Vec<_>>()).await?;
    Ok(jobs.into_iter().map(|(id, record)| (id, record.user)).collect())
}

/// Users are told nothing about partners: no job, no workload; what was predicted for their own job stays.
fn without_partners(mut explanation: Explanation) -> Explanation {
    let nobody = |candidate: &Candidate| Candidate {
        partner: SlurmJobId::plain(0),
        workload: pillion_core::WorkloadKey::new(""),
        other: None,
        ..candidate.clone()
    };
    explanation.candidates = explanation.candidates.iter().map(nobody).collect();
    explanation
}
