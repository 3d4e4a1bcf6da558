//! A large cluster, its queue and its history, made up: the same each time.

use pillion_core::device::Mechanism;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, Fraction, GresType, JobStart, NodeName, Revision, Shards, SlowdownRatio, SlurmJobId,
    UnixTime, UserId, WorkloadKey,
};
use pillion_pairing::model::{InterferenceModel, TenantInput};
use pillion_pairing::{
    ClusterView, Contention, DeviceView, NodeView, Observation, ObservedTenant, ProfileBook, Tenant,
    WaitingJob,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Who is at work, and of how many families; 0 = of none.
#[derive(Clone, Copy)]
pub(crate) struct Workloads {
    pub(crate) count: usize,
    pub(crate) families: usize,
}

const DEVICES_PER_NODE: u32 = 8;
const MODEL: &str = "h100";
const GIB: u64 = 1 << 30;

fn at() -> UnixTime {
    UnixTime::from_epoch(1_700_000_000)
}

fn workload(number: usize) -> WorkloadKey {
    WorkloadKey::new(format!("user{}/workload-{number}", number % 40))
}

/// Progress a second: members of a family differ in size.
fn rate(workloads: Workloads, number: usize) -> f64 {
    number
        .checked_div(workloads.families)
        .map_or(100.0, |member| 100.0 * 0.8_f64.powi(i32::try_from(member % 8).unwrap_or(0)))
}

/// What is particular about one family beside another, in speed.
fn between_families(workloads: Workloads, own: usize, other: usize) -> f64 {
    let Some((own, other)) = own.checked_rem(workloads.families).zip(other.checked_rem(workloads.families))
    else {
        return 0.0;
    };
    chance((own * workloads.families + other) as u64).random_range(-0.05..0.05)
}

fn chance(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn part(rng: &mut ChaCha8Rng, least: f64, most: f64) -> Fraction {
    Fraction::clamped(rng.random_range(least..most))
}

/// What is known of all workloads.
pub(crate) fn profiles(workloads: Workloads) -> Vec<WorkloadProfile> {
    let mut rng = chance(1);
    (0..workloads.count)
        .map(|number| {
            let rate = rate(workloads, number);
            let active: f64 = rng.random_range(0.05..1.0);
            // Fewer units than it keeps busy slow it down.
            let at_cap = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|tenths| {
                let cap = f64::from(tenths) / 10.0;
                Some(rate / (1.0 + (active / cap).powi(3)).cbrt() * (1.0 + active.powi(3)).cbrt())
            });
            WorkloadProfile {
                metrics: Metrics::from([
                    (Metric::SmActiveFraction, active),
                    (Metric::GpuBusyFraction, active * 1.2),
                    (Metric::MemoryBandwidthFraction, part(&mut rng, 0.02, 0.9).value()),
                    (Metric::CacheBandwidthFraction, part(&mut rng, 0.02, 0.7).value()),
                    (Metric::PowerWatts, 150.0 + 400.0 * active),
                ]),
                family: number.checked_rem(workloads.families).map(|family| format!("family-{family}")),
                run_count: 5,
                throughput_per_second: Some(rate),
                throughput_per_second_at_cap: at_cap,
                duration_seconds: Some(rng.random_range(600.0..14_400.0)),
                memory_bytes_peak: Some(rng.random_range(2..36) * GIB),
                process_count_peak: 1,
                process_memory_bytes_peak: None,
                ..WorkloadProfile::empty(workload(number), MODEL)
            }
        })
        .collect()
}

/// What was seen of pairs, as the contention model would have it, with noise.
pub(crate) fn observations(
    workloads: Workloads,
    profiles: &[WorkloadProfile],
    count: usize,
) -> Vec<Observation> {
    let mut rng = chance(2);
    let sharing = Sharing::by(Mechanism::Mps, None, None);
    (0..count)
        .map(|_| {
            let pair = [rng.random_range(0..workloads.count), rng.random_range(0..workloads.count)];
            let inputs = pair.map(|number| TenantInput { profile: &profiles[number], sharing });
            let speeds = Contention.predict(&inputs, MODEL).expect("all features are known");
            let tenant = |(own, speed): (usize, f64)| ObservedTenant {
                workload: profiles[pair[own]].workload.clone(),
                sharing,
                speed_fraction: Some(
                    speed
                        + between_families(workloads, pair[own], pair[1 - own])
                        + rng.random_range(-0.05..0.05),
                ),
                is_self_reported: false,
            };
            let speeds = speeds.iter().map(|estimate| estimate.speed_fraction).enumerate();
            Observation {
                device_model: MODEL.to_owned(),
                tenants: speeds.map(tenant).collect(),
                power_watts: None,
                fits: true,
                run_count: 1.0,
                speed_fraction_deviation: None,
            }
        })
        .collect()
}

/// A cluster of nodes with 8 devices each. On every `busy_of_ten` of ten devices a job runs that others may join.
pub(crate) fn view(workloads: Workloads, job_count: u32, device_count: u32, busy_of_ten: u32) -> ClusterView {
    let mut rng = chance(3);
    let devices = (0..device_count)
        .map(|number| device(workloads, &mut rng, number, number % 10 < busy_of_ten))
        .collect();
    let node = |number| NodeView {
        name: node_name(number),
        blocked: None,
        cpus: 128,
        memory_mib: 2 << 20,
        cpus_free: 128,
        memory_mib_free: 2 << 20,
        features: vec!["gpu".to_owned()],
        partitions: vec!["shared".to_owned()],
        open_seconds: None,
    };
    ClusterView {
        revision: Revision(1),
        taken_at: at(),
        nodes: (0..device_count / DEVICES_PER_NODE).map(node).collect(),
        devices,
        waiting: (0..job_count).map(|number| job(workloads, &mut rng, number)).collect(),
        alone_claims: Vec::new(),
        copies: pillion_pairing::CopyBook::default(),
        slices: pillion_pairing::mig::SliceBook::default(),
        profiles: ProfileBook::from(profiles(workloads)),
        trials: pillion_pairing::TrialBook::default(),
    }
}

fn node_name(number: u32) -> NodeName {
    NodeName::new(format!("node{number:04}"))
}

fn promise() -> SlowdownRatio {
    SlowdownRatio::try_promise(1.25).expect("a promise")
}

/// A workload has its time limit and its need of CPUs, as a script has.
fn job(workloads: Workloads, rng: &mut ChaCha8Rng, number: u32) -> WaitingJob {
    let of = rng.random_range(0..workloads.count);
    WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(number + 1), restart_count: 0 },
        uid: UserId(u32::try_from(of % 40).expect("small")),
        account: "physics".into(),
        partition: "shared".into(),
        workload: workload(of),
        submitted_at: at(),
        starts_alone_at: at() + Duration::from_mins(10),
        slowdown_ratio_max: promise(),
        memory_bytes_declared: None,
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: pillion_core::isolation::Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: [4, 6, 8, 12][of % 4],
        memory_mib: 16 << 10,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: Some([4, 8, 24][of % 3] * 3600),
        duration_seconds_expected: None,
        held: None,
    }
}

fn device(workloads: Workloads, rng: &mut ChaCha8Rng, number: u32, is_busy: bool) -> DeviceView {
    let of = rng.random_range(0..workloads.count);
    let left = rng.random_range(600..24 * 3600);
    let tenant = Tenant {
        job_id: SlurmJobId::plain(10_000_000 + number),
        uid: UserId(u32::try_from(of % 40).expect("small")),
        account: "physics".into(),
        workload: Some(workload(of)),
        group: Some(DecisionId(u64::from(number) + 1)),
        is_running: true,
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::try_new(40).expect("shards"),
        slowdown_ratio_max: promise(),
        memory_bytes: Some(8 * GIB),
        time_limit_at: Some(at() + Duration::from_secs(left)),
        expected_end_at: Some(at() + Duration::from_secs(left / 2)),
        isolation: pillion_core::isolation::Isolation::Shared,
        first_run: None,
        rules: None,
        guest: None,
        session: None,
        set: None,
    };
    DeviceView {
        node: node_name(number / DEVICES_PER_NODE),
        gres_type: GresType::new(format!("g{}", number % DEVICES_PER_NODE)),
        model: MODEL.to_owned(),
        gpu_types: vec![MODEL.to_owned()],
        memory_bytes: 80 * GIB,
        mechanism: Mechanism::Mps,
        shards_free: if is_busy { 60 } else { 100 },
        tenants: if is_busy { vec![tenant] } else { Vec::new() },
        blocked: None,
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: std::collections::BTreeMap::new(),
    }
}
