//! What was asked beside what was reached, as Markdown.

use crate::options::Options;
use crate::watcher::Seen;
use std::fmt::Write as _;

/// All that was measured.
pub(crate) struct Result {
    pub(crate) first_scan_seconds: f64,
    pub(crate) second_scan_seconds: f64,
    pub(crate) fill: Seen,
    pub(crate) churn: Seen,
    pub(crate) devices_taken: usize,
    pub(crate) devices_taken_at_last: usize,
    pub(crate) waiting: usize,
    /// What the doubles need.
    pub(crate) doubles_mib: f64,
    pub(crate) peak_mib: f64,
    pub(crate) now_mib: f64,
}

/// The sample that so many of all are below; NaN for none.
fn quantile(samples: &[f64], fraction: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "thousands of samples")]
    let place = fraction * sorted.len().saturating_sub(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the samples")]
    let place = place.round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

fn per_second(count: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = count as f64;
    count / seconds.max(1e-9)
}

impl Result {
    pub(crate) fn render(&self, options: &Options) -> String {
        let Self { fill, churn, .. } = self;
        let mut text = format!(
            "{} jobs wait for {} devices of {} nodes; {} of the devices were taken after {:.0} s. Then {} s with {} ends and \
             new jobs a second (there were {:.1} and {:.1} starts), after which {} jobs waited and {} devices \
             were taken.\n\n\
             | | asked | reached |\n|---|---:|---:|\n",
            options.jobs,
            u32::from(options.nodes) * u32::from(options.devices),
            options.nodes,
            self.devices_taken,
            fill.seconds,
            options.seconds,
            options.churn,
            per_second(churn.slurm.ends, churn.seconds),
            per_second(churn.slurm.starts, churn.seconds),
            self.waiting,
            self.devices_taken_at_last,
        );
        let mut row = |what: &str, asked: &str, reached: String| {
            let _ = writeln!(text, "| {what} | {asked} | {reached} |");
        };
        row("first scan, all jobs new", "5 s", format!("{:.2} s", self.first_scan_seconds));
        row("first scan of the next scheduler", "5 s", format!("{:.2} s", self.second_scan_seconds));
        row(
            "releases while the devices fill",
            "50 a second",
            format!("{:.0} a second", per_second(fill.releases, fill.seconds)),
        );
        for (when, seen) in [("while they fill", fill), ("with churn", churn)] {
            let (p50, max) = (quantile(&seen.scans, 0.5), quantile(&seen.scans, 1.0));
            row(&format!("a scan, {when}: p50, longest"), "2 s", format!("{p50:.2} s, {max:.2} s"));
            let (p50, max) = (quantile(&seen.plan_gaps, 0.5), quantile(&seen.plan_gaps, 1.0));
            row(
                &format!("from plan to plan, {when}: p50, longest"),
                "5 s",
                format!("{p50:.2} s, {max:.2} s"),
            );
            let (p50, max) =
                (quantile(&seen.update_waits, 0.5) * 1e3, quantile(&seen.update_waits, 1.0) * 1e3);
            row(
                &format!("a release at slurmctld, {when}: p50, longest"),
                "not held up",
                format!("{p50:.1} ms, {max:.1} ms"),
            );
            let renewals = per_second(seen.slurm.renewals, seen.seconds);
            row(&format!("renewals, {when}"), "spread", format!("{renewals:.0} a second"));
            row(&format!("jobs that Slurm started by itself, {when}"), "0", seen.slurm.alone.to_string());
            let calls = per_second(seen.squeue_calls, seen.seconds) * 60.0;
            row(&format!("calls of squeue, {when}"), "60 a minute", format!("{calls:.0} a minute"));
            row(
                &format!("undone, refused, {when}"),
                "",
                format!("{}, {}", seen.slurm.undos, seen.slurm.refused),
            );
            row(&format!("processor time, {when}"), "", format!("{:.2} cores", seen.cpu_cores));
        }
        let own = self.peak_mib - self.doubles_mib;
        row(
            "resident memory: most, and at the end",
            "400 MiB",
            format!(
                "{own:.0} MiB, {:.0} MiB (and {:.0} MiB of the doubles)",
                self.now_mib - self.doubles_mib,
                self.doubles_mib
            ),
        );
        text
    }
}
