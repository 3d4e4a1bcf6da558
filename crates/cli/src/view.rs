//! The wire ends here: what the scheduler answers, as the rows that are printed and the objects of `--json`.
//!
//! Every message is taken apart whole, so that a new field does not compile until somebody decides how to show it. On the
//! wire 0 and the empty text stand for "none" where proto3 has no better; here they are absent.

mod instance;
mod job;
mod model;
mod place;
mod refused;
mod top;

pub use instance::{InstanceRow, PlacementRow};
pub use job::{JobStory, SlowCause};
pub use model::{ModelRow, ScoreRow};
pub use place::DrainRow;
pub use refused::RefusedRow;
pub use top::{Counts, Overview, TopDeviceRow};

use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::metric::{Metric, MetricSource, Quality};
use pillion_core::setup::{NodeSetup, SetupFaultKind};
use pillion_proto::v1 as wire;
use serde::Serialize;
use std::collections::BTreeMap;

fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn some_positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// A job that waits, or waited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRow {
    /// Slurm's id.
    pub job_id: String,
    /// Whose.
    pub user: String,
    /// The account.
    pub account: String,
    /// The partition.
    pub partition: String,
    /// What it runs; absent for those who may not see it.
    pub workload: Option<String>,
    /// As people know that.
    pub workload_name: Option<String>,
    /// When it was submitted.
    pub submitted_at_seconds: Option<f64>,
    /// When Slurm starts it by itself.
    pub starts_alone_at_seconds: Option<f64>,
    /// waiting, planned, released or alone.
    pub state: String,
    /// Why.
    pub reason: String,
    /// Its promise.
    pub slowdown_ratio_max: Option<f64>,
}

impl From<wire::QueueJob> for JobRow {
    fn from(job: wire::QueueJob) -> Self {
        let wire::QueueJob {
            job_id,
            user,
            account,
            partition,
            workload,
            submitted_at_seconds,
            starts_alone_at_seconds,
            state,
            reason,
            slowdown_ratio_max,
            workload_name,
        } = job;
        let workload = some_text(workload);
        Self {
            job_id,
            user,
            account,
            partition,
            workload_name: some_text(workload_name).or_else(|| workload.clone()),
            workload,
            submitted_at_seconds: some_positive(submitted_at_seconds),
            starts_alone_at_seconds: some_positive(starts_alone_at_seconds),
            state,
            reason,
            slowdown_ratio_max: some_positive(slowdown_ratio_max),
        }
    }
}

/// Who was put on one device, and how.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecisionRow {
    /// Its number.
    pub decision_id: u64,
    /// The first decision of this sharing.
    pub group_id: u64,
    /// planned, released, ended or abandoned.
    pub state: String,
    /// Where.
    pub node: String,
    /// Which device.
    pub gres_type: String,
    /// Its model.
    pub device_model: String,
    /// mps, ccs or none.
    pub mechanism: String,
    /// When.
    pub created_at_seconds: Option<f64>,
    /// Expected sum of speeds less one.
    pub gain: f64,
    /// Why it was given up.
    pub abandoned_reason: Option<String>,
    /// Who.
    pub members: Vec<MemberRow>,
}

impl From<wire::Decision> for DecisionRow {
    fn from(decision: wire::Decision) -> Self {
        let wire::Decision {
            decision_id,
            group_id,
            state,
            node,
            gres_type,
            device_model,
            mechanism,
            created_at_seconds,
            members,
            gain,
            abandoned_reason,
        } = decision;
        Self {
            decision_id,
            group_id,
            state,
            node,
            gres_type,
            device_model,
            mechanism,
            created_at_seconds: some_positive(created_at_seconds),
            gain,
            abandoned_reason: some_text(abandoned_reason),
            members: members.into_iter().map(MemberRow::from).collect(),
        }
    }
}

/// One job of a decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberRow {
    /// Slurm's id; absent for those who may not see it.
    pub job_id: Option<String>,
    /// Which start of it.
    pub restart_count: u32,
    /// Whose; absent for those who may not see it.
    pub user: Option<String>,
    /// What it runs; absent for those who may not see it.
    pub workload: Option<String>,
    /// As people know that.
    pub workload_name: Option<String>,
    /// host, joiner or alone.
    pub role: String,
    /// planned, released, running, ended or undone.
    pub state: String,
    /// The most compute units it may use.
    pub cap_fraction: Option<f64>,
    /// The card's mode.
    pub ccs_mode: Option<u32>,
    /// What Slurm booked.
    pub shards: u32,
    /// The most device memory that one of its processes may pin.
    pub memory_limit_bytes: Option<u64>,
    /// Expected.
    pub predicted_speed_fraction: Option<f64>,
    /// Pessimistic.
    pub predicted_speed_fraction_low: Option<f64>,
    /// What came of it.
    pub measured_speed_fraction: Option<f64>,
    /// Its promise.
    pub slowdown_ratio_max: Option<f64>,
    /// When it started.
    pub started_at_seconds: Option<f64>,
    /// When it ended.
    pub ended_at_seconds: Option<f64>,
    /// How long it takes alone.
    pub solo_duration_seconds: Option<f64>,
    /// Its part of the device's energy.
    pub energy_joules: Option<f64>,
}

impl From<wire::Member> for MemberRow {
    fn from(member: wire::Member) -> Self {
        let wire::Member {
            job_id,
            restart_count,
            user,
            workload,
            role,
            state,
            cap_fraction,
            ccs_mode,
            shards,
            memory_limit_bytes,
            predicted_speed_fraction,
            predicted_speed_fraction_low,
            measured_speed_fraction,
            slowdown_ratio_max,
            started_at_seconds,
            ended_at_seconds,
            solo_duration_seconds,
            energy_joules,
            workload_name,
        } = member;
        let workload = some_text(workload);
        Self {
            job_id: some_text(job_id),
            restart_count,
            user: some_text(user),
            workload_name: some_text(workload_name).or_else(|| workload.clone()),
            workload,
            role,
            state,
            cap_fraction,
            ccs_mode,
            shards,
            memory_limit_bytes,
            predicted_speed_fraction,
            predicted_speed_fraction_low,
            measured_speed_fraction,
            slowdown_ratio_max,
            started_at_seconds,
            ended_at_seconds,
            solo_duration_seconds,
            energy_joules,
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRow {
    /// When.
    pub at_seconds: f64,
    /// undone, missed, restarted, ..
    pub kind: String,
    /// To which job.
    pub job_id: Option<String>,
    /// On which node.
    pub node: Option<String>,
    /// One sentence.
    pub detail: String,
}

impl From<wire::Event> for EventRow {
    fn from(event: wire::Event) -> Self {
        let wire::Event { at_seconds, kind, job_id, node, detail } = event;
        Self { at_seconds, kind, job_id: some_text(job_id), node: some_text(node), detail }
    }
}

/// How the scheduler is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusRow {
    /// Its release.
    pub scheduler_version: String,
    /// off or active.
    pub mode: String,
    /// Its clock.
    pub now_seconds: f64,
    /// The controller's release.
    pub slurm_version: String,
    /// Why it does not act.
    pub slurm_refusal: Option<String>,
    /// The last scan of the queue.
    pub last_scan_at_seconds: Option<f64>,
    /// Commits so far.
    pub revision: u64,
    /// One a node.
    pub agents: Vec<AgentRow>,
    /// How its database is: `ok`, or what is wrong.
    pub database: String,
    /// Starts without a share that was decided.
    pub miss_count: u64,
    /// Broken invariants.
    pub violation_count: u64,
    /// Lines of Slurm's that could not be read.
    pub dropped_line_count: u64,
    /// The pool.
    pub pool_partitions: Vec<String>,
    /// The longest that a job is held back.
    pub bound_seconds: u64,
    /// Whether this scheduler decides; another one does, or it has lost its database.
    pub leading: bool,
    /// What operators drained, in the order of nodes and devices.
    pub drains: Vec<DrainRow>,
    /// The file that it was started with, on its machine.
    pub config_path: Option<String>,
    /// Where its heartbeat is.
    pub heartbeat_path: Option<String>,
    /// By what nodes prove who they are: munge, key, mtls or none.
    pub auth_method: Option<String>,
    /// Who was not let in over TCP, and has not been since.
    pub refused: Vec<RefusedRow>,
}

impl From<wire::StatusResponse> for StatusRow {
    fn from(status: wire::StatusResponse) -> Self {
        let wire::StatusResponse {
            version,
            mode,
            now_seconds,
            slurm_version,
            slurm_refusal,
            last_scan_at_seconds,
            revision,
            agents,
            database,
            miss_count,
            violation_count,
            dropped_line_count,
            pool_partitions,
            bound_seconds,
            leading,
            drains,
            config_path,
            heartbeat_path,
            auth_method,
            refused,
        } = status;
        Self {
            scheduler_version: version,
            mode,
            now_seconds,
            slurm_version,
            slurm_refusal: some_text(slurm_refusal),
            last_scan_at_seconds: some_positive(last_scan_at_seconds),
            revision,
            agents: agents.into_iter().map(AgentRow::from).collect(),
            database,
            miss_count,
            violation_count,
            dropped_line_count,
            pool_partitions,
            bound_seconds,
            leading,
            drains: drains.into_iter().map(DrainRow::from).collect(),
            config_path: some_text(config_path),
            heartbeat_path: some_text(heartbeat_path),
            auth_method: some_text(auth_method),
            refused: refused.into_iter().map(RefusedRow::from).collect(),
        }
    }
}

/// How one agent is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentRow {
    /// Its node.
    pub node: String,
    /// Whether its stream is open.
    pub connected: bool,
    /// When it last said something.
    pub last_seen_at_seconds: Option<f64>,
    /// Its clock less the scheduler's.
    pub clock_skew_seconds: f64,
    /// Its release.
    pub version: String,
    /// The node's devices.
    pub devices: Vec<DeviceRow>,
    /// How the node is set up beside them; absent: its agent has never connected, or is of an earlier release.
    pub setup: Option<NodeSetup>,
}

impl AgentRow {
    /// Why its node has no devices, as its agent told when it connected.
    pub fn no_devices(&self) -> Option<&str> {
        let mut faults = self.setup.iter().flat_map(|setup| &setup.faults);
        faults.find(|fault| fault.kind == SetupFaultKind::NoDevices).map(|fault| fault.detail.as_str())
    }
}

impl From<wire::AgentStatus> for AgentRow {
    fn from(agent: wire::AgentStatus) -> Self {
        let wire::AgentStatus {
            node,
            connected,
            last_seen_at_seconds,
            clock_skew_seconds,
            version,
            devices,
            conditions,
            setup,
        } = agent;
        Self {
            node,
            connected,
            last_seen_at_seconds: some_positive(last_seen_at_seconds),
            clock_skew_seconds,
            version,
            devices: devices.into_iter().map(|device| DeviceRow::new(device, &conditions)).collect(),
            setup: setup.map(NodeSetup::from),
        }
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Slurm's index on the node.
    pub index: u32,
    /// The vendor's name.
    pub uuid: String,
    /// The model.
    pub model: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// What Slurm books it under.
    pub gres_type: String,
    /// How it can be shared.
    pub mechanism: String,
    /// What MIG has cut it into, as its agent found it when it started; absent = into nothing, as far as anybody knows.
    pub instances: Option<Vec<InstanceRow>>,
    /// What is wrong with it, the worst first; empty = it is well; absent = its agent has not told.
    pub faults: Option<Vec<FaultRow>>,
    /// The metrics that it gives, by name.
    pub metrics: BTreeMap<Metric, MetricRow>,
}

impl DeviceRow {
    /// A device with what `conditions` tell of it.
    fn new(device: wire::Device, conditions: &[wire::DeviceCondition]) -> Self {
        let wire::Device { index, uuid, model, memory_bytes, gres_type, mechanism, instances } = device;
        let condition = conditions.iter().find(|condition| condition.gres_type == gres_type).cloned();
        // A scheduler of another release may tell what cannot be read here: then nothing is known.
        let condition = condition.and_then(|condition| DeviceCondition::try_from(condition).ok());
        let (faults, metrics) = condition.map_or((None, BTreeMap::new()), |condition| {
            let DeviceCondition { gres_type: _, faults, sources } = condition;
            let metric = |(metric, source)| (metric, MetricRow { source, quality: source.quality(metric) });
            let metrics = sources.into_iter().map(metric).collect();
            (Some(faults.into_iter().map(FaultRow::from).collect()), metrics)
        });
        let instances = instances.map(|wire::MigInstances { instances }| {
            instances.into_iter().map(InstanceRow::from).collect::<Vec<InstanceRow>>()
        });
        Self { index, uuid, model, memory_bytes, gres_type, mechanism, instances, faults, metrics }
    }
}

/// One thing that is wrong with a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultRow {
    /// What.
    pub kind: FaultKind,
    /// In the driver's words.
    pub detail: String,
    /// Since when.
    pub since_seconds: f64,
    /// Whether nobody new is put on the device meanwhile.
    pub closes_device: bool,
}

impl FaultRow {
    /// What is wrong, for a person.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.kind.phrase(), self.detail)
    }
}

impl From<DeviceFault> for FaultRow {
    fn from(fault: DeviceFault) -> Self {
        let DeviceFault { kind, detail, since } = fault;
        Self { kind, detail, since_seconds: since.seconds(), closes_device: kind.closes_device() }
    }
}

/// Where a metric is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MetricRow {
    /// By which library or program.
    pub source: MetricSource,
    /// How far it can be trusted.
    pub quality: Quality,
}
