//! What noise leaves possible: a model that saw every combination once, with the noise of one observation, and knows how
//! large that is. What the planner makes of it is the most that anybody can reach who learns from such observations.

use super::draw::{Part, observe};
use super::truth::Truth;
use super::{Backtest, NOISE_FRACTION};
use crate::model::{BOUND_DEVIATIONS, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use std::sync::Arc;

/// See the module.
pub(super) struct Informed<'t> {
    truth: &'t Truth,
    /// Of each combination, by place; absent = it did not fit.
    speeds: Vec<Option<[f64; 2]>>,
}

impl<'t> Informed<'t> {
    /// One observation of each combination, from the seed.
    pub(super) fn of(backtest: &'t Backtest<'_>, seed: u64) -> Self {
        let (truth, rng) = (backtest.truth(), &mut Part::Informed.of_seed(seed));
        let observed = (0..truth.combinations.len()).map(|at| {
            let tenants = observe(truth, at, rng).tenants;
            Some([tenants[0].speed_fraction?, tenants[1].speed_fraction?])
        });
        Self { truth, speeds: observed.collect() }
    }

    /// The speeds that were observed of these two, in their order; `None` where they were not, or did not fit.
    fn observed(&self, tenants: &[TenantInput<'_>]) -> Option<[f64; 2]> {
        let [a, b] = tenants else { return None };
        let ends = [a, b].map(|tenant| self.truth.workload(&tenant.profile.workload));
        let (ends, caps) = ([ends[0]?, ends[1]?], [a.sharing.cap(), b.sharing.cap()]);
        let at = self.truth.find(ends, caps)?;
        let mut speeds = self.speeds[at]?;
        let combination = &self.truth.combinations[at];
        if (combination.workloads, combination.caps) != (ends, caps) {
            speeds.reverse();
        }
        Some(speeds)
    }
}

impl InterferenceModel for Informed<'_> {
    fn name(&self) -> &'static str {
        "informed"
    }

    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        let speeds = self.observed(tenants).ok_or_else(|| PredictError::NoProfile {
            workload: tenants.first().map_or_else(String::new, |tenant| tenant.profile.workload.to_string()),
            device_model: device_model.to_owned(),
        })?;
        let estimates = speeds.map(|speed| {
            let deviation = NOISE_FRACTION * speed;
            SpeedEstimate {
                speed_fraction: speed.min(1.0),
                speed_fraction_deviation: deviation,
                has_heavy_tail: false,
                speed_fraction_low: speed - BOUND_DEVIATIONS * deviation,
                speed_fraction_high: 1.0,
                terms: Arc::default(),
            }
        });
        Ok(estimates.to_vec())
    }

    fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
        None
    }
}
