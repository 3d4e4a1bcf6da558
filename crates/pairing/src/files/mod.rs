//! Planning on files: `pillion plan --solo SOLO.csv --queue QUEUE.csv [--running RUNNING.csv]`. Texts in, a view of a
//! cluster in which every job may have a device of its own; and the answer as scripts read it. Opens no file itself.
//!
//! On files, unlike on a cluster, unknown memory means that it fits, and no job has a time limit.

mod answer;
mod table;

pub use answer::{Alone, Answer, AnswerMember, AnswerModel, AnswerPairing, answer};
pub use table::{InvalidFile, NamedText};

use crate::shards;
use crate::view::{ClusterView, DeviceView, NodeView, ProfileBook, Tenant, WaitingJob};
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, Shards, SlowdownRatio, SlurmJobId, UnixTime, UserId,
    WorkloadKey,
};
use std::collections::BTreeMap;
use std::time::Duration;
use table::{Row, Table};

/// Ids of running jobs start here; those of waiting jobs are their row and one.
const RUNNING_ID_FIRST: u32 = 1_000_000_000;
/// Memory of a device where none is given: nothing is too large for it.
const MEMORY_BOUNDLESS_BYTES: u64 = 1 << 50;
/// The longest run that is believed, in seconds.
const SECONDS_MAX: f64 = 1e9;

const NODE: &str = "files";
const SOLO_OPTIONAL: [&str; 25] = [
    "family",
    "sm_active_fraction",
    "sm_occupancy_fraction",
    "fp32_active_fraction",
    "stall_fraction",
    "gpu_busy_fraction",
    "memory_busy_fraction",
    "memory_bandwidth_fraction",
    "cache_bandwidth_fraction",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
    "memory_bytes_peak",
    "power_watts_mean",
    "energy_joules",
    "duration_seconds",
    "throughput_per_second",
    "throughput_per_second_at_cap_0.1",
    "throughput_per_second_at_cap_0.2",
    "throughput_per_second_at_cap_0.3",
    "throughput_per_second_at_cap_0.4",
    "throughput_per_second_at_cap_0.5",
    "throughput_per_second_at_cap_0.6",
    "throughput_per_second_at_cap_0.7",
    "throughput_per_second_at_cap_0.8",
    "throughput_per_second_at_cap_0.9",
];

/// What the files do not say.
#[derive(Debug, Clone, PartialEq)]
pub struct FileOptions {
    /// The device model that SOLO.csv was measured on.
    pub device_model: String,
    /// How its tenants are kept apart.
    pub mechanism: Mechanism,
    /// Its memory; absent = everything fits.
    pub device_memory_bytes: Option<u64>,
    /// The promise to jobs that name none.
    pub slowdown_ratio_max: SlowdownRatio,
}

/// The files.
#[derive(Debug, Clone, Copy)]
pub struct PlanFiles<'t> {
    /// SOLO.csv: how workloads run alone.
    pub solo: NamedText<'t>,
    /// QUEUE.csv: who waits; a job is its row, from 0.
    pub queue: NamedText<'t>,
    /// RUNNING.csv: who runs and may be joined.
    pub running: Option<NamedText<'t>>,
}

/// The cluster that the files describe.
///
/// # Errors
/// [`InvalidFile`] for the first thing that is wrong, on one line.
pub fn view(files: &PlanFiles<'_>, options: &FileOptions) -> Result<ClusterView, InvalidFile> {
    let profiles = solo(files.solo, &options.device_model)?;
    let mut users = Users::default();
    let waiting = queue(files.queue, &profiles, options, &mut users)?;
    let mut devices = match files.running {
        Some(source) => running(source, &profiles, options, &mut users)?,
        None => Vec::new(),
    };
    let joinable = devices.len();
    devices.extend((0..waiting.len()).map(|index| device(joinable + index, options)));
    let node = NodeView {
        name: NodeName::new(NODE),
        blocked: None,
        cpus_free: u32::MAX,
        memory_mib_free: u64::MAX,
        features: Vec::new(),
        partitions: vec![NODE.to_owned()],
    };
    Ok(ClusterView {
        revision: Revision(0),
        taken_at: UnixTime::from_epoch(0),
        nodes: vec![node],
        devices,
        waiting,
        alone_claims: Vec::new(),
        profiles: ProfileBook::from(profiles.into_values().collect::<Vec<_>>()),
    })
}

type Profiles = BTreeMap<WorkloadKey, WorkloadProfile>;

/// Users by name, numbered as they come; jobs that name none are all of one.
#[derive(Default)]
struct Users(BTreeMap<String, u32>);

impl Users {
    fn id(&mut self, row: &Row<'_>) -> UserId {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        UserId(*self.0.entry(row.text_or("user", "").to_owned()).or_insert(next))
    }
}

fn solo(source: NamedText<'_>, device_model: &str) -> Result<Profiles, InvalidFile> {
    let table = Table::read(source, &["workload"], &SOLO_OPTIONAL)?;
    let mut profiles = Profiles::new();
    for row in table.rows() {
        let profile = solo_row(&row, device_model)?;
        if profiles.insert(profile.workload.clone(), profile).is_some() {
            return Err(row.invalid("workload", "each workload once"));
        }
    }
    Ok(profiles)
}

fn solo_row(row: &Row<'_>, device_model: &str) -> Result<WorkloadProfile, InvalidFile> {
    // Read for their form; this version's profile has no place for them.
    row.fraction("memory_busy_fraction")?;
    for column in SOLO_OPTIONAL.iter().filter(|column| column.starts_with("throughput_per_second_at_cap_")) {
        row.amount(column)?;
    }
    Ok(WorkloadProfile {
        run_count: 1,
        duration_seconds: row.amount("duration_seconds")?,
        throughput_per_second: row.amount("throughput_per_second")?,
        sm_active_fraction: row.fraction("sm_active_fraction")?,
        sm_occupancy_fraction: row.fraction("sm_occupancy_fraction")?,
        stall_fraction: row.fraction("stall_fraction")?,
        fp32_active_fraction: row.fraction("fp32_active_fraction")?,
        gpu_busy_fraction: row.fraction("gpu_busy_fraction")?,
        memory_bandwidth_fraction: row.fraction("memory_bandwidth_fraction")?,
        cache_bandwidth_fraction: row.fraction("cache_bandwidth_fraction")?,
        pcie_tx_bytes_per_second: row.amount("pcie_tx_bytes_per_second")?,
        pcie_rx_bytes_per_second: row.amount("pcie_rx_bytes_per_second")?,
        memory_bytes_peak: row.bytes("memory_bytes_peak")?,
        power_watts_mean: row.amount("power_watts_mean")?,
        energy_joules: row.amount("energy_joules")?,
        ..WorkloadProfile::empty(WorkloadKey::new(row.required("workload")?), device_model)
    })
}

/// Nothing declared where a peak is known; where none is, nothing is needed.
fn declared(profiles: &Profiles, workload: &WorkloadKey) -> Option<u64> {
    profiles.get(workload).is_none_or(|profile| profile.memory_bytes_peak.is_none()).then_some(0)
}

fn queue(
    source: NamedText<'_>,
    profiles: &Profiles,
    options: &FileOptions,
    users: &mut Users,
) -> Result<Vec<WaitingJob>, InvalidFile> {
    let table = Table::read(source, &["workload"], &["user", "duration_seconds", "max_slowdown"])?;
    let mut waiting = Vec::new();
    for (id, row) in (1..RUNNING_ID_FIRST).zip(table.rows()) {
        row.amount("duration_seconds")?;
        let workload = WorkloadKey::new(row.required("workload")?);
        waiting.push(WaitingJob {
            start: JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 },
            uid: users.id(&row),
            account: String::new(),
            partition: NODE.to_owned(),
            submitted_at: UnixTime::from_epoch(0),
            starts_alone_at: UnixTime::from_epoch(0),
            slowdown_ratio_max: row.promise("max_slowdown")?.unwrap_or(options.slowdown_ratio_max),
            memory_bytes_declared: declared(profiles, &workload),
            workload,
            gpu_type: None,
            cpus: 0,
            memory_mib: 0,
            features: Vec::new(),
            excluded_nodes: Vec::new(),
            time_limit_seconds: None,
            held: None,
        });
    }
    Ok(waiting)
}

fn running(
    source: NamedText<'_>,
    profiles: &Profiles,
    options: &FileOptions,
    users: &mut Users,
) -> Result<Vec<DeviceView>, InvalidFile> {
    let optional = ["user", "duration_seconds", "max_slowdown", "cap_fraction", "remaining_seconds"];
    let table = Table::read(source, &["workload"], &optional)?;
    let mut devices = Vec::new();
    for (id, row) in (RUNNING_ID_FIRST..).zip(table.rows()) {
        row.amount("duration_seconds")?;
        let remaining = row.amount("remaining_seconds")?.map(|seconds| seconds.min(SECONDS_MAX));
        let workload = WorkloadKey::new(row.required("workload")?);
        let profile = profiles.get(&workload);
        let shards = profile.map_or(Shards::ALL, shards::of_host);
        let tenant = Tenant {
            job_id: SlurmJobId::plain(id),
            uid: users.id(&row),
            account: String::new(),
            group: Some(DecisionId(u64::from(id))),
            is_running: true,
            cap_fraction: row.cap("cap_fraction")?,
            ccs_mode: (options.mechanism == Mechanism::Ccs).then_some(crate::session::CCS_MODE_SHARED),
            shards,
            slowdown_ratio_max: row.promise("max_slowdown")?.unwrap_or(options.slowdown_ratio_max),
            memory_bytes: profile.and_then(|profile| profile.memory_bytes_peak).or(Some(0)),
            time_limit_at: None,
            expected_end_at: remaining
                .map(|seconds| UnixTime::from_epoch(0) + Duration::from_secs_f64(seconds)),
            workload: Some(workload),
        };
        let shards_free = 100 - u32::from(shards.count());
        devices.push(DeviceView { shards_free, tenants: vec![tenant], ..device(devices.len(), options) });
    }
    Ok(devices)
}

fn device(index: usize, options: &FileOptions) -> DeviceView {
    DeviceView {
        node: NodeName::new(NODE),
        gres_type: GresType::new(format!("g{index}")),
        model: options.device_model.clone(),
        gpu_types: Vec::new(),
        memory_bytes: options.device_memory_bytes.unwrap_or(MEMORY_BOUNDLESS_BYTES),
        mechanism: options.mechanism,
        shards_free: 100,
        tenants: Vec::new(),
        blocked: None,
    }
}

#[cfg(test)]
mod tests;
