//! How well a model foretells outcomes: pure. What was measured is held against the density that the model gave it.

use pillion_core::WorkloadKey;
use pillion_pairing::{InterferenceModel, Observation, ProfileBook, SpeedEstimate, TenantInput};
use pillion_store::Score;

/// Standard deviation of a measured speed where nothing better is known.
const MEASUREMENT_DEVIATION: f64 = 0.03;
/// No logarithm of a density counts as less: one outcome that was thought impossible must not outweigh all others.
const LOG_SCORE_MIN: f64 = -5.0;
/// Nor more: a density beyond this is sharper than any measurement.
const LOG_SCORE_MAX: f64 = 3.0;

/// One tenant's outcome against what a model said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scored {
    /// Whose workload it was.
    pub(super) user: String,
    /// Logarithm of the density, clipped.
    pub(super) log_score: f64,
    /// Distance of the expected speed from the measured one.
    pub(super) error: f64,
    /// Below the pessimistic bound by more than the measurement may be off.
    pub(super) is_below_low: bool,
}

/// Every measured outcome of these sharings, in their order. What the model says nothing about gets the least score, so
/// that two models always have outcomes in the same places; what no model could know (a workload without a profile) is left
/// out.
pub(super) fn score(
    model: &dyn InterferenceModel,
    profiles: &ProfileBook,
    observations: &[Observation],
) -> Vec<Scored> {
    observations.iter().filter_map(|one| score_one(model, profiles, one)).flatten().collect()
}

fn score_one(
    model: &dyn InterferenceModel,
    profiles: &ProfileBook,
    observation: &Observation,
) -> Option<Vec<Scored>> {
    if !observation.is_learnt() {
        return None;
    }
    let inputs = observation
        .tenants
        .iter()
        .map(|tenant| {
            let profile = profiles.get(&tenant.workload, &observation.device_model)?;
            Some(TenantInput { profile, sharing: tenant.sharing })
        })
        .collect::<Option<Vec<_>>>()?;
    let estimates = model.predict(&inputs, &observation.device_model).ok();
    let deviation = observation.speed_fraction_deviation.unwrap_or(MEASUREMENT_DEVIATION);
    let scored = observation.tenants.iter().enumerate().filter_map(|(index, tenant)| {
        let measured = tenant.speed_fraction?;
        let estimate = estimates.as_ref().and_then(|estimates| estimates.get(index));
        Some(score_tenant(user_of(&tenant.workload), measured, deviation, estimate))
    });
    Some(scored.collect())
}

fn score_tenant(user: &str, measured: f64, deviation: f64, estimate: Option<&SpeedEstimate>) -> Scored {
    let user = user.to_owned();
    let Some(estimate) = estimate else {
        return Scored { user, log_score: LOG_SCORE_MIN, error: 1.0, is_below_low: true };
    };
    let spread = estimate.speed_fraction_deviation.hypot(deviation.max(MEASUREMENT_DEVIATION));
    let distance = (measured - estimate.speed_fraction) / spread;
    let log_density = -0.5 * distance.powi(2) - spread.ln() - 0.5 * std::f64::consts::TAU.ln();
    Scored {
        user,
        // What is not a number is no better than what is impossible.
        log_score: if log_density.is_nan() {
            LOG_SCORE_MIN
        } else {
            log_density.clamp(LOG_SCORE_MIN, LOG_SCORE_MAX)
        },
        error: (measured - estimate.speed_fraction).abs(),
        is_below_low: measured < estimate.speed_fraction_low - deviation,
    }
}

/// A workload's key begins with its user.
fn user_of(workload: &WorkloadKey) -> &str {
    workload.as_str().split('/').next().unwrap_or_default()
}

/// Sharings that went worse than the model thought possible, or not at all.
pub(super) fn surprises(
    model: &dyn InterferenceModel,
    profiles: &ProfileBook,
    observations: &[Observation],
) -> usize {
    observations
        .iter()
        .filter(|one| {
            let scored = score_one(model, profiles, one).unwrap_or_default();
            (!one.fits && one.is_learnt()) || scored.iter().any(|outcome| outcome.is_below_low)
        })
        .count()
}

/// The means, every outcome with its weight (they sum to 1); `None` without any.
pub(super) fn summary(scored: &[Scored], weights: &[f64]) -> Option<Score> {
    (!scored.is_empty()).then(|| Score {
        log_score_mean: mean(scored, weights, |outcome| outcome.log_score),
        error_mean: mean(scored, weights, |outcome| outcome.error),
        below_low_fraction: mean(scored, weights, |outcome| f64::from(u8::from(outcome.is_below_low))),
    })
}

fn mean(scored: &[Scored], weights: &[f64], value: impl Fn(&Scored) -> f64) -> f64 {
    scored.iter().zip(weights).map(|(outcome, weight)| value(outcome) * weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(speed: f64, deviation: f64) -> SpeedEstimate {
        SpeedEstimate {
            speed_fraction: speed,
            speed_fraction_deviation: deviation,
            has_heavy_tail: false,
            speed_fraction_low: speed - 1.28 * deviation,
            speed_fraction_high: 1.0,
            terms: std::sync::Arc::default(),
        }
    }

    fn scored(measured: f64, speed: f64, deviation: f64) -> Scored {
        score_tenant("alice", measured, 0.03, Some(&estimate(speed, deviation)))
    }

    #[test]
    fn the_nearer_and_the_surer_of_the_right_thing_the_better() {
        assert!(scored(0.8, 0.8, 0.05).log_score > scored(0.8, 0.9, 0.05).log_score);
        assert!(scored(0.8, 0.8, 0.05).log_score > scored(0.8, 0.8, 0.2).log_score);
        assert!(
            scored(0.5, 0.9, 0.2).log_score > scored(0.5, 0.9, 0.05).log_score,
            "sure of the wrong thing"
        );
        let density = -(0.05_f64.hypot(0.03)).ln() - 0.5 * std::f64::consts::TAU.ln();
        assert!((scored(0.8, 0.8, 0.05).log_score - density).abs() < 1e-12);
    }

    #[test]
    fn one_outcome_counts_for_so_much_only() {
        assert!((scored(0.1, 0.9, 0.01).log_score - LOG_SCORE_MIN).abs() < 1e-12);
        assert!((scored(f64::NAN, 0.9, 0.01).log_score - LOG_SCORE_MIN).abs() < 1e-12);
        assert!(scored(0.8, 0.8, 0.0).log_score <= LOG_SCORE_MAX);
        assert!((score_tenant("a", 0.8, 0.03, None).log_score - LOG_SCORE_MIN).abs() < 1e-12);
    }

    #[test]
    fn below_the_bound_is_what_no_noise_explains() {
        assert!(!scored(0.85, 0.9, 0.05).is_below_low);
        assert!(!scored(0.81, 0.9, 0.05).is_below_low, "within the measurement's own deviation");
        assert!(scored(0.79, 0.9, 0.05).is_below_low);
    }
}
