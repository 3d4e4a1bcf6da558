//! The published rival: Extra Trees on both solo profiles and both caps (Han et al., "Energy-efficient GPU SM allocation",
//! 2025, predict from such profiles). Missing values are filled with the mean of their column.

use super::Backtest;
use super::draw::Split;
use super::guess::{Guess, Guesses, candidates};
use crate::history::Observation;
use pillion_core::Fraction;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use smartcore::ensemble::extra_trees_regressor::{ExtraTreesRegressor, ExtraTreesRegressorParameters};
use smartcore::linalg::basic::matrix::DenseMatrix;
use std::collections::BTreeMap;

const TREES: usize = 100;

type Forest = ExtraTreesRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// What trees that were trained on `known` say. Nothing where nothing usable is known.
pub(super) fn guesses(backtest: &Backtest<'_>, split: &Split, known: &[Observation], seed: u64) -> Guesses {
    let features = Features::new(backtest);
    let (rows, speeds): (Vec<Vec<f64>>, Vec<f64>) =
        known.iter().filter(|observation| observation.fits).flat_map(|seen| features.lessons(seen)).unzip();
    if rows.len() < 2 {
        return Guesses::new();
    }
    // Every split may look at every column, as in the reference implementation of regression trees (scikit-learn).
    let columns = rows[0].len();
    let parameters =
        ExtraTreesRegressorParameters::default().with_n_trees(TREES).with_m(columns).with_seed(seed);
    let forest = DenseMatrix::from_2d_vec(&rows).and_then(|rows| Forest::fit(&rows, &speeds, parameters));
    let Ok(forest) = forest else { return Guesses::new() };
    let places: Vec<usize> = candidates(backtest, split).collect();
    let rows: Vec<Vec<f64>> = places
        .iter()
        .flat_map(|at| {
            let combination = &backtest.truth().combinations[*at];
            let [a, b] = [0, 1].map(|end| {
                let workload = &backtest.truth().workloads[combination.workloads[end]];
                features.tenant(workload.as_str(), combination.caps[end])
            });
            [joined(&a, &b), joined(&b, &a)]
        })
        .collect();
    if rows.is_empty() {
        return Guesses::new();
    }
    let Ok(said) = DenseMatrix::from_2d_vec(&rows).and_then(|rows| forest.predict(&rows)) else {
        return Guesses::new();
    };
    let pairs = said.chunks_exact(2).map(|pair| [unbounded(pair[0]), unbounded(pair[1])]);
    places.into_iter().zip(pairs).collect()
}

/// A speed without a bound.
fn unbounded(said: f64) -> Guess {
    let within = said.clamp(0.0, 1.0);
    Guess { speed: within, low: within, high: within, deviation: 0.0 }
}

fn joined(victim: &[f64], aggressor: &[f64]) -> Vec<f64> {
    [victim, aggressor].concat()
}

/// Each workload's numbers, with the gaps filled.
struct Features {
    of_workload: BTreeMap<String, Vec<f64>>,
    of_unknown: Vec<f64>,
}

impl Features {
    fn new(backtest: &Backtest<'_>) -> Self {
        let profiles =
            backtest.profiles.iter().filter(|profile| profile.device_model == backtest.device_model());
        let raw: BTreeMap<String, Vec<Option<f64>>> =
            profiles.map(|profile| (profile.workload.as_str().to_owned(), numbers(profile))).collect();
        let width = raw.values().next().map_or(0, Vec::len);
        let means = (0..width).map(|column| {
            let known: Vec<f64> = raw.values().filter_map(|numbers| numbers[column]).collect();
            if known.is_empty() {
                0.0
            } else {
                known.iter().sum::<f64>() / super::score::as_float(known.len())
            }
        });
        let means: Vec<f64> = means.collect();
        let mut of_workload = BTreeMap::new();
        for (workload, numbers) in raw {
            let filled = numbers.into_iter().zip(&means).map(|(number, mean)| number.unwrap_or(*mean));
            of_workload.insert(workload, filled.collect());
        }
        Self { of_workload, of_unknown: means }
    }

    fn tenant(&self, workload: &str, cap: Option<Fraction>) -> Vec<f64> {
        let mut numbers = self.of_workload.get(workload).unwrap_or(&self.of_unknown).clone();
        numbers.push(cap.map_or(1.0, Fraction::value));
        numbers
    }

    /// An observed pair teaches two lessons: each tenant's speed beside the other.
    fn lessons(&self, observation: &Observation) -> Vec<(Vec<f64>, f64)> {
        let [a, b] = observation.tenants.as_slice() else { return Vec::new() };
        let [of_a, of_b] = [a, b].map(|tenant| self.tenant(tenant.workload.as_str(), tenant.sharing.cap()));
        let lessons = [(joined(&of_a, &of_b), a.speed_fraction), (joined(&of_b, &of_a), b.speed_fraction)];
        lessons.into_iter().filter_map(|(numbers, speed)| Some((numbers, speed?.min(1.0)))).collect()
    }
}

/// A profile's numbers: activity, memory, transfers, power, throughput, and how sensitive throughput is to the cap.
#[expect(clippy::cast_precision_loss, reason = "device memory is far below 2^53 bytes")]
fn numbers(profile: &WorkloadProfile) -> Vec<Option<f64>> {
    let mut numbers = vec![
        profile.metrics.get(Metric::SmActiveFraction),
        profile.metrics.get(Metric::SmOccupancyFraction),
        profile.metrics.get(Metric::Fp32ActiveFraction),
        profile.metrics.get(Metric::StallFraction),
        profile.metrics.get(Metric::GpuBusyFraction),
        profile.metrics.get(Metric::MemoryBusyFraction),
        profile.metrics.get(Metric::MemoryBandwidthFraction),
        profile.metrics.get(Metric::CacheBandwidthFraction),
        profile.metrics.get(Metric::PcieTxBytesPerSecond),
        profile.metrics.get(Metric::PcieRxBytesPerSecond),
        profile.memory_bytes_peak.map(|bytes| bytes as f64),
        profile.metrics.get(Metric::PowerWatts),
        profile.duration_seconds,
        profile.throughput_per_second,
    ];
    let full = profile.rate_per_second();
    numbers.extend(profile.throughput_per_second_at_cap.map(|at_cap| Some(at_cap? / full?)));
    numbers
}
