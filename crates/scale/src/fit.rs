//! Laws held against what was measured, and what they say of counts that were not.
//!
//! ```text
//! ln T_i = a + shape(p, n_i) + m_i + r_i        a: anything          p: normal, by law (law.rs)
//!                                               m: normal, deviation d, what a law is wrong by at a count
//!                                               r: normal, what the runs of a count leave in doubt (curve.rs)
//! ```
//!
//! `p` and `d` are walked over on a grid, `a` is integrated out exactly, and each cell is weighted by how well it explains the points times
//! what was believed before. `d` is believed to be 5 %, give or take a factor of two: with few points it stays in doubt, which widens
//! intervals; where points lie well on a law it becomes small. A count that was not measured is wrong by an `m` of its own, so that
//! its interval never shrinks to nothing between two points. Of the two laws each counts by how well it explains the points, so that with two
//! of them they count nearly the same; the value is the mean of the mixture (of logarithms), and an interval holds nine tenths of it,
//! so that it is as wide as the laws disagree. The time of a count is one of many runs': what a single run differs by is not in it.
//!
//! Source: of the laws and their priors, law.rs; weights by evidence, `MacKay`, Neural Computation 1992. Halves of each law, for comparison, are
//! in docs/benchmarks.md.

use crate::curve::{Curve, Point, number};
use crate::estimate::Estimate;
use crate::law::Law;
use crate::mixture::{Mixture, Normal};

/// Nothing is estimated beyond so many times the largest measured count.
pub const REACH: u32 = 4;

/// Cells of a grid: of the law's parameter, over four deviations of its prior to both sides, and of the deviation of its misfit.
const PARAMETER_CELLS: usize = 121;
const PARAMETER_DEVIATIONS: f64 = 4.0;
const MISFIT_CELLS: usize = 9;
/// What a law is wrong by at a count: the middle, and the deviation of its logarithm (a factor of two).
const MISFIT: f64 = 0.05;
const MISFIT_LOG_DEVIATION: f64 = std::f64::consts::LN_2;
/// Over two deviations to both sides.
const MISFIT_DEVIATIONS: f64 = 2.0;
/// Cells that are so much less probable than the best are left out.
const NEGLIGIBLE: f64 = 1e-5;

/// Why nothing can be estimated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// All runs had one count.
    #[error(
        "all runs ({runs}) had {gpus} GPUs, and one count says nothing of others; run it with {} GPUs too, twice each, and ask again; \
         'pillion characterize --runs 2 --gpus {} SCRIPT' does it where one node has so many",
        other_counts(*gpus).join(" and "),
        other_counts(*gpus).join(",")
    )]
    OneCount {
        /// That count.
        gpus: u32,
        /// How many runs there are.
        runs: usize,
    },
    /// There are none.
    #[error("there are no runs")]
    NoRuns,
}

/// Half and twice, or twice and four times one.
fn other_counts(gpus: u32) -> [String; 2] {
    let counts = if gpus == 1 { [2, 4] } else { [gpus / 2, gpus.saturating_mul(2)] };
    counts.map(|count| count.to_string())
}

/// One cell of a grid.
#[derive(Debug, Clone, Copy)]
struct Cell {
    weight: f64,
    parameter: f64,
    misfit_variance: f64,
    /// Of `a`, given the cell.
    log_amplitude: f64,
    amplitude_variance: f64,
}

/// One law, fitted to a curve.
#[derive(Debug, Clone)]
struct Grid {
    /// The cells that matter, their weights summing up to 1.
    cells: Vec<Cell>,
    /// The logarithm of how well the law explains the points, over all that its prior allows.
    log_evidence: f64,
}

/// Both laws, fitted to a curve.
#[derive(Debug, Clone)]
pub struct Fit {
    grids: [Grid; Law::ALL.len()],
    gpus_max: u32,
}

impl Fit {
    /// Fits both laws.
    ///
    /// # Errors
    /// [`Refusal`] where there are not two counts.
    pub fn of(curve: &Curve) -> Result<Self, Refusal> {
        match curve.points.as_slice() {
            [] => Err(Refusal::NoRuns),
            [only] => Err(Refusal::OneCount { gpus: only.gpus, runs: only.runs + curve.other_layouts }),
            [.., last] => {
                Ok(Self { grids: Law::ALL.map(|law| grid(law, &curve.points)), gpus_max: last.gpus })
            }
        }
    }

    /// The largest count of which anything is said.
    pub const fn reach(&self) -> u32 {
        self.gpus_max.saturating_mul(REACH)
    }

    /// The time at a count, by both laws, in seconds; `None` beyond [`Fit::reach`].
    pub fn time(&self, gpus: u32) -> Option<Estimate> {
        if gpus > self.reach() {
            return None;
        }
        let [amdahl, power] = Law::ALL.map(|law| self.belief(law, gpus));
        let both = amdahl.mixed_with(power, self.amdahl_fraction());
        let expected = both.mean();
        let [low, high] = [0.05, 0.95].map(|probability| both.quantile(probability));
        Some(Estimate {
            low: low.min(expected).exp(),
            expected: expected.exp(),
            high: high.max(expected).exp(),
        })
    }

    /// The time at a count by Amdahl's law alone, which counts of GPUs are chosen by: it never flattered a break-even where that was
    /// looked at (docs/benchmarks.md); `None` beyond [`Fit::reach`].
    pub fn time_for_counts(&self, gpus: u32) -> Option<f64> {
        (gpus <= self.reach()).then(|| self.mean(Law::Amdahl, gpus).exp())
    }

    /// The time at a count by one law, in seconds.
    pub fn time_by(&self, law: Law, gpus: u32) -> f64 {
        self.mean(law, gpus).exp()
    }

    /// How probable Amdahl's law is, of the two.
    fn amdahl_fraction(&self) -> f64 {
        let [amdahl, power] = &self.grids;
        1.0 / (1.0 + (power.log_evidence - amdahl.log_evidence).exp())
    }

    fn mean(&self, law: Law, gpus: u32) -> f64 {
        let cells = self.grids[law as usize].cells.iter();
        cells.map(|cell| cell.weight * (cell.log_amplitude + law.shape(cell.parameter, gpus.into()))).sum()
    }

    /// What one law says of the logarithm of the time.
    fn belief(&self, law: Law, gpus: u32) -> Mixture {
        let cells = self.grids[law as usize].cells.iter();
        let parts = cells.map(|cell| Normal {
            weight: cell.weight,
            mean: cell.log_amplitude + law.shape(cell.parameter, gpus.into()),
            deviation: (cell.amplitude_variance + cell.misfit_variance).sqrt(),
        });
        Mixture(parts.collect())
    }
}

fn grid(law: Law, points: &[Point]) -> Grid {
    let (mean, deviation) = law.prior();
    let mut cells = Vec::with_capacity(PARAMETER_CELLS * MISFIT_CELLS);
    for parameter in steps(PARAMETER_CELLS, PARAMETER_DEVIATIONS) {
        for misfit in steps(MISFIT_CELLS, MISFIT_DEVIATIONS) {
            let before = -(parameter.powi(2) + misfit.powi(2)) / 2.0;
            let misfit = MISFIT * (misfit * MISFIT_LOG_DEVIATION).exp();
            cells.push(explain(law, points, mean + parameter * deviation, misfit.powi(2), before));
        }
    }
    let best = cells.iter().map(|cell| cell.weight).fold(f64::NEG_INFINITY, f64::max);
    for cell in &mut cells {
        cell.weight = (cell.weight - best).exp();
    }
    cells.retain(|cell| cell.weight > NEGLIGIBLE);
    let sum: f64 = cells.iter().map(|cell| cell.weight).sum();
    for cell in &mut cells {
        cell.weight /= sum;
    }
    Grid { cells, log_evidence: best + sum.ln() }
}

/// So many values from `-end` to `end`.
fn steps(count: usize, end: f64) -> impl Iterator<Item = f64> {
    (0..count).map(move |at| end * (2.0 * number(at) / number(count - 1) - 1.0))
}

/// A cell, its weight being the logarithm of how well it explains the points, times `log_before`.
fn explain(law: Law, points: &[Point], parameter: f64, misfit_variance: f64, log_before: f64) -> Cell {
    let (mut precision, mut weighted, mut squares, mut log_weight) = (0.0, 0.0, 0.0, log_before);
    for point in points {
        let variance = misfit_variance + point.log_deviation.powi(2);
        let rest = point.log_seconds - law.shape(parameter, point.gpus.into());
        precision += 1.0 / variance;
        weighted += rest / variance;
        squares += rest.powi(2) / variance;
        log_weight -= variance.ln() / 2.0;
    }
    let log_amplitude = weighted / precision;
    log_weight -= precision.ln() / 2.0 + (squares - weighted * log_amplitude) / 2.0;
    Cell {
        weight: log_weight,
        parameter,
        misfit_variance,
        log_amplitude,
        amplitude_variance: 1.0 / precision,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Measure, Run};
    use proptest::prelude::*;

    fn curve(points: &[(u32, f64)]) -> Curve {
        let runs = points.iter().map(|(gpus, seconds)| Run {
            nodes: None,
            gpus: *gpus,
            cpus: None,
            seconds: *seconds,
            power_watts: None,
        });
        Curve::of_runs(Measure::Elapsed, &runs.collect::<Vec<_>>())
    }

    fn amdahl(serial: f64, gpus: u32) -> f64 {
        100.0 * (serial + (1.0 - serial) / f64::from(gpus))
    }

    #[test]
    fn a_curve_that_keeps_a_law_is_continued_by_it() {
        let points = [1, 2, 4, 8].map(|gpus| (gpus, amdahl(0.05, gpus)));
        let fit = Fit::of(&curve(&points)).unwrap();
        let found = fit.time_by(Law::Amdahl, 16);
        assert!((found / amdahl(0.05, 16) - 1.0).abs() < 0.1, "{found}");
        let told = fit.time(16).unwrap();
        assert!(told.low < amdahl(0.05, 16) && amdahl(0.05, 16) < told.high, "{told:?}");
        assert!(fit.time(32).is_some() && fit.time(33).is_none(), "four times the largest, and no further");
    }

    #[test]
    fn one_count_is_refused_with_what_to_run() {
        let said = Fit::of(&curve(&[(4, 10.0), (4, 11.0)])).unwrap_err().to_string();
        assert!(said.contains("all runs (2) had 4 GPUs") && said.contains("2 and 8 GPUs"), "{said}");
        assert!(said.contains("'pillion characterize --runs 2 --gpus 2,8 SCRIPT'"), "{said}");
        let said = Fit::of(&curve(&[(1, 10.0)])).unwrap_err().to_string();
        assert!(said.contains("2 and 4 GPUs"), "{said}");
        assert_eq!(Fit::of(&curve(&[])).unwrap_err(), Refusal::NoRuns);
    }

    #[test]
    fn doubt_grows_with_the_distance() {
        let fit = Fit::of(&curve(&[(1, 100.0), (2, 54.0)])).unwrap();
        let width = |gpus| fit.time(gpus).map(|told| told.high / told.low).unwrap();
        assert!(width(8) > width(4) && width(4) > width(2), "{} {} {}", width(2), width(4), width(8));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whatever was measured: an interval holds its value, all is positive and finite, and the unit of time is no matter.
        #[test]
        fn every_estimate_is_sound(
            seconds in prop::collection::vec(1e-6_f64..1e7, 2..6),
            first in 1_u32..512,
            unit in 1e-3_f64..1e3,
        ) {
            let points: Vec<(u32, f64)> = (0_u32..).zip(&seconds).map(|(at, time)| (first << at, *time)).collect();
            let other: Vec<(u32, f64)> = points.iter().map(|(gpus, time)| (*gpus, time * unit)).collect();
            let (fit, scaled) = (Fit::of(&curve(&points)).unwrap(), Fit::of(&curve(&other)).unwrap());
            for gpus in [first, first + 1, fit.reach()] {
                let (told, again) = (fit.time(gpus).unwrap(), scaled.time(gpus).unwrap());
                prop_assert!(0.0 < told.low && told.low <= told.expected && told.expected <= told.high && told.high.is_finite());
                prop_assert!((again.expected / told.expected / unit - 1.0).abs() < 1e-6);
            }
        }
    }
}
