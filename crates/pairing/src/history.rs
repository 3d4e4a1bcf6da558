//! What was measured of tenants that shared a device: what the learned model is trained from.

use pillion_core::device::Mechanism;
use pillion_core::{Fraction, WorkloadKey};
use serde::{Deserialize, Serialize};

/// One sharing that was tried, or the mean of several alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The device model.
    pub device_model: String,
    /// How the device was shared.
    pub mechanism: Mechanism,
    /// The card's mode (`ccs`).
    pub ccs_mode: Option<u8>,
    /// Two to four.
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

/// One tenant of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedTenant {
    /// What it ran.
    pub workload: WorkloadKey,
    /// Its cap (`mps`); absent = none.
    pub cap_fraction: Option<Fraction>,
    /// Speed beside the others over speed alone; above 1 by noise; absent = not known
    /// (docs/principles.md#outcomes-are-measured-or-unknown).
    pub speed_fraction: Option<f64>,
    /// The job counted its own progress: it may teach about this user's workloads only.
    #[serde(default)]
    pub is_self_reported: bool,
}
