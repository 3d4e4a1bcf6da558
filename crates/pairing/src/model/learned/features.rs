//! Solo profiles as points in a few dimensions: what is known of each workload, standardised, with its main directions.
//! What is missing counts as average, and that it is missing counts as a feature.

use super::prior::Appetite;
use pillion_core::metric::Metric;
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

/// What is taken of a profile, in the order of the columns. A model names those that it was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Feature {
    GpuBusy,
    MemoryBusy,
    MemoryBandwidth,
    CacheBandwidth,
    SmActive,
    SmOccupancy,
    Fp32Active,
    Stall,
    /// To the cap.
    Sensitivity,
    SpeedAtATenth,
    Memory,
    Power,
    PcieTx,
    PcieRx,
    TensorActive,
    NvlinkTx,
    NvlinkRx,
}

/// So many features had the models that name none: the first that were written.
const UNNAMED: usize = 14;
const FEATURES: usize = Feature::ALL.len();
const MEMORY: usize = Feature::Memory as usize;

impl Feature {
    const ALL: [Self; 17] = [
        Self::GpuBusy,
        Self::MemoryBusy,
        Self::MemoryBandwidth,
        Self::CacheBandwidth,
        Self::SmActive,
        Self::SmOccupancy,
        Self::Fp32Active,
        Self::Stall,
        Self::Sensitivity,
        Self::SpeedAtATenth,
        Self::Memory,
        Self::Power,
        Self::PcieTx,
        Self::PcieRx,
        Self::TensorActive,
        Self::NvlinkTx,
        Self::NvlinkRx,
    ];

    /// Those of models that name none.
    fn unnamed() -> Vec<Self> {
        Self::ALL[..UNNAMED].to_vec()
    }

    fn of(self, profile: &WorkloadProfile, appetite: &Appetite) -> Option<f64> {
        match self {
            Self::GpuBusy => profile.metrics.get(Metric::GpuBusyFraction),
            Self::MemoryBusy => profile.metrics.get(Metric::MemoryBusyFraction),
            Self::MemoryBandwidth => profile.metrics.get(Metric::MemoryBandwidthFraction),
            Self::CacheBandwidth => profile.metrics.get(Metric::CacheBandwidthFraction),
            Self::SmActive => profile.metrics.get(Metric::SmActiveFraction),
            Self::SmOccupancy => profile.metrics.get(Metric::SmOccupancyFraction),
            Self::Fp32Active => profile.metrics.get(Metric::Fp32ActiveFraction),
            Self::Stall => profile.metrics.get(Metric::StallFraction),
            Self::Sensitivity => appetite.sensitivity(),
            Self::SpeedAtATenth => appetite.speed_at_a_tenth(),
            Self::Memory => size(profile.memory_bytes_peak.map(bytes)),
            Self::Power => size(profile.metrics.get(Metric::PowerWatts)),
            Self::PcieTx => rate(profile.metrics.get(Metric::PcieTxBytesPerSecond)),
            Self::PcieRx => rate(profile.metrics.get(Metric::PcieRxBytesPerSecond)),
            Self::TensorActive => profile.metrics.get(Metric::TensorActiveFraction),
            Self::NvlinkTx => rate(profile.metrics.get(Metric::NvlinkTxBytesPerSecond)),
            Self::NvlinkRx => rate(profile.metrics.get(Metric::NvlinkRxBytesPerSecond)),
        }
    }
}

fn size(amount: Option<f64>) -> Option<f64> {
    amount.filter(|amount| *amount > 0.0).map(f64::ln)
}

fn rate(rate: Option<f64>) -> Option<f64> {
    rate.map(|rate| (1.0 + rate / 1e6).ln())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

/// A model that was trained on other features than this release has: its columns mean something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was trained on other features than this release has")]
pub(super) struct OtherFeatures;

/// A [`FeatureSpace`] as it is stored.
#[derive(Deserialize)]
struct StoredSpace {
    #[serde(default = "Feature::unnamed")]
    features: Vec<Feature>,
    scales: Vec<Option<(f64, f64)>>,
    loadings: Vec<Vec<f64>>,
    #[serde(default)]
    throughputs: BTreeMap<String, f64>,
}

impl TryFrom<StoredSpace> for FeatureSpace {
    type Error = OtherFeatures;
    fn try_from(stored: StoredSpace) -> Result<Self, OtherFeatures> {
        let StoredSpace { features, scales, loadings, throughputs } = stored;
        if features != Feature::ALL || scales.len() != FEATURES {
            return Err(OtherFeatures);
        }
        Ok(Self { features, scales, loadings, throughputs })
    }
}

/// How profiles become points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredSpace")]
pub(super) struct FeatureSpace {
    features: Vec<Feature>,
    /// By feature: its mean and standard deviation; absent = not used.
    scales: Vec<Option<(f64, f64)>>,
    /// By direction: the weight of each column (each used feature, and whether it is missing).
    loadings: Vec<Vec<f64>>,
    /// By family, the mean logarithm of throughput: a throughput alone is no profile, but within a family it orders the
    /// batches.
    throughputs: BTreeMap<String, f64>,
}

fn features(profile: &WorkloadProfile, appetite: &Appetite) -> [Option<f64>; FEATURES] {
    Feature::ALL.map(|feature| feature.of(profile, appetite))
}

impl FeatureSpace {
    /// The space that these workloads span.
    pub(super) fn of(workloads: &[(&WorkloadProfile, Appetite)]) -> Self {
        let rows: Vec<[Option<f64>; FEATURES]> =
            workloads.iter().map(|(profile, appetite)| features(profile, appetite)).collect();
        let mut space = Self {
            features: Feature::ALL.to_vec(),
            scales: (0..FEATURES).map(|feature| scale(&rows, feature)).collect(),
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
        let memory = self.scales[MEMORY].zip(features[MEMORY]);
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
/// Mean and standard deviation of a feature; `None` where few have it or all have the same.
fn scale(rows: &[[Option<f64>; FEATURES]], feature: usize) -> Option<(f64, f64)> {
    let known: Vec<f64> = rows.iter().filter_map(|row| row[feature]).collect();
    let count = count(known.len());
    let mean = known.iter().sum::<f64>() / count;
    let deviation = (known.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    (known.len() >= KNOWN_MIN && deviation > 1e-6).then_some((mean, deviation))
}

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
    let spreads = kept.iter().map(|at| (stretches[*at] / count(rows.len())).sqrt());
    let typical = spreads.sum::<f64>() / count(kept.len().max(1));
    let scaled = kept.iter().map(|at| {
        let column = &directions[*at];
        // An eigenvector's sign is chance: make its largest part positive.
        let largest = column.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        column.iter().map(|part| part * largest.signum() / typical).collect()
    });
    scaled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    /// What is read of a space that was written, with something changed in between.
    fn changed(change: fn(&mut Map<String, Value>)) -> Result<FeatureSpace, serde_json::Error> {
        let mut written = serde_json::to_value(FeatureSpace::of(&[])).unwrap();
        change(written.as_object_mut().unwrap());
        serde_json::from_value(written)
    }

    #[test]
    fn a_space_of_other_features_is_refused_and_one_that_names_none_is_of_the_first() {
        assert_eq!(changed(|_| ()).unwrap(), FeatureSpace::of(&[]));
        let of_the_first = changed(|space| drop(space.remove("features")));
        assert!(of_the_first.unwrap_err().to_string().contains("other features"), "there were fewer");
        let swapped = changed(|space| space["features"].as_array_mut().unwrap().swap(0, 1));
        assert!(swapped.unwrap_err().to_string().contains("other features"));
        let longer = changed(|space| space["scales"].as_array_mut().unwrap().push(Value::Null));
        assert!(longer.is_err());
        let of_tomorrow = changed(|space| space["features"][0] = "warp_drive".into());
        assert!(of_tomorrow.is_err());
    }

    /// Workloads that differ in what their tensor pipes do, or in nothing that is known.
    #[test]
    fn tensor_pipes_and_nvlink_tell_workloads_apart_and_change_nothing_where_nobody_measured_them() {
        let profile = |number: u32, metrics: &[(Metric, f64)]| {
            let busy = (Metric::GpuBusyFraction, 0.2 + 0.1 * f64::from(number));
            WorkloadProfile {
                metrics: metrics.iter().copied().chain([busy]).collect(),
                ..WorkloadProfile::empty(pillion_core::WorkloadKey::new(format!("w{number}")), "h100")
            }
        };
        let plain: Vec<WorkloadProfile> = (0..5).map(|number| profile(number, &[])).collect();
        let space = |profiles: &[WorkloadProfile]| {
            let known: Vec<_> =
                profiles.iter().map(|profile| (profile, Appetite::of(profile, false))).collect();
            FeatureSpace::of(&known)
        };
        let without = space(&plain);
        assert_eq!(without.scales[UNNAMED..], [None; FEATURES - UNNAMED], "absent stays absent");
        for (metric, most) in [(Metric::TensorActiveFraction, 0.8), (Metric::NvlinkTxBytesPerSecond, 1e9)] {
            let of = |number: u32| f64::from(number % 2) * most;
            let told: Vec<_> = (0..5).map(|number| profile(number, &[(metric, of(number))])).collect();
            let space = space(&told);
            assert_eq!(space.scales.iter().skip(UNNAMED).flatten().count(), 1, "{metric:?}");
            let point = |profile: &WorkloadProfile| space.point(profile, &Appetite::of(profile, false));
            let (same, other) = (profile(1, &[(metric, of(0))]), profile(1, &[(metric, of(1))]));
            let (a, b) = (point(&same), point(&other));
            assert!(a.iter().zip(b).any(|(a, b)| (a - b).abs() > 0.1), "{metric:?}: {a:?} {b:?}");
        }
    }

    #[test]
    fn features_stand_in_the_order_of_their_columns() {
        assert!(Feature::ALL.iter().enumerate().all(|(place, feature)| *feature as usize == place));
    }
}
