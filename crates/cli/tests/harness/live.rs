//! Rules, events, and the pool at one glance.

use super::NOW;
use pillion_proto::v1::{
    Event, EventsRequest, EventsResponse, Member, PolicyResponse, PolicyRule, TopCounts, TopDevice,
    TopRequest, TopResponse,
};
use pillion_proto::v1::{Event, EventsRequest, EventsResponse, PolicyResponse, PolicyRule};

pub(super) fn policy() -> PolicyResponse {
    let rule = |key: &str, value: &str, origin: &str, meaning: &str| PolicyRule {
        key: key.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
        meaning: meaning.to_owned(),
        ..PolicyRule::default()
    };
    let file = "/etc/pillion/pillion.toml".to_owned();
    let users = rule("policy.users", "\"any\"", "file", "Who may share a device.");
    PolicyResponse {
        rules: vec![
            rule("policy.slowdown_ratio_max", "1.25", "default", "The promise to jobs that name none."),
            PolicyRule { file, line: 7, ..users },
            rule("victim_requeues", "1", "built-in", "A victim is started again once."),
            rule("mechanisms", "[\"mps: 2\"]", "agents", "How devices are shared."),
        ],
    }
}

/// What happened to n1 and to job 42; of more than two the newest.
pub(super) fn events(request: &EventsRequest) -> EventsResponse {
    let event = |seconds: f64, kind: &str, job_id: &str, detail: &str| Event {
        at_seconds: NOW - seconds,
        kind: kind.to_owned(),
        job_id: job_id.to_owned(),
        node: "n1".to_owned(),
        detail: detail.to_owned(),
    };
    let mut events = vec![
        event(300.0, "device-fault", "", "g1: it is gone: fell off the bus"),
        event(200.0, "drained", "", "g1: drained by root: fan | noise\nforged"),
        event(100.0, "evicted", "42", "evicted by root: too noisy"),
    ];
    let is_asked_for = |event: &Event| {
        (request.job_ids.is_empty() || request.job_ids.contains(&event.job_id))
            && (request.nodes.is_empty() || request.nodes.contains(&event.node))
            && (request.kinds.is_empty() || request.kinds.contains(&event.kind))
            && event.at_seconds >= request.since_seconds
    };
    events.retain(is_asked_for);
    let limit = usize::try_from(request.limit).expect("a few");
    let excess = events.len().saturating_sub(limit);
    EventsResponse { events: events.split_off(excess), has_more: excess > 0 }
}
