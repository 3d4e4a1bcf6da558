//! How far the model may be trusted: parts of what was observed are left out, predicted, and compared. The spread of
//! predictions is then stretched so that truths fall below the stated bound as often as stated.
//!
//! Leaving out pairings tells of workloads that were seen with others; leaving out workloads, of new ones of families
//! that were seen; leaving out families, of families never seen. Each is another kind of doubt and has a factor of its
//! own.

use crate::model::interface::BOUND_DEVIATIONS;
use serde::{Deserialize, Serialize};

/// Where the tail is measured from which broken promises are expected: a quantile, and where it lies for tenants that are
/// kept apart (a normal distribution) and for those that are not (Student's with five degrees of freedom).
const TAIL: (f64, [f64; 2]) = (0.03, [1.8808, 2.4216]);
/// A plan prefers what was estimated too high: among the chosen, truths lie lower than among all. Tenants that are kept
/// apart are estimated alike, whoever is beside them, and cautiously as it is; with others on the same units there is more to choose from by mistake,
/// most of all while they are new.
const SELECTION_APART: f64 = 0.9;
const SELECTION_TOGETHER: [f64; 3] = [1.12, 1.4, 1.4];
/// How much of that the tail has already.
const SELECTION_IN_TAIL: f64 = 1.12;
/// One-sided 90 % of Student's distribution with five degrees of freedom.
const STUDENT_BOUND_DEVIATIONS: f64 = 1.4759;
/// Only predictions that could be admitted tell whether admission can be trusted.
const RELEVANT_SPEED_MIN: f64 = 0.5;
/// Speeds vary in another way near all than at the middle: stretches are looked at here, and mixed between.
const KNOTS: [f64; 5] = [0.6, 0.75, 0.85, 0.92, 0.97];
/// At each, the samples that were predicted nearest: this part of all, and at least so many.
const NEAREST_PART: f64 = 0.2;
const NEAREST_MIN: usize = 60;
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
    /// By novelty: tenants kept apart, tenants together; at each of the knots.
    stretches: Vec<[[Stretch; KNOTS.len()]; 2]>,
}

impl Calibration {
    pub(super) fn of(samples: [Vec<Sample>; 3]) -> Self {
        let novelties = samples.into_iter().zip(SELECTION_TOGETHER);
        let stretches = novelties.map(|(mut samples, selection_together)| {
            samples.retain(|sample| sample.predicted >= RELEVANT_SPEED_MIN);
            [(false, SELECTION_APART), (true, selection_together)].map(|(is_together, selection)| {
                let of_regime = of_regime(&samples, is_together);
                KNOTS.map(|knot| stretch(&nearest(&of_regime, knot), is_together, selection))
            })
        });
        let stretches: Vec<_> = stretches.collect();
        Self { stretches }
    }

    /// The stretch for tenants that are so new; `overlap` is how much they share compute units.
    pub(super) fn stretch(&self, novelty: Novelty, overlap: f64, predicted: f64) -> Stretch {
        let at = KNOTS.partition_point(|knot| *knot < predicted);
        let [apart, together] = self.stretches[novelty as usize].map(|of_regime| {
            if at == 0 || at == KNOTS.len() {
                return of_regime[at.min(KNOTS.len() - 1)];
            }
            let (from, to) = (KNOTS[at - 1], KNOTS[at]);
            of_regime[at - 1].mixed(of_regime[at], (predicted - from) / (to - from))
        });
        apart.mixed(together, overlap)
    }
}

impl Stretch {
    /// From one to the other, by so much of the way: 0..=1.
    pub(super) fn mixed(self, other: Self, part: f64) -> Self {
        Self {
            bound: self.bound + (other.bound - self.bound) * part,
            tail: self.tail + (other.tail - self.tail) * part,
        }
    }
}

/// Those of a regime, or all where they are too few.
fn of_regime(samples: &[Sample], is_together: bool) -> Vec<Sample> {
    let meant = samples.iter().filter(|sample| sample.is_together == is_together);
    let meant: Vec<Sample> = meant.copied().collect();
    if meant.len() >= SAMPLES_MIN { meant } else { samples.to_vec() }
}

/// Those that were predicted nearest to a speed.
fn nearest(samples: &[Sample], speed: f64) -> Vec<Sample> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| (a.predicted - speed).abs().total_cmp(&(b.predicted - speed).abs()));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a short list")]
    let part = (NEAREST_PART * amount(sorted.len())) as usize;
    sorted.truncate(part.max(NEAREST_MIN));
    sorted
}

fn stretch(samples: &[Sample], is_together: bool, selection: f64) -> Stretch {
    let mut blocks: Vec<usize> = samples.iter().map(|sample| sample.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let mut deviations: Vec<f64> = samples.iter().map(|sample| sample.deviations).collect();
    deviations.sort_by(f64::total_cmp);
    let block_count = amount(blocks.len());
    if deviations.len() < SAMPLES_MIN {
        return Stretch { bound: 1.0, tail: 1.0 };
    }
    let tail_at = TAIL.1[usize::from(is_together)];
    let [of_bound, of_tail] = [(0.10, BOUND_DEVIATIONS), (TAIL.0, tail_at)].map(|(part, expected)| {
        let measured = (-quantile(&deviations, part) / expected).max(FACTOR_MIN);
        let weighed =
            (measured * block_count + TRUST_IN_MODEL_BLOCKS) / (block_count + TRUST_IN_MODEL_BLOCKS);
        if is_together { weighed * heavier_tail(block_count) } else { weighed }
    });
    let bound = selection * of_bound;
    let least = if is_together { bound * BOUND_DEVIATIONS / STUDENT_BOUND_DEVIATIONS } else { bound };
    let tail = selection / SELECTION_IN_TAIL * of_tail;
    Stretch { bound, tail: tail.max(least) }
}

/// A quantile estimated from few blocks is itself uncertain: like Student's against the normal distribution. Errors of
/// tenants that are kept apart hardly differ from block to block: there it was seen to make bounds too wide.
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
        let all = (0..2000).map(|at| Sample {
            // The quantiles of a uniform distribution stand in: what counts is their size.
            deviations: spread * (amount(at % 100) / 50.0 - 1.0),
            predicted: 0.8,
            is_together: false,
            block: at % block_count,
        });
        all.collect()
    }

    #[test]
    fn a_spread_twice_as_wide_stretches_twice_as_far() {
        let (one, two) = (stretch(&samples(2.0, 1000), false, 1.0), stretch(&samples(4.0, 1000), false, 1.0));
        assert!((two.bound / one.bound - 2.0).abs() < 0.02, "{one:?} {two:?}");
        assert!(one.tail >= one.bound);
    }

    #[test]
    fn few_blocks_are_believed_less_and_few_samples_not_at_all() {
        let (few, many) = (stretch(&samples(0.1, 2), false, 1.0), stretch(&samples(0.1, 500), false, 1.0));
        assert!(few.bound > many.bound);
        let none = stretch(&[], false, 1.0);
        assert_eq!(none, Stretch { bound: 1.0, tail: 1.0 });
    }
}
