//! Trials: sharings that the bounds do not admit, tried under the watch and taken apart where they break. What a site wants of
//! them, and what came of those before; `planner::trial` says which are worth it.

use pillion_core::device::Mechanism;
use pillion_core::{Fraction, SlurmJobId, WorkloadKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How a trial goes, where a site has them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialPolicy {
    /// How long two run together before it is known whether they keep their promises, above 0.
    pub trial_seconds: f64,
    /// What a job loses that goes back, besides what it did meanwhile: until it runs again, 0 or more.
    pub restart_seconds: f64,
}

impl Default for TrialPolicy {
    /// The watch's first reading, and two minutes in all for the guest that goes back.
    fn default() -> Self {
        Self { trial_seconds: 60.0, restart_seconds: 60.0 }
    }
}

/// Two workloads on devices of a model: of each such kind one pair is tried at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrialKind {
    /// The device model.
    pub device_model: String,
    /// How it is shared.
    pub mechanism: Mechanism,
    /// What the two run, the lower first.
    pub workloads: [WorkloadKey; 2],
}

impl TrialKind {
    /// Of two workloads, in either order.
    pub fn new(
        device_model: impl Into<String>,
        mechanism: Mechanism,
        mut workloads: [WorkloadKey; 2],
    ) -> Self {
        workloads.sort();
        Self { device_model: device_model.into(), mechanism, workloads }
    }
}

/// What was seen of two under their caps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialVerdict {
    /// Which two.
    pub kind: TrialKind,
    /// Their caps, in the order of the workloads; absent = none.
    pub cap_fractions: [Option<Fraction>; 2],
    /// Speed together over speed alone, in the same order, 0 or more; absent = they did not fit.
    pub speed_fractions: Option<[f64; 2]>,
}

impl TrialVerdict {
    /// Of two, in either order, each with its cap; `speed_fractions` in the same order.
    pub fn new(
        device_model: impl Into<String>,
        mechanism: Mechanism,
        tenants: [(WorkloadKey, Option<Fraction>); 2],
        speed_fractions: Option<[f64; 2]>,
    ) -> Self {
        let is_turned = tenants[0].0 > tenants[1].0;
        let cap_fractions = turned([tenants[0].1, tenants[1].1], is_turned);
        let kind = TrialKind::new(device_model, mechanism, tenants.map(|(workload, _)| workload));
        Self { kind, cap_fractions, speed_fractions: speed_fractions.map(|speeds| turned(speeds, is_turned)) }
    }
}

/// Whose a workload is; empty where its key names nobody.
pub fn user_of(workload: &WorkloadKey) -> &str {
    workload.as_str().split_once('/').map_or("", |(user, _)| user)
}

fn turned<T: Copy>([a, b]: [T; 2], is_turned: bool) -> [T; 2] {
    if is_turned { [b, a] } else { [a, b] }
}

/// How sharing fared on one model of device, by one mechanism: of all that was seen together, tried or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Whose word it is: how fast a job goes, its user says. Empty = the site's own.
    #[serde(default)]
    pub user: String,
    /// The device model.
    pub device_model: String,
    /// How it is shared.
    pub mechanism: Mechanism,
    /// How many were seen, each two workloads under their caps once.
    pub seen_count: u32,
    /// Of these, how many kept the promise.
    pub held_count: u32,
}

/// What is being tried, and what is known of trials before.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrialBook {
    /// What is being tried: its verdict is awaited.
    pub open: Vec<TrialKind>,
    /// What was seen, the newest last.
    pub verdicts: Vec<TrialVerdict>,
    /// What the watch sees of those who run, which no model knows yet. It counts also where nothing is tried: who broke a promise
    /// under these caps is not put together again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<TrialVerdict>,
    /// By device model and mechanism.
    pub records: Vec<TrialRecord>,
    /// Jobs that wait and are not tried: nothing would take them apart again.
    pub excluded: BTreeSet<SlurmJobId>,
}

impl TrialBook {
    /// Whether nothing was tried and nothing is.
    pub fn is_empty(&self) -> bool {
        let Self { open, verdicts, watched, records, excluded } = self;
        open.is_empty()
            && verdicts.is_empty()
            && watched.is_empty()
            && records.is_empty()
            && excluded.is_empty()
    }
}
