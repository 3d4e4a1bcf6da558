//! Models that were trained: one in use, and one that its backtest rejected.

use super::NOW;
use pillion_api::{Model, ModelScore};

pub(super) fn newest_first() -> Vec<Model> {
    let score = |log_score_mean, error_mean, below_low_fraction| {
        Some(ModelScore { log_score_mean, error_mean, below_low_fraction })
    };
    let first = Model {
        version: 1,
        state: "active".to_owned(),
        kind: "learned-1".to_owned(),
        trained_at_seconds: NOW - 600.0,
        observation_count: 1,
        reason: "one sharing went worse than thought possible; too few outcomes are new for a backtest"
            .to_owned(),
        ..Model::default()
    };
    let second = Model {
        version: 2,
        state: "rejected".to_owned(),
        trained_at_seconds: NOW,
        observation_count: 6,
        outcome_count: 6,
        candidate: score(0.501, 0.1204, 0.5),
        incumbent: score(1.03, 0.07, 0.0),
        incumbent_version: Some(1),
        reason: "5 new observations; on 6 outcomes held out, its log score is 0.50 against 1.03".to_owned(),
        ..first.clone()
    };
    vec![second, first]
}
