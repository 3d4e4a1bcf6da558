//! Who and what is there: users, workloads with their profiles, nodes, devices.

use crate::options::Options;
use pillion_core::device::DeviceDescription;
use pillion_core::fault::FaultSigns;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::{ActivityMeans, AgentHello, JobSummary, ProgressPart, Report, ReportBody};
use pillion_core::{DeviceUuid, GresType, JobStart, NodeName, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_slurm::Ending;
use pillion_store::{Durations, JobRecord, Lesson, RunAccount, Store, StoredProfile, Sums};
use std::time::Duration;

pub(crate) const CPUS_PER_NODE: u32 = 64;
pub(crate) const CPUS_PER_JOB: u32 = 2;
const MODEL: &str = "h200";
const GIB: u64 = 1 << 30;
/// Jobs that ran before have ids of their own.
const FIRST_PAST_ID: u32 = 1 << 30;

pub(crate) fn node_name(number: u16) -> NodeName {
    NodeName::new(format!("n{:04}", u32::from(number) + 1))
}

pub(crate) fn user_name(user: u32) -> String {
    format!("user{user}")
}

pub(crate) fn digest(user: u32, number: u32) -> String {
    format!("{:016x}", (u64::from(user) << 32) | u64::from(number))
}

fn workload(user: u32, number: u32) -> WorkloadKey {
    WorkloadKey::new(format!("{}/{}", user_name(user), digest(user, number)))
}

/// A workload between light and heavy.
fn weight(user: u32, number: u32) -> f64 {
    f64::from((user * 7 + number * 3) % 25) / 25.0
}

/// What an agent of that node says first.
pub(crate) fn hello(number: u16, devices: u8, at: UnixTime) -> AgentHello {
    let node = node_name(number);
    let device = |index: u8| DeviceDescription {
        uuid: DeviceUuid::new(format!("{node}-{index}")),
        model: MODEL.to_owned(),
        gres_type: GresType::new(format!("g{index}")),
        ..pillion_test_kit::device(u32::from(index))
    };
    AgentHello {
        agent_version: "bench".to_owned(),
        journal_id: journal(&node),
        devices: (0..devices).map(device).collect(),
        sent_at: at,
        node,
        ..pillion_test_kit::hello("n1")
    }
}

pub(crate) fn journal(node: &NodeName) -> String {
    format!("journal-{node}")
}

/// What an agent tells of a run that was alone all the time.
pub(crate) fn summary(start: JobStart, device: u8, ended_at: UnixTime, seconds: u32) -> JobSummary {
    let means = ActivityMeans(Metrics::from([
        (Metric::PowerWatts, 400.0),
        (Metric::SmActiveFraction, 0.4),
        (Metric::GpuBusyFraction, 0.6),
        (Metric::MemoryBandwidthFraction, 0.3),
    ]));
    JobSummary {
        gres_type: GresType::new(format!("g{device}")),
        started_at: ended_at - Duration::from_secs(u64::from(seconds)),
        ended_at,
        memory_bytes_peak: Some(8 * GIB),
        energy_joules: Some(400.0 * f64::from(seconds)),
        solo: ProgressPart { progress: Some(f64::from(seconds)), seconds: f64::from(seconds) },
        solo_means: Some(means),
        solo_sample_count: seconds,
        signs: Some(FaultSigns::default()),
        ..pillion_test_kit::summary(start)
    }
}

fn profile(user: u32, number: u32) -> WorkloadProfile {
    let weight = weight(user, number);
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, weight),
            (Metric::GpuBusyFraction, 0.3 + weight),
            (Metric::MemoryBandwidthFraction, 0.9 - weight),
            (Metric::CacheBandwidthFraction, 0.5 * weight),
            (Metric::PowerWatts, 150.0 + 400.0 * weight),
        ]),
        run_count: 3,
        duration_seconds: Some(400.0),
        duration_variation_fraction: Some(0.05),
        throughput_per_second: Some(1.0),
        memory_bytes_peak: Some(8 * GIB),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(workload(user, number), MODEL)
    }
}

/// Every workload ran once before and has its profile.
pub(crate) async fn remember_workloads(
    store: &dyn Store,
    options: &Options,
    now: UnixTime,
) -> anyhow::Result<()> {
    let per_user = (options.workloads / options.users).max(1);
    let node = NodeName::new("n0001");
    let (mut id, mut sequence) = (FIRST_PAST_ID, 0);
    for user in 0..options.users {
        for number in 0..per_user {
            (id, sequence) = (id + 1, sequence + 1);
            let start = JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 };
            let ended_at = now - Duration::from_hours(1);
            let run = summary(start, 0, ended_at, 400);
            let record = past_job(start, user, number, &run);
            store.record_jobs(std::slice::from_ref(&record), now).await?;
            let gres_type = run.gres_type.clone();
            let body = ReportBody::JobSummary(Box::new(run));
            store.ingest(&node, "journal-before", &Report { sequence, body }).await?;
            let account = RunAccount {
                uid: record.uid,
                user: record.user,
                account: record.account,
                partition: record.partition,
                workload: record.workload,
                node: node.clone(),
                ended_at,
                sums: Sums::default(),
                use_beyond_fraction: None,
                slice: None,
            };
            let stored = StoredProfile {
                profile: profile(user, number),
                durations: Durations::default(),
                run_counts_at_cap: [0; 9],
                updated_at: now,
            };
            let lesson = Lesson::from(LessonKind::Alone);
            store.profile_run(start, &gres_type, &account, &lesson, Some(&stored)).await?;
        }
    }
    Ok(())
}

fn past_job(start: JobStart, user: u32, number: u32, run: &JobSummary) -> JobRecord {
    JobRecord {
        id: start.job_id,
        restart_count: 0,
        uid: UserId(2000 + user),
        user: user_name(user),
        account: "physics".to_owned(),
        partition: "shared".to_owned(),
        workload: workload(user, number),
        slowdown_ratio_max: None,
        memory_bytes_declared: None,
        submitted_at: run.started_at,
        started_at: Some(run.started_at),
        ended_at: Some(run.ended_at),
        ending: Some(Ending::Completed),
        node: Some(NodeName::new("n0001")),
        node_count: Some(1),
        gres: "shard:g0:100".to_owned(),
        alone: false,
        exit: Some((0, 0)),
    }
}
