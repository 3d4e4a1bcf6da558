//! Solo profiles as points in a few dimensions: what is known of each workload, standardised, with its main directions.
//! What is missing counts as average, and that it is missing counts as a feature.

use super::prior::Appetite;
use pillion_core::Fraction;
use pillion_core::profile::WorkloadProfile;
use pillion_linear::{Directions, Matrix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Directions that are kept: more than these carry noise where some dozens of workloads are known.
pub(super) const DIRECTIONS: usize = 4;
/// A feature that fewer workloads have tells nothing.
const KNOWN_MIN: usize = 3;
/// How much it says that a feature is missing, against one standard deviation of it.
const MISSING_WEIGHT: f64 = 0.7;
/// How many features there are.
const FEATURES: usize = 14;
/// The place of memory among them.
const MEMORY: usize = 10;

/// What says by itself who wins on shared units: use of the compute units, and memory (large batches, long kernels).
const STRENGTHS: usize = 2;
/// The spread of use among workloads, so that both strengths count alike.
const USE_SPREAD: f64 = 0.3;

/// The place of a workload's size.
pub(super) const SIZE: usize = DIRECTIONS + STRENGTHS;
/// No workload counts as further from its family, in logarithms of throughput: e² is larger than most ranges of batches.
const SIZE_MAX: f64 = 2.0;

/// A workload's place: along the directions, then its strengths, then its size within its family.
pub(super) type Point = [f64; SIZE + 1];

/// How profiles become points.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct FeatureSpace {
    /// By feature: its mean and standard deviation; absent = not used.
    scales: Vec<Option<(f64, f64)>>,
    /// By direction: the weight of each column (each used feature, and whether it is missing).
    loadings: Vec<Vec<f64>>,
    /// By family, the mean logarithm of throughput: a throughput alone is no profile, but within a family it orders the
    /// batches.
    #[serde(default)]
    throughputs: BTreeMap<String, f64>,
}

fn features(profile: &WorkloadProfile, appetite: &Appetite) -> [Option<f64>; FEATURES] {
    let value = |fraction: Option<Fraction>| fraction.map(Fraction::value);
    let size = |amount: Option<f64>| amount.filter(|amount| *amount > 0.0).map(f64::ln);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
    let memory = profile.memory_bytes_peak.map(|bytes| bytes as f64);
    let rate = |rate: Option<f64>| rate.map(|rate| (1.0 + rate / 1e6).ln());
    [
        value(profile.gpu_busy_fraction),
        value(profile.memory_busy_fraction),
        value(profile.memory_bandwidth_fraction),
        value(profile.cache_bandwidth_fraction),
        value(profile.sm_active_fraction),
        value(profile.sm_occupancy_fraction),
        value(profile.fp32_active_fraction),
        value(profile.stall_fraction),
        appetite.sensitivity(),
        appetite.speed_at_a_tenth(),
        size(memory),
        size(profile.power_watts_mean),
        rate(profile.pcie_tx_bytes_per_second),
        rate(profile.pcie_rx_bytes_per_second),
    ]
}

impl FeatureSpace {
    /// The space that these workloads span.
    pub(super) fn of(workloads: &[(&WorkloadProfile, Appetite)]) -> Self {
        let rows: Vec<[Option<f64>; FEATURES]> =
            workloads.iter().map(|(profile, appetite)| features(profile, appetite)).collect();
        let scale = |feature: usize| {
            let known: Vec<f64> = rows.iter().filter_map(|row| row[feature]).collect();
            let count = count(known.len());
            let mean = known.iter().sum::<f64>() / count;
            let deviation = (known.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
            (known.len() >= KNOWN_MIN && deviation > 1e-6).then_some((mean, deviation))
        };
        let mut space = Self {
            scales: (0..FEATURES).map(scale).collect(),
            loadings: Vec::new(),
            throughputs: family_throughputs(workloads),
        };
        let columns: Vec<Vec<f64>> = rows.iter().map(|row| space.columns(row)).collect();
        space.loadings = directions(&columns);
        space
    }

    fn columns(&self, row: &[Option<f64>; FEATURES]) -> Vec<f64> {
        let used =
            self.scales.iter().zip(row).filter_map(|(scale, value)| scale.map(|scale| (scale, *value)));
        used.flat_map(|((mean, deviation), value)| {
            let standard = value.map_or(0.0, |value| ((value - mean) / deviation).clamp(-3.0, 3.0));
            [standard, if value.is_none() { MISSING_WEIGHT } else { 0.0 }]
        })
        .collect()
    }

    /// Where a workload stands. The origin where nothing is known.
    pub(super) fn point(&self, profile: &WorkloadProfile, appetite: &Appetite) -> Point {
        let features = features(profile, appetite);
        let columns = self.columns(&features);
        let mut point = [0.0; SIZE + 1];
        for (coordinate, loading) in point.iter_mut().zip(&self.loadings) {
            *coordinate = columns.iter().zip(loading).map(|(value, weight)| value * weight).sum();
        }
        point[DIRECTIONS] = appetite.use_fraction.map_or(0.0, |part| (part - 0.5) / USE_SPREAD);
        let memory = self.scales.get(MEMORY).copied().flatten().zip(features[MEMORY]);
        point[DIRECTIONS + 1] =
            memory.map_or(0.0, |((mean, deviation), value)| ((value - mean) / deviation).clamp(-3.0, 3.0));
        let usual = profile.family.as_ref().and_then(|family| self.throughputs.get(family));
        point[SIZE] = usual
            .zip(throughput(profile))
            .map_or(0.0, |(usual, own)| (own - usual).clamp(-SIZE_MAX, SIZE_MAX));
        point
    }
}

/// The logarithm of a workload's throughput.
fn throughput(profile: &WorkloadProfile) -> Option<f64> {
    profile.throughput_per_second.filter(|rate| *rate > 0.0).map(f64::ln)
}

fn family_throughputs(workloads: &[(&WorkloadProfile, Appetite)]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for (profile, _) in workloads {
        if let Some((family, rate)) = profile.family.as_ref().zip(throughput(profile)) {
            let sum = sums.entry(family.clone()).or_default();
            *sum = (sum.0 + rate, sum.1 + 1);
        }
    }
    sums.into_iter().map(|(family, (sum, members))| (family, sum / count(members))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a count of workloads")]
fn count(count: usize) -> f64 {
    count as f64
}

/// The main directions of the columns, scaled so that points have a spread of about one.
fn directions(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = rows.first().map_or(0, Vec::len);
    if width == 0 {
        return Vec::new();
    }
    let mut products = Matrix::zeros(width);
    for b in 0..width {
        for a in b..width {
            products[(a, b)] = rows.iter().map(|row| row[a] * row[b]).sum();
        }
    }
    let Some(Directions { stretches, directions }) = products.directions_of_lower() else {
        return Vec::new();
    };
    // In growing order.
    let kept: Vec<usize> = (0..width).rev().take(DIRECTIONS).filter(|at| stretches[*at] > 1e-9).collect();
    let spread = |at: &usize| (stretches[*at] / count(rows.len())).sqrt();
    let typical = kept.iter().map(spread).sum::<f64>() / count(kept.len().max(1));
    let direction = |at: &usize| {
        let column = &directions[*at];
        // An eigenvector's sign is chance: make its largest part positive.
        let largest = column.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        column.iter().map(|part| part * largest.signum() / typical).collect()
    };
    kept.iter().map(direction).collect()
}
