//! What came of a queue. Pure.

use std::fmt::Write as _;

/// What one job told at its end, in seconds of the simulated machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobEnd {
    /// From its submission to its end.
    pub turnaround_seconds: f64,
    /// How much longer it worked than it would have alone.
    pub slowdown_ratio: f64,
}

/// One way to run the queue. Times and energy are those of the simulated machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// From the first submission to the last end.
    pub makespan_hours: f64,
    /// Of the jobs that ended.
    pub turnaround_mean_hours: f64,
    /// Of the jobs that ended.
    pub turnaround_p95_hours: f64,
    /// In which a device had a process, each device once however many it had.
    pub gpu_hours: f64,
    /// Of all devices, from the first submission to the last end.
    pub energy_kilowatt_hours: f64,
    /// Of the jobs that ended.
    pub slowdown_p95_ratio: f64,
    /// Jobs that were slowed by more than was promised.
    pub broken: usize,
    /// Jobs that ended.
    pub ended: usize,
    /// Jobs that did not end by themselves.
    pub lost: usize,
}

impl Figures {
    /// Of the jobs that ended, those that were slowed by more than was promised; NaN where none ended.
    #[expect(clippy::cast_precision_loss, reason = "some hundred jobs")]
    pub fn broken_fraction(&self) -> f64 {
        self.broken as f64 / self.ended as f64
    }
}

/// Sums up one way; `None` stands for a job that did not end by itself.
pub fn figures(
    jobs: &[Option<JobEnd>],
    promise_ratio: f64,
    makespan_seconds: f64,
    gpu_seconds: f64,
    energy_joules: f64,
) -> Figures {
    let ended: Vec<JobEnd> = jobs.iter().flatten().copied().collect();
    let turnarounds: Vec<f64> = ended.iter().map(|job| job.turnaround_seconds / 3600.0).collect();
    let slowdowns: Vec<f64> = ended.iter().map(|job| job.slowdown_ratio).collect();
    #[expect(clippy::cast_precision_loss, reason = "some hundred jobs")]
    let count = ended.len() as f64;
    Figures {
        makespan_hours: makespan_seconds / 3600.0,
        turnaround_mean_hours: turnarounds.iter().sum::<f64>() / count,
        turnaround_p95_hours: quantile(&turnarounds, 0.95),
        gpu_hours: gpu_seconds / 3600.0,
        energy_kilowatt_hours: energy_joules / 3.6e6,
        slowdown_p95_ratio: quantile(&slowdowns, 0.95),
        broken: slowdowns.iter().filter(|ratio| **ratio > promise_ratio).count(),
        ended: ended.len(),
        lost: jobs.len() - ended.len(),
    }
}

/// The least value that no more than the rest of them exceed; NaN for none.
fn quantile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "some hundred values")]
    let place = (fraction * sorted.len() as f64).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= place <= their number")]
    let index = (place as usize).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// A Markdown table of the ways, each against the first.
pub fn table(ways: &[(&str, Figures)]) -> String {
    let mut text = String::from(
        "| | makespan h | turnaround mean h | p95 h | GPU-hours | of the first | kWh | slowdown p95 | broken | lost |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, figures) in ways {
        let of_first = figures.gpu_hours / ways[0].1.gpu_hours;
        let broken_percent = 100.0 * figures.broken_fraction();
        let _ = writeln!(
            text,
            "| {name} | {:.2} | {:.2} | {:.2} | {:.1} | {of_first:.2} | {:.1} | {:.2} | {} of {} ({broken_percent:.1} %) | {} |",
            figures.makespan_hours,
            figures.turnaround_mean_hours,
            figures.turnaround_p95_hours,
            figures.gpu_hours,
            figures.energy_kilowatt_hours,
            figures.slowdown_p95_ratio,
            figures.broken,
            figures.ended,
            figures.lost,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn end(turnaround_seconds: f64, slowdown_ratio: f64) -> JobEnd {
        JobEnd { turnaround_seconds, slowdown_ratio }
    }

    #[test]
    fn jobs_are_summed_up_and_one_that_was_lost_is_counted() {
        let jobs = [Some(end(3600.0, 1.0)), Some(end(7200.0, 1.5)), None];
        let found = figures(&jobs, 1.25, 7200.0, 5400.0, 7.2e6);
        let expected = Figures {
            makespan_hours: 2.0,
            turnaround_mean_hours: 1.5,
            turnaround_p95_hours: 2.0,
            gpu_hours: 1.5,
            energy_kilowatt_hours: 2.0,
            slowdown_p95_ratio: 1.5,
            broken: 1,
            ended: 2,
            lost: 1,
        };
        assert_eq!(found, expected);
        let text = table(&[("one", found.clone()), ("other", Figures { gpu_hours: 0.75, ..found })]);
        assert!(
            text.contains("| other | 2.00 | 1.50 | 2.00 | 0.8 | 0.50 | 2.0 | 1.50 | 1 of 2 (50.0 %) | 1 |"),
            "{text}"
        );
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        let of = |fraction| quantile(&values, fraction);
        assert_eq!(
            [of(0.0), of(0.5), of(0.75), of(0.76), of(1.0)].map(f64::to_bits),
            [1.0, 2.0, 3.0, 4.0, 4.0_f64].map(f64::to_bits)
        );
        assert!(quantile(&[], 0.5).is_nan());
    }
}
