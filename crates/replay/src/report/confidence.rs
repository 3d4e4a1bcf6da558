//! How far a replay may be believed, in four numbers, and what would make each of them better.

use super::Queue;
use crate::replay::Replay;
use pillion_pairing::OBSERVED_PEAK_RATIO;
use rustc_hash::FxHashMap;
use serde::Serialize;

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
}

pub(super) fn confidence(replay: &Replay, queue: &Queue) -> Confidence {
    Confidence {
        telemetry_coverage: coverage(replay),
        repetition: repetition(replay),
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
            "gres/gpumem and gres/gpuutil in AccountingStorageTRES, jobstats, or a file with --telemetry"
                .to_owned(),
    }
}

fn repetition(replay: &Replay) -> Measure {
    let workloads = replay.by_workload();
    let all: f64 = workloads.values().map(|(_, hours)| hours).sum();
    let again: f64 = workloads.values().filter(|(runs, _)| *runs > 1).map(|(_, hours)| hours).sum();
    let names = if replay.accounting.has_submit_lines {
        "user, job name and command line without its numbers"
    } else {
        "user and job name alone, for there are no command lines: different scripts of one name count as one"
    };
    Measure {
        value: part(again, all),
        meaning: format!("of all GPU-hours are in workloads that ran more than once; told apart by {names}"),
        improved_by: if replay.accounting.has_submit_lines {
            "a longer time, and users who name what they repeat (--colocate=profile=NAME)".to_owned()
        } else {
            "SubmitLine (Slurm 21.08 and later), and a longer time".to_owned()
        },
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
