//! Models that were trained.

use pillion_proto::v1 as wire;
use serde::Serialize;

/// A model that was trained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelRow {
    /// Its number.
    pub version: u64,
    /// active, retired or rejected.
    pub state: String,
    /// How it was made.
    pub kind: String,
    /// When.
    pub trained_at_seconds: f64,
    /// On how many observations.
    pub observation_count: u64,
    /// Outcomes of its backtest; 0 = there was none.
    pub outcome_count: u32,
    /// How well it foretold them.
    pub candidate: Option<ScoreRow>,
    /// How well the model in use did.
    pub incumbent: Option<ScoreRow>,
    /// Which that was; absent = the model without observations.
    pub incumbent_version: Option<u64>,
    /// Why it was trained, and promoted or rejected.
    pub reason: String,
}

/// How well a model foretold outcomes that it had not seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScoreRow {
    /// Mean logarithm of the density that it gave to what came; more is better.
    pub log_score_mean: f64,
    /// Mean distance between expected and measured speed fraction.
    pub error_mean: f64,
    /// Of the outcomes, how many lay below the pessimistic bound.
    pub below_low_fraction: f64,
}

impl From<wire::Model> for ModelRow {
    fn from(model: wire::Model) -> Self {
        let wire::Model {
            version,
            state,
            kind,
            trained_at_seconds,
            observation_count,
            outcome_count,
            candidate,
            incumbent,
            incumbent_version,
            reason,
        } = model;
        Self {
            version,
            state,
            kind,
            trained_at_seconds,
            observation_count,
            outcome_count,
            candidate: candidate.map(ScoreRow::from),
            incumbent: incumbent.map(ScoreRow::from),
            incumbent_version,
            reason,
        }
    }
}

impl From<wire::ModelScore> for ScoreRow {
    fn from(score: wire::ModelScore) -> Self {
        let wire::ModelScore { log_score_mean, error_mean, below_low_fraction } = score;
        Self { log_score_mean, error_mean, below_low_fraction }
    }
}
