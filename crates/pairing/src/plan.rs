//! What comes out: who shares which device with whom, and a reason for every job. `planner` makes it.

use crate::model::SpeedEstimate;
use pillion_core::device::Mechanism;
use pillion_core::{
    DecisionId, Fraction, GresType, JobStart, NodeName, Revision, Shards, SlurmJobId, WorkloadKey,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What to do now: complete, with nothing left to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The view that it was made from.
    pub parent_revision: Revision,
    /// One for each device that gets a job: alone (one member), a pair, or a joiner.
    pub pairings: Vec<Pairing>,
    /// Every waiting job that is not in `pairings`, and why.
    pub left_waiting: Vec<Explanation>,
}

/// Jobs to be started on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pairing {
    /// The node.
    pub node: NodeName,
    /// The device.
    pub gres_type: GresType,
    /// Its model.
    pub device_model: String,
    /// How it is shared; `None` with one member of 100 shards and no cap.
    pub mechanism: Mechanism,
    /// The card's mode (`ccs`).
    pub ccs_mode: Option<u8>,
    /// The group of the running host that the members join; absent = the device is free.
    pub joins: Option<DecisionId>,
    /// Who starts here, the host first.
    pub members: Vec<Member>,
    /// Expected sum of all tenants' speed fractions less one (0 for a job alone).
    pub gain: f64,
}

/// How a job comes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// First on a device that others share or may join.
    Host,
    /// Beside a host.
    Joiner,
    /// With the whole device for itself.
    Alone,
}

/// One job to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The job.
    pub start: JobStart,
    /// What it runs.
    pub workload: WorkloadKey,
    /// How it comes to the device.
    pub role: Role,
    /// Its cap (`mps`).
    pub cap_fraction: Option<Fraction>,
    /// What Slurm is to book.
    pub shards: Shards,
    /// The device memory that it is admitted with; absent when alone with nothing known.
    pub memory_bytes: Option<u64>,
    /// The limit for each of its processes (`mps`).
    pub memory_limit_bytes: Option<u64>,
    /// How fast it will run; absent when alone.
    pub estimate: Option<SpeedEstimate>,
    /// Why so.
    pub explanation: Explanation,
}

/// Everything that was considered for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job.
    pub job_id: SlurmJobId,
    /// The deciding reason.
    pub reason: Reason,
    /// One sentence for people.
    pub text: String,
    /// The name of the model.
    pub model: String,
    /// Partners that were considered, best first, at most `CANDIDATES_MAX`. Jobs that are told the same share one list.
    pub candidates: Arc<[Candidate]>,
}

/// How many candidates an explanation keeps.
pub const CANDIDATES_MAX: usize = 16;

/// One partner that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The partner.
    pub partner: SlurmJobId,
    /// What it runs.
    pub workload: WorkloadKey,
    /// Whether it runs already.
    pub is_running: bool,
    /// The caps tried: (ours, the partner's).
    pub cap_fractions: (Option<Fraction>, Option<Fraction>),
    /// Our speed.
    pub own: Option<SpeedEstimate>,
    /// The partner's speed.
    pub other: Option<SpeedEstimate>,
    /// The expected gain.
    pub gain: Option<f64>,
    /// The rule that excluded it; absent = it was allowed.
    pub excluded_by: Option<Reason>,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// Rules and outcomes, by name: stable words that scripts may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Shares now with a partner that starts with it.
    Paired,
    /// Joins a running host.
    Joined,
    /// Starts alone, and others may join.
    AloneJoinable,
    /// Starts alone: its workload is not known yet on this device model, and is measured.
    UnknownWorkload,
    /// Starts alone: its workload was measured on this device model, but for a moment only.
    MeasuredTooBriefly,
    /// Starts alone: its user owes runs alone, because a job of his was not as it was known, or broke a promise.
    OwesRuns,
    /// Starts alone, perhaps under a cap, because its user has it measured so.
    MeasuredAlone,
    /// Its memory need is not known, so it cannot share.
    MemoryUnknown,
    /// Does not fit beside the partner.
    MemoryDoesNotFit,
    /// Somebody's promise would probably be broken.
    PromiseAtRisk,
    /// Sharing would gain too little.
    GainTooSmall,
    /// Another pairing gains more.
    BetterPlanElsewhere,
    /// The policy on users forbids it.
    UserPolicy,
    /// It is not among the combinations that may be chosen.
    NotAllowed,
    /// The device cannot be shared.
    NotShareable,
    /// It would end after its host while others wait for a whole device.
    OutlivesHost,
    /// It was seen with more than one process on the device at once: no limit could be set for them together.
    SeveralProcesses,
    /// No shards are left beside the partner.
    NoShardsLeft,
    /// Not enough CPUs or host memory on the node.
    NodeTooFull,
    /// Features, exclusions or the GPU type asked for do not match.
    NodeDoesNotMatch,
    /// No device is free for it now.
    NoDeviceFree,
    /// A job before it in the queue comes first.
    BehindOthers,
    /// It cannot start now: begin time, dependency, throttle, limit, hold.
    Held,
    /// The node or device takes nothing now.
    Blocked,
}
