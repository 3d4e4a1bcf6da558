//! All workloads of a history at a glance: where each one's break-even lies, and what was spent beyond it. From measured counts alone:
//! what was spent was spent there.

use crate::curve::Curve;
use crate::history::{History, Measure, Workload};
use serde::Serialize;

/// One workload with at least two counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// What people know it by.
    pub workload: String,
    /// The model of its GPUs; empty where that is not known.
    pub gpu_model: String,
    /// What its times are.
    pub measure: Measure,
    /// How many runs it had.
    pub runs: usize,
    /// The counts that they had.
    pub gpus: Vec<u32>,
    /// The largest measured count that keeps the efficiency.
    pub break_even_gpus: u32,
    /// Whether that is the largest measured count of all: it may lie further out.
    pub is_at_least: bool,
    /// What its runs held; of progress it is not known.
    pub gpu_hours: Option<f64>,
    /// What those of them held that had more GPUs than break-even.
    pub gpu_hours_above: Option<f64>,
}

/// Workloads, and what they are together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sum {
    /// Those with two counts or more, by what was spent above break-even, most first.
    pub workloads: Vec<Summary>,
    /// How many had one count only, of which nothing can be said.
    pub one_count: usize,
    /// GPU-hours of those with two counts or more.
    pub gpu_hours: f64,
    /// Of these the hours in runs above their workload's break-even.
    pub gpu_hours_above: f64,
    /// GPU-hours of those with one count only.
    pub gpu_hours_one_count: f64,
}

impl Sum {
    /// The part of the GPU-hours of workloads with two counts or more that lies above break-even.
    pub fn above_fraction(&self) -> Option<f64> {
        (self.gpu_hours > 0.0).then(|| self.gpu_hours_above / self.gpu_hours)
    }
}

/// Looks at every workload of a history; at those on one model of GPU, in whatever case, where one is named.
pub fn summarise(history: &History, efficiency: f64, gpu_model: Option<&str>) -> Sum {
    let mut sum = Sum {
        workloads: Vec::new(),
        one_count: 0,
        gpu_hours: 0.0,
        gpu_hours_above: 0.0,
        gpu_hours_one_count: 0.0,
    };
    let is_asked =
        |workload: &&Workload| gpu_model.is_none_or(|model| workload.gpu_model.eq_ignore_ascii_case(model));
    for workload in history.workloads.iter().filter(is_asked) {
        if let Some(summary) = summary(workload, efficiency) {
            sum.gpu_hours += summary.gpu_hours.unwrap_or(0.0);
            sum.gpu_hours_above += summary.gpu_hours_above.unwrap_or(0.0);
            sum.workloads.push(summary);
        } else {
            sum.one_count += 1;
            sum.gpu_hours_one_count += workload.gpu_hours().unwrap_or(0.0);
        }
    }
    let spent =
        |summary: &Summary| (summary.gpu_hours_above.unwrap_or(0.0), summary.gpu_hours.unwrap_or(0.0));
    sum.workloads.sort_by(|one, other| {
        let ((above, all), (other_above, other_all)) = (spent(one), spent(other));
        other_above
            .total_cmp(&above)
            .then(other_all.total_cmp(&all))
            .then_with(|| one.workload.cmp(&other.workload))
    });
    sum
}

fn summary(workload: &Workload, efficiency: f64) -> Option<Summary> {
    let first = workload.runs.first()?.gpus;
    if workload.runs.iter().all(|run| run.gpus == first) {
        return None;
    }
    let curve = Curve::of(workload);
    let break_even_gpus = curve.break_even(efficiency)?;
    let above = workload.runs.iter().filter(|run| run.gpus > break_even_gpus);
    // A sum of nothing would be -0.
    let above = above.fold(0.0, |sum, run| sum + f64::from(run.gpus) * run.seconds) / 3600.0;
    let gpu_hours = workload.gpu_hours();
    Some(Summary {
        workload: workload.name.clone(),
        gpu_model: workload.gpu_model.clone(),
        measure: workload.measure,
        runs: workload.runs.len(),
        gpus: curve.points.iter().map(|point| point.gpus).collect(),
        break_even_gpus,
        is_at_least: curve.points.last().is_some_and(|last| last.gpus == break_even_gpus),
        gpu_hours,
        gpu_hours_above: gpu_hours.map(|_| above),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Run;

    #[test]
    fn what_was_spent_above_break_even_is_summed_over_workloads() {
        let mut history = History::default();
        let mut add = |name: &str, gpus: u32, hours: f64| {
            let run = Run { nodes: None, gpus, cpus: None, seconds: hours * 3600.0, power_watts: None };
            history.add(name, "a100", Measure::Elapsed, run);
        };
        for (gpus, hours) in [(1, 4.0), (2, 2.2), (4, 2.0)] {
            add("bad", gpus, hours);
        }
        for (gpus, hours) in [(1, 8.0), (8, 1.1)] {
            add("good", gpus, hours);
        }
        add("once", 2, 5.0);
        let sum = summarise(&history, 0.5, None);
        let found: Vec<_> = sum
            .workloads
            .iter()
            .map(|it| (it.workload.as_str(), it.break_even_gpus, it.is_at_least))
            .collect();
        // 4 / 2 / 4 is exactly half.
        assert_eq!(found, [("good", 8, true), ("bad", 4, true)]);
        let sum = summarise(&history, 0.6, Some("A100"));
        assert_eq!((sum.workloads[0].workload.as_str(), sum.workloads[0].break_even_gpus), ("bad", 2));
        assert!((sum.gpu_hours_above - 8.0).abs() < 1e-9, "four for two hours");
        assert!((sum.gpu_hours - (4.0 + 4.4 + 8.0 + 8.0 + 8.8)).abs() < 1e-9);
        assert_eq!((sum.one_count, sum.gpu_hours_one_count), (1, 10.0));
        assert_eq!(summarise(&history, 0.6, Some("h100")).workloads, []);
    }
}
