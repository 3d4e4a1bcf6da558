//! How far a replay may be believed, in four numbers, and what would make each of them better.

use super::Queue;
use crate::jobs::KeyKind;
use crate::replay::Replay;
use pillion_pairing::OBSERVED_PEAK_RATIO;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// A use is foretold where it is nearer than this.
const USE_NEAR: f64 = 0.1;

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// 0..=1, of the simulator's error from 0 on; absent where nothing tells.
    pub value: Option<f64>,
    /// What it is, for this site.
    pub meaning: String,
    /// What would make it better.
    pub improved_by: String,
}

/// All four.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confidence {
    /// GPU-hours of jobs of one GPU of which is known how they used it.
    pub telemetry_coverage: Measure,
    /// GPU-hours of workloads that ran more than once.
    pub repetition: Measure,
    /// How far the simulated median wait is from the real one.
    pub simulator_error: Measure,
    /// How often a workload's runs before foretold the next one.
    pub calibration: Measure,
    /// The second of these by what told workloads apart.
    pub repetition_by_key: Vec<KeyRepetition>,
}

/// GPU-hours of workloads that were told apart by one kind of key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyRepetition {
    /// Which kind.
    pub told_by: KeyKind,
    /// All of them.
    pub gpu_hours: f64,
    /// Those of workloads that ran more than once.
    pub gpu_hours_repeated: f64,
}

pub(super) fn confidence(replay: &Replay, queue: &Queue) -> Confidence {
    let by_key = by_key(replay);
    Confidence {
        telemetry_coverage: coverage(replay),
        repetition: repetition(replay, &by_key),
        simulator_error: Measure {
            value: Some(queue.error_fraction),
            meaning: format!(
                "the median wait was {:.0} s and is {:.0} s in the simulation{}",
                queue.history.median_seconds,
                queue.simulated.median_seconds,
                if queue.is_near { "" } else { ": too far apart, so nothing is said of waits" }
            ),
            improved_by: "the nodes as 'scontrol show nodes' prints them, records from before the first job waited, and limits, \
                          reservations and jobs without GPUs, of which the simulator knows nothing"
                .to_owned(),
        },
        calibration: calibration(replay),
        repetition_by_key: by_key,
    }
}

fn part(of: f64, all: f64) -> Option<f64> {
    (all > 0.0).then(|| of / all)
}

fn coverage(replay: &Replay) -> Measure {
    let (mut known, mut in_full, mut all) = (0.0, 0.0, 0.0);
    for job in replay.jobs.iter().map(|job| replay.of(*job)).filter(|job| job.gpus == 1) {
        all += job.gpu_hours();
        known += if job.usage.is_profile() { job.gpu_hours() } else { 0.0 };
        let has_units =
            job.usage.sm_active_fraction.is_some() && job.usage.memory_bandwidth_fraction.is_some();
        in_full += if job.usage.is_profile() && has_units { job.gpu_hours() } else { 0.0 };
    }
    let in_full = part(in_full, all).unwrap_or(0.0) * 100.0;
    Measure {
        value: part(known, all),
        meaning: format!(
            "of the GPU-hours of jobs of one GPU: it is known how busy the GPU and how full its memory was; the others save nothing \
             here. Of {in_full:.0} % compute units and memory bandwidth are known too; of the others they are drawn, below busy time"
        ),
        improved_by:
            "gres/gpumem and gres/gpuutil in AccountingStorageTRES, jobstats, the site's Prometheus (--prometheus), or a file with --telemetry"
                .to_owned(),
    }
}

fn by_key(replay: &Replay) -> Vec<KeyRepetition> {
    let mut by_key: BTreeMap<KeyKind, KeyRepetition> = BTreeMap::new();
    for (runs, hours, told_by) in replay.by_workload().into_values() {
        let nothing = KeyRepetition { told_by, gpu_hours: 0.0, gpu_hours_repeated: 0.0 };
        let of_key = by_key.entry(told_by).or_insert(nothing);
        of_key.gpu_hours += hours;
        of_key.gpu_hours_repeated += if runs > 1 { hours } else { 0.0 };
    }
    by_key.into_values().collect()
}

fn repetition(replay: &Replay, by_key: &[KeyRepetition]) -> Measure {
    let all: f64 = by_key.iter().map(|of_key| of_key.gpu_hours).sum();
    let again: f64 = by_key.iter().map(|of_key| of_key.gpu_hours_repeated).sum();
    let of_keys = by_key.iter().map(|of_key| {
        let KeyRepetition { told_by, gpu_hours, gpu_hours_repeated } = of_key;
        let part = 100.0 * gpu_hours_repeated / gpu_hours.max(1e-9);
        format!("{gpu_hours:.0} GPU-hours by {}, {part:.0} % of them more than once", told_by.text())
    });
    let has_scripts = by_key.iter().any(|of_key| of_key.told_by == KeyKind::Script);
    let improved_by = match (has_scripts, replay.accounting.has_submit_lines) {
        (true, _) => "a longer time, and users who name what they repeat (--colocate=profile=NAME)",
        (false, true) => {
            "stored scripts, by which the pool would know them (--scripts), a longer time, and users who name what they repeat \
             (--colocate=profile=NAME)"
        }
        (false, false) => {
            "stored scripts (--scripts) or SubmitLine (Slurm 21.08 and later), for by name alone different scripts count as one; and a \
             longer time"
        }
    };
    Measure {
        value: part(again, all),
        meaning: format!(
            "of all GPU-hours are in workloads that ran more than once; besides their user what tells them apart is: {}",
            of_keys.collect::<Vec<String>>().join("; ")
        ),
        improved_by: improved_by.to_owned(),
    }
}

/// Of runs of workloads that had run before, how many stayed within the memory that they would have been let in with, and were
/// as busy as those before.
fn calibration(replay: &Replay) -> Measure {
    let mut order: Vec<_> = replay
        .jobs
        .iter()
        .map(|job| replay.of(*job))
        .filter(|job| job.gpus == 1 && job.usage.is_profile())
        .collect();
    order.sort_by_key(|job| job.ended_at);
    let mut before: FxHashMap<u32, (f64, f64, f64)> = FxHashMap::default();
    let (mut foretold, mut all) = (0_usize, 0_usize);
    for job in order {
        let (Some(peak), Some(busy)) = (job.usage.memory_bytes_peak, job.usage.use_fraction()) else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let (peak, busy) = (peak as f64, f64::from(busy));
        let known = before.entry(job.workload).or_default();
        let (peak_before, busy_sum, runs) = *known;
        if runs > 0.0 {
            all += 1;
            let is_near =
                peak <= peak_before * OBSERVED_PEAK_RATIO && (busy - busy_sum / runs).abs() <= USE_NEAR;
            foretold += usize::from(is_near);
        }
        *known = (peak.max(peak_before), busy_sum + busy, runs + 1.0);
    }
    Measure {
        value: part(super::count(foretold), super::count(all)),
        meaning: "of the runs of workloads that had run before stayed within the memory that they would have been let in with, and \
                  were as busy as those before (within a tenth); how fast this site's jobs are beside each other nobody has measured, \
                  and it is drawn from published measurements of jobs as busy"
            .to_owned(),
        improved_by: "measured pairs of this site's own jobs; no replay can give them".to_owned(),
    }
}
