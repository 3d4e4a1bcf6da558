//! The learned model: what is remembered of workloads and pairings, on top of a physical prior
//! (docs/decisions/0004-the-model-of-interference.md).
//!
//! ```text
//! solo profiles ─► prior ──────────────────────────────┐
//!              └─► features ─► effects ─► fit (shrunk) ─┴─► speed ± deviation ─► calibrate ─► low, deviation
//! observations ────────────────┘
//! ```
//!
//! What is learnt is kept by device model and mechanism: observations of others were seen to mislead. With nothing
//! observed it is the prior with a wide doubt.

mod arrow;
mod calibrate;
mod columns;
mod combination;
mod effects;
mod fact;
mod features;
mod fit;
mod knowledge;
mod misfits;
mod prior;
mod row;
mod solo_curve;
#[cfg(test)]
mod tests;
mod training;

pub use training::Owners;

use super::contention::Contention;
use super::interface::{BOUND_DEVIATIONS, Hope, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use crate::history::Observation;
use crate::view::ProfileBook;
use knowledge::{Knowledge, Prediction};
use pillion_core::device::Mechanism;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainOptions {
    /// Of more observations, the newest so many are used.
    pub observations_max: usize,
    /// Whose a workload is.
    pub owners: Owners,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self { observations_max: 20_000, owners: Owners::Unknown }
    }
}

/// A trained model: everything that a prediction needs besides the solo profiles. Can be stored and read back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    name: String,
    observation_count: usize,
    of_kind: BTreeMap<String, Knowledge>,
    nothing: Knowledge,
}

fn kind(device_model: &str, mechanism: Mechanism) -> String {
    format!("{mechanism} {device_model}")
}

/// Trains on what was observed and [is learnt from](Observation::is_learnt), the oldest first. Deterministic.
pub fn train(profiles: &ProfileBook, observations: &[Observation], options: &TrainOptions) -> Learned {
    let newest = &observations[observations.len().saturating_sub(options.observations_max)..];
    let mut kinds: BTreeMap<String, Vec<&Observation>> = BTreeMap::new();
    for observation in newest.iter().filter(|seen| seen.is_learnt()) {
        let kind = kind(&observation.device_model, observation.mechanism());
        kinds.entry(kind).or_default().push(observation);
    }
    let of_kind = kinds.into_iter().map(|(kind, observations)| {
        let knowledge = training::train(profiles, &observations, options.owners);
        (kind, knowledge)
    });
    Learned {
        name: "learned-1".to_owned(),
        observation_count: observations.len(),
        of_kind: of_kind.collect(),
        nothing: training::train(profiles, &[], options.owners),
    }
}

impl Learned {
    /// How many observations it was trained on.
    pub fn observation_count(&self) -> usize {
        self.observation_count
    }

    fn knowledge(&self, tenants: &[TenantInput<'_>], device_model: &str) -> &Knowledge {
        // Kinds are few, and this is asked for each estimate: no name is made for it.
        let mechanism = tenants.first().map(|tenant| tenant.sharing.mechanism()).unwrap_or_default().as_str();
        let found = self.of_kind.iter().find(|(kind, _)| {
            kind.strip_prefix(mechanism).and_then(|rest| rest.strip_prefix(' ')) == Some(device_model)
        });
        found.map_or(&self.nothing, |(_, knowledge)| knowledge)
    }
}

/// The doubt about tenants that were tried together, of the doubt about them before.
const TRIED_DOUBT_FRACTION: f64 = 0.8;
/// No estimate is slower than this.
const SPEED_MIN: f64 = 0.01;

impl Learned {
    /// `None` where there is no hope.
    fn predicted(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: Option<&Hope<'_>>,
    ) -> Option<Vec<SpeedEstimate>> {
        let knowledge = self.knowledge(tenants, device_model);
        // Whoever was never seen beside others, on a device of which little is known, is judged by its profile alone:
        // with the doubt of a model that has learnt next to nothing, nobody would ever be tried.
        if knowledge.is_new_to(tenants)
            && let Ok(estimates) = Contention.predict(tenants, device_model)
        {
            return Some(estimates);
        }
        let mut said = knowledge.predict_if(tenants, hope)?;
        // What was tried together is known no worse than what was not.
        if knowledge.has_few_facts_but(tenants)
            && let Ok(estimates) = Contention.predict(tenants, device_model)
        {
            for (said, alone) in said.iter_mut().zip(&estimates) {
                let most = TRIED_DOUBT_FRACTION * alone.speed_fraction_deviation;
                said.deviation_bound = said.deviation_bound.min(most);
                said.deviation_tail = said.deviation_tail.min(most);
            }
        }
        Some(said.into_iter().map(estimate).collect())
    }
}

fn estimate(said: Prediction) -> SpeedEstimate {
    let reach = BOUND_DEVIATIONS * said.deviation_bound;
    let low = (said.speed_fraction - reach).clamp(SPEED_MIN, 1.0);
    SpeedEstimate {
        speed_fraction: said.speed_fraction,
        speed_fraction_deviation: said.deviation_tail,
        has_heavy_tail: said.has_heavy_tail,
        speed_fraction_low: low.min(said.speed_fraction),
        speed_fraction_high: (said.speed_fraction + reach).min(1.0),
        terms: said.terms.into(),
    }
}

impl InterferenceModel for Learned {
    fn name(&self) -> &str {
        &self.name
    }

    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        Ok(self.predicted(tenants, device_model, None).unwrap_or_default())
    }

    fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: &Hope<'_>,
    ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
        Ok(self.predicted(tenants, device_model, Some(hope)))
    }

    fn misfit_probability(&self, tenants: &[TenantInput<'_>], device_model: &str) -> f64 {
        self.knowledge(tenants, device_model).misfit_probability(tenants)
    }

    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64> {
        self.knowledge(tenants, device_model).power_watts(tenants)
    }
}
