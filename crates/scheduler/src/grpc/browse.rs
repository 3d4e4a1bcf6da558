//! What people browse: the cluster now, outcomes by workload, one decision. What a caller may not see is left out here.

use super::auth::Caller;
use super::{explain, listing, status};
use crate::agents::{AgentState, Readings};
use crate::context::Context;
use crate::scan::{Scan, is_waiting};
use crate::store::{
    Decision, DecisionFilter, Drain, Heat, HeatCell, HeatFilter, OUTCOMES_MAX, Occupancy, Store, StoreError,
    Tenant, drain_of,
};
use pillion_core::device::DeviceDescription;
use pillion_core::health::DeviceCondition;
use pillion_core::report::DeviceSample;
use pillion_core::{DecisionId, GresType, NodeName, Revision, UnixTime};
use pillion_proto::v1;
use pillion_slurm::{Node, nodeset};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// How many nodes are told of where nobody says how many.
const NODES_SHOWN: u32 = 50;

type Counts = BTreeMap<(NodeName, GresType), u32>;

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn hostlist(text: &str) -> Result<Vec<NodeName>, Status> {
    nodeset::expand(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Which decisions a request means; `None`: the caller may see none.
pub(super) fn decision_filter(
    request: v1::PairsRequest,
    caller: Caller,
) -> Result<Option<DecisionFilter>, Status> {
    let v1::PairsRequest {
        active_only,
        since_seconds,
        until_seconds,
        user,
        include_single,
        limit,
        nodes,
        workload,
        beside,
        before_decision_id,
    } = request;
    let own = caller.uid.filter(|_| !caller.is_operator);
    if own.is_none() && !caller.is_operator {
        return Ok(None);
    }
    if own.is_some() && !beside.is_empty() && workload.is_empty() {
        return Err(Status::invalid_argument("beside needs a workload of yours"));
    }
    let time = |seconds: f64| (seconds > 0.0).then(|| UnixTime::from_seconds(seconds));
    Ok(Some(DecisionFilter {
        active_only,
        since: time(since_seconds),
        until: time(until_seconds),
        user: some(user),
        job_id: None,
        group: None,
        uid: own,
        nodes: hostlist(&nodes)?,
        workload: some(workload),
        beside: some(beside),
        before: (before_decision_id > 0).then_some(DecisionId(before_decision_id)),
        include_single,
        limit,
    }))
}

/// Which outcomes a request means; `None`: the caller may see none.
pub(super) fn heat_filter(request: v1::HeatmapRequest, caller: Caller) -> Option<HeatFilter> {
    let v1::HeatmapRequest { since_seconds, until_seconds, workload } = request;
    (caller.is_operator || caller.uid.is_some()).then(|| HeatFilter {
        since: UnixTime::from_seconds(since_seconds),
        until: UnixTime::from_seconds(until_seconds),
        workload: some(workload),
        uid: caller.uid.filter(|_| !caller.is_operator),
        limit: OUTCOMES_MAX,
    })
}

/// A heatmap.
pub(super) fn heatmap(heat: Heat) -> v1::HeatmapResponse {
    let cell = |cell: HeatCell| {
        let HeatCell {
            workload,
            beside,
            outcome_count,
            slowdown_ratio,
            predicted_slowdown_ratio,
            energy_ratio,
            promises_broken,
        } = cell;
        v1::HeatmapCell {
            workload: workload.to_string(),
            beside: beside.to_string(),
            outcome_count,
            slowdown_ratio,
            predicted_slowdown_ratio,
            energy_ratio,
            promises_broken,
        }
    };
    v1::HeatmapResponse {
        is_cut: heat.outcome_count >= OUTCOMES_MAX,
        outcome_count: heat.outcome_count,
        cells: heat.cells.into_iter().map(cell).collect(),
    }
}

/// One decision with the reasons of those members that the caller may see.
pub(super) async fn decided(
    store: &dyn Store,
    id: DecisionId,
    caller: Caller,
) -> Result<v1::DecidedResponse, StoreError> {
    let is_shown =
        |decision: &Decision| decision.members.iter().any(|member| caller.may_see(member.plan.uid));
    let Some(decision) = store.decision(id).await?.filter(is_shown) else {
        return Ok(v1::DecidedResponse::default());
    };
    let filter =
        DecisionFilter { group: Some(decision.group), include_single: true, ..DecisionFilter::default() };
    let mut group = store.decisions(&filter).await?;
    group.retain(is_shown);
    // Its own members are among them.
    let users = explain::users_of(store, &group).await?;
    let others = group.iter().filter(|other| other.id != id);
    let group = others.map(|other| listing::decision(other, &users, caller)).collect();
    let visible = decision.members.iter().filter(|member| caller.may_see(member.plan.uid));
    let explanations = visible.map(|member| {
        explain::shown(Revision(0), decision.created_at, member.plan.explanation.clone(), caller)
    });
    Ok(v1::DecidedResponse {
        found: true,
        explanations: explanations.collect(),
        decision: Some(listing::decision(&decision, &users, caller)),
        group,
    })
}

/// The pool as it is now: sums over all of it, and the nodes of one page.
pub(super) async fn cluster(
    context: &Context,
    request: v1::ClusterRequest,
    caller: Caller,
) -> Result<v1::ClusterResponse, Status> {
    let v1::ClusterRequest { nodes, state, mechanism, offset, limit } = request;
    let wanted: BTreeSet<NodeName> = hostlist(&nodes)?.into_iter().collect();
    let store = context.store.as_ref();
    let occupancy = store.occupancy().await.map_err(|error| status::from_store(&error))?;
    let counts: Counts = occupancy
        .into_iter()
        .map(|Occupancy { node, gres_type, tenant_count }| ((node, gres_type), tenant_count))
        .collect();
    let drains = store.drains().await.map_err(|error| status::from_store(&error))?;
    let booked = context.board().scan.as_deref().map(booked).unwrap_or_default();
    let now = Held { counts, booked, drains };
    let agents = context.agents.all();
    let is_wanted = |(name, agent): &(&NodeName, &AgentState)| {
        (nodes.is_empty() || wanted.contains(*name))
            && agent.devices.iter().any(|device| {
                (state.is_empty() || state_of(name, agent, device, &now) == state)
                    && (mechanism.is_empty() || device.mechanism.as_str() == mechanism)
            })
    };
    let (skipped, taken) = (to_usize(offset), to_usize(if limit == 0 { NODES_SHOWN } else { limit }));
    let matching: Vec<(&NodeName, &AgentState)> = agents.iter().filter(is_wanted).collect();
    let match_count = to_u32(matching.len());
    let page: Vec<(&NodeName, &AgentState)> = matching.into_iter().skip(skipped).take(taken).collect();
    let names: Vec<NodeName> = page.iter().map(|(name, _)| (*name).clone()).collect();
    let tenants = store.tenants(&names).await.map_err(|error| status::from_store(&error))?;
    let devices = page
        .iter()
        .flat_map(|(name, agent)| agent.devices.iter().map(move |device| (*name, &device.gres_type)));
    let there = There { readings: context.agents.readings(devices), tenants };
    let stopped = context.board().stopped.clone();
    let rows = page.into_iter().map(|(name, agent)| {
        let why = stopped.get(name).cloned().unwrap_or_default();
        node_row(name, agent, why, &now, &there, caller)
    });
    let rows: Vec<v1::ClusterNode> = rows.collect();
    Ok(v1::ClusterResponse { match_count, nodes: rows, ..sums(context, &agents, &now) })
}

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Who holds what, and what operators closed.
struct Held {
    counts: Counts,
    /// Devices of which Slurm has booked something, by decisions of ours or its own.
    booked: BTreeSet<(NodeName, GresType)>,
    drains: Vec<Drain>,
}

fn booked(scan: &Scan) -> BTreeSet<(NodeName, GresType)> {
    let of_node = |node: &Node| {
        let used = node.shards.iter().filter(|(_, (_, used))| *used > 0);
        used.map(|(gres_type, _)| (node.name.clone(), gres_type.clone())).collect::<Vec<_>>()
    };
    scan.nodes.iter().flat_map(of_node).collect()
}

/// What is on the nodes of one page.
struct There {
    readings: Readings,
    tenants: Vec<Tenant>,
}

/// What is true of the whole pool.
fn sums(context: &Context, agents: &BTreeMap<NodeName, AgentState>, now: &Held) -> v1::ClusterResponse {
    let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut device_count = 0;
    for (name, agent) in agents {
        for device in &agent.devices {
            device_count += 1;
            *states.entry(state_of(name, agent, device, now)).or_default() += 1;
        }
    }
    let scan = context.board().scan.clone();
    let waiting = scan.iter().flat_map(|scan| scan.jobs.values()).filter(|job| is_waiting(job)).count();
    v1::ClusterResponse {
        now_seconds: context.now().seconds(),
        mode: context.settings.mode.as_str().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        last_scan_at_seconds: scan.as_ref().map_or(0.0, |scan| scan.at.seconds()),
        node_count: to_u32(agents.len()),
        device_count,
        states: states
            .into_iter()
            .map(|(state, count)| v1::StateCount { state: state.to_owned(), count })
            .collect(),
        waiting_count: to_u32(waiting),
        sharing_count: to_u32(now.counts.values().filter(|count| **count > 1).count()),
        match_count: 0,
        nodes: Vec::new(),
    }
}

/// How a device is, in one word.
fn state_of(node: &NodeName, agent: &AgentState, device: &DeviceDescription, now: &Held) -> &'static str {
    let closed = agent.conditions.get(&device.gres_type).and_then(DeviceCondition::closed_by);
    let drain = drain_of(&now.drains, node, &device.gres_type);
    let place = (node.clone(), device.gres_type.clone());
    match now.counts.get(&place) {
        _ if !agent.is_connected => "away",
        _ if closed.is_some() || drain.is_some() => "closed",
        // A job that Slurm itself put there, without a decision of ours.
        None | Some(0) if now.booked.contains(&place) => "alone",
        None | Some(0) => "idle",
        Some(1) => "alone",
        Some(_) => "shared",
    }
}

fn node_row(
    name: &NodeName,
    agent: &AgentState,
    stopped: String,
    now: &Held,
    there: &There,
    caller: Caller,
) -> v1::ClusterNode {
    let device_row = |device: &DeviceDescription| {
        let place = (name.clone(), device.gres_type.clone());
        let is_there = |tenant: &&Tenant| tenant.node == place.0 && tenant.gres_type == place.1;
        let tenants: Vec<&Tenant> = there.tenants.iter().filter(is_there).collect();
        // What a device does tells of everybody on it, and of a job that Slurm itself put there nobody of us knows.
        let is_own = !tenants.is_empty() && tenants.iter().all(|tenant| caller.may_see(tenant.uid));
        let is_told = caller.is_operator || is_own;
        let reading = there.readings.get(&place).filter(|_| is_told);
        v1::ClusterDevice {
            state: state_of(name, agent, device, now).to_owned(),
            drained: drain_of(&now.drains, name, &device.gres_type)
                .map(ToString::to_string)
                .unwrap_or_default(),
            tenants: tenants.into_iter().map(|tenant| tenant_row(tenant, caller)).collect(),
            sample: reading.map(|(_, reading)| {
                let (gres_type, reading) = (device.gres_type.clone(), reading.clone());
                DeviceSample { gres_type, reading, tenants: Vec::new() }.into()
            }),
            sampled_at_seconds: reading.map_or(0.0, |(at, _)| at.seconds()),
            condition: agent.conditions.get(&device.gres_type).cloned().map(Into::into),
            device: Some(device.clone().into()),
        }
    };
    v1::ClusterNode {
        node: name.to_string(),
        connected: agent.is_connected,
        last_seen_at_seconds: agent.last_seen_at.seconds(),
        version: agent.version.clone(),
        stopped,
        devices: agent.devices.iter().map(device_row).collect(),
    }
}

fn tenant_row(tenant: &Tenant, caller: Caller) -> v1::Tenant {
    let is_visible = caller.may_see(tenant.uid);
    let shown = |text: String| if is_visible { text } else { String::new() };
    v1::Tenant {
        // A decision tells whom it concerns: its number is for those who may read it.
        decision_id: if is_visible { tenant.decision_id.0 } else { 0 },
        is_visible,
        job_id: shown(tenant.job_id.to_string()),
        user: shown(tenant.user.clone().unwrap_or_default()),
        workload: shown(tenant.workload.to_string()),
        role: listing::role_word(tenant.role).to_owned(),
        state: tenant.state.to_string(),
        cap_fraction: tenant.cap_fraction.map(f64::from),
        ccs_mode: tenant.ccs_mode.map(u32::from),
        shards: u32::from(tenant.shards.count()),
        predicted_speed_fraction: tenant.speed_fraction.filter(|_| is_visible),
        started_at_seconds: tenant.started_at.map(UnixTime::seconds),
    }
}

#[cfg(test)]
mod tests;
