//! Drains: who is closed to new tenants, and opened again.

use super::order::{name_of, operators_only, reason};
use crate::context::Context;
use crate::grpc::auth::Caller;
use crate::grpc::status;
use crate::scan::Scan;
use pillion_api as api;
use pillion_core::decision::MemberState;
use pillion_core::text::quoted;
use pillion_core::{GresType, NodeName};
use pillion_store::{Decision, Drain, DrainChange, DrainPlace, Undrain};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// Places of one order: more than any cluster has devices.
const PLACES_MAX: usize = 100_000;
/// How many names an answer repeats.
const NAMES_SHOWN: usize = 8;

/// The devices of each node that a place may name.
type Known = BTreeMap<NodeName, BTreeSet<GresType>>;

pub(in crate::grpc) async fn drain(
    context: &Context,
    caller: Caller,
    request: api::DrainRequest,
) -> Result<api::DrainResponse, Status> {
    operators_only(caller, "drain")?;
    let api::DrainRequest { places, reason: text } = request;
    let places = places_of(places)?;
    let Some(reason) = reason(&text)? else {
        return Err(Status::invalid_argument("a drain needs a reason; write --reason 'fan noise'"));
    };
    check(&places, &known(context)?)?;
    let (by, since) = (name_of(caller).await, context.now());
    let orders: Vec<Drain> = places
        .into_iter()
        .map(|place| Drain { place, by: by.clone(), reason: reason.clone(), since })
        .collect();
    let store = context.store.as_ref();
    let changes = store.drain(&orders).await.map_err(|error| status::from_store(&error))?;
    nudge(context);
    let drains = store.drains().await.map_err(|error| status::from_store(&error))?;
    let decisions = store.active_decisions().await.map_err(|error| status::from_store(&error))?;
    let outcomes = orders.into_iter().zip(changes).map(|(order, change)| {
        let running_count = running_in(&order.place, &decisions);
        // As it is now: since when it has been drained, too.
        let now = drains.iter().find(|drain| drain.place == order.place).unwrap_or(&order);
        let drain = Some(drained_place(now));
        api::DrainOutcome { drain, change: change_word(change).to_owned(), running_count }
    });
    Ok(api::DrainResponse { places: outcomes.collect() })
}

/// Opens places again. One that is not drained is told so, and keeps no other drained.
pub(in crate::grpc) async fn undrain(
    context: &Context,
    caller: Caller,
    request: api::UndrainRequest,
) -> Result<api::UndrainResponse, Status> {
    operators_only(caller, "undrain")?;
    let api::UndrainRequest { places, reason: text } = request;
    let (places, reason) = (places_of(places)?, reason(&text)?);
    let store = context.store.as_ref();
    let drained = store.drains().await.map_err(|error| status::from_store(&error))?;
    // What is drained may have left the pool meanwhile.
    let others = places.iter().filter(|place| !drained.iter().any(|drain| drain.place == **place));
    let others: Vec<DrainPlace> = others.cloned().collect();
    if !others.is_empty() {
        check(&others, &known(context)?)?;
    }
    let by = name_of(caller).await;
    let order = Undrain { places: places.clone(), by, reason, at: context.now() };
    let opened = store.undrain(&order).await.map_err(|error| status::from_store(&error))?;
    nudge(context);
    let left = store.drains().await.map_err(|error| status::from_store(&error))?;
    let outcomes = places.into_iter().zip(opened).map(|(place, was_drained)| {
        let here = left.iter().filter(|drain| drain.place.node == place.node);
        let remaining = here.map(drained_place).collect();
        api::UndrainOutcome { place: Some(wire_place(&place)), was_drained, remaining }
    });
    Ok(api::UndrainResponse { places: outcomes.collect() })
}

/// Wakes what plans and releases.
fn nudge(context: &Context) {
    context.nudges.engine.notify_one();
    context.nudges.release.notify_one();
}

const fn change_word(change: DrainChange) -> &'static str {
    match change {
        DrainChange::Begun => "drained",
        DrainChange::ReasonChanged => "retold",
        DrainChange::Unchanged => "unchanged",
    }
}

/// A drain, for everybody: what it says of a node is no secret.
pub(in crate::grpc) fn drained_place(drain: &Drain) -> api::DrainedPlace {
    let Drain { place, by, reason, since } = drain;
    let DrainPlace { node, gres_type } = place;
    api::DrainedPlace {
        node: node.to_string(),
        gres_type: gres_type.as_ref().map(ToString::to_string),
        drained_by: by.clone(),
        reason: reason.clone(),
        since_seconds: since.seconds(),
    }
}

fn wire_place(place: &DrainPlace) -> api::Place {
    api::Place { node: place.node.to_string(), gres_type: place.gres_type.as_ref().map(ToString::to_string) }
}

/// The places of an order, each once.
fn places_of(places: Vec<api::Place>) -> Result<Vec<DrainPlace>, Status> {
    if places.is_empty() || places.len() > PLACES_MAX {
        return Err(Status::invalid_argument(format!(
            "1 to {PLACES_MAX} nodes or GPUs are expected; write n1, n[1-3] or n1:g0"
        )));
    }
    let mut seen = BTreeSet::new();
    let places = places.into_iter().map(|api::Place { node, gres_type }| DrainPlace {
        node: NodeName::new(node),
        gres_type: gres_type.filter(|name| !name.is_empty()).map(GresType::new),
    });
    Ok(places.filter(|place| seen.insert(place.clone())).collect())
}

/// The pool's nodes as Slurm reported them last, with the devices that Slurm or their agents know.
fn known(context: &Context) -> Result<Known, Status> {
    let scan = context.board().scan.clone();
    let scan = scan.ok_or_else(|| Status::unavailable("Slurm's nodes were not read yet"))?;
    let mut known = devices_of(&scan);
    for (node, agent) in context.agents.all() {
        if let Some(devices) = known.get_mut(&node) {
            devices.extend(agent.devices.into_iter().map(|device| device.gres_type));
        }
    }
    Ok(known)
}

fn devices_of(scan: &Scan) -> Known {
    scan.nodes.iter().map(|node| (node.name.clone(), node.shards.keys().cloned().collect())).collect()
}

fn check(places: &[DrainPlace], known: &Known) -> Result<(), Status> {
    let strangers: BTreeSet<&NodeName> =
        places.iter().map(|place| &place.node).filter(|node| !known.contains_key(*node)).collect();
    if !strangers.is_empty() {
        return Err(Status::not_found(format!(
            "the pool has no node {}; its nodes are {}",
            names(strangers.into_iter()),
            names(known.keys())
        )));
    }
    for DrainPlace { node, gres_type } in places {
        if let Some(gres_type) = gres_type
            && let Some(devices) = known.get(node).filter(|devices| !devices.contains(gres_type))
        {
            let wanted = quoted(gres_type.as_str());
            let sentence = format!("{node} has no GPU {wanted}; it has {}", names(devices.iter()));
            return Err(Status::not_found(sentence));
        }
    }
    Ok(())
}

/// `n1, n2 and 7 more`.
fn names<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(NAMES_SHOWN);
    let shown: Vec<String> = all.take(NAMES_SHOWN).map(|name| quoted(&name.to_string())).collect();
    match (shown.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (_, 0) => shown.join(", "),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Jobs that run there by our decisions.
fn running_in(place: &DrainPlace, decisions: &[Decision]) -> u32 {
    let here = decisions
        .iter()
        .filter(|decision| decision.places().any(|(node, gres_type)| place.covers(node, gres_type)));
    let running = here
        .flat_map(|decision| &decision.members)
        .filter(|member| matches!(member.state, MemberState::Running));
    u32::try_from(running.count()).unwrap_or(u32::MAX)
}
