//! `pillion nodes`: every device of every node, how it is, and where its metrics come from.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Table, json};
use crate::view::{AgentRow, DeviceRow, FaultRow};
use pillion_core::device::MetricSource;
use pillion_proto::v1::{StatusRequest, StatusResponse};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Body {
    nodes: Vec<AgentRow>,
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    Ok(show(answer(client.status(StatusRequest {})).await?))
}

fn show(response: StatusResponse) -> Answer {
    let nodes: Vec<AgentRow> = response.agents.into_iter().map(AgentRow::from).collect();
    let columns = ["NODE", "AGENT", "DEVICE", "MODEL", ">MEMORY", "MECHANISM", "METRICS", "SINCE", "STATE"];
    let mut table = Table::new(&columns);
    for node in &nodes {
        let agent = if node.connected { "connected" } else { "gone" }.to_owned();
        for device in &node.devices {
            let worst = device.faults.as_ref().and_then(|faults| faults.first());
            table.push(vec![
                node.node.clone(),
                agent.clone(),
                device.gres_type.clone(),
                device.model.clone(),
                format::bytes(Some(device.memory_bytes)),
                device.mechanism.clone(),
                metrics(device),
                format::time_or_none(worst.map(|fault| fault.since_seconds)),
                state(node, device),
            ]);
        }
        if node.devices.is_empty() {
            let mut cells = vec![node.node.clone(), agent];
            cells.resize(columns.len(), String::new());
            table.push(cells);
        }
    }
    Answer::table(table, json::render(&Body { nodes }))
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

/// The worst that is known of a device; of one whose agent is gone nothing is known now.
fn state(node: &AgentRow, device: &DeviceRow) -> String {
    match &device.faults {
        None => String::new(),
        Some(_) if !node.connected => String::new(),
        Some(faults) => faults.first().map_or_else(|| "ok".to_owned(), FaultRow::sentence),
    }
}
