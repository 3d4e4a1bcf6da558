//! What is to go wrong: a small JSON file, read anew at each call, so that a test changes it while it runs.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names the file. Without it, or while it is not there, nothing goes wrong.
pub const FAULTS_VARIABLE: &str = "PILLION_DOUBLE_LEVEL_ZERO_FAULTS";

/// What is to go wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Functions that answer this and do nothing.
    pub answers: BTreeMap<String, u32>,
    /// Tiles, numbered over all cards, that are lost.
    pub lost: BTreeSet<u32>,
    /// Tiles, numbered over all cards, whose counters nobody gets an answer from for as long as they stand here.
    pub hanging: BTreeSet<u32>,
    /// Why the clock is held down: bits of `zes_freq_throttle_reason_flag_t`.
    pub throttle_reasons: u32,
    /// Metrics of `ComputeBasic` that do not exist.
    pub missing_metrics: BTreeSet<String>,
}

/// The faults of this moment. A file that is not whole is a mistake of the test, and fails every call.
pub(crate) fn now() -> Faults {
    let Some(path) = std::env::var_os(FAULTS_VARIABLE) else { return Faults::default() };
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).expect("the file of faults is JSON as described"),
        Err(_) => Faults::default(),
    }
}
