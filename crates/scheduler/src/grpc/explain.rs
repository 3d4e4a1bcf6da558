//! Everything that is stored about one job, as its caller may see it
//! (docs/principles.md#everything-is-explained, docs/principles.md#who-may-ask).

use super::auth::Caller;
use super::listing;
use pillion_api as api;
use pillion_core::{Revision, SlurmJobId, UnixTime};
use pillion_pairing::{Candidate, Explanation, SpeedEstimate};
use pillion_store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Collects the answer; `Ok(None)` where the job is not known, or is somebody else's and the caller is no operator.
pub(super) async fn explain(
    store: &dyn Store,
    id: SlurmJobId,
    queue_row: Option<api::QueueJob>,
    caller: Caller,
) -> Result<Option<api::ExplainResponse>, StoreError> {
    let Some(record) = store.job(id).await?.filter(|record| caller.may_see(record.uid)) else {
        return Ok(None);
    };
    let mut decisions = store.decisions_of(id).await?;
    decisions.reverse();
    let users = users_of(store, &decisions).await?;
    let explanations = store.explanations(id).await?.into_iter();
    Ok(Some(api::ExplainResponse {
        found: true,
        job: Some(queue_row.unwrap_or_else(|| listing::past_job(&record))),
        decisions: decisions.iter().map(|decision| listing::decision(decision, &users, caller)).collect(),
        explanations: explanations.map(|(revision, at, one)| shown(revision, at, one, caller)).collect(),
        events: store.events(id).await?.into_iter().map(listing::event_row).collect(),
        shadow: None,
    }))
}

/// An explanation as its reader may see it.
pub(super) fn shown(
    revision: Revision,
    at: UnixTime,
    explanation: Explanation,
    caller: Caller,
) -> api::JobExplanation {
    let Explanation { job_id, reason, text, model, candidates } = explanation;
    let explanation = api::Explanation {
        candidates: candidates.iter().map(|one| candidate(one, caller.is_operator)).collect(),
        job_id: job_id.to_string(),
        model: model.to_string(),
        reason: reason.to_string(),
        text: text.to_string(),
    };
    api::JobExplanation { revision: revision.0, at_seconds: at.seconds(), explanation: Some(explanation) }
}

/// Names of the users of all members.
pub(super) async fn users_of(
    store: &dyn Store,
    decisions: &[pillion_store::Decision],
) -> Result<BTreeMap<SlurmJobId, String>, StoreError> {
    let members = decisions.iter().flat_map(|decision| &decision.members);
    let ids: BTreeSet<SlurmJobId> = members.map(|member| member.plan.start.job_id).collect();
    let jobs = store.jobs(&ids.into_iter().collect::<Vec<_>>()).await?;
    Ok(jobs.into_iter().map(|(id, record)| (id, record.user)).collect())
}

/// A partner that was considered. Users are told nothing about partners: no job, no workload; what was predicted for their
/// own job stays.
fn candidate(candidate: &Candidate, shows_partner: bool) -> api::Candidate {
    let Candidate {
        partner,
        workload,
        is_running,
        cap_fractions: (own_cap, other_cap),
        own,
        other,
        gain,
        excluded_by,
        chosen,
    } = candidate;
    api::Candidate {
        cap_fractions: Some(api::CapFractions {
            own: own_cap.map(f64::from),
            other: other_cap.map(f64::from),
        }),
        chosen: *chosen,
        excluded_by: excluded_by.map(|reason| reason.to_string()),
        gain: *gain,
        is_running: *is_running,
        other: other.as_ref().filter(|_| shows_partner).map(estimate),
        own: own.as_ref().map(estimate),
        partner: shows_partner.then(|| partner.to_string()),
        workload: shows_partner.then(|| workload.to_string()),
        workload_name: None,
    }
}

fn estimate(estimate: &SpeedEstimate) -> api::Estimate {
    let SpeedEstimate {
        speed_fraction,
        speed_fraction_deviation,
        has_heavy_tail,
        speed_fraction_low,
        speed_fraction_high,
        terms,
    } = estimate;
    api::Estimate {
        has_heavy_tail: *has_heavy_tail,
        speed_fraction: *speed_fraction,
        speed_fraction_deviation: *speed_fraction_deviation,
        speed_fraction_high: *speed_fraction_high,
        speed_fraction_low: *speed_fraction_low,
        terms: terms.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
    }
}
