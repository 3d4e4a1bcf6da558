//! How fast tenants run together: one interface, behind which the first contention model and later the learned one stand.

mod contention;

pub use contention::Contention;

use pillion_core::Fraction;
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One tenant, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct TenantInput<'a> {
    /// How it runs alone on this device model.
    pub profile: &'a WorkloadProfile,
    /// Its cap (`mps`); absent = none.
    pub cap_fraction: Option<Fraction>,
}

/// What tenants share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedDevice<'a> {
    /// The device model.
    pub model: &'a str,
    /// How it is shared.
    pub mechanism: Mechanism,
    /// The card's mode (`ccs`).
    pub ccs_mode: Option<u8>,
}

/// How fast one tenant will run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedEstimate {
    /// Expected speed over solo speed, 0..=1.
    pub speed_fraction: f64,
    /// The pessimistic bound: the truth is above it with the model's stated probability.
    pub speed_fraction_low: f64,
    /// The optimistic bound.
    pub speed_fraction_high: f64,
    /// The terms that made it, by name, for the explanation.
    pub terms: BTreeMap<String, f64>,
}

/// Why nothing can be said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum PredictError {
    /// Too few solo runs, or none of the features that the model needs.
    #[error("too little is known of {workload} on {device_model}")]
    NoProfile {
        /// The workload.
        workload: String,
        /// The device model.
        device_model: String,
    },
}

/// A model of interference: pure, deterministic.
pub trait InterferenceModel: Send + Sync {
    /// A name and version for explanations.
    fn name(&self) -> &str;
    /// The speed of each tenant when all of them share one device, in the order given. With one tenant: its speed alone
    /// under its cap or the card's mode.
    ///
    /// # Errors
    /// [`PredictError::NoProfile`] where a profile does not suffice.
    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device: SharedDevice<'_>,
    ) -> Result<Vec<SpeedEstimate>, PredictError>;
    /// The device's mean power while all of them share it, where the profiles tell.
    fn power_watts(&self, tenants: &[TenantInput<'_>], device: SharedDevice<'_>) -> Option<f64>;
}
