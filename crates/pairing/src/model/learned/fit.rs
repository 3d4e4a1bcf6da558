//! Bayesian linear regression with one variance for each group of effects, learnt by expectation maximisation (Dempster,
//! Laird and Rubin 1977; as restricted maximum likelihood of a mixed model). The effect of each very combination is
//! integrated out: combinations are many, and each meets two columns only.
//!
//! ```text
//! y = X b + C e + noise,   b ~ N(0, variance of its group),   e ~ N(0, variance of pairs, by regime)
//! ```

use super::effects::{Group, Kind, Regime};
use pillion_linear::Matrix;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How many columns' worth of evidence the expected variance counts for.
const EXPECTED_WEIGHT: f64 = 2.0;
/// How many rows' worth of evidence the expected noise counts for.
const NOISE_WEIGHT: f64 = 10.0;
/// Bounds of the noise, as a multiple of the variance that rows come with.
const NOISE_RANGE: (f64, f64) = (1.0, 6.0);

/// One measured speed: its distance from the prior in units of doubt, and the effects behind it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// By column, each at most once.
    pub(super) effects: Vec<(usize, f64)>,
    /// Of this combination's own effect, by regime.
    pub(super) pair: [f64; 2],
    /// Which combination; `usize::MAX` is not used.
    pub(super) combination: usize,
    /// Measured less expected speed, in units of the doubt about it.
    pub(super) distance: f64,
    /// Variance of the measurement, same units squared.
    pub(super) noise: f64,
}

/// What is learnt about variances.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Variances {
    /// The variance of the effects of each group, in units of doubt squared.
    pub(super) of_group: BTreeMap<Group, f64>,
    /// Multiple of the rows' own noise.
    pub(super) noise: f64,
}

impl Default for Variances {
    fn default() -> Self {
        Self { of_group: BTreeMap::new(), noise: 1.0 }
    }
}

impl Variances {
    /// The variance of a group's effects; of one that was never met, what is expected.
    pub(super) fn of(&self, group: Group) -> f64 {
        self.of_group.get(&group).copied().unwrap_or_else(|| group.0.expected_variance(group.1))
    }
    fn of_pair(&self) -> [f64; 2] {
        [self.of((Kind::Pair, Regime::Apart)), self.of((Kind::Pair, Regime::Together))]
    }
}

type Two = [[f64; 2]; 2];

/// What rows of one combination say about its own effect, given the others.
#[derive(Debug, Clone, PartialEq, Default)]
struct Combination {
    /// Sum of `c cᵀ / noise`.
    weight: Two,
    /// Sum of `c distance / noise`.
    pull: [f64; 2],
    /// Sum of `c effectsᵀ / noise`, by column.
    mixed: BTreeMap<usize, [f64; 2]>,
}

impl Combination {
    /// The covariance of the combination's effect, given the others.
    fn covariance(&self, variances: &Variances) -> Two {
        let prior = variances.of_pair();
        let precision = [
            [1.0 / prior[0] + self.weight[0][0] / variances.noise, self.weight[0][1] / variances.noise],
            [self.weight[1][0] / variances.noise, 1.0 / prior[1] + self.weight[1][1] / variances.noise],
        ];
        let determinant = precision[0][0] * precision[1][1] - precision[0][1] * precision[1][0];
        [
            [precision[1][1] / determinant, -precision[0][1] / determinant],
            [-precision[1][0] / determinant, precision[0][0] / determinant],
        ]
    }
}

fn times(matrix: &Two, vector: [f64; 2]) -> [f64; 2] {
    [matrix[0][0] * vector[0] + matrix[0][1] * vector[1], matrix[1][0] * vector[0] + matrix[1][1] * vector[1]]
}

fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

/// The sums over rows that every fit of them needs.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    groups: Vec<Group>,
    products: Matrix,
    pulls: Vec<f64>,
    square: f64,
    row_count: usize,
    combinations: BTreeMap<usize, Combination>,
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows or columns")]
fn amount(count: usize) -> f64 {
    count as f64
}

impl Evidence {
    pub(super) fn of<'r>(rows: impl Iterator<Item = &'r Row>, groups: &[Group]) -> Self {
        let width = groups.len();
        let mut evidence = Self {
            groups: groups.to_vec(),
            products: Matrix::zeros(width),
            pulls: vec![0.0; width],
            square: 0.0,
            row_count: 0,
            combinations: BTreeMap::new(),
        };
        for row in rows {
            evidence.add(row);
        }
        evidence
    }

    fn add(&mut self, row: &Row) {
        let weight = 1.0 / row.noise;
        for (place, (a, left)) in row.effects.iter().enumerate() {
            self.pulls[*a] += left * row.distance * weight;
            for (b, right) in &row.effects[..=place] {
                self.products[(*a.max(b), *a.min(b))] += left * right * weight;
            }
        }
        self.square += row.distance * row.distance * weight;
        self.row_count += 1;
        let own = self.combinations.entry(row.combination).or_default();
        for regime in 0..2 {
            own.pull[regime] += row.pair[regime] * row.distance * weight;
            for other in 0..2 {
                own.weight[regime][other] += row.pair[regime] * row.pair[other] * weight;
            }
        }
        for (column, value) in &row.effects {
            let mixed = own.mixed.entry(*column).or_default();
            mixed[0] += row.pair[0] * value * weight;
            mixed[1] += row.pair[1] * value * weight;
        }
    }

    /// The variances that explain the rows best, kept near what is expected of them.
    pub(super) fn variances(&self, iterations: usize) -> Variances {
        let mut variances = Variances::default();
        let mut members: BTreeMap<Group, usize> = BTreeMap::new();
        for group in &self.groups {
            *members.entry(*group).or_default() += 1;
        }
        for regime in [Regime::Apart, Regime::Together] {
            members.entry((Kind::Pair, regime)).or_default();
        }
        for group in members.keys() {
            variances.of_group.insert(*group, 4.0 * group.0.expected_variance(group.1));
        }
        for _ in 0..iterations {
            let Some(posterior) = self.posterior(&variances) else { return variances };
            variances = self.improved(&variances, &posterior, &members);
        }
        variances
    }

    /// One step of expectation maximisation.
    fn improved(
        &self,
        variances: &Variances,
        posterior: &Posterior,
        members: &BTreeMap<Group, usize>,
    ) -> Variances {
        let mut squares: BTreeMap<Group, f64> = BTreeMap::new();
        for (column, group) in self.groups.iter().enumerate() {
            let square = posterior.means[column].powi(2) + posterior.covariance[(column, column)];
            *squares.entry(*group).or_default() += square;
        }
        let mut counts = members.clone();
        for combination in self.combinations.values() {
            let (mean, covariance) = posterior.of_combination(combination, variances);
            for (at, regime) in [Regime::Apart, Regime::Together].into_iter().enumerate() {
                if combination.weight[at][at] > 0.0 {
                    let group = (Kind::Pair, regime);
                    *squares.entry(group).or_default() += mean[at].powi(2) + covariance[at][at];
                    *counts.entry(group).or_default() += 1;
                }
            }
        }
        let of_group = counts.iter().map(|(group, count)| {
            let square = squares.get(group).copied().unwrap_or(0.0);
            let expected = EXPECTED_WEIGHT * group.0.expected_variance(group.1);
            (*group, (square + expected) / (amount(*count) + EXPECTED_WEIGHT))
        });
        let noise =
            (self.misfit(posterior, variances) + NOISE_WEIGHT) / (amount(self.row_count) + NOISE_WEIGHT);
        Variances { of_group: of_group.collect(), noise: noise.clamp(NOISE_RANGE.0, NOISE_RANGE.1) }
    }

    /// Expected sum of squared misfits over the rows' own noise.
    fn misfit(&self, posterior: &Posterior, variances: &Variances) -> f64 {
        let width = self.groups.len();
        let (mut quadratic, mut trace) = (0.0, 0.0);
        for a in 0..width {
            for b in 0..=a {
                let twice = if a == b { 1.0 } else { 2.0 };
                let product = twice * self.products[(a, b)];
                quadratic += product * posterior.means[a] * posterior.means[b];
                trace += product * posterior.covariance[(a, b)];
            }
        }
        let linear: f64 = self.pulls.iter().zip(&posterior.means).map(|(pull, mean)| pull * mean).sum();
        let mut misfit = self.square - 2.0 * linear + quadratic + trace;
        for combination in self.combinations.values() {
            let (mean, covariance) = posterior.of_combination(combination, variances);
            let from_others = posterior.mixed_mean(combination);
            let rest = [combination.pull[0] - from_others[0], combination.pull[1] - from_others[1]];
            misfit += dot(mean, times(&combination.weight, mean)) - 2.0 * dot(mean, rest);
            // Own doubt, less what it shares with the other effects.
            let own = combination.covariance(variances);
            let spread = posterior.mixed_covariance(combination);
            for a in 0..2 {
                for b in 0..2 {
                    misfit += combination.weight[a][b] * covariance[a][b];
                    misfit -= 2.0 * own[a][b] / variances.noise * spread[a][b];
                }
            }
        }
        misfit.max(0.0)
    }

    /// What is known of all effects; `None` where the numbers are broken.
    pub(super) fn posterior(&self, variances: &Variances) -> Option<Posterior> {
        let width = self.groups.len();
        let mut precision = Matrix::zeros(width);
        for b in 0..width {
            for a in b..width {
                let own = if a == b { 1.0 / variances.of(self.groups[a]) } else { 0.0 };
                precision[(a, b)] = self.products[(a, b)] / variances.noise + own;
            }
        }
        let mut pulls: Vec<f64> = self.pulls.iter().map(|pull| pull / variances.noise).collect();
        for combination in self.combinations.values() {
            let own = combination.covariance(variances);
            let scale = 1.0 / (variances.noise * variances.noise);
            let seen: Vec<(usize, [f64; 2])> =
                combination.mixed.iter().map(|(at, mixed)| (*at, *mixed)).collect();
            for (place, (a, left)) in seen.iter().enumerate() {
                let carried = times(&own, *left);
                pulls[*a] -= scale * dot(carried, combination.pull);
                for (b, right) in &seen[..=place] {
                    precision[(*a.max(b), *a.min(b))] -= scale * dot(carried, *right);
                }
            }
        }
        if width == 0 {
            return Some(
                Posterior {
                    means: Vec::new(),
                    covariance: Matrix::zeros(0),
                    noise: variances.noise,
                    pairs: FxHashMap::default(),
                }
                .with_pairs(self, variances),
            );
        }
        let covariance = precision.inverse_of_lower()?;
        let means = covariance.times(&pulls);
        if means.iter().any(|mean| !mean.is_finite()) {
            return None;
        }
        Some(
            Posterior { means, covariance, noise: variances.noise, pairs: FxHashMap::default() }
                .with_pairs(self, variances),
        )
    }
}

/// What is known of one combination's own effect.
#[derive(Debug, Clone, PartialEq)]
struct PairPosterior {
    /// Given that all other effects are as expected.
    mean: [f64; 2],
    /// How it follows the other effects, by column.
    follows: Vec<(usize, [f64; 2])>,
    /// Its own doubt.
    covariance: Two,
}

/// What is known of all effects after the rows were seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Posterior {
    means: Vec<f64>,
    covariance: Matrix,
    noise: f64,
    pairs: FxHashMap<usize, PairPosterior>,
}

/// A prediction in units of doubt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Predicted {
    pub(super) mean: f64,
    /// Without the noise of a measurement.
    pub(super) variance: f64,
    /// The part of the mean that is this combination's own.
    pub(super) of_pair: f64,
}

/// The amounts of two lists in order of columns, each column of the second added to the first of its like.
fn merged(one: &[(usize, f64)], other: impl Iterator<Item = (usize, f64)>) -> Vec<(usize, f64)> {
    let mut merged: Vec<(usize, f64)> = Vec::with_capacity(2 * one.len());
    let mut left = one.iter().copied().peekable();
    for (column, amount) in other {
        while let Some(before) = left.next_if(|(at, _)| *at < column) {
            merged.push(before);
        }
        let own = left.next_if(|(at, _)| *at == column).map_or(0.0, |(_, own)| own);
        merged.push((column, own + amount));
    }
    merged.extend(left);
    merged
}

impl Posterior {
    fn with_pairs(mut self, evidence: &Evidence, variances: &Variances) -> Self {
        for (number, combination) in &evidence.combinations {
            let own = combination.covariance(variances);
            let (mean, _) = self.of_combination(combination, variances);
            let follows = combination.mixed.iter().map(|(column, mixed)| {
                let follows = times(&own, *mixed);
                (*column, [-follows[0] / self.noise, -follows[1] / self.noise])
            });
            let follows = follows.collect();
            self.pairs.insert(*number, PairPosterior { mean, follows, covariance: own });
        }
        self
    }

    fn mixed_mean(&self, combination: &Combination) -> [f64; 2] {
        combination.mixed.iter().fold([0.0; 2], |sum, (column, mixed)| {
            [sum[0] + mixed[0] * self.means[*column], sum[1] + mixed[1] * self.means[*column]]
        })
    }

    /// The covariance of `mixed` times the effects.
    fn mixed_covariance(&self, combination: &Combination) -> Two {
        let mut spread = [[0.0; 2]; 2];
        for (a, left) in &combination.mixed {
            let mut sum = [0.0; 2];
            for (b, right) in &combination.mixed {
                let covariance = self.covariance[(*a, *b)];
                sum = [sum[0] + covariance * right[0], sum[1] + covariance * right[1]];
            }
            for at in 0..2 {
                spread[at][0] += left[at] * sum[0];
                spread[at][1] += left[at] * sum[1];
            }
        }
        spread
    }

    /// Mean and covariance of a combination's own effect.
    fn of_combination(&self, combination: &Combination, variances: &Variances) -> ([f64; 2], Two) {
        let own = combination.covariance(variances);
        let from_others = self.mixed_mean(combination);
        let rest = [
            (combination.pull[0] - from_others[0]) / self.noise,
            (combination.pull[1] - from_others[1]) / self.noise,
        ];
        let spread = self.mixed_covariance(combination);
        let mut covariance = own;
        for a in 0..2 {
            for b in 0..2 {
                for c in 0..2 {
                    for d in 0..2 {
                        covariance[a][b] += own[a][c] * spread[c][d] * own[d][b] / (self.noise * self.noise);
                    }
                }
            }
        }
        (times(&own, rest), covariance)
    }

    /// What these effects come to; in order of columns where the combination is known. A column may stand twice.
    pub(super) fn predict(
        &self,
        effects: &[(usize, f64)],
        pair: [f64; 2],
        combination: Option<usize>,
        variances: &Variances,
    ) -> Predicted {
        let known = combination.and_then(|number| self.pairs.get(&number));
        let mean: f64 = effects.iter().map(|(column, value)| self.means[*column] * value).sum();
        let Some(known) = known else {
            let prior = variances.of_pair();
            let own = pair[0] * pair[0] * prior[0] + pair[1] * pair[1] * prior[1];
            return Predicted { mean, variance: self.quadratic(effects) + own, of_pair: 0.0 };
        };
        let of_pair = dot(pair, known.mean);
        let moved = merged(effects, known.follows.iter().map(|(column, own)| (*column, dot(pair, *own))));
        let variance = self.quadratic(&moved) + dot(pair, times(&known.covariance, pair));
        Predicted { mean: mean + of_pair, variance, of_pair }
    }

    /// The expected effect of one column.
    pub(super) fn mean_of(&self, column: usize) -> f64 {
        self.means[column]
    }

    fn quadratic(&self, effects: &[(usize, f64)]) -> f64 {
        let mut sum = 0.0;
        for (place, (a, left)) in effects.iter().enumerate() {
            let column = self.covariance.column(*a);
            let cross: f64 = effects[..place].iter().map(|(b, right)| right * column[*b]).sum();
            sum += left * (2.0 * cross + left * column[*a]);
        }
        sum.max(0.0)
    }
}
