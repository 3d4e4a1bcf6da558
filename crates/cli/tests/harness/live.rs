//! Rules, events, and the pool at one glance.

use super::{NOW, host, queue_job};
use pillion_api::{
    Activity, Event, EventsRequest, EventsResponse, IdleDevice, IdleRequest, IdleResponse, Member,
    PolicyResponse, PolicyRule, TopCounts, TopDevice, TopRequest, TopResponse,
};

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
            PolicyRule { file: Some(file), line: Some(7), ..users },
            rule("victim_requeues", "1", "built-in", "A victim is started again once."),
            rule("mechanisms", "[\"mps: 2\"]", "agents", "How devices are shared."),
        ],
    }
}

/// What happened to n1 and to job 42; of more than two the newest.
pub(super) fn events(request: &EventsRequest) -> EventsResponse {
    let event = |seconds: f64, kind: &str, job_id: Option<&str>, detail: &str| Event {
        at_seconds: NOW - seconds,
        kind: kind.to_owned(),
        job_id: job_id.map(str::to_owned),
        node: Some("n1".to_owned()),
        detail: detail.to_owned(),
    };
    let mut events = vec![
        event(300.0, "device-fault", None, "g1: it is gone: fell off the bus"),
        event(200.0, "drained", None, "g1: drained by root: fan | noise\nforged"),
        event(100.0, "evicted", Some("42"), "evicted by root: too noisy"),
    ];
    let is_asked_for = |event: &Event| {
        let is_among =
            |all: &[String], one: Option<&String>| all.is_empty() || one.is_some_and(|one| all.contains(one));
        is_among(&request.job_ids, event.job_id.as_ref())
            && is_among(&request.nodes, event.node.as_ref())
            && (request.kinds.is_empty() || request.kinds.contains(&event.kind))
            && event.at_seconds >= request.since_seconds
    };
    events.retain(is_asked_for);
    let limit = usize::try_from(request.limit).expect("a few");
    let excess = events.len().saturating_sub(limit);
    EventsResponse { events: events.split_off(excess), has_more: excess > 0 }
}

/// Two GPUs of alice without work, and one of bob whose user wrote what he liked into its name.
pub(super) fn idle(request: &IdleRequest) -> IdleResponse {
    let device = |job_id: &str, user: &str, gres_type: &str, hours: f64| IdleDevice {
        job_id: job_id.to_owned(),
        user: user.to_owned(),
        account: "ml".to_owned(),
        partition: "gpu".to_owned(),
        workload: Some(format!("{user}/line-4f1c09aa12bc77de")),
        workload_name: Some(format!("{user}/notebook")),
        node: "n7".to_owned(),
        gres_type: gres_type.to_owned(),
        device_model: Some("a100".to_owned()),
        since_seconds: NOW - hours * 3600.0,
        idle_seconds: hours * 3600.0,
        has_process: gres_type == "g1",
        job_started_at_seconds: NOW - 90_000.0,
    };
    let mut devices = vec![
        device("51", "alice", "g0", 20.5),
        device("51", "alice", "g1", 3.0),
        device("52", "bob", "g2", 1.25),
    ];
    devices.retain(|it| {
        it.idle_seconds >= request.for_seconds && (request.user.is_empty() || it.user == request.user)
    });
    IdleResponse {
        for_seconds: request.for_seconds,
        busy_below_fraction: request.busy_below_fraction,
        now_seconds: NOW,
        seen_at_seconds: Some(NOW - 2.0),
        held_count: 9,
        unseen_count: 2,
        devices,
    }
}

/// A pool of 8,000 GPUs, of which the rows that were asked for and no more are sent.
pub(super) fn top(request: TopRequest) -> TopResponse {
    let TopRequest { device_offset, device_limit, job_offset: _, job_limit } = request;
    assert!(device_limit < 100 && job_limit < 100, "a screen is not that large");
    let device = |index: u32| TopDevice {
        node: format!("n{}", index / 8),
        gres_type: format!("g{}", index % 8),
        device_model: "h100".to_owned(),
        mechanism: "mps".to_owned(),
        memory_bytes: 80 << 30,
        shards_used: if index == 0 { 100 } else { 0 },
        closed: (index == 3).then(|| "drained by root: fan noise".to_owned()),
        tenants: if index == 0 { tenants() } else { Vec::new() },
        activity: (index == 0).then_some(Activity {
            sm_active_fraction: Some(0.73),
            gpu_busy_fraction: None,
            memory_bytes_used: Some(61 << 30),
            power_watts: Some(512.4),
        }),
    };
    TopResponse {
        now_seconds: NOW,
        mode: "active".to_owned(),
        counts: Some(TopCounts { devices: 8000, shared: 1, single: 0, idle: 7999, closed: 1 }),
        agent_count: 1000,
        agents_not_responding_count: 0,
        waiting_count: 2,
        unplaced_count: 3,
        devices: (device_offset..8000.min(device_offset + device_limit)).map(device).collect(),
        jobs: vec![queue_job("44", "alice"), queue_job("33_2", "bob")],
    }
}

fn tenants() -> Vec<Member> {
    let running = Member { state: "running".to_owned(), ..host() };
    vec![running, Member { state: "released".to_owned(), ..Member::default() }]
}
