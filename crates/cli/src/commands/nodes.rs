//! `pillion nodes`: every device of every node, how it is, how it is cut, and where its metrics come from.

use super::status::ask;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{
    AgentStatus, ClusterNode, ClusterRequest, ClusterResponse, DeviceStatus, DrainedPlace, Fault,
    StatusResponse,
};
use pillion_core::metric::MetricSource;
use pillion_core::mig::Slot;
use pillion_proto::v1::{MigInstance, MigPlacement};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many nodes are asked for at once.
const NODES_AT_ONCE: u32 = 200;

/// What of the scheduler's status tells of nodes, and how devices are cut for those who are on them.
#[derive(Serialize)]
struct Listing {
    nodes: Vec<AgentStatus>,
    drains: Vec<DrainedPlace>,
    cut: Vec<Cut>,
}

/// A device that its agent has cut.
#[derive(Serialize)]
struct Cut {
    node: String,
    gres_type: String,
    /// The instances of its tenants, by their places; one that several share is one.
    slots: Vec<String>,
}

/// Asks the scheduler.
///
/// # Errors
/// As [`crate::client::answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    let status = ask(client).await?;
    let cut = ask_cut(client).await?;
    Ok(show(status, cut))
}

/// How devices are cut stands with their tenants.
async fn ask_cut(client: &mut Operator) -> Result<Vec<Cut>, CliError> {
    let (mut cut, mut offset) = (Vec::new(), 0_u32);
    loop {
        let request = ClusterRequest { offset, limit: NODES_AT_ONCE, ..ClusterRequest::default() };
        let ClusterResponse { nodes, match_count, .. } = answer(client.cluster(request)).await?;
        offset = offset.saturating_add(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        cut.extend(nodes.iter().flat_map(cut_devices));
        if nodes.is_empty() || offset >= match_count {
            return Ok(cut);
        }
    }
}

fn cut_devices(node: &ClusterNode) -> impl Iterator<Item = Cut> {
    node.devices.iter().filter_map(|device| {
        let slots = device.tenants.iter().filter_map(|tenant| tenant.mig_slot.as_ref()?.parse().ok());
        let by_place: BTreeSet<(u8, String)> =
            slots.map(|slot: Slot| (slot.start, slot.to_string())).collect();
        let slots: Vec<String> = by_place.into_iter().map(|(_, slot)| slot).collect();
        let (node, gres_type) = (node.node.clone(), device.gres_type.clone());
        (!slots.is_empty()).then_some(Cut { node, gres_type, slots })
    })
}

const COLUMNS: [&str; 9] =
    ["NODE", "AGENT", "DEVICE", "MODEL", ">MEMORY", "MECHANISM", "METRICS", "SINCE", "STATE"];

fn show(StatusResponse { agents: nodes, drains, .. }: StatusResponse, cut: Vec<Cut>) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for node in &nodes {
        let agent = if node.connected { "connected" } else { "not-responding" };
        for device in &node.devices {
            let drain = drains.iter().find(|drain| drain.covers(&node.node, &device.gres_type));
            let worst = device.known_faults().first();
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
                node.no_devices().filter(|_| node.connected).as_deref(),
            ));
        }
    }
    // What was drained stays so where no agent has said anything yet.
    for drain in drains.iter().filter(|drain| !nodes.iter().any(|node| node.node == drain.node)) {
        table.push(without_devices(&drain.node, "", Some(drain), None));
    }
    let lines: Vec<String> = cut_lines(&cut).into_iter().chain(instance_lines(&nodes)).collect();
    let mut answer = Answer::table(table, json::render(&Listing { nodes, drains, cut }));
    answer.blocks.extend(lines.into_iter().map(Block::Line));
    answer
}

/// The devices that are cut for their tenants, for people. Who has which instance is shown with the tenants (`pillion top`).
fn cut_lines(cut: &[Cut]) -> Vec<String> {
    let line = |Cut { node, gres_type, slots }: &Cut| {
        format!("{node} {gres_type}: cut for its tenants: {}", slots.join(", "))
    };
    let blank = (!cut.is_empty()).then(String::new);
    blank.into_iter().chain(cut.iter().map(line)).collect()
}

/// The instances of each device with MIG enabled that are not its agent's, for people: whoever wonders why it is closed. They stand
/// below the table, whose rows are devices.
fn instance_lines(nodes: &[AgentStatus]) -> Vec<String> {
    let mut lines = Vec::new();
    for (node, device) in nodes.iter().flat_map(|node| node.devices.iter().map(move |device| (node, device)))
    {
        let Some(instances) = device.instances.as_ref().map(|cut| &cut.instances) else { continue };
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
        lines.push(
            "These are not the agent's: whoever made them gives them away, and Pillion shares none of them."
                .to_owned(),
        );
    }
    lines
}

fn instance_line(instance: &MigInstance) -> String {
    let MigInstance { uuid, profile, placement, sm_count, memory_bytes, .. } = instance;
    let place = match placement {
        Some(MigPlacement { start, size: 1 }) => format!(", memory slice {start}"),
        Some(MigPlacement { start, size }) => {
            format!(", memory slices {start}-{}", start.saturating_add(*size).saturating_sub(1))
        }
        None => String::new(),
    };
    let memory = format::bytes(Some(*memory_bytes));
    format!("  {profile}: {memory}, {sm_count} SMs{place}, {uuid}")
}

fn without_devices(node: &str, agent: &str, drain: Option<&DrainedPlace>, why: Option<&str>) -> Vec<String> {
    let device = drain.and_then(|drain| drain.gres_type.clone()).unwrap_or_default();
    let mut cells = vec![node.to_owned(), agent.to_owned(), device];
    cells.resize(COLUMNS.len() - 2, String::new());
    cells.push(format::time_or_none(drain.map(|drain| drain.since_seconds)));
    let state = [drain.map(DrainedPlace::sentence), why.map(str::to_owned)];
    cells.push(state.into_iter().flatten().collect::<Vec<_>>().join("; "));
    cells
}

/// How many metrics each source gives: `nvml:6,nvml-gpm:9`.
fn metrics(device: &DeviceStatus) -> String {
    let mut counts: BTreeMap<MetricSource, usize> = BTreeMap::new();
    for source in device.metrics.iter().filter_map(|metric| metric.source.parse().ok()) {
        *counts.entry(source).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(source, count)| format!("{source}:{count}")).collect();
    counts.join(",")
}

/// Who drained a device, the worst that is known of it, and what is seen of who is on it; of one whose agent is not responding nothing is known now.
fn state(node: &AgentStatus, device: &DeviceStatus, drain: Option<&DrainedPlace>) -> String {
    let known = device.faults.as_ref().filter(|_| node.connected);
    let worst = known.and_then(|faults| faults.list.first()).map(Fault::sentence);
    let amiss = device.amiss.clone().filter(|_| node.connected);
    let told: Vec<String> = [drain.map(DrainedPlace::sentence), worst, amiss].into_iter().flatten().collect();
    if told.is_empty() && known.is_some() { "ok".to_owned() } else { told.join("; ") }
}
