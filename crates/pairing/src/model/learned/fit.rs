//! Bayesian linear regression with one variance for each group of effects, learnt by expectation maximisation (Dempster,
//! Laird and Rubin 1977; as restricted maximum likelihood of a mixed model). The effect of each very combination is
//! integrated out: combinations are many, and each meets two columns only.
//!
//! ```text
//! y = X b + C e + noise,   b ~ N(0, variance of its group),   e ~ N(0, variance of pairs, by regime)
//! ```

use super::arrow::{Arrow, Block, Eliminated, product};
use super::columns::Layout;
use super::combination::{Combination, Two, dot, times};
use super::effects::{Group, Kind, Regime};
use super::row::{Row, Variances};
use pillion_linear::Matrix;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How many columns' worth of evidence the expected variance counts for.
const EXPECTED_WEIGHT: f64 = 2.0;
/// How many rows' worth of evidence the expected noise counts for.
const NOISE_WEIGHT: f64 = 10.0;
/// Bounds of the noise, as a multiple of the variance that rows come with.
const NOISE_RANGE: (f64, f64) = (1.0, 6.0);

/// The sums over rows that every fit of them needs.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    layout: Layout,
    products: Arrow,
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
    pub(super) fn of<'r>(rows: impl Iterator<Item = &'r Row> + Clone, layout: &Layout) -> Self {
        let mut combinations: BTreeMap<usize, Combination> = BTreeMap::new();
        for row in rows.clone() {
            combinations.entry(row.combination).or_default().add(row);
        }
        // Through its own effect all columns of a combination meet, of whichever of its rows.
        let lists =
            combinations.values().map(|combination| combination.mixed.iter().map(|(column, _)| *column));
        let mut evidence = Self {
            layout: layout.clone(),
            products: Arrow::zeros(layout, lists),
            pulls: vec![0.0; layout.width()],
            square: 0.0,
            row_count: 0,
            combinations,
        };
        for row in rows {
            evidence.add(row);
        }
        evidence
    }

    fn add(&mut self, row: &Row) {
        let weight = 1.0 / row.noise;
        for (column, value) in &row.effects {
            self.pulls[*column] += value * row.distance * weight;
        }
        self.products.add(&row.effects, |left, right| left * right * weight);
        self.square += row.distance * row.distance * weight;
        self.row_count += 1;
    }

    /// The variances that explain the rows best, kept near what is expected of them.
    pub(super) fn variances(&self, iterations: usize) -> Variances {
        let mut variances = Variances::default();
        let mut members: BTreeMap<Group, usize> = BTreeMap::new();
        for group in &self.layout.groups {
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
        for (column, group) in self.layout.groups.iter().enumerate() {
            let square = posterior.means[column].powi(2) + posterior.variance_of(column);
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
        let (mut quadratic, mut trace) = (0.0, 0.0);
        for a in 0..self.layout.dense_count {
            for b in 0..=a {
                let twice = if a == b { 1.0 } else { 2.0 };
                let product = twice * self.products.dense[(a, b)];
                quadratic += product * posterior.means[a] * posterior.means[b];
                trace += product * posterior.covariance[(a, b)];
            }
        }
        for (block, eliminated) in self.products.blocks.iter().zip(&posterior.blocks) {
            let [squared, traced] = posterior.expected_square(block, eliminated);
            quadratic += squared;
            trace += traced;
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
        self.solved(self.products.clone(), variances)
    }

    /// The same where the evidence is not needed any more: that of many workloads is large.
    pub(super) fn into_posterior(mut self, variances: &Variances) -> Option<Posterior> {
        let products = std::mem::replace(&mut self.products, Arrow::empty());
        self.solved(products, variances)
    }

    fn solved(&self, products: Arrow, variances: &Variances) -> Option<Posterior> {
        let mut precision =
            products.into_precision(variances.noise, |column| 1.0 / variances.of(self.layout.groups[column]));
        let mut pulls: Vec<f64> = self.pulls.iter().map(|pull| pull / variances.noise).collect();
        for combination in self.combinations.values() {
            let own = combination.covariance(variances);
            let scale = 1.0 / (variances.noise * variances.noise);
            for (column, mixed) in &combination.mixed {
                pulls[*column] -= scale * dot(times(&own, *mixed), combination.pull);
            }
            precision.add(&combination.mixed, |left, right| -(scale * dot(times(&own, *left), *right)));
        }
        let mut blocks = precision.eliminate(&mut pulls)?;
        let covariance = match self.layout.dense_count {
            0 => Matrix::zeros(0),
            _ => precision.dense.into_inverse_of_lower()?,
        };
        let mut means = covariance.times(&pulls[..self.layout.dense_count]);
        means.extend_from_slice(&pulls[self.layout.dense_count..]);
        for block in &mut blocks {
            for (column, follows) in block.follows() {
                for (own, follows) in follows.iter().enumerate() {
                    means[block.first + own] += follows * means[column];
                }
            }
            block.complete(&covariance);
        }
        if means.iter().any(|mean| !mean.is_finite()) {
            return None;
        }
        let posterior =
            Posterior { means, covariance, blocks, noise: variances.noise, pairs: FxHashMap::default() };
        Some(posterior.with_pairs(self, variances))
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
    /// Of the dense columns.
    covariance: Matrix,
    /// How the others follow them.
    blocks: Vec<Eliminated>,
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
            let mean = times(&own, self.rest_of(combination));
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
        if combination.mixed.last().is_some_and(|(last, _)| *last >= self.covariance.width()) {
            return self.mixed_covariance_of_blocks(combination);
        }
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

    /// The same where some effects are of a block: from the variances of each, of the other, and of both together.
    fn mixed_covariance_of_blocks(&self, combination: &Combination) -> Two {
        let variance = |weights: [f64; 2]| {
            let amounts = combination.mixed.iter().map(|(column, mixed)| (*column, dot(*mixed, weights)));
            self.quadratic(&amounts.collect::<Vec<_>>())
        };
        let (one, other) = (variance([1.0, 0.0]), variance([0.0, 1.0]));
        let between = (variance([1.0, 1.0]) - one - other) / 2.0;
        [[one, between], [between, other]]
    }

    /// What the rows of a combination say that its other effects do not.
    fn rest_of(&self, combination: &Combination) -> [f64; 2] {
        let from_others = self.mixed_mean(combination);
        [
            (combination.pull[0] - from_others[0]) / self.noise,
            (combination.pull[1] - from_others[1]) / self.noise,
        ]
    }

    /// Mean and covariance of a combination's own effect.
    fn of_combination(&self, combination: &Combination, variances: &Variances) -> ([f64; 2], Two) {
        let own = combination.covariance(variances);
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
        (times(&own, self.rest_of(combination)), covariance)
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

    /// The variance of the effect of one column.
    fn variance_of(&self, column: usize) -> f64 {
        if column < self.covariance.width() {
            return self.covariance[(column, column)];
        }
        let block = &self.blocks[self.block_of(column)];
        block.inverse[(column - block.first) * (block.width + 1)]
    }

    fn block_of(&self, column: usize) -> usize {
        self.blocks.partition_point(|block| block.first <= column) - 1
    }

    /// What the cells of a block contribute to the expected sum of squares: of the means, and of their doubt.
    fn expected_square(&self, block: &Block, eliminated: &Eliminated) -> [f64; 2] {
        let means = &self.means[block.first..block.first + block.width];
        let mut squared = 0.0;
        for (row, mean) in block.own.chunks_exact(block.width).zip(means) {
            squared += mean * product(row, means);
        }
        let mut traced = product(&block.own, &eliminated.inverse);
        for (touched, cross) in block.touched.iter().zip(block.cross.chunks_exact(block.width)) {
            squared += 2.0 * self.means[*touched] * product(cross, means);
            let column = self.covariance.column(*touched);
            let together =
                cross.iter().enumerate().map(|(own, cross)| cross * eliminated.inverse_at(own, column));
            traced += 2.0 * together.sum::<f64>();
        }
        [squared, traced]
    }

    fn quadratic(&self, effects: &[(usize, f64)]) -> f64 {
        if self.blocks.is_empty() {
            return self.quadratic_of_dense(effects).max(0.0);
        }
        let dense_count = self.covariance.width();
        let (dense, mut own): (Vec<_>, Vec<_>) =
            effects.iter().partition(|(column, _)| *column < dense_count);
        own.sort_unstable_by_key(|(column, _)| *column);
        let mut sum = self.quadratic_of_dense(&dense);
        let mut before: Vec<Vec<(usize, f64)>> = Vec::new();
        for of_block in own.chunk_by(|one, other| self.block_of(one.0) == self.block_of(other.0)) {
            let block = &self.blocks[self.block_of(of_block[0].0)];
            let mut amounts = vec![0.0; block.width];
            for (column, amount) in of_block {
                amounts[column - block.first] += amount;
            }
            for (row, amount) in block.inverse.chunks_exact(block.width).zip(&amounts) {
                sum += amount * product(row, &amounts);
            }
            let carried = block.carried(&amounts);
            for other in before.iter().chain(std::iter::once(&dense)) {
                sum += 2.0 * self.between(other, &carried);
            }
            before.push(carried);
        }
        sum.max(0.0)
    }

    /// The covariance of two sums of dense effects.
    fn between(&self, one: &[(usize, f64)], other: &[(usize, f64)]) -> f64 {
        let of_one = one.iter().map(|(column, amount)| {
            let cells = self.covariance.column(*column);
            amount * other.iter().map(|(column, amount)| amount * cells[*column]).sum::<f64>()
        });
        of_one.sum()
    }

    fn quadratic_of_dense(&self, effects: &[(usize, f64)]) -> f64 {
        let mut sum = 0.0;
        for (place, (a, left)) in effects.iter().enumerate() {
            let column = self.covariance.column(*a);
            let cross: f64 = effects[..place].iter().map(|(b, right)| right * column[*b]).sum();
            sum += left * (2.0 * cross + left * column[*a]);
        }
        sum
    }
}
