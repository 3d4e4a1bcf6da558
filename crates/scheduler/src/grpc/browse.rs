//! What people browse: the cluster now, outcomes by workload, one decision. What a caller may not see is left out here.

use super::auth::Caller;
use super::listing::{Shown, asked_time, known, some_text};
use super::top::{to_u32, to_usize};
use super::{explain, listing, role, status};
use crate::agents::Readings;
use crate::context::Context;
use crate::device_status::{self, Closed, Spot};
use crate::scan::{Scan, is_waiting};
use pillion_api as api;
use pillion_core::invariant::Violation;
use pillion_core::{DecisionId, GresType, NodeName, Revision, UnixTime};
use pillion_slurm::nodeset;
use pillion_store::postgres::PgStore;
use pillion_store::{
    Decision, DecisionFilter, Heat, HeatCell, HeatFilter, OUTCOMES_MAX, Occupancy, Store, StoreError, Tenant,
};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// How many nodes are told of where nobody says how many.
const NODES_SHOWN: u32 = 50;

fn hostlist(text: &str) -> Result<Vec<NodeName>, Status> {
    nodeset::expand(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Which decisions a request means; `None`: the caller may see none.
pub(super) fn decision_filter(
    request: api::PairsRequest,
    caller: Caller,
) -> Result<Option<DecisionFilter>, Status> {
    let api::PairsRequest {
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
    Ok(Some(DecisionFilter {
        active_only,
        since: asked_time(since_seconds),
        until: asked_time(until_seconds),
        user: some_text(user),
        job_id: None,
        group: None,
        uid: own,
        nodes: hostlist(&nodes)?,
        workload: some_text(workload),
        beside: some_text(beside),
        before: (before_decision_id > 0).then_some(DecisionId(before_decision_id)),
        include_single,
        limit,
    }))
}

/// Which outcomes a request means; `None`: the caller may see none.
pub(super) fn heat_filter(request: api::HeatmapRequest, caller: Caller) -> Option<HeatFilter> {
    let api::HeatmapRequest { since_seconds, until_seconds, workload } = request;
    (caller.is_operator || caller.uid.is_some()).then(|| HeatFilter {
        since: UnixTime::from_seconds(since_seconds),
        until: UnixTime::from_seconds(until_seconds),
        workload: some_text(workload),
        uid: caller.uid.filter(|_| !caller.is_operator),
        limit: OUTCOMES_MAX,
    })
}

pub(super) fn heatmap(heat: Heat) -> api::HeatmapResponse {
    api::HeatmapResponse {
        is_cut: heat.outcome_count >= OUTCOMES_MAX,
        outcome_count: heat.outcome_count,
        cells: heat.cells.into_iter().map(heat_cell).collect(),
    }
}

fn heat_cell(cell: HeatCell) -> api::HeatmapCell {
    let HeatCell {
        workload,
        beside,
        outcome_count,
        slowdown_ratio,
        predicted_slowdown_ratio,
        energy_ratio,
        promises_broken,
    } = cell;
    api::HeatmapCell {
        workload: workload.to_string(),
        beside: beside.to_string(),
        outcome_count,
        slowdown_ratio,
        predicted_slowdown_ratio,
        energy_ratio,
        promises_broken,
        workload_name: None,
        beside_name: None,
    }
}

/// One decision with the reasons of those members that the caller may see.
pub(super) async fn decided(
    store: &dyn Store,
    id: DecisionId,
    caller: Caller,
) -> Result<api::DecidedResponse, StoreError> {
    let is_shown =
        |decision: &Decision| decision.members.iter().any(|member| caller.may_see(member.plan.uid));
    let Some(decision) = store.decision(id).await?.filter(is_shown) else {
        return Ok(api::DecidedResponse::default());
    };
    let mut group = store.group(decision.group).await?;
    group.retain(is_shown);
    // Its own members are among them.
    let users = explain::users_of(store, &group).await?;
    let others = group.iter().filter(|other| other.id != id);
    let group = others.map(|other| listing::decision(other, &users, caller)).collect();
    let visible = decision.members.iter().filter(|member| caller.may_see(member.plan.uid));
    let explanations = visible
        .filter_map(|member| member.plan.explanation.clone())
        .map(|explanation| explain::shown(Revision(0), decision.created_at, explanation, caller));
    Ok(api::DecidedResponse {
        found: true,
        explanations: explanations.collect(),
        decision: Some(listing::decision(&decision, &users, caller)),
        group,
    })
}

/// The pool as it is now: sums over all of it, and the nodes of one page.
pub(super) async fn cluster(
    context: &Context,
    pages: &PgStore,
    request: api::ClusterRequest,
    caller: Caller,
) -> Result<api::ClusterResponse, Status> {
    let shown = Shown { caller, hides_jobs: context.hides_jobs() };
    let api::ClusterRequest { nodes, state, mechanism, offset, limit } = request;
    let wanted: BTreeSet<NodeName> = hostlist(&nodes)?.into_iter().collect();
    let store = context.store.as_ref();
    let occupancy = pages.occupancy().await.map_err(|error| status::from_store(&error))?;
    let drains = store.drains().await.map_err(|error| status::from_store(&error))?;
    let (scan, amiss) = {
        let board = context.board();
        (board.scan.clone(), board.amiss.clone())
    };
    let agents = context.agents.all();
    let spots = device_status::spots(&device_status::Sources {
        agents: &agents,
        scan: scan.as_deref(),
        drains: &drains,
        amiss: &amiss,
        tenant_counts: tenant_counts(&occupancy),
    });
    let (skipped, taken) = (to_usize(offset), to_usize(if limit == 0 { NODES_SHOWN } else { limit }));
    let matching: Vec<&[Spot<'_>]> = spots
        .chunk_by(|one, next| one.node == next.node)
        .filter(|there| nodes.is_empty() || wanted.contains(there[0].node))
        .filter(|there| there.iter().any(|spot| is_like(spot, &state, &mechanism)))
        .collect();
    let match_count = to_u32(matching.len());
    let page: Vec<&[Spot<'_>]> = matching.into_iter().skip(skipped).take(taken).collect();
    let names: Vec<NodeName> = page.iter().map(|there| there[0].node.clone()).collect();
    let tenants = pages.tenants(&names).await.map_err(|error| status::from_store(&error))?;
    let places = page.iter().flat_map(|there| there.iter().map(Spot::place));
    let there = There { readings: context.agents.readings(places), tenants };
    let stopped = context.board().stopped.clone();
    let rows = page.into_iter().map(|spots| node_row(spots, stopped.get(spots[0].node), &there, shown));
    let rows: Vec<api::ClusterNode> = rows.collect();
    Ok(api::ClusterResponse {
        now_seconds: context.now().seconds(),
        mode: context.settings.mode.as_str().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        last_scan_at_seconds: scan.as_ref().map(|scan| scan.at.seconds()),
        node_count: to_u32(agents.len()),
        device_count: to_u32(spots.len()),
        states: state_counts(&spots),
        waiting_count: waiting_count(scan.as_deref(), shown),
        sharing_count: to_u32(occupancy.iter().filter(|held| held.tenant_count > 1).count()),
        match_count,
        nodes: rows,
    })
}

/// How many jobs wait of which the caller may know.
fn waiting_count(scan: Option<&Scan>, shown: Shown) -> u32 {
    let jobs = scan.into_iter().flat_map(|scan| scan.jobs.values());
    to_u32(jobs.filter(|job| is_waiting(job) && shown.may_know_of(job.uid)).count())
}

fn tenant_counts(occupancy: &[Occupancy]) -> BTreeMap<(&NodeName, &GresType), u32> {
    occupancy.iter().map(|held| ((&held.node, &held.gres_type), held.tenant_count)).collect()
}

/// Whether a device is in this state and shared in this way; an empty word = in any.
fn is_like(spot: &Spot<'_>, state: &str, mechanism: &str) -> bool {
    (state.is_empty() || spot.state() == state)
        && (mechanism.is_empty() || spot.device.mechanism.as_str() == mechanism)
}

/// What is on the nodes of one page.
struct There {
    readings: Readings,
    tenants: Vec<Tenant>,
}

fn state_counts(spots: &[Spot<'_>]) -> Vec<api::StateCount> {
    let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
    for spot in spots {
        *states.entry(spot.state()).or_default() += 1;
    }
    states.into_iter().map(|(state, count)| api::StateCount { state: state.to_owned(), count }).collect()
}

/// A node, from its devices: at least one.
fn node_row(
    spots: &[Spot<'_>],
    stopped: Option<&Violation>,
    there: &There,
    shown: Shown,
) -> api::ClusterNode {
    let Spot { node, agent, .. } = spots[0];
    let is_operator = shown.caller.is_operator;
    let why = |why: &Violation| if is_operator { why.to_string() } else { why.for_everybody() };
    api::ClusterNode {
        node: node.to_string(),
        connected: agent.is_connected,
        last_seen_at_seconds: known(agent.last_seen_at),
        version: agent.version.clone(),
        stopped: stopped.map(why),
        devices: spots.iter().map(|spot| device_row(spot, there, shown)).collect(),
    }
}

fn device_row(spot: &Spot<'_>, there: &There, shown: Shown) -> api::ClusterDevice {
    let caller = shown.caller;
    let (node, gres_type) = spot.place();
    let tenants = there.tenants.iter();
    let tenants: Vec<&Tenant> =
        tenants.filter(|tenant| tenant.node == *node && tenant.gres_types.contains(gres_type)).collect();
    // What a device does shows what everybody on it does, and of a job that Slurm itself put there nobody of us knows.
    let is_own = !tenants.is_empty() && tenants.iter().all(|tenant| caller.may_see(tenant.uid));
    let is_shown = caller.is_operator || is_own;
    let reading = there.readings.get(&(node.clone(), gres_type.clone())).filter(|_| is_shown);
    let drained = match spot.closed {
        Some(Closed::Drained(drain)) => Some(drain.to_string()),
        _ => None,
    };
    let amiss = match spot.closed {
        Some(why @ (Closed::Overrun | Closed::Strained | Closed::SetupFailed(_))) => {
            Some(why.told(caller.is_operator))
        }
        _ => None,
    };
    let faults = spot.agent.conditions.get(gres_type).into_iter().flat_map(|condition| &condition.faults);
    api::ClusterDevice {
        gres_type: gres_type.to_string(),
        model: spot.device.model.clone(),
        mechanism: spot.device.mechanism.to_string(),
        memory_bytes: spot.device.memory_bytes,
        state: spot.state().to_owned(),
        drained,
        tenants: tenants
            .into_iter()
            .filter(|tenant| shown.may_know_of(tenant.uid))
            .map(|tenant| tenant_row(tenant, caller))
            .collect(),
        activity: reading.map(|(_, reading)| listing::activity(reading)),
        faults: faults.map(|fault| listing::fault(fault, caller).into()).collect(),
        amiss,
    }
}

fn tenant_row(tenant: &Tenant, caller: Caller) -> api::Tenant {
    let is_visible = caller.may_see(tenant.uid);
    api::Tenant {
        // A decision tells whom it concerns: its number is for those who may read it.
        decision_id: is_visible.then_some(tenant.decision_id.0),
        job_id: is_visible.then(|| tenant.job_id.to_string()),
        user: tenant.user.clone().filter(|_| is_visible),
        workload: is_visible.then(|| tenant.workload.to_string()),
        workload_name: None,
        role: if is_visible {
            role::role_of(tenant.role, &tenant.workload).to_owned()
        } else {
            role::role_word(tenant.role).to_owned()
        },
        state: tenant.state.to_string(),
        cap_fraction: tenant.sharing.cap().map(f64::from),
        ccs_mode: tenant.sharing.ccs_mode().map(u32::from),
        shards: u32::from(tenant.shards.count()),
        predicted_speed_fraction: tenant.speed_fraction.filter(|_| is_visible),
        started_at_seconds: tenant.started_at.map(UnixTime::seconds),
        mig_slot: tenant.sharing.mig_slot().map(String::from),
    }
}

#[cfg(test)]
mod tests;
