//! `result.json`: the demo for programs. All jobs of both acts, and the sums over all of them.

use super::totals::{Run, Totals};
use super::trials::Outcome;
use crate::error::{Result, io_error};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the file.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn write(
    runs: &[Run],
    totals: Totals,
    trials: &[Outcome],
    auth_method: &Value,
    path: &Path,
) -> Result<()> {
    let text = format!("{:#}\n", result(runs, totals, trials, auth_method));
    std::fs::write(path, text).map_err(io_error("write", path))
}

fn result(runs: &[Run], totals: Totals, trials: &[Outcome], auth_method: &Value) -> Value {
    let mut groups: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for run in runs {
        groups.entry(run.decided.group).or_default().push(job_id(run));
    }
    let pairings: Vec<Value> = groups
        .into_iter()
        .filter(|(_, jobs)| jobs.len() > 1)
        .map(|(decision_id, jobs)| json!({ "decision_id": decision_id, "jobs": jobs }))
        .collect();
    let Totals { gpu_seconds, gpu_seconds_exclusive, energy_joules, energy_joules_exclusive } = totals;
    json!({
        "auth_method": auth_method,
        "jobs": runs.iter().map(job).collect::<Vec<_>>(),
        "pairings": pairings,
        "trials": trials.iter().map(trial).collect::<Vec<_>>(),
        "totals": {
            "gpu_seconds": gpu_seconds,
            "gpu_seconds_exclusive": gpu_seconds_exclusive,
            "energy_joules": energy_joules,
            "energy_joules_exclusive": energy_joules_exclusive,
        },
    })
}

fn trial((pair, outcome): &Outcome) -> Value {
    json!({ "user": pair.user, "workloads": pair.names, "outcome": outcome })
}

fn job(run: &Run) -> Value {
    json!({
        "job_id": job_id(run),
        "user": run.part.user,
        "workload": run.part.name,
        "node": run.decided.node,
        "device": run.decided.device,
        "mechanism": run.decided.mechanism,
        "cap_fraction": run.decided.cap_fraction,
        "shards": run.decided.shards,
        "environment": run.told.environment,
        "started_at": run.told.began,
        "ended_at": run.told.ended,
        "solo_seconds": run.solo_seconds,
        "slowdown_ratio": run.slowdown_ratio(),
    })
}

/// The demo submits no arrays: its ids are numbers.
fn job_id(run: &Run) -> Value {
    let text = run.job.to_string();
    text.parse::<u64>().map_or(Value::String(text), Value::from)
}
