//! What a workload takes at each count, measured or estimated, and what that is worth.

use crate::curve::{Curve, Point};
use crate::estimate::Estimate;
use crate::fit::{Fit, Refusal};
use crate::history::{Measure, Run};
use crate::shape::NodeShape;
use serde::Serialize;

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Runs of that count.
    Measured,
    /// The laws, between counts that were measured.
    Inside,
    /// The laws, up to twice the largest count that was measured.
    OneDoublingOut,
    /// The laws, up to four times the largest count that was measured.
    TwoDoublingsOut,
}

impl Source {
    const fn of_estimate(gpus: u32, gpus_max: u32) -> Self {
        if gpus <= gpus_max {
            Self::Inside
        } else if gpus <= gpus_max.saturating_mul(2) {
            Self::OneDoublingOut
        } else {
            Self::TwoDoublingsOut
        }
    }

    /// For a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Inside => "estimated",
            Self::OneDoublingOut => "estimated, one doubling out",
            Self::TwoDoublingsOut => "estimated, two doublings out",
        }
    }
}

/// One count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Nodes, where that is known.
    pub nodes: Option<u32>,
    /// Runs that were measured.
    pub runs: usize,
    /// How long it takes.
    pub time_seconds: Estimate,
    /// The time at the smallest measured count over this one's.
    pub speedup_ratio: Estimate,
    /// The speed of each GPU over that at the smallest measured count.
    pub efficiency_ratio: Estimate,
    /// The same without its doubt, by the law that counts are chosen by: what break-even is judged by.
    pub efficiency_for_counts_ratio: f64,
    /// What it takes longer than if every GPU were worth as much as at the smallest measured count.
    pub overhead_seconds: f64,
    /// What it costs in GPU-hours.
    pub gpu_hours: Estimate,
    /// What its GPUs draw from the meter; of a count that was not metered by the mean power of a GPU at the nearest one that was.
    pub energy_joules: Option<Estimate>,
    /// Where all of this comes from.
    pub source: Source,
}

/// A workload's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// By rising counts.
    pub rows: Vec<Row>,
    /// How much work a row is of: runs, or units of progress.
    pub work: f64,
    /// What its times are made of.
    pub measure: Measure,
    /// What its nodes are like.
    pub shape: NodeShape,
    /// Runs that are in no row, for they had other nodes or CPUs than most of their count.
    pub other_layouts: usize,
    /// Counts that were measured and whose times lie further apart than a factor of 1.5: they did not all do the same.
    pub apart: Vec<u32>,
    /// The largest measured count that keeps an efficiency, by that efficiency: see [`Curve::break_even`].
    curve: Curve,
}

/// Times of one count that lie further apart are hardly of the same work.
const APART_RATIO: f64 = 1.5;

impl Table {
    /// Measured counts, and estimates for those that people ask for and that fit the nodes, from the smallest measured one to
    /// [`crate::REACH`] times the largest. `work`: of how many runs or units of progress.
    ///
    /// # Errors
    /// [`Refusal`] where there are not two counts.
    pub fn of(measure: Measure, runs: &[Run], shape: NodeShape, work: f64) -> Result<Self, Refusal> {
        let curve = Curve::of_runs(measure, runs);
        let fit = Fit::of(&curve)?;
        let (first, last) = (&curve.points[0], &curve.points[curve.points.len() - 1]);
        let mut rows: Vec<Row> = curve.points.iter().map(|point| measured(&curve, point, shape)).collect();
        for gpus in shape.usual(first.gpus, fit.reach()) {
            if curve.at(gpus).is_some() {
                continue;
            }
            if let (Some(time), Some(for_counts)) = (fit.time(gpus), fit.time_for_counts(gpus)) {
                rows.push(estimated(&curve, gpus, time, for_counts, (shape, last.gpus)));
            }
        }
        rows.sort_by_key(|row| row.gpus);
        for row in &mut rows {
            row.make_of(work);
        }
        let apart =
            curve.points.iter().filter(|point| point.spread_ratio > APART_RATIO).map(|point| point.gpus);
        Ok(Self {
            rows,
            work,
            measure,
            shape,
            other_layouts: curve.other_layouts,
            apart: apart.collect(),
            curve,
        })
    }

    /// The largest measured count that keeps an efficiency.
    pub fn measured_break_even(&self, efficiency: f64) -> Option<u32> {
        self.curve.break_even(efficiency)
    }

    /// The row of a count.
    pub fn row(&self, gpus: u32) -> Option<&Row> {
        self.rows.iter().find(|row| row.gpus == gpus)
    }
}

impl Row {
    fn make_of(&mut self, work: f64) {
        self.time_seconds = self.time_seconds.times(work);
        self.overhead_seconds *= work;
        self.gpu_hours = self.gpu_hours.times(work);
        self.energy_joules = self.energy_joules.map(|energy| energy.times(work));
    }
}

/// Whether it is measured, with how many runs on how many nodes; and its efficiency for counts.
struct Of {
    nodes: Option<u32>,
    runs: usize,
    efficiency_for_counts_ratio: f64,
    source: Source,
}

fn measured(curve: &Curve, point: &Point, shape: NodeShape) -> Row {
    let of = Of {
        nodes: point.nodes.or_else(|| shape.nodes(point.gpus)),
        runs: point.runs,
        efficiency_for_counts_ratio: curve.efficiency(point),
        source: Source::Measured,
    };
    row(curve, point.gpus, curve.measured(point), &of)
}

fn estimated(curve: &Curve, gpus: u32, time: Estimate, for_counts: f64, known: (NodeShape, u32)) -> Row {
    let (shape, gpus_max) = known;
    let first = &curve.points[0];
    let of = Of {
        nodes: shape.nodes(gpus),
        runs: 0,
        efficiency_for_counts_ratio: first.seconds() / for_counts * f64::from(first.gpus) / f64::from(gpus),
        source: Source::of_estimate(gpus, gpus_max),
    };
    row(curve, gpus, time, &of)
}

fn row(curve: &Curve, gpus: u32, time: Estimate, of: &Of) -> Row {
    let first = &curve.points[0];
    let part = f64::from(first.gpus) / f64::from(gpus);
    // The smallest is as fast as itself, whatever is not known of it.
    let speedup = if gpus == first.gpus { Estimate::exact(1.0) } else { time.under(curve.measured(first)) };
    Row {
        gpus,
        nodes: of.nodes,
        runs: of.runs,
        time_seconds: time,
        speedup_ratio: speedup,
        efficiency_ratio: speedup.times(part),
        efficiency_for_counts_ratio: of.efficiency_for_counts_ratio,
        overhead_seconds: time.expected - first.seconds() * part,
        gpu_hours: time.times(f64::from(gpus) / 3600.0),
        energy_joules: watts_a_gpu(curve, gpus).map(|watts| time.times(watts * f64::from(gpus))),
        source: of.source,
    }
}

/// Mean power of one GPU at the metered count that is nearest, in doublings.
fn watts_a_gpu(curve: &Curve, gpus: u32) -> Option<f64> {
    let metered = curve.points.iter().filter_map(|point| Some((point.gpus, point.power_watts?)));
    let distance = |other: u32| (f64::from(other) / f64::from(gpus)).ln().abs();
    let nearest = metered.min_by(|one, other| distance(one.0).total_cmp(&distance(other.0)));
    nearest.map(|(count, watts)| watts / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gpus: u32, seconds: f64) -> Run {
        Run { nodes: None, gpus, cpus: None, seconds, power_watts: Some(300.0 * f64::from(gpus)) }
    }

    fn table(work: f64) -> Table {
        let runs = [run(1, 7200.0), run(2, 4500.0), run(4, 3790.0)];
        Table::of(Measure::Elapsed, &runs, NodeShape::of(4), work).unwrap()
    }

    #[test]
    fn what_is_measured_stands_as_it_was_and_what_is_not_says_how_far_out_it_is() {
        let table = table(1.0);
        let sources: Vec<_> = table.rows.iter().map(|row| (row.gpus, row.nodes, row.source)).collect();
        let expected = [
            (1, Some(1), Source::Measured),
            (2, Some(1), Source::Measured),
            (4, Some(1), Source::Measured),
            (8, Some(2), Source::OneDoublingOut),
            (16, Some(4), Source::TwoDoublingsOut),
        ];
        assert_eq!(sources, expected);
        let two = table.row(2).unwrap();
        assert!((two.time_seconds.expected - 4500.0).abs() < 1e-6);
        assert!((two.speedup_ratio.expected - 1.6).abs() < 1e-9);
        assert!((two.efficiency_ratio.expected - 0.8).abs() < 1e-9);
        assert!((two.overhead_seconds - 900.0).abs() < 1e-6, "T2 - T1 / 2");
        assert!((two.gpu_hours.expected - 2.5).abs() < 1e-9);
        assert!((two.energy_joules.unwrap().expected - 2.7e6).abs() < 1.0);
        assert_eq!(table.measured_break_even(0.5), Some(2));
    }

    #[test]
    fn more_work_takes_longer_and_changes_no_ratio() {
        let (one, ten) = (table(1.0), table(10.0));
        for (once, tenfold) in one.rows.iter().zip(&ten.rows) {
            assert!((tenfold.time_seconds.expected / once.time_seconds.expected - 10.0).abs() < 1e-9);
            assert!((tenfold.overhead_seconds - 10.0 * once.overhead_seconds).abs() < 1e-6);
            assert_eq!(tenfold.efficiency_ratio, once.efficiency_ratio);
        }
    }

    #[test]
    fn counts_that_fit_no_node_are_left_out() {
        let runs = [run(1, 100.0), run(3, 40.0)];
        let table = Table::of(Measure::Elapsed, &runs, NodeShape::of(3), 1.0).unwrap();
        assert_eq!(table.rows.iter().map(|row| row.gpus).collect::<Vec<_>>(), [1, 2, 3, 6, 12]);
    }

    #[test]
    fn times_that_lie_far_apart_are_named() {
        let runs = [run(1, 100.0), run(1, 190.0), run(2, 60.0)];
        assert_eq!(Table::of(Measure::Elapsed, &runs, NodeShape::of(2), 1.0).unwrap().apart, [1]);
    }
}
