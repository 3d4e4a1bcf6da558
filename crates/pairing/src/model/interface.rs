//! What every model of interference is asked and answers: tenants go in, an estimate of each one's speed comes out.

use pillion_core::SlowdownRatio;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One tenant, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct TenantInput<'a> {
    /// How it runs alone on this device model.
    pub profile: &'a WorkloadProfile,
    /// How it shares the device: by the same mechanism as the others there.
    pub sharing: Sharing,
}

/// What made an estimate, by name.
pub type Terms = BTreeMap<Cow<'static, str>, f64>;

/// How far below the estimate `speed_fraction_low` lies, in standard deviations: one-sided 90 % of a normal distribution.
pub(crate) const BOUND_DEVIATIONS: f64 = 1.2816;

/// How fast one tenant will run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedEstimate {
    /// Expected speed over solo speed, 0..=1.
    pub speed_fraction: f64,
    /// Standard deviation of the estimate.
    #[serde(default)]
    pub speed_fraction_deviation: f64,
    /// Whether truths far from the estimate are much more frequent than in a normal distribution.
    #[serde(default)]
    pub has_heavy_tail: bool,
    /// The pessimistic bound: the truth is above it with the model's stated probability.
    pub speed_fraction_low: f64,
    /// The optimistic bound.
    pub speed_fraction_high: f64,
    /// The terms that made it, by name, for the explanation.
    pub terms: Arc<Terms>,
}

/// The speeds that durations are stretched by: nobody is taken to last for ever.
const LASTING_SPEEDS: std::ops::RangeInclusive<f64> = 0.05..=1.0;

impl SpeedEstimate {
    /// The speed by which its duration alone is divided to say how long it lasts beside the others, 0.05..=1.
    pub fn lasting_speed_fraction(&self) -> f64 {
        self.speed_fraction.clamp(*LASTING_SPEEDS.start(), *LASTING_SPEEDS.end())
    }

    /// The standard deviation that the stated bound stands for.
    pub(crate) fn spread(&self) -> f64 {
        (self.speed_fraction - self.speed_fraction_low) / BOUND_DEVIATIONS
    }
    /// How probably the tenant runs slower than promised, 0..=1.
    pub fn break_probability(&self, promise: SlowdownRatio) -> f64 {
        let least = promise.value().recip();
        if self.speed_fraction_deviation <= 0.0 {
            return if self.speed_fraction < least { 1.0 } else { 0.0 };
        }
        let deviations = (least - self.speed_fraction) / self.speed_fraction_deviation;
        if self.has_heavy_tail {
            student(deviations)
        } else {
            0.5 * libm::erfc(-deviations / std::f64::consts::SQRT_2)
        }
    }
}

impl SpeedEstimate {
    /// How probably the speed is at least this, and its mean where it is.
    pub(crate) fn kept_above(&self, least: f64) -> (f64, f64) {
        let (mean, deviation) = (self.speed_fraction, self.speed_fraction_deviation);
        if deviation <= 0.0 {
            return (if mean < least { 0.0 } else { 1.0 }, mean.max(least));
        }
        let deviations = (least - mean) / deviation;
        let (above, excess) = if self.has_heavy_tail {
            (1.0 - student(deviations), student_excess(deviations))
        } else {
            let density = (-0.5 * deviations * deviations).exp() / (2.0 * std::f64::consts::PI).sqrt();
            (0.5 * libm::erfc(deviations / std::f64::consts::SQRT_2), density)
        };
        (above, (mean + deviation * excess / above.max(ABOVE_MIN)).clamp(least.min(1.0), 1.0))
    }
}

/// Less probable than this nothing is divided by.
const ABOVE_MIN: f64 = 1e-9;

/// Of Student's distribution with five degrees of freedom: the integral of what lies above, times itself.
fn student_excess(deviations: f64) -> f64 {
    let square = 1.0 + deviations * deviations / 5.0;
    let density = 8.0 / (3.0 * std::f64::consts::PI * 5.0_f64.sqrt()) / square.powi(3);
    1.25 * square * density
}

/// The distribution function of Student's distribution with five degrees of freedom.
fn student(deviations: f64) -> f64 {
    let angle = (deviations / 5.0_f64.sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    0.5 + (angle + sine * cosine * (1.0 + 2.0 / 3.0 * cosine * cosine)) / std::f64::consts::PI
}

/// What tenants have to reach to be of any use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hope<'h> {
    /// The least speed that each was promised, 0..=1, in their order.
    pub least: &'h [f64],
    /// What their pessimistic bounds may lack to that, in sum.
    pub lacking_max: f64,
}

impl Hope<'_> {
    /// Whether speeds no higher than these could do.
    pub fn allows(&self, speeds: impl Iterator<Item = f64>) -> bool {
        self.least.iter().zip(speeds).map(|(least, speed)| least - speed).sum::<f64>() <= self.lacking_max
    }
}

/// Why nothing can be said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum PredictError {
    /// Too few solo runs, or none of the features that the model needs.
    #[error("too little is known of {workload} on {device_model}")]
    NoProfile {
        /// The workload's key, as people see it.
        workload: String,
        /// The device model.
        device_model: String,
    },
}

/// A model of interference: pure, deterministic.
pub trait InterferenceModel: Send + Sync {
    /// A name and version for explanations.
    fn name(&self) -> &str;
    /// The speed of each tenant when all of them share one device of this model, in the order given. With one tenant: its speed alone
    /// under its cap or the card's mode.
    ///
    /// # Errors
    /// [`PredictError::NoProfile`] where a profile does not suffice.
    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError>;
    /// The same, without what made it, of tenants that are of no use where their bounds lack more than this in sum to what
    /// they were promised; `None` where they are sure to. Where many are asked about, most are of no use, and that is seen
    /// sooner than how sure their speeds are.
    ///
    /// # Errors
    /// As of [`Self::predict`].
    fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: &Hope<'_>,
    ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
        let _ = hope;
        self.predict(tenants, device_model).map(Some)
    }
    /// How probably they turn out not to fit on the device together, from what was seen, 0..=1.
    fn misfit_probability(&self, tenants: &[TenantInput<'_>], device_model: &str) -> f64 {
        let _ = (tenants, device_model);
        0.0
    }
    /// The device's mean power while all of them share it, where the profiles tell.
    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(speed_fraction: f64, speed_fraction_deviation: f64, has_heavy_tail: bool) -> SpeedEstimate {
        SpeedEstimate {
            speed_fraction,
            speed_fraction_deviation,
            has_heavy_tail,
            speed_fraction_low: 0.0,
            speed_fraction_high: 1.0,
            terms: Arc::default(),
        }
    }

    #[test]
    fn who_is_kept_is_faster_than_its_mean() {
        // Half of a normal distribution: its mean is 0.798 deviations above.
        let (above, mean) = estimate(0.6, 0.1, false).kept_above(0.6);
        assert!((above - 0.5).abs() < 1e-9 && (mean - 0.6798).abs() < 1e-4, "{above} {mean}");
        // And of Student's with five degrees of freedom 0.949.
        let (above, mean) = estimate(0.6, 0.1, true).kept_above(0.6);
        assert!((above - 0.5).abs() < 1e-9 && (mean - 0.6949).abs() < 1e-4, "{above} {mean}");
        assert_eq!(estimate(0.6, 0.0, true).kept_above(0.7), (0.0, 0.7));
        assert_eq!(estimate(0.8, 0.0, true).kept_above(0.7), (1.0, 0.8));
    }
}
