//! What a sharing is worth by the site's objective, while it lasts: until the first of the tenants ends. Times are in
//! typical runs, so that worths can be added and compared.

use crate::policy::Objective;
use crate::view::{ClusterView, Tenant};
use pillion_core::UnixTime;

/// What it costs when tenants turn out not to fit together: five minutes for both, in typical runs of an hour.
pub(crate) const MISFIT_COST: f64 = 2.0 * 300.0 / 3600.0;
/// A typical run where nothing is known.
const RUN_SECONDS_UNKNOWN: f64 = 3600.0;
/// Bounds of a run, in typical runs.
const RUNS_RANGE: (f64, f64) = (0.01, 100.0);

/// How long a run usually takes, in seconds; absent = nothing is known, and all runs are taken as equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TypicalRun(Option<f64>);

impl TypicalRun {
    /// A duration in typical runs; an unknown one is typical.
    pub(crate) fn of(self, seconds: Option<f64>) -> f64 {
        match (seconds, self.0) {
            (Some(seconds), Some(typical)) => (seconds / typical).clamp(RUNS_RANGE.0, RUNS_RANGE.1),
            _ => 1.0,
        }
    }
}

impl TypicalRun {
    /// So many typical runs, in seconds; `None` where no duration is known.
    pub(crate) fn seconds(self, runs: f64) -> Option<f64> {
        self.0.map(|typical| runs * typical)
    }
    /// What so many seconds are of a typical run; of an hour where none is known.
    pub(crate) fn share_of_run(self, seconds: f64) -> f64 {
        seconds / self.0.unwrap_or(RUN_SECONDS_UNKNOWN)
    }
}

/// The median of the durations that are known of those who wait.
pub(crate) fn typical_run(view: &ClusterView) -> TypicalRun {
    let mut known: Vec<f64> = view.waiting.iter().filter_map(|job| job.duration_seconds_expected).collect();
    if known.is_empty() {
        known = view.profiles.iter().filter_map(|profile| profile.duration_seconds).collect();
    }
    known.retain(|seconds| *seconds > 0.0);
    known.sort_by(f64::total_cmp);
    TypicalRun(known.get(known.len() / 2).copied())
}

/// How long a tenant will probably still run.
pub(crate) fn remaining_seconds(tenant: &Tenant, now: UnixTime) -> Option<f64> {
    tenant.expected_end_at.map(|end| end.seconds_since(now).max(1.0))
}

/// One tenant while it shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stay {
    /// How long it would still run alone, in typical runs.
    pub(crate) runs: f64,
    /// Speed beside the others over speed alone.
    pub(crate) speed: f64,
    /// How much faster or slower it may be because it wins or loses against the others; 0 where nothing is contested.
    pub(crate) contested: f64,
    /// Mean power of the device with it alone, where known.
    pub(crate) watts: Option<f64>,
}

/// Bounds of a speed beside others, as far as it matters here.
const SPEED_RANGE: (f64, f64) = (0.02, 1.0);

/// What is won on average over who wins: each in turn as much faster as it may be, the others slower. Two that are sure
/// to be equally fast are worth more than two of whom one will starve the other.
pub(crate) fn worth(stays: &[Stay], before: f64, together: Option<f64>, objective: Objective) -> f64 {
    if stays.len() < 2 || stays.iter().all(|stay| stay.contested <= 0.0) {
        return worth_at(stays, before, together, objective);
    }
    #[expect(clippy::cast_precision_loss, reason = "a few tenants")]
    let count = stays.len() as f64;
    let worths = (0..stays.len()).map(|winner| {
        let shifted = stays.iter().enumerate().map(|(at, stay)| {
            let shift = if at == winner { stay.contested } else { -stay.contested / (count - 1.0) };
            Stay { speed: (stay.speed + shift).clamp(SPEED_RANGE.0, SPEED_RANGE.1), ..*stay }
        });
        worth_at(&shifted.collect::<Vec<_>>(), before, together, objective)
    });
    worths.sum::<f64>() / count
}

/// What is won over a device for each, in typical runs. `before` is the sum of speeds without the newcomer, `together`
/// the device's power with all of them; without known power, throughput counts.
fn worth_at(stays: &[Stay], before: f64, together: Option<f64>, objective: Objective) -> f64 {
    let lasts = stays.iter().map(|stay| stay.runs / stay.speed.max(0.01)).fold(f64::INFINITY, f64::min);
    let sum: f64 = stays.iter().map(|stay| stay.speed).sum();
    let throughput = lasts * (sum - before);
    let alone: Option<Vec<f64>> = stays.iter().map(|stay| stay.watts).collect();
    let (Some(alone), Some(together)) = (alone, together.filter(|watts| *watts > 0.0)) else {
        return throughput;
    };
    // What the same work would draw alone, one after the other, in the same time.
    let same_work: f64 = alone.iter().zip(stays).map(|(watts, stay)| watts * stay.speed).sum();
    match objective {
        Objective::Throughput => throughput,
        Objective::Energy => lasts * 2.0 * (same_work - together) / (alone[0] + alone[alone.len() - 1]),
        Objective::ThroughputPerWatt => lasts * (same_work / together - 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(runs: f64, speed: f64) -> Stay {
        Stay { runs, speed, contested: 0.0, watts: Some(200.0) }
    }

    #[test]
    fn two_equal_runs_save_what_their_device_hours_are_less() {
        // 1 / 0.8 together, then the rest of the slower one alone: 1.25 + 0.25 = 1.5 hours instead of 2.
        let saved = worth(&[stay(1.0, 0.8), stay(1.0, 0.6)], 1.0, None, Objective::Throughput);
        assert!((saved - 0.5).abs() < 1e-12, "{saved}");
    }

    #[test]
    fn who_may_be_starved_saves_less_than_who_is_sure() {
        let [sure, contested] = [0.0, 0.15].map(|contested| {
            let stays = [0.8, 0.8].map(|speed| Stay { contested, ..stay(1.0, speed) });
            worth(&stays, 1.0, None, Objective::Throughput)
        });
        // Whoever wins is done after 1 / 0.95, and then the sum of speeds was 1.6.
        assert!((contested - 0.6 / 0.95).abs() < 1e-12, "{contested}");
        assert!(contested < sure);
    }

    #[test]
    fn a_short_joiner_saves_little() {
        let saved = worth(&[stay(10.0, 0.9), stay(0.1, 0.9)], 1.0, None, Objective::Throughput);
        assert!((saved - 0.1 / 0.9 * 0.8).abs() < 1e-12, "{saved}");
    }

    #[test]
    fn energy_counts_the_same_work_done_alone() {
        let stays = [stay(1.0, 1.0), stay(1.0, 1.0)];
        let saved = worth(&stays, 1.0, Some(300.0), Objective::Energy);
        assert!((saved - 0.5).abs() < 1e-12, "100 W of 200 W: {saved}");
        assert!((worth(&stays, 1.0, Some(300.0), Objective::ThroughputPerWatt) - 1.0 / 3.0).abs() < 1e-12);
        assert!(
            (worth(&stays, 1.0, None, Objective::Energy) - 1.0).abs() < 1e-12,
            "without power: throughput"
        );
    }
}
