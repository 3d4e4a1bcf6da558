//! `result.json`: the demo for programs. All jobs of both acts, and the sums over all of them.

use super::totals::{Run, Totals};
use super::trials::Pair;
use crate::error::{HarnessError, Result, io_error};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the file.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn write(runs: &[Run], totals: Totals, auth_method: &Value, path: &Path) -> Result<()> {
    let text = format!("{:#}\n", result(runs, totals, auth_method));
    std::fs::write(path, text).map_err(io_error("write", path))
}

/// Adds how trials ended to a file that is there.
///
/// # Errors
/// Where it cannot be read or written.
pub(super) fn add_trials(trials: &[(Pair, &str)], path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(io_error("read", path))?;
    let mut all: Value = serde_json::from_str(&text)
        .map_err(|error| HarnessError::Refused(format!("{}: {error}", path.display())))?;
    let ended = trials
        .iter()
        .map(|(pair, outcome)| json!({ "user": pair.user, "workloads": pair.names, "outcome": outcome }));
    all["trials"] = ended.collect();
    std::fs::write(path, format!("{all:#}\n")).map_err(io_error("write", path))
}

fn result(runs: &[Run], totals: Totals, auth_method: &Value) -> Value {
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
        "totals": {
            "gpu_seconds": gpu_seconds,
            "gpu_seconds_exclusive": gpu_seconds_exclusive,
            "energy_joules": energy_joules,
            "energy_joules_exclusive": energy_joules_exclusive,
        },
    })
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
