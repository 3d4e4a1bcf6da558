//! `pillion plan --mig`: what each device would be cut into, with who has which part of it. On the live queue, a snapshot or files.

use crate::format;
use crate::names::{self, Names};
use crate::output::{Answer, Block, Table, json};
use pillion_core::{SlurmJobId, WorkloadKey};
use pillion_pairing::files::row_in_file;
use pillion_pairing::shape::{DeviceShape, Part, Standing, shapes};
use pillion_pairing::{ClusterView, Plan};
use serde_json::json;

const COLUMNS: [&str; 10] =
    ["NODE", "GRES", "MODEL", "INSTANCE", ">SHARDS", "STATE", "JOBID", "WORKLOAD", ">EXPECTED", ">AT_LEAST"];

/// What jobs are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// By Slurm's number.
    ByJob,
    /// On files: by their row in QUEUE.csv or RUNNING.csv, from 0.
    ByRow,
}

impl Called {
    fn of(self, job: SlurmJobId) -> String {
        match self {
            Self::ByJob => job.to_string(),
            Self::ByRow => match row_in_file(job) {
                (row, false) => format!("row {row}"),
                (row, true) => format!("running {row}"),
            },
        }
    }
}

/// The devices of this view under the plan that was made of it.
pub(super) fn show(view: &ClusterView, plan: &Plan, names: &Names, called: Called) -> Answer {
    let devices = shapes(view, plan);
    let mut table = Table::new(&COLUMNS);
    for device in &devices {
        if device.parts.is_empty() {
            let state = if device.can_be_cut { "free" } else { "free, cannot be cut" };
            let mut row = place(device);
            row.extend(["whole".to_owned(), String::new(), state.to_owned()]);
            row.resize(COLUMNS.len(), String::new());
            table.push(row);
        }
        for part in &device.parts {
            table.push(line(device, part, names, called));
        }
    }
    let blocks = vec![Block::Table(table.clone(), 0), Block::Line(summary(&devices, plan))];
    let mut body = json!({ "devices": devices, "left_waiting": plan.left_waiting });
    names::insert(&mut body, names);
    Answer { blocks, parsable: table, json: json::render(&body) }
}

fn place(device: &DeviceShape) -> Vec<String> {
    vec![device.node.to_string(), device.gres_type.to_string(), device.device_model.clone()]
}

fn line(device: &DeviceShape, part: &Part, names: &Names, called: Called) -> Vec<String> {
    let workload = part.workload.as_ref().map(WorkloadKey::as_str);
    let name = workload.map(|key| names.get(key).cloned().unwrap_or_else(|| key.to_owned()));
    let mut row = place(device);
    row.extend([
        part.instance.map_or_else(|| "whole".to_owned(), |slot| slot.to_string()),
        part.shards.map(|shards| shards.to_string()).unwrap_or_default(),
        part.standing.as_str().to_owned(),
        part.job_id.map(|job| called.of(job)).unwrap_or_default(),
        name.unwrap_or_default(),
        format::fraction(part.speed_fraction),
        format::fraction(part.speed_fraction_low),
    ]);
    row
}

fn summary(devices: &[DeviceShape], plan: &Plan) -> String {
    let starts = |part: &&Part| part.standing == Standing::Starts;
    let is_cut = |device: &&DeviceShape| device.parts.iter().any(|part| part.instance.is_some());
    let all = || devices.iter().flat_map(|device| &device.parts).filter(starts);
    let instances = all().filter(|part| part.instance.is_some()).count();
    format!(
        "{} in instances: {} would start in one, {} without, {} would wait",
        format::counted(devices.iter().filter(is_cut).count(), "device"),
        format::counted(instances, "job"),
        format::counted(all().count() - instances, "job"),
        format::counted(plan.left_waiting.len(), "job"),
    )
}
