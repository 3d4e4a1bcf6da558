//! What is learnt from, as the store keeps it: observations of sharings, and the models that were made of them.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, JobStart, UnixTime, WorkloadKey};
use pillion_pairing::Observation;
use serde::{Deserialize, Serialize};

/// How many versions back the body of a model that is not active is kept; its score is kept for good.
pub const MODEL_BODIES_KEPT: u64 = 20;

/// What one tenant found out about a sharing when it was over. Those of its partners come on their own, and all become
/// one observation.
#[derive(Debug, Clone, PartialEq)]
pub struct NewObservation {
    /// The decision that began the sharing.
    pub group: DecisionId,
    /// The device model.
    pub device_model: String,
    /// Everybody who was together, in the order of their starts: two to four, or up to sixteen copies of one workload.
    pub tenants: Vec<SharingTenant>,
    /// The device's mean power meanwhile, where known.
    pub power_watts: Option<f64>,
    /// Whether they ran together at all: `false` = out of device memory.
    pub fits: bool,
    /// The tenant whose run it is made of.
    pub own: JobStart,
    /// His speed beside the others over his speed alone.
    pub speed_fraction: Option<f64>,
    /// How far that may be off: one standard deviation, where known.
    pub speed_fraction_deviation: Option<f64>,
    /// He counted his own progress.
    pub is_self_reported: bool,
}

impl NewObservation {
    /// How the device was shared, as the first of its tenants did.
    pub fn sharing(&self) -> Sharing {
        self.tenants.first().map(|tenant| tenant.sharing).unwrap_or_default()
    }
}

/// Who was together.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingTenant {
    pub start: JobStart,
    /// What it ran.
    pub workload: WorkloadKey,
    /// How it shared the device; a memory limit changes no speed and is not told.
    pub sharing: Sharing,
}

/// An observation as it stands: speeds of tenants that have not ended, or that could not be measured, are absent.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredObservation {
    /// Its place in the order of changes; a change moves it to the end.
    pub number: u64,
    /// Who it was.
    pub starts: Vec<JobStart>,
    /// When it last changed.
    pub recorded_at: UnixTime,
    /// What was seen, its tenants in the order of `starts`.
    pub observation: Observation,
}

/// Where a model stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelState {
    /// The engine plans with it.
    Active,
    /// It was active.
    Retired,
    /// It lost its backtest.
    Rejected,
}

impl ModelState {
    /// As written in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Rejected => "rejected",
        }
    }
}

impl std::str::FromStr for ModelState {
    type Err = pillion_core::word::UnknownWord;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Active, Self::Retired, Self::Rejected]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| pillion_core::word::UnknownWord { word: text.to_owned(), what: "known state" })
    }
}

/// How well a model foretold outcomes that it had not seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean logarithm of the density that it gave to what came, clipped; more is better.
    pub log_score_mean: f64,
    /// Mean distance between the expected and the measured speed fraction.
    pub error_mean: f64,
    /// Outcomes below the pessimistic bound, of all.
    pub below_low_fraction: f64,
}

/// A backtest: a candidate and the model in use on the same outcomes, the newest ones, which neither had seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelScore {
    /// How many tenants' outcomes were held out; 0 = too few were new for a backtest.
    pub outcome_count: u32,
    /// The candidate, trained without them.
    pub candidate: Option<Score>,
    /// The model in use.
    pub incumbent: Option<Score>,
    /// Its version; absent = the model without observations.
    pub incumbent_version: Option<u64>,
}

/// A model that was trained, to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewModel {
    pub kind: String,
    /// [`ModelState::Active`] or [`ModelState::Rejected`].
    pub state: ModelState,
    pub trained_at: UnixTime,
    /// On how many observations.
    pub observation_count: u64,
    /// The number of the last of them.
    pub observation_horizon: u64,
    pub score: ModelScore,
    /// Why it was promoted or rejected, one sentence.
    pub reason: String,
    /// The model itself, as its recipe writes it.
    pub body: serde_json::Value,
}

/// A model that was kept, without its body.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelVersion {
    /// Its number, from 1.
    pub version: u64,
    pub kind: String,
    /// Where it stands.
    pub state: ModelState,
    /// When it was trained.
    pub trained_at: UnixTime,
    /// On how many observations.
    pub observation_count: u64,
    /// The number of the last of them.
    pub observation_horizon: u64,
    pub score: ModelScore,
    /// Why it was promoted or rejected.
    pub reason: String,
}

/// So many observations of one combination (the same workloads under the same caps, on one model of device by one mechanism) are read at
/// most, the newest of which all speeds are known, and as many of which they are not. Whoever runs one pair a thousand times pushes nobody
/// else's out, and a mean of sixteen is as exact as a measurement gets.
pub const OBSERVATIONS_OF_COMBINATION_MAX: u32 = 16;

/// What sharings taught.
#[async_trait]
pub trait Observations: Send + Sync {
    /// Adds what one tenant found out to the observation of the sharing. `Ok(false)`: it was known already. It moves to the
    /// end of the order of changes.
    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError>;
    /// Observations that changed after number `after`, oldest first: of each combination the newest
    /// [`OBSERVATIONS_OF_COMBINATION_MAX`], and where there are more than `limit`, of all the newest.
    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError>;
}

/// Models that were trained.
#[async_trait]
pub trait Models: Send + Sync {
    /// Keeps a model, its body included, and returns its version. An active one retires the one before it, and makes a
    /// new revision: a plan made with the model before is stale. `Ok(None)`, and nothing is kept: the model in use is not
    /// `incumbent` any more, so that the backtest says nothing.
    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError>;
    /// The version of the active model.
    async fn active_model(&self) -> Result<Option<u64>, StoreError>;
    /// Models, newest first, at most `limit`.
    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError>;
    /// The body of a model; absent where it was never stored, or not kept: see [`MODEL_BODIES_KEPT`].
    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError>;
}
