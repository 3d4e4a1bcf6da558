//! Orders of operators, as a scheduler answers them that knows n1, with g0 and g1, and job 42.

use super::NOW;
use pillion_api::{
    DrainOutcome, DrainRequest, DrainResponse, DrainedPlace, EvictRequest, EvictResponse, Place,
    UndrainOutcome, UndrainRequest, UndrainResponse,
};
use tonic::Status;

fn drained(node: &str, gres_type: Option<&str>, reason: &str) -> DrainedPlace {
    DrainedPlace {
        node: node.to_owned(),
        gres_type: gres_type.map(str::to_owned),
        drained_by: "root".to_owned(),
        reason: reason.to_owned(),
        since_seconds: NOW - 900.0,
    }
}

/// g1, which is faulty, n2, whose agent is gone, and n3, of which no agent ever told.
pub(super) fn drains() -> Vec<DrainedPlace> {
    let (faulty, new) = (drained("n1", Some("g1"), "fan noise"), drained("n3", Some("g0"), "new"));
    vec![faulty, drained("n2", None, "moves"), new]
}

pub(super) fn drain(request: DrainRequest) -> Result<DrainResponse, Status> {
    let DrainRequest { places, reason } = request;
    if places.iter().any(|place| place.node != "n1") {
        return Err(Status::not_found("the pool has no node n9; its nodes are n1"));
    }
    let change = |place: &Place| match place.gres_type.as_deref() {
        None => ("drained", 2),
        Some("g0") => ("retold", 1),
        _ => ("unchanged", 0),
    };
    let outcome = |place: Place| {
        let (change, running_count) = change(&place);
        let drain = Some(drained(&place.node, place.gres_type.as_deref(), &reason));
        DrainOutcome { drain, change: change.to_owned(), running_count }
    };
    Ok(DrainResponse { places: places.into_iter().map(outcome).collect() })
}

/// n1's g1 is drained, and nothing else.
pub(super) fn undrain(request: UndrainRequest) -> UndrainResponse {
    let outcome = |place: Place| {
        let was_drained = place.gres_type.as_deref() == Some("g1");
        let left = (!was_drained).then(|| drained("n1", Some("g1"), "fan noise"));
        UndrainOutcome { place: Some(place), was_drained, remaining: left.into_iter().collect() }
    };
    UndrainResponse { places: request.places.into_iter().map(outcome).collect() }
}

pub(super) fn evict(request: EvictRequest) -> Result<EvictResponse, Status> {
    let EvictRequest { job_id, reason } = request;
    if job_id != "42" {
        return Err(Status::failed_precondition(format!("job {job_id} does not run: it waits")));
    }
    let reason = format!("evicted by root: {reason}");
    Ok(EvictResponse { job_id, node: "n1".to_owned(), reason })
}
