//! Runs of a workload, joined by their number of GPUs: one time a count, with the doubt that its runs leave.

use crate::estimate::Estimate;
use crate::history::{Measure, Run, Workload};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What runs of the same work differ by, as a deviation of the logarithm, before any were seen: 5 %.
const RUN_DEVIATION: f64 = 0.05;
/// How many runs that guess is worth.
const RUN_DEVIATION_WORTH: f64 = 3.0;

/// On how many nodes, with how many CPUs.
type Layout = (Option<u32>, Reverse<Option<u32>>);

/// What was measured at one count.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Nodes, where that is known.
    pub nodes: Option<u32>,
    /// How many runs are in it.
    pub runs: usize,
    /// The median of the logarithms of their times, in seconds.
    pub log_seconds: f64,
    /// The deviation of that, from run to run alone.
    pub log_deviation: f64,
    /// The longest of its times over the shortest.
    pub spread_ratio: f64,
    /// Mean power of all of its GPUs together, where it was measured.
    pub power_watts: Option<f64>,
}

impl Point {
    /// Its time in seconds.
    pub fn seconds(&self) -> f64 {
        self.log_seconds.exp()
    }
}

/// A workload by its number of GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What its times are.
    pub measure: Measure,
    /// By rising counts, each once.
    pub points: Vec<Point>,
    /// Runs that are in no point: they had other nodes or CPUs than most runs of their count.
    pub other_layouts: usize,
    /// From how many degrees of freedom the deviation of runs is known.
    freedom: f64,
}

impl Curve {
    /// Joins the runs of a workload.
    ///
    /// Of one count only the runs on one number of nodes and of CPUs are taken, those of most runs; of several such the fewest nodes and then the
    /// most CPUs: four GPUs on one node and one GPU on each of four are two experiments. What runs of one count differ by is taken to be the same at all counts
    /// (in parts of the time), and begins with 5 % at the worth of three runs, so that two runs that are alike by chance are not taken for proof.
    pub fn of(workload: &Workload) -> Self {
        Self::of_runs(workload.measure, &workload.runs)
    }

    /// Likewise of runs alone.
    pub fn of_runs(measure: Measure, runs: &[Run]) -> Self {
        let mut counts: BTreeMap<u32, BTreeMap<Layout, Vec<&Run>>> = BTreeMap::new();
        for run in runs {
            counts.entry(run.gpus).or_default().entry((run.nodes, Reverse(run.cpus))).or_default().push(run);
        }
        let (mut points, mut other_layouts) = (Vec::new(), 0);
        let (mut squares, mut freedom) = (RUN_DEVIATION_WORTH * RUN_DEVIATION.powi(2), RUN_DEVIATION_WORTH);
        for (gpus, layouts) in counts {
            let all: usize = layouts.values().map(Vec::len).sum();
            let most = layouts.into_iter().rev().max_by_key(|(_, runs)| runs.len());
            let Some(((nodes, _), runs)) = most else { continue };
            other_layouts += all - runs.len();
            let mut logs: Vec<f64> = runs.iter().map(|run| run.seconds.ln()).collect();
            logs.sort_by(f64::total_cmp);
            let mean = logs.iter().sum::<f64>() / number(logs.len());
            squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            freedom += number(logs.len() - 1);
            points.push(Point {
                gpus,
                nodes,
                runs: logs.len(),
                log_seconds: median(&logs),
                log_deviation: 0.0,
                spread_ratio: (logs[logs.len() - 1] - logs[0]).exp(),
                power_watts: mean_power(&runs),
            });
        }
        let deviation = (squares / freedom).sqrt();
        for point in &mut points {
            point.log_deviation = deviation / number(point.runs).sqrt();
        }
        Self { measure, points, other_layouts, freedom }
    }

    /// The time of a point, with what its runs leave in doubt.
    pub fn measured(&self, point: &Point) -> Estimate {
        Estimate::around(point.seconds(), point.log_deviation, self.freedom)
    }

    /// What was measured at a count.
    pub fn at(&self, gpus: u32) -> Option<&Point> {
        self.points.iter().find(|point| point.gpus == gpus)
    }

    /// Speed at a point a GPU, over that at the smallest count.
    pub fn efficiency(&self, point: &Point) -> f64 {
        let first = &self.points[0];
        let ratio = f64::from(first.gpus) / f64::from(point.gpus);
        (first.log_seconds - point.log_seconds).exp() * ratio
    }

    /// The largest measured count whose efficiency against the smallest is at least this; absent only where there are no points.
    pub fn break_even(&self, efficiency: f64) -> Option<u32> {
        let mut points = self.points.iter().rev();
        // What is exactly at the bound keeps it, whatever the last digit of a logarithm says.
        points.find(|point| self.efficiency(point) >= efficiency - 1e-9).map(|point| point.gpus)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

fn mean_power(runs: &[&Run]) -> Option<f64> {
    let known: Vec<f64> = runs.iter().filter_map(|run| run.power_watts).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / number(known.len()))
}

pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gpus: u32, nodes: u32, seconds: f64) -> Run {
        Run { nodes: Some(nodes), gpus, cpus: None, seconds, power_watts: None }
    }

    #[test]
    fn runs_of_one_count_are_one_point_and_other_layouts_are_set_aside() {
        let runs = [
            run(4, 1, 26.0),
            run(1, 1, 100.0),
            run(4, 4, 90.0),
            run(4, 1, 25.0),
            run(4, 1, 30.0),
            run(2, 2, 60.0),
            run(2, 1, 50.0),
        ];
        let curve = Curve::of_runs(Measure::Elapsed, &runs);
        let found: Vec<_> = curve.points.iter().map(|it| (it.gpus, it.nodes, it.runs)).collect();
        assert_eq!(found, [(1, Some(1), 1), (2, Some(1), 1), (4, Some(1), 3)]);
        assert_eq!(curve.other_layouts, 2);
        let with = |cpus, seconds| Run { cpus: Some(cpus), ..run(1, 1, seconds) };
        let starved = Curve::of_runs(Measure::Elapsed, &[with(8, 150.0), with(32, 100.0), with(16, 102.0)]);
        assert_eq!((starved.points[0].seconds().round(), starved.other_layouts), (100.0, 2), "most CPUs");
        assert!((curve.points[2].seconds() - 26.0).abs() < 1e-9, "the median");
        assert!((curve.points[2].spread_ratio - 1.2).abs() < 1e-9);
        let (one, three) = (curve.measured(&curve.points[0]), curve.measured(&curve.points[2]));
        assert!(three.high / three.expected < one.high / one.expected, "more runs leave less in doubt");
    }

    #[test]
    fn break_even_is_the_largest_count_that_keeps_the_efficiency_and_not_the_first_that_breaks_it() {
        let runs = [run(1, 1, 100.0), run(2, 1, 80.0), run(4, 1, 50.0), run(8, 1, 40.0)];
        let curve = Curve::of_runs(Measure::Elapsed, &runs);
        assert_eq!(curve.break_even(0.5), Some(4), "exactly half at 4, though .625 at 2");
        assert_eq!(curve.break_even(0.7), Some(1));
        assert_eq!(curve.break_even(0.3), Some(8));
    }

    #[test]
    fn the_paper_with_three_points_is_made_again() {
        // Mileski et al.: 1.6 and 1.9 times as fast with 2 and 4.
        let runs = [run(1, 1, 1.0), run(2, 1, 1.0 / 1.6), run(4, 1, 1.0 / 1.9)];
        let curve = Curve::of_runs(Measure::Elapsed, &runs);
        let efficiencies: Vec<f64> = curve.points.iter().map(|point| curve.efficiency(point)).collect();
        for (found, expected) in efficiencies.iter().zip([1.0, 0.8, 0.475]) {
            assert!((found - expected).abs() < 1e-9, "{efficiencies:?}");
        }
        assert_eq!(curve.break_even(0.5), Some(2));
    }
}
