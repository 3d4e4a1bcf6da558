//! How sharings fared that were seen, as the planner is told.

use crate::backtest::score;
use crate::backtest::truth::Truth;
use crate::history::Observation;
use crate::trials::TrialRecord;
use pillion_core::{Fraction, WorkloadKey};
use std::collections::BTreeMap;

/// How what was observed on the device fared, each two workloads under their caps once, as they were seen last.
pub(super) fn record_of(truth: &Truth, known: &[Observation], speed_min: f64) -> TrialRecord {
    let here = known
        .iter()
        .filter(|seen| seen.device_model == truth.device_model && seen.mechanism() == truth.mechanism);
    let mut has_held: BTreeMap<Vec<(&WorkloadKey, Option<u64>)>, bool> = BTreeMap::new();
    for seen in here {
        let cap_bits = |cap: Option<Fraction>| cap.map(|cap| cap.value().to_bits());
        let tenants = seen.tenants.iter();
        let mut key: Vec<_> =
            tenants.map(|tenant| (&tenant.workload, cap_bits(tenant.sharing.cap()))).collect();
        key.sort();
        let speeds: Option<Vec<f64>> = seen.tenants.iter().map(|tenant| tenant.speed_fraction).collect();
        let holds = speeds
            .filter(|_| seen.fits)
            .is_some_and(|speeds| speeds.iter().all(|speed| score::keeps_one(*speed, speed_min)));
        has_held.insert(key, holds);
    }
    TrialRecord {
        user: String::new(),
        device_model: truth.device_model.clone(),
        mechanism: truth.mechanism,
        seen_count: u32::try_from(has_held.len()).unwrap_or(u32::MAX),
        held_count: u32::try_from(has_held.values().filter(|holds| **holds).count()).unwrap_or(u32::MAX),
    }
}
