//! Rules, events, and the pool at one glance.

use super::{NOW, host, queue_job};
use pillion_api::{
    Activity, ClusterDevice, ClusterNode, ClusterRequest, ClusterResponse, Event, EventsRequest,
    EventsResponse, ExplainResponse, IdleDevice, IdleRequest, IdleResponse, Member, PolicyResponse,
    PolicyRule, QueueJob, RightsizeRequest, RightsizeResponse, Rightsizing, ShadowBelief, ShadowCalibration,
    ShadowCount, ShadowRequest, ShadowResponse, Tenant, TopCounts, TopDevice, TopRequest, TopResponse,
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

/// Two workloads of alice and one of bob, for which less would do.
pub(super) fn rightsize(request: &RightsizeRequest) -> RightsizeResponse {
    let row = |user: &str, name: &str, device_count| Rightsizing {
        workload: Some(format!("{user}/4f1c09aa12bc77de")),
        workload_name: Some(format!("{user}/{name}")),
        user: user.to_owned(),
        device_model: "h100".to_owned(),
        device_count,
        run_count: 6,
        gpu_hours: Some(120.5 / f64::from(device_count)),
        used_fraction: Some(0.12),
        memory_bytes_needed: Some(11 << 30),
        memory_bytes: Some(80 << 30),
        device_count_enough: None,
        device_model_enough: None,
        memory_bytes_enough: None,
        sentences: Vec::new(),
    };
    let mut rows = vec![
        Rightsizing {
            device_model_enough: Some("t4".to_owned()),
            memory_bytes_enough: Some(11 << 30),
            sentences: vec![
                "a GPU of model t4 would have done: its memory is enough".to_owned(),
                "11.0 GiB of the GPU's 80.0 GiB of memory would have done".to_owned(),
            ],
            ..row("alice", "notebook", 1)
        },
        Rightsizing {
            device_count_enough: Some(1),
            gpu_hours: None,
            sentences: vec!["1 of its 4 GPUs would have done: in 6 starts it never used more".to_owned()],
            ..row("bob", "train", 4)
        },
    ];
    rows.retain(|row| {
        row.run_count >= request.run_count_min && (request.user.is_empty() || row.user == request.user)
    });
    RightsizeResponse { run_count_min: request.run_count_min, workload_count: 5, rows }
}

/// A month in the shadow; nothing before it.
pub(super) fn shadow(request: &ShadowRequest) -> ShadowResponse {
    let ShadowRequest { since_seconds, until_seconds } = *request;
    let partitions = vec!["gpu".to_owned(), "long".to_owned()];
    if until_seconds < NOW - 1.0 {
        let mode = "off".to_owned();
        return ShadowResponse {
            since_seconds,
            until_seconds,
            mode,
            partitions,
            ..ShadowResponse::default()
        };
    }
    let count =
        |kind: &str, text: &str, count| ShadowCount { kind: kind.to_owned(), text: text.to_owned(), count };
    ShadowResponse {
        since_seconds,
        until_seconds,
        mode: "shadow".to_owned(),
        partitions,
        start_count: 1_200,
        open_count: 31,
        gpu_hours: 8_123.4,
        alone: vec![
            count("alone-joinable", "others could have joined it", 610),
            count("unknown-workload", "the workload has not been measured on this device model yet", 190),
        ],
        paired_count: 400,
        scored_count: 370,
        unscored: vec![count("open", "not over yet", 21), count("never-ran", "the job never ran", 9)],
        fits: vec![
            count("fits", "their memory fits", 361),
            count("short", "their memory does not fit", 2),
            count("unknown", "the memory of one of them is not known", 7),
        ],
        overlap: Some(ShadowBelief { as_believed_count: 300, otherwise_count: 60, unknown_count: 10 }),
        overlap_hours_believed: 1_480.0,
        overlap_hours: 1_402.5,
        saved_gpu_hours_low: 512.25,
        saved_gpu_hours: 840.5,
        over_limit_count: 3,
        promise_count: 800,
        promises_at_risk: 12.3,
        durations: Some(ShadowBelief { as_believed_count: 900, otherwise_count: 79, unknown_count: 190 }),
        is_deciding: Some(true),
        calibration: Some(ShadowCalibration {
            speed_count: 44,
            above_bound_count: 37,
            promises_broken: 2,
            promises_broken_expected: 1.3,
            stretch_ratio: Some(1.21),
            saved_gpu_hours_low: Some(443.3),
        }),
    }
}

/// A job that waits in an observed partition, and what is known of it.
pub(super) fn explain_shadow(job_id: &str) -> Option<ExplainResponse> {
    (job_id == "51").then(|| ExplainResponse {
        found: true,
        job: Some(QueueJob {
            partition: "gpu".to_owned(),
            reason: "Resources".to_owned(),
            slowdown_ratio_max: None,
            starts_alone_at_seconds: None,
            ..queue_job("51", "alice")
        }),
        shadow: Some("it would wait: no device is free".to_owned()),
        ..ExplainResponse::default()
    })
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
        shards_used: [100, 0, 56].get(index as usize).copied().unwrap_or(0),
        closed: (index == 3).then(|| "drained by root: fan noise".to_owned()),
        tenants: match index {
            0 => tenants(),
            2 => tenants_of_instances(),
            _ => Vec::new(),
        },
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
        counts: Some(TopCounts { devices: 8000, shared: 2, single: 0, idle: 7998, closed: 1 }),
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

/// Two who have an instance each.
fn tenants_of_instances() -> Vec<Member> {
    let in_one = |job: &str, user: &str, slot: &str| Member {
        job_id: Some(job.to_owned()),
        user: Some(user.to_owned()),
        state: "running".to_owned(),
        cap_fraction: None,
        mig_slot: Some(slot.to_owned()),
        ..host()
    };
    vec![in_one("43", "bob", "3g.40gb@4"), in_one("45", "carol", "1g.10gb@0")]
}

/// As many nodes as are asked for of three hundred. The GPUs of two are cut: on the one two of bob's share an instance, and nobody says
/// who is beside them; on the other, far behind, is somebody.
pub(super) fn cluster(request: &ClusterRequest) -> ClusterResponse {
    let in_one = |user: Option<&str>, slot: &str| Tenant {
        user: user.map(str::to_owned),
        mig_slot: Some(slot.to_owned()),
        ..Tenant::default()
    };
    let bobs = in_one(Some("bob"), "3g.40gb@4");
    let device = |gres_type: &str, tenants: Vec<Tenant>| ClusterDevice {
        gres_type: gres_type.to_owned(),
        tenants,
        ..ClusterDevice::default()
    };
    let node = |number: u32| ClusterNode {
        node: format!("n{number}"),
        devices: match number {
            1 => vec![
                device("g0", vec![bobs.clone(), in_one(None, "1g.10gb@0"), bobs.clone()]),
                device("g1", vec![Tenant::default()]),
            ],
            300 => vec![device("g0", vec![in_one(None, "2g.20gb@2")])],
            _ => Vec::new(),
        },
        ..ClusterNode::default()
    };
    let ClusterRequest { offset, limit, .. } = request;
    let numbers = (1..=300).skip(*offset as usize).take(*limit as usize);
    ClusterResponse { match_count: 300, nodes: numbers.map(node).collect(), ..ClusterResponse::default() }
}
