//! Jobs as their users see them: one that ended slow, one that waits, one that runs.

use super::{NOW, decision, host, queue_job};
use pillion_api::{
    AccountRequest, AccountResponse, AccountRow, Decision, Event, HeldDevice, JobResponse, JobStatus, Member,
    MemoryAlarms, Profile, QueueJob, Rightsizing, ScaleSum, SlowCause,
};
use pillion_proto::v1::{ActivityMeans, JobSummary};

const PROFILE: &str = r#"{"workload":"alice/4f1c","device_model":"h100","run_count":3,"duration_seconds":600.4,
    "duration_variation_fraction":0.02,"throughput_per_second":null,"sm_active_fraction":0.55,"sm_occupancy_fraction":0.3,
    "stall_fraction":null,"fp32_active_fraction":null,"gpu_busy_fraction":0.9,"memory_bandwidth_fraction":0.21,
    "cache_bandwidth_fraction":null,"pcie_tx_bytes_per_second":null,"pcie_rx_bytes_per_second":null,
    "memory_bytes_peak":8589934592,"process_count_peak":1,"power_watts_mean":350.2,"energy_joules":210120.0}"#;

pub(super) fn job(job_id: &str) -> JobResponse {
    let status = match job_id {
        "42" => slow(),
        "43" => JobStatus {
            job: Some(QueueJob { submitted_at_seconds: Some(NOW - 190.0), ..queue_job("43", "alice") }),
            now_seconds: NOW,
            ..JobStatus::default()
        },
        "44" => JobStatus {
            job: Some(QueueJob { state: "running".to_owned(), ..queue_job("44", "alice") }),
            node: Some("n1".to_owned()),
            started_at_seconds: Some(NOW - 30.0),
            decision: Some(Decision {
                members: vec![Member { measured_speed_fraction: None, ..host() }],
                ..decision()
            }),
            now_seconds: NOW,
            ..JobStatus::default()
        },
        "45" => evicted(),
        "46" => whole(),
        "51" => observed(),
        _ => return JobResponse::default(),
    };
    JobResponse { found: true, status: Some(status) }
}

/// One of two GPUs in an observed partition, of which the second was never used.
fn observed() -> JobStatus {
    let held = |gres_type: &str, idle_seconds: f64, was_used| HeldDevice {
        node: "n7".to_owned(),
        gres_type: gres_type.to_owned(),
        seen_seconds: 90_000.0,
        idle_seconds,
        was_used,
    };
    JobStatus {
        job: Some(QueueJob {
            state: "running".to_owned(),
            partition: "gpu".to_owned(),
            slowdown_ratio_max: None,
            starts_alone_at_seconds: None,
            ..queue_job("51", "alice")
        }),
        node: Some("n7".to_owned()),
        started_at_seconds: Some(NOW - 90_000.0),
        shadow: Some("it would have started 41 min sooner on n7's GPU g2 beside another job, at 93 % of its speed alone as predicted".to_owned()),
        held_devices: vec![held("g0", 1_800.0, true), held("g1", 90_000.0, false)],
        rightsizing: vec![Rightsizing {
            sentences: vec!["1 of its 2 GPUs would have done: in 3 starts it never used more".to_owned()],
            ..Rightsizing::default()
        }],
        now_seconds: NOW,
        ..JobStatus::default()
    }
}

fn profile(json: &str) -> Profile {
    Profile { json: json.to_owned(), workload_name: None, slices: Vec::new() }
}

/// As the scheduler counts a week.
pub(super) fn account(request: &AccountRequest) -> AccountResponse {
    let row = |key: &str, saved: f64, promises_broken| AccountRow {
        key: key.to_owned(),
        run_count: 40,
        shared_run_count: 30,
        gpu_seconds: 144_000.0,
        shared_seconds: 90_000.0,
        unmeasured_seconds: 3_600.0,
        gpu_seconds_saved: saved,
        energy_joules: 36e6,
        energy_joules_saved: 5.4e6,
        promises_kept: 27,
        promises_broken,
        sent_back_run_count: promises_broken,
        workload_name: key.contains('/').then(|| "alice/bert".to_owned()),
    };
    let rows = match request.group_by.as_str() {
        "" if request.nodes == ["n7"] => vec![],
        "" => vec![row("", 18_000.0, 1)],
        "workload" => vec![row("alice/4f1c", 18_000.0, 1)],
        _ => vec![row("alice", 18_000.0, 1), row("bob", -900.0, 0)],
    };
    // Told to operators, of all.
    let is_asked = request.group_by.is_empty() && request.scaling_runs_max == Some(0);
    let scaling = (is_asked && !rows.is_empty()).then_some(ScaleSum {
        efficiency_ratio: 0.5,
        workload_count: 3,
        gpu_seconds: 360_000.0,
        gpu_seconds_above: 147_600.0,
        is_cut: false,
    });
    let (since_seconds, until_seconds) = (request.since_seconds, request.until_seconds);
    let memory_alarms = Some(MemoryAlarms { told: 4, came_true: 3 });
    AccountResponse { since_seconds, until_seconds, rows, scaling, memory_alarms }
}

/// One that an operator ended, and that waits to run alone.
fn evicted() -> JobStatus {
    let event = |seconds: f64, kind: &str, detail: &str| Event {
        at_seconds: NOW - seconds,
        kind: kind.to_owned(),
        job_id: Some("45".to_owned()),
        node: Some("n1".to_owned()),
        detail: detail.to_owned(),
    };
    JobStatus {
        job: Some(QueueJob {
            state: "alone".to_owned(),
            reason: "runs alone as soon as Slurm finds a free GPU".to_owned(),
            ..queue_job("45", "alice")
        }),
        restart_count: 1,
        events: vec![
            event(30.0, "evicted", "evicted by root: too noisy; it is to be ended and started again, alone"),
            event(26.0, "requeued", "it is started again, alone: evicted by root: too noisy"),
        ],
        now_seconds: NOW,
        ..JobStatus::default()
    }
}

/// One that taught nothing, of a workload whose speed under caps is known.
fn whole() -> JobStatus {
    let known = "\"throughput_per_second_at_cap\":[null,0.0008,null,null,null,0.00163,null,null,null],\"sm_active_fraction\"";
    // Nor could its memory be read.
    let JobStatus { run, .. } = slow();
    JobStatus {
        run: run.map(|run| JobSummary { memory_bytes_peak: None, ..run }),
        profile: Some(profile(&PROFILE.replace("\"sm_active_fraction\"", known))),
        lesson_kind: Some("nothing".to_owned()),
        lesson_detail: Some("it was too short for enough samples".to_owned()),
        ..slow()
    }
}

fn own_decision() -> Decision {
    Decision { members: vec![host()], ..decision() }
}

fn slow() -> JobStatus {
    let run = JobSummary {
        job_id: "42".to_owned(),
        gres_type: "g1".to_owned(),
        started_at_seconds: NOW,
        ended_at_seconds: NOW + 723.0,
        shared_seconds: 506.1,
        memory_bytes_peak: Some(6 << 30),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        energy_joules: Some(123_456.0),
        progress_shared_seconds: 506.1,
        progress_solo_seconds: 216.9,
        solo_means: Some(ActivityMeans {
            sm_active_fraction: Some(0.57),
            memory_bandwidth_fraction: Some(0.2),
            ..ActivityMeans::default()
        }),
        solo_sample_count: 216,
        ..JobSummary::default()
    };
    let cause =
        |kind: &str, evidence: &str| SlowCause { kind: kind.to_owned(), evidence: evidence.to_owned() };
    let event = Event {
        at_seconds: NOW + 3.0,
        kind: "missed".to_owned(),
        job_id: Some("42".to_owned()),
        node: Some("n1".to_owned()),
        detail: "its first task ran without a cap".to_owned(),
    };
    JobStatus {
        job: Some(QueueJob {
            state: "completed".to_owned(),
            reason: String::new(),
            ..queue_job("42", "alice")
        }),
        node: Some("n1".to_owned()),
        started_at_seconds: Some(NOW),
        ended_at_seconds: Some(NOW + 723.0),
        ending: Some("completed".to_owned()),
        decision: Some(own_decision()),
        run: Some(run),
        neighbour_count: 1,
        profile: Some(profile(PROFILE)),
        throttled_fraction: Some(0.2),
        speed_fraction: Some(0.83),
        slow_causes: vec![
            cause(
                "neighbour",
                "beside its neighbour it went at 83 % of its speed alone, for 70 % of its time",
            ),
            cause("throttling", "power or heat held the GPU's clock down for 20 % of its time"),
        ],
        advice: Some(
            "Nobody knows how fast it went: let it write its progress to $PILLION_PROGRESS".to_owned(),
        ),
        events: vec![event],
        now_seconds: NOW + 800.0,
        ..JobStatus::default()
    }
}
