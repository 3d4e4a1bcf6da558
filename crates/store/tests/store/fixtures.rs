//! Jobs, plans and reports for the suite, each complete and easily changed.

use pillion_core::decision::MemberState;
use pillion_core::device::{DeviceDescription, Mechanism, Reading, TenantUse};
use pillion_core::fault::{FaultSigns, MemorySample, StderrWords, XidSeen};
use pillion_core::metric::{Metric, MetricSource, Metrics, Throttle};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::{
    ActivityMeans, DeviceSample, DeviceSamples, JobSummary, Launch, ProgressPart, Report, ReportBody,
};
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, Fraction, GresType, JobStart, NodeName, Revision, Shards, SlurmJobId, UnixTime, UserId,
    WorkloadKey,
};
use pillion_pairing::{Candidate, Explanation, FirstRun, Reason, Role, SpeedEstimate};
use pillion_slurm::Ending;
use pillion_store::{
    Durations, JobRecord, Lesson, MemberStep, NewDecision, NewMember, NewObservation, RunAccount,
    SharingTenant, Store, StoredProfile, Sums,
};

pub(crate) fn at(seconds: u32) -> UnixTime {
    UnixTime::from_seconds(1_790_000_000.5 + f64::from(seconds))
}

pub(crate) fn fraction(value: f64) -> Fraction {
    Fraction::try_new(value).expect("a fraction")
}

pub(crate) fn plain(id: u32) -> SlurmJobId {
    SlurmJobId::plain(id)
}

pub(crate) fn start(id: u32) -> JobStart {
    JobStart { job_id: plain(id), restart_count: 0 }
}

pub(crate) fn node() -> NodeName {
    NodeName::new("n1")
}

/// What a run teaches where a case does not look at it.
pub(crate) const LESSON: Lesson = Lesson { kind: LessonKind::Nothing, detail: String::new() };

pub(crate) fn gres() -> GresType {
    GresType::new("g1")
}

/// A job that waits.
pub(crate) fn job(id: u32) -> JobRecord {
    JobRecord {
        id: plain(id),
        restart_count: 0,
        uid: UserId(1000),
        user: "alice".to_owned(),
        account: "physics".to_owned(),
        partition: "shared".to_owned(),
        workload: WorkloadKey::new("alice/1f0c"),
        slowdown_ratio_max: None,
        memory_bytes_declared: None,
        submitted_at: at(0),
        started_at: None,
        ended_at: None,
        ending: None,
        node: None,
        node_count: None,
        gres: "gres/shard:100".to_owned(),
        alone: false,
        exit: None,
    }
}

/// A job that is over.
pub(crate) fn ended_job(id: u32) -> JobRecord {
    JobRecord {
        started_at: Some(at(10)),
        ended_at: Some(at(70)),
        ending: Some(Ending::Completed),
        exit: Some((0, 0)),
        node: Some(node()),
        node_count: Some(1),
        ..job(id)
    }
}

pub(crate) fn explanation(id: u32, reason: Reason, text: &str) -> Explanation {
    Explanation {
        job_id: plain(id),
        reason,
        text: text.into(),
        model: "contention-1".into(),
        candidates: [].into(),
    }
}

pub(crate) fn estimate(speed_fraction: f64) -> SpeedEstimate {
    SpeedEstimate {
        speed_fraction,
        speed_fraction_deviation: 0.1,
        has_heavy_tail: true,
        speed_fraction_low: speed_fraction - 0.125,
        speed_fraction_high: 1.0,
        terms: std::sync::Arc::new([("bandwidth".into(), 0.25)].into()),
    }
}

pub(crate) fn member(id: u32, role: Role) -> NewMember {
    NewMember {
        start: start(id),
        uid: UserId(1000),
        workload: WorkloadKey::new("alice/1f0c"),
        role,
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::try_new(50).expect("shards"),
        memory_bytes: None,
        slowdown_ratio_max: 1.25,
        estimate: None,
        solo_duration_seconds: None,
        explanation: Some(explanation(id, Reason::Paired, "shares")),
    }
}

/// With every optional value present.
pub(crate) fn full_member(id: u32) -> NewMember {
    let candidate = Candidate {
        partner: SlurmJobId::array_task(33, 2),
        workload: WorkloadKey::new("bob/2"),
        is_running: true,
        cap_fractions: (Some(fraction(0.4)), None),
        own: Some(estimate(0.75)),
        other: None,
        gain: Some(0.5),
        excluded_by: Some(Reason::MemoryDoesNotFit),
        chosen: false,
    };
    NewMember {
        sharing: Sharing::Mps { cap: Some(fraction(0.6)), memory_limit_bytes: Some(4 << 30) },
        memory_bytes: Some(8 << 30),
        estimate: Some(estimate(0.9)),
        solo_duration_seconds: Some(61.5),
        explanation: Some(Explanation {
            candidates: [candidate].into(),
            ..explanation(id, Reason::Joined, "joins, with \"quotes\", 'others'\nand a line")
        }),
        ..member(id, Role::Joiner)
    }
}

pub(crate) fn decision(members: Vec<NewMember>) -> NewDecision {
    NewDecision {
        node: node(),
        gres_types: gres().into(),
        device_model: "h100".to_owned(),
        joins: None,
        gain: 0.625,
        trial: None,
        first_run: None,
        members,
    }
}

/// What was seen of a first run.
pub(crate) fn first_run() -> FirstRun {
    let unseen = FirstRun::unseen(WorkloadKey::new("alice/new"), "h100");
    FirstRun { measured_seconds: 300.5, sample_count: 150, drift_fraction: Some(0.0625), ..unseen }
}

pub(crate) fn pair(host: u32, joiner: u32) -> NewDecision {
    decision(vec![member(host, Role::Host), member(joiner, Role::Joiner)])
}

/// Commits at the present revision.
pub(crate) async fn commit(store: &dyn Store, decisions: &[NewDecision]) -> Vec<DecisionId> {
    let parent: Revision = store.revision().await.expect("revision");
    store.commit_plan(parent, decisions, at(1)).await.expect("commit")
}

pub(crate) fn step(id: DecisionId, job: u32, from: MemberState, to: MemberState, seconds: u32) -> MemberStep {
    MemberStep { decision_id: id, start: start(job), from, to, at: at(seconds) }
}

/// Brings a member from planned to running.
pub(crate) async fn run(store: &dyn Store, id: DecisionId, job: u32) {
    use MemberState::{Planned, Released, Running};
    for (from, to) in [(Planned, Released), (Released, Running)] {
        assert!(store.step_member(&step(id, job, from, to, 5)).await.expect("step"), "{from} to {to}");
    }
}

pub(crate) fn device() -> DeviceDescription {
    DeviceDescription {
        model: "h100".to_owned(),
        memory_bytes: 80 << 30,
        gres_type: gres(),
        ..pillion_test_kit::device(1)
    }
}

pub(crate) fn summary(id: u32) -> JobSummary {
    JobSummary {
        start: start(id),
        gres_type: gres(),
        started_at: at(10),
        ended_at: at(70 + id),
        shared_seconds: 12.5,
        shared_device_seconds: Some(5.25),
        memory_bytes_peak: Some(6 << 30),
        process_count_peak: 2,
        process_memory_bytes_peak: Some(1 << 30),
        energy_joules: Some(15_000.25),
        solo: ProgressPart { progress: Some(100.0), seconds: 47.5 },
        shared: ProgressPart { progress: None, seconds: 12.5 },
        solo_means: Some(ActivityMeans(
            Metrics::from([
                (Metric::PowerWatts, 350.5),
                (Metric::SmActiveFraction, 0.75),
                (Metric::Throttles, 0.25),
            ])
            .from_source(MetricSource::Nvml),
        )),
        solo_sample_count: 47,
        neighbours: vec![JobStart { job_id: SlurmJobId::array_task(33, 2), restart_count: 1 }],
        signs: Some(FaultSigns {
            memory: vec![MemorySample {
                at: at(69),
                bytes: 80,
                bytes_used: Some(79),
                process_bytes_max: None,
            }],
            process_bytes_limit: Some(40),
            was_over_limit: true,
            stderr: Some(StderrWords::Sure),
            xids: vec![XidSeen { at: at(68), code: 79, is_own: Some(false) }],
        }),
    }
}

pub(crate) fn summary_report(sequence: u64, summary: JobSummary) -> Report {
    Report { sequence, body: ReportBody::JobSummary(Box::new(summary)) }
}

pub(crate) fn launch(id: u32) -> Launch {
    Launch {
        at: at(10),
        start: start(id),
        step_id: u32::MAX - 4,
        decision_id: Some(DecisionId(7)),
        gres_types: vec![gres(), GresType::new("g2")],
        profile_name: Some("bert".to_owned()),
    }
}

pub(crate) fn samples_report(sequence: u64, seconds: u32) -> Report {
    let tenant = TenantUse {
        job_id: plain(1),
        restart_count: 0,
        memory_bytes: Some(1 << 30),
        process_count: 1,
        progress: Some(2.5),
    };
    let metrics = Metrics::from([
        (Metric::EnergyJoules, 12.5),
        (Metric::SmActiveFraction, 0.5),
        (Metric::SmClockHertz, 1.98e9),
        (Metric::MemoryBytesUsed, 1_099_511_627_776.0),
    ]);
    let mut reading = Reading::from(metrics.from_source(MetricSource::NvmlGpm));
    reading.set_throttles([Throttle::Heat, Throttle::PowerLimit].into());
    let sample = DeviceSample { gres_type: gres(), reading, tenants: vec![tenant] };
    let idle = DeviceSample { gres_type: GresType::new("g2"), reading: Reading::default(), tenants: vec![] };
    let body = DeviceSamples { recorded_at: at(seconds), samples: vec![sample, idle] };
    Report { sequence, body: ReportBody::Samples(body) }
}

/// Of the run in [`summary`], with every sum present and none equal to another.
pub(crate) fn account(id: u32) -> RunAccount {
    let JobRecord { uid, user, account, partition, workload, .. } = ended_job(id);
    let sums = Sums {
        run_count: 1,
        shared_run_count: 1,
        gpu_seconds: 53.75,
        shared_seconds: 12.5,
        unmeasured_seconds: 2.5,
        gpu_seconds_saved: -4.25,
        energy_joules: 15_000.25,
        energy_joules_saved: 6_000.5,
        promises_kept: 2,
        promises_broken: 3,
        sent_back_run_count: 4,
    };
    RunAccount {
        uid,
        user,
        account,
        partition,
        workload,
        node: node(),
        ended_at: summary(id).ended_at,
        sums,
        use_beyond_fraction: None,
        slice: None,
    }
}

/// With every value present, none equal to another.
pub(crate) fn profile(workload: &str) -> StoredProfile {
    let profile = WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, 0.1),
            (Metric::SmOccupancyFraction, 0.2),
            (Metric::StallFraction, 0.3),
            (Metric::Fp32ActiveFraction, 0.4),
            (Metric::GpuBusyFraction, 0.5),
            (Metric::MemoryBandwidthFraction, 0.6),
            (Metric::CacheBandwidthFraction, 0.7),
            (Metric::PcieTxBytesPerSecond, 1e9),
            (Metric::PcieRxBytesPerSecond, 2e9),
            (Metric::PowerWatts, 350.5),
            (Metric::MemoryBusyFraction, 0.8),
            (Metric::TensorActiveFraction, 0.9),
            (Metric::NvlinkTxBytesPerSecond, 3e9),
            (Metric::NvlinkRxBytesPerSecond, 4e9),
            (Metric::Throttles, 0.15),
        ])
        .from_source(MetricSource::DcgmExporter),
        run_count: 3,
        duration_seconds: Some(60.5),
        duration_variation_fraction: Some(1.5),
        throughput_per_second: Some(2.25),
        memory_bytes_peak: Some(6 << 30),
        memory_bytes_completed: Some(7 << 30),
        memory_bytes_ran_out: Some(5 << 30),
        process_count_peak: 2,
        process_memory_bytes_peak: Some(1 << 30),
        energy_joules: Some(21_000.0),
        family: Some("resnet".to_owned()),
        throughput_per_second_at_cap: [None, Some(0.5), None, None, Some(1.5), None, None, None, Some(2.0)],
        ..WorkloadProfile::empty(WorkloadKey::new(workload), "h100")
    };
    let run_counts_at_cap = [0, 1, 0, 0, 2, 0, 0, 0, 3];
    StoredProfile {
        profile,
        durations: Durations { run_count: 9, deviation_squares: 4.75 },
        run_counts_at_cap,
        updated_at: at(100),
    }
}

/// One who shared; the second has a cap.
pub(crate) fn tenant(id: u32) -> SharingTenant {
    SharingTenant {
        start: start(id),
        workload: WorkloadKey::new(format!("alice/{id}")),
        sharing: Sharing::by(Mechanism::Mps, (id == 2).then(|| fraction(0.4)), None),
    }
}

/// What tenant `own` of the pair `first`, `first + 1` found out.
pub(crate) fn told(first: u32, own: u32, speed_fraction: f64) -> NewObservation {
    NewObservation {
        group: DecisionId(9),
        device_model: "h100".to_owned(),
        tenants: vec![tenant(first), tenant(first + 1)],
        power_watts: None,
        fits: true,
        own: start(own),
        speed_fraction: Some(speed_fraction),
        speed_fraction_deviation: None,
        is_self_reported: false,
    }
}
