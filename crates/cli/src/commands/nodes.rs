//! `pillion nodes`: every device of every node, how it is, and where its metrics come from.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use crate::view::{AgentRow, DeviceRow, DrainRow, FaultRow, InstanceRow, PlacementRow, StatusRow};
use pillion_core::metric::MetricSource;
use pillion_proto::v1::{StatusRequest, StatusResponse};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Body {
    nodes: Vec<AgentRow>,
    drains: Vec<DrainRow>,
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    Ok(show(answer(client.status(StatusRequest {})).await?))
}

const COLUMNS: [&str; 9] =
    ["NODE", "AGENT", "DEVICE", "MODEL", ">MEMORY", "MECHANISM", "METRICS", "SINCE", "STATE"];

fn show(response: StatusResponse) -> Answer {
    let StatusRow { agents: nodes, drains, .. } = StatusRow::from(response);
    let mut table = Table::new(&COLUMNS);
    for node in &nodes {
        let agent = if node.connected { "connected" } else { "gone" };
        for device in &node.devices {
            let drain = drains.iter().find(|drain| drain.covers(&node.node, &device.gres_type));
            let worst = device.faults.as_ref().and_then(|faults| faults.first());
            let since = drain.map(|drain| drain.since_seconds).or(worst.map(|fault| fault.since_seconds));
            table.push(vec![
                node.node.clone(),
                agent.to_owned(),
                device.gres_type.clone(),
                device.model.clone(),
                format::bytes(Some(device.memory_bytes)),
                device.mechanism.clone(),
                metrics(device),
                format::time_or_none(since),
                state(node, device, drain),
            ]);
        }
        if node.devices.is_empty() {
            let drain = drains.iter().find(|drain| drain.node == node.node);
            table.push(without_devices(
                &node.node,
                agent,
                drain,
                node.no_devices().filter(|_| node.connected),
            ));
        }
    }
    // What was drained stays so where no agent has said anything yet.
    for drain in drains.iter().filter(|drain| !nodes.iter().any(|node| node.node == drain.node)) {
        table.push(without_devices(&drain.node, "", Some(drain), None));
    }
    let instances = instance_lines(&nodes);
    let mut answer = Answer::table(table, json::render(&Body { nodes, drains }));
    answer.blocks.extend(instances.into_iter().map(Block::Line));
    answer
}

/// How each device is cut up, for people: whoever wonders why it is closed. They stand below the table, whose rows are
/// devices.
fn instance_lines(nodes: &[AgentRow]) -> Vec<String> {
    let mut lines = Vec::new();
    for (node, device) in nodes.iter().flat_map(|node| node.devices.iter().map(move |device| (node, device)))
    {
        let Some(instances) = &device.instances else { continue };
        lines.push(String::new());
        let count = match instances.len() {
            0 => "no instance is made".to_owned(),
            1 => "1 instance".to_owned(),
            count => format!("{count} instances"),
        };
        lines.push(format!("{} {}: MIG is on, {count}", node.node, device.gres_type));
        lines.extend(instances.iter().map(instance_line));
    }
    if !lines.is_empty() {
        lines.push(String::new());
        lines.push("MIG instances are Slurm's to give; Pillion does not share them.".to_owned());
    }
    lines
}

fn instance_line(instance: &InstanceRow) -> String {
    let InstanceRow { uuid, profile, placement, sm_count, memory_bytes, .. } = instance;
    let place = match placement {
        Some(PlacementRow { start, size: 1 }) => format!(", memory slice {start}"),
        Some(PlacementRow { start, size }) => {
            format!(", memory slices {start}-{}", start.saturating_add(*size).saturating_sub(1))
        }
        None => String::new(),
    };
    let memory = format::bytes(Some(*memory_bytes));
    format!("  {profile}: {memory}, {sm_count} SMs{place}, {uuid}")
}

fn without_devices(node: &str, agent: &str, drain: Option<&DrainRow>, why: Option<&str>) -> Vec<String> {
    let device = drain.and_then(|drain| drain.gres_type.clone()).unwrap_or_default();
    let mut cells = vec![node.to_owned(), agent.to_owned(), device];
    cells.resize(COLUMNS.len() - 2, String::new());
    cells.push(format::time_or_none(drain.map(|drain| drain.since_seconds)));
    let state = [drain.map(DrainRow::sentence), why.map(str::to_owned)];
    cells.push(state.into_iter().flatten().collect::<Vec<_>>().join("; "));
    cells
}

/// How many metrics each source gives: `nvml:6,nvml-gpm:9`.
fn metrics(device: &DeviceRow) -> String {
    let mut counts: BTreeMap<MetricSource, usize> = BTreeMap::new();
    for metric in device.metrics.values() {
        *counts.entry(metric.source).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(source, count)| format!("{source}:{count}")).collect();
    counts.join(",")
}

/// Who drained a device, and the worst that is known of it; of one whose agent is gone nothing is known now.
fn state(node: &AgentRow, device: &DeviceRow, drain: Option<&DrainRow>) -> String {
    let known = device.faults.as_ref().filter(|_| node.connected);
    let worst = known.and_then(|faults| faults.first()).map(FaultRow::sentence);
    match (drain.map(DrainRow::sentence), worst) {
        (Some(drain), Some(fault)) => format!("{drain}; {fault}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) if known.is_some() => "ok".to_owned(),
        (None, None) => String::new(),
    }
}
