//! What was measured of tenants that shared a device: what the learned model is trained from.

use pillion_core::WorkloadKey;
use pillion_core::device::{Mechanism, TENANTS_MAX};
use pillion_core::share::Sharing;
use serde::{Deserialize, Serialize};

/// One sharing that was tried, or the mean of several alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The device model.
    pub device_model: String,
    /// Two to four, all by the same mechanism; up to sixteen copies of one workload.
    pub tenants: Vec<ObservedTenant>,
    /// The device's mean power while all of them ran.
    pub power_watts: Option<f64>,
    /// Whether they ran together at all: `false` = out of memory.
    pub fits: bool,
    /// Of how many runs it is the mean, at least 1.
    pub run_count: f64,
    /// Standard deviation of a speed fraction between those runs, where known.
    pub speed_fraction_deviation: Option<f64>,
}

impl Observation {
    /// How the device was shared, as the first of its tenants did.
    pub fn sharing(&self) -> Sharing {
        self.tenants.first().map(|tenant| tenant.sharing).unwrap_or_default()
    }
    /// Which way that is.
    pub fn mechanism(&self) -> Mechanism {
        self.sharing().mechanism()
    }
    /// Whether models learn from it. Of more than four together they do not: those are copies, and how fast more of them are is told
    /// from what was measured of fewer (`planner::copies`); their effects, added up, would say little of pairs and cost much.
    pub fn is_learnt(&self) -> bool {
        self.tenants.len() <= TENANTS_MAX as usize
    }
}

/// One tenant of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedTenant {
    /// What it ran.
    pub workload: WorkloadKey,
    /// How it shared the device.
    #[serde(flatten)]
    pub sharing: Sharing,
    /// Speed beside the others over speed alone; above 1 by noise; absent = not known
    /// (docs/principles.md#outcomes-are-measured-or-unknown).
    pub speed_fraction: Option<f64>,
    /// The job counted its own progress: it may teach about this user's workloads only.
    #[serde(default)]
    pub is_self_reported: bool,
}
