//! How far the model may be trusted: parts of what was observed are left out, predicted, and compared. The spread of
//! predictions is then stretched so that truths fall below the stated bound as often as stated.
//!
//! Leaving out pairings tells of workloads that were seen with others; leaving out workloads, of new ones of families
//! that were seen; leaving out families, of families never seen. Each is another kind of doubt and has a factor of its
//! own.

use serde::{Deserialize, Serialize};

/// One-sided 90 % of a normal distribution: `speed_fraction_low`.
pub(super) const BOUND_DEVIATIONS: f64 = 1.2816;
/// Where the tail is measured from which broken promises are expected: a quantile, and where it lies for tenants that are
/// kept apart (a normal distribution) and for those that are not (Student's with five degrees of freedom).
const TAIL: (f64, [f64; 2]) = (0.03, [1.8808, 2.4216]);
/// A plan prefers what was estimated too high: among the chosen, truths lie lower than among all.
const SELECTION: f64 = 1.12;
/// One-sided 90 % of Student's distribution with five degrees of freedom.
const STUDENT_BOUND_DEVIATIONS: f64 = 1.4759;
/// Only predictions that could be admitted tell whether admission can be trusted.
const RELEVANT_SPEED_MIN: f64 = 0.5;
/// Near all, speeds vary less: tenants faster than this are looked at apart from slower ones, with a soft border.
const FAST_FROM: f64 = 0.8;
const FAST_WIDTH: f64 = 0.2;
/// How many blocks (pairings, workloads, families) the assumption counts for that the spread is right as it is.
const TRUST_IN_MODEL_BLOCKS: f64 = 2.0;
/// No spread is made narrower than this part of what the model says.
const FACTOR_MIN: f64 = 0.4;
/// With fewer samples than these nothing is stretched.
const SAMPLES_MIN: usize = 20;

/// How new the tenants are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Novelty {
    /// All were seen beside others.
    Pairing,
    /// One was never seen, but its family was.
    Workload,
    /// One is of a family that was never seen.
    Family,
}

/// A left-out truth against its prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Truth less prediction, over the predicted deviation.
    pub(super) deviations: f64,
    pub(super) predicted: f64,
    pub(super) is_together: bool,
    /// What was left out with it: pairing, workload or family.
    pub(super) block: usize,
}

/// By how much a deviation is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    /// For the bound.
    pub(super) bound: f64,
    /// For the tail.
    pub(super) tail: f64,
}

/// Stretches by novelty and regime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Calibration {
    /// By novelty: tenants kept apart, tenants together; slow ones, fast ones.
    stretches: [[[Stretch; 2]; 2]; 3],
}

impl Calibration {
    pub(super) fn of(samples: [Vec<Sample>; 3]) -> Self {
        let stretches = samples.map(|samples| {
            [false, true].map(|is_together| {
                let of_regime = chosen(&samples, |sample| sample.is_together == is_together);
                [false, true].map(|is_fast| {
                    let of_speed = chosen(&of_regime, |sample| (sample.predicted > FAST_FROM) == is_fast);
                    stretch(&of_speed, is_together)
                })
            })
        });
        Self { stretches }
    }

    /// The stretch for tenants that are so new; `overlap` is how much they share compute units.
    pub(super) fn stretch(&self, novelty: Novelty, overlap: f64, predicted: f64) -> Stretch {
        let fast = ((predicted - FAST_FROM) / FAST_WIDTH + 0.5).clamp(0.0, 1.0);
        let [apart, together] = self.stretches[novelty as usize].map(|[slow, quick]| slow.mixed(quick, fast));
        apart.mixed(together, overlap)
    }
}

impl Stretch {
    /// From one to the other.
    fn mixed(self, other: Self, part: f64) -> Self {
        let between = |one: f64, other: f64| one + (other - one) * part;
        Self { bound: between(self.bound, other.bound), tail: between(self.tail, other.tail) }
    }
}

/// Those that are meant, or all where they are too few.
fn chosen(samples: &[Sample], is_meant: impl Fn(&Sample) -> bool) -> Vec<Sample> {
    let meant: Vec<Sample> = samples.iter().filter(|sample| is_meant(sample)).copied().collect();
    let relevant = meant.iter().filter(|sample| sample.predicted >= RELEVANT_SPEED_MIN).count();
    if relevant >= SAMPLES_MIN { meant } else { samples.to_vec() }
}

fn stretch(samples: &[Sample], is_together: bool) -> Stretch {
    let relevant: Vec<&Sample> =
        samples.iter().filter(|sample| sample.predicted >= RELEVANT_SPEED_MIN).collect();
    let mut blocks: Vec<usize> = relevant.iter().map(|sample| sample.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let mut deviations: Vec<f64> = relevant.iter().map(|sample| sample.deviations).collect();
    deviations.sort_by(f64::total_cmp);
    let block_count = amount(blocks.len());
    if deviations.len() < SAMPLES_MIN {
        return Stretch { bound: 1.0, tail: 1.0 };
    }
    let factor = |part: f64, expected: f64| {
        let measured = (-quantile(&deviations, part) / expected).max(FACTOR_MIN);
        let weighed =
            (measured * block_count + TRUST_IN_MODEL_BLOCKS) / (block_count + TRUST_IN_MODEL_BLOCKS);
        weighed * heavier_tail(block_count)
    };
    let bound = SELECTION * factor(0.10, BOUND_DEVIATIONS);
    let tail_at = TAIL.1[usize::from(is_together)];
    let least = if is_together { bound * BOUND_DEVIATIONS / STUDENT_BOUND_DEVIATIONS } else { bound };
    Stretch { bound, tail: factor(TAIL.0, tail_at).max(least) }
}

/// A quantile estimated from few blocks is itself uncertain: like Student's against the normal distribution.
fn heavier_tail(block_count: f64) -> f64 {
    let freedom = block_count + TRUST_IN_MODEL_BLOCKS;
    1.0 + 1.0 / freedom
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a short list")]
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * amount(sorted.len() - 1);
    let low = place.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (place - amount(low))
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
fn amount(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(spread: f64, block_count: usize) -> Vec<Sample> {
        let sample = |at: usize| Sample {
            // The quantiles of a uniform distribution stand in: what counts is their size.
            deviations: spread * (amount(at % 100) / 50.0 - 1.0),
            predicted: 0.8,
            is_together: false,
            block: at % block_count,
        };
        (0..2000).map(sample).collect()
    }

    #[test]
    fn a_spread_twice_as_wide_stretches_twice_as_far() {
        let (one, two) = (stretch(&samples(2.0, 1000), false), stretch(&samples(4.0, 1000), false));
        assert!((two.bound / one.bound - 2.0).abs() < 0.02, "{one:?} {two:?}");
        assert!(one.tail >= one.bound);
    }

    #[test]
    fn few_blocks_are_believed_less_and_few_samples_not_at_all() {
        let (few, many) = (stretch(&samples(0.1, 2), false), stretch(&samples(0.1, 500), false));
        assert!(few.bound > many.bound);
        let none = stretch(&[], false);
        assert_eq!(none, Stretch { bound: 1.0, tail: 1.0 });
    }
}
