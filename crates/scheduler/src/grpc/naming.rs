//! Names of workloads: put beside each key that stands in an answer, and understood where a request names one. A key that a
//! caller may not see is not in his answer any more when it comes here, so neither is its name.

use super::auth::Caller;
use super::status;
use pillion_api as api;
use pillion_core::WorkloadKey;
use pillion_core::name::{self, AskedName};
use pillion_core::text::quoted;
use pillion_store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// How many workloads are told to whoever asked for a name of several.
const CANDIDATES_SHOWN: usize = 5;

/// Sees a key and the place of its name.
type See<'a> = &'a mut dyn FnMut(&str, &mut Option<String>);

/// An answer in which workloads stand.
pub(super) trait Naming {
    /// Shows each of them.
    fn each(&mut self, see: See<'_>);
}

/// Fills in the names of an answer: what people call a workload, or its key where nobody knows.
pub(super) async fn named<A: Naming>(store: &dyn Store, mut answer: A) -> Result<A, StoreError> {
    let mut keys = BTreeSet::new();
    answer.each(&mut |key, _| {
        if !key.is_empty() {
            keys.insert(WorkloadKey::new(key));
        }
    });
    let texts = texts(store, &keys.into_iter().collect::<Vec<_>>()).await?;
    answer.each(&mut |key, name| {
        if !key.is_empty() {
            *name = Some(texts.get(&WorkloadKey::new(key)).cloned().unwrap_or_else(|| key.to_owned()));
        }
    });
    Ok(answer)
}

async fn texts(store: &dyn Store, keys: &[WorkloadKey]) -> Result<BTreeMap<WorkloadKey, String>, StoreError> {
    Ok(name::texts(&store.workload_names(keys).await?))
}

/// The key that a request means by a key or a name. What is no name of a workload that the caller may see stays as it is, and
/// finds nothing if it is no key either.
pub(super) async fn resolved(store: &dyn Store, caller: Caller, text: String) -> Result<String, Status> {
    resolved_as(store, caller, text, WorkloadKey::clone).await
}

/// Likewise, where several keys may be the same to whoever asks: each is made into the one that counts.
pub(super) async fn resolved_as(
    store: &dyn Store,
    caller: Caller,
    text: String,
    same: fn(&WorkloadKey) -> WorkloadKey,
) -> Result<String, Status> {
    let uid = caller.uid.filter(|_| !caller.is_operator);
    let Some(asked) = AskedName::parse(&text).filter(|_| caller.is_operator || uid.is_some()) else {
        return Ok(text);
    };
    let mut keys =
        store.workloads_called(&asked.name, uid).await.map_err(|error| status::from_store(&error))?;
    keys.retain(|key| asked.may_mean(key));
    let keys: Vec<WorkloadKey> = keys.iter().map(same).collect::<BTreeSet<_>>().into_iter().collect();
    match &keys[..] {
        [] => Ok(text),
        [key] => Ok(key.to_string()),
        several => {
            let texts = texts(store, several).await.map_err(|error| status::from_store(&error))?;
            let mut candidates: Vec<&str> =
                texts.values().map(String::as_str).take(CANDIDATES_SHOWN).collect();
            if several.len() > CANDIDATES_SHOWN {
                candidates.push("..");
            }
            let (count, candidates) = (several.len(), candidates.join(", "));
            let text = quoted(&text);
            let text = format!("'{text}' is the name of {count} workloads; say which: {candidates}");
            Err(Status::invalid_argument(text))
        }
    }
}

impl<T: Naming> Naming for [T] {
    fn each(&mut self, see: See<'_>) {
        for one in self {
            one.each(see);
        }
    }
}

impl<T: Naming> Naming for Option<T> {
    fn each(&mut self, see: See<'_>) {
        if let Some(one) = self {
            one.each(see);
        }
    }
}

impl Naming for std::collections::HashMap<String, String> {
    fn each(&mut self, see: See<'_>) {
        for (key, name) in self {
            let mut shown = None;
            see(key, &mut shown);
            *name = shown.unwrap_or_default();
        }
    }
}

/// The places of names beside texts in which keys stand: still empty.
pub(super) fn places<'a>(
    keys: impl Iterator<Item = &'a WorkloadKey>,
) -> std::collections::HashMap<String, String> {
    keys.filter(|key| !key.as_str().is_empty()).map(|key| (key.to_string(), String::new())).collect()
}

/// A row with the two fields.
macro_rules! rows {
    ($($row:ident),*) => {$(
        impl Naming for api::$row {
            fn each(&mut self, see: See<'_>) {
                if let Some(workload) = &self.workload {
                    see(workload, &mut self.workload_name);
                }
            }
        }
    )*};
}
rows!(QueueJob, Member, Tenant, Candidate, IdleDevice, Rightsizing, ScaleRun);

/// Its key stands in its JSON, which is read for that alone.
impl Naming for api::Profile {
    fn each(&mut self, see: See<'_>) {
        if let Ok(profile) = self.read() {
            see(profile.workload.as_str(), &mut self.workload_name);
        }
    }
}

impl Naming for api::HeatmapCell {
    fn each(&mut self, see: See<'_>) {
        see(&self.workload, &mut self.workload_name);
        see(&self.beside, &mut self.beside_name);
    }
}

/// Answers and their parts, by the fields in which workloads stand.
macro_rules! parts {
    ($($part:ident: $($field:ident),+;)*) => {$(
        impl Naming for api::$part {
            fn each(&mut self, see: See<'_>) {
                $(self.$field.each(see);)+
            }
        }
    )*};
}
parts! {
    Decision: members;
    Explanation: candidates;
    JobExplanation: explanation;
    TopDevice: tenants;
    ClusterDevice: tenants;
    ClusterNode: devices;
    QueueResponse: jobs;
    PairsResponse: decisions;
    ExplainResponse: job, decisions, explanations;
    JobStatus: job, decision, profile;
    JobResponse: status;
    ProfilesResponse: profiles;
    DryRunResponse: workload_names;
    TopResponse: devices, jobs;
    ClusterResponse: nodes;
    HeatmapResponse: cells;
    IdleResponse: devices;
    RightsizeResponse: rows;
    DecidedResponse: decision, explanations, group;
    ScaleResponse: runs;
}

/// Runs by workload, whose keys are workloads.
impl Naming for api::AccountResponse {
    fn each(&mut self, see: See<'_>) {
        for row in &mut self.rows {
            see(&row.key, &mut row.workload_name);
        }
    }
}

#[cfg(test)]
mod tests;
