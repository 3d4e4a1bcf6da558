//! Builders for tests: small clusters in a few words.

use crate::view::{AloneClaim, ClusterView, DeviceView, NodeView, ProfileBook, Tenant, WaitingJob};
use pillion_core::device::Mechanism;
use pillion_core::isolation::Isolation;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, Shards, SlowdownRatio, SlurmJobId, UnixTime, UserId,
    WorkloadKey,
};
use std::time::Duration;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const NOW: u64 = 1_000_000;

/// A profile with everything known, measured often.
pub(crate) fn profile(workload: &str, active: f64, bandwidth: f64, memory_gib: u64) -> WorkloadProfile {
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, active),
            (Metric::GpuBusyFraction, (active * 1.3).min(1.0)),
            (Metric::MemoryBandwidthFraction, bandwidth),
            (Metric::CacheBandwidthFraction, bandwidth),
            (Metric::PowerWatts, 150.0 + 250.0 * active),
        ]),
        run_count: 9,
        duration_seconds: Some(600.0),
        memory_bytes_peak: Some(memory_gib * GIB),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(WorkloadKey::new(workload), "h100")
    }
}

/// A job of user 1000 that anything of the pool suits.
pub(crate) fn job(id: u32, workload: &str) -> WaitingJob {
    WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 },
        uid: UserId(1000),
        account: "physics".into(),
        partition: "shared".into(),
        workload: WorkloadKey::new(workload),
        submitted_at: UnixTime::from_epoch(NOW - 60),
        starts_alone_at: UnixTime::from_epoch(NOW + 600),
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
        memory_bytes_declared: None,
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: 4,
        memory_mib: 1024,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: Some(3600),
        duration_seconds_expected: None,
        held: None,
    }
}

/// A free device of 80 GiB on node `n1`.
pub(crate) fn device(gres_type: &str, mechanism: Mechanism) -> DeviceView {
    DeviceView {
        node: NodeName::new("n1"),
        gres_type: GresType::new(gres_type),
        model: "h100".to_owned(),
        gpu_types: vec!["h100".to_owned()],
        memory_bytes: 80 * GIB,
        mechanism,
        shards_free: 100,
        tenants: Vec::new(),
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: std::collections::BTreeMap::new(),
        blocked: None,
    }
}

/// A job that runs, joinable, and ends by its limit in `seconds`.
pub(crate) fn tenant(id: u32, workload: &str, seconds: u64) -> Tenant {
    Tenant {
        job_id: SlurmJobId::plain(id),
        uid: UserId(1000),
        account: "physics".into(),
        workload: Some(WorkloadKey::new(workload)),
        group: Some(DecisionId(u64::from(id))),
        is_running: true,
        sharing: Sharing::default(),
        shards: Shards::try_new(40).unwrap(),
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
        memory_bytes: Some(8 * GIB),
        time_limit_at: Some(UnixTime::from_epoch(NOW) + Duration::from_secs(seconds)),
        expected_end_at: None,
        isolation: Isolation::Shared,
        first_run: None,
        rules: None,
        guest: None,
        session: None,
        set: None,
    }
}

/// A device on which this tenant runs.
pub(crate) fn device_with(gres_type: &str, mechanism: Mechanism, tenant: Tenant) -> DeviceView {
    let shards_free = 100 - u32::from(tenant.shards.count());
    DeviceView { shards_free, tenants: vec![tenant], ..device(gres_type, mechanism) }
}

/// Workloads by their weight: `light` (0.1 of the units), `half` (0.5), `heavy` (0.97), each of 8 GiB.
pub(crate) fn known_profiles() -> Vec<WorkloadProfile> {
    vec![profile("light", 0.1, 0.05, 8), profile("half", 0.5, 0.2, 8), profile("heavy", 0.97, 0.3, 8)]
}

/// A cluster of these devices and jobs; every node of a device has 64 CPUs free of 128.
pub(crate) fn view(devices: Vec<DeviceView>, waiting: Vec<WaitingJob>) -> ClusterView {
    let mut names: Vec<NodeName> = devices.iter().map(|device| device.node.clone()).collect();
    names.sort();
    names.dedup();
    let node = |name: NodeName| NodeView {
        name,
        blocked: None,
        cpus: 128,
        memory_mib: 1 << 22,
        cpus_free: 64,
        memory_mib_free: 1 << 20,
        features: vec!["gpu".to_owned()],
        partitions: vec!["shared".to_owned()],
        open_seconds: None,
    };
    ClusterView {
        revision: Revision(7),
        taken_at: UnixTime::from_epoch(NOW),
        nodes: names.into_iter().map(node).collect(),
        devices,
        waiting,
        alone_claims: Vec::new(),
        copies: crate::CopyBook::default(),
        slices: crate::mig::SliceBook::default(),
        profiles: ProfileBook::from(known_profiles()),
        trials: crate::TrialBook::default(),
    }
}

/// A job that Slurm starts alone anywhere.
pub(crate) fn claim(id: u32) -> AloneClaim {
    AloneClaim {
        job_id: SlurmJobId::plain(id),
        required_nodes: Vec::new(),
        gres_types: None,
        node_count: 1,
        cpus: 0,
        memory_mib: 0,
        waits: None,
    }
}
