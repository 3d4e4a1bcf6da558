//! Jobs that are only observed, and what their devices did. Nothing here is ever planned, released or requeued.

use super::{Lesson, StoreError, StoredProfile};
use async_trait::async_trait;
use pillion_core::report::JobSummary;
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_slurm::Ending;
use serde::{Deserialize, Serialize};

/// Parts of a device's time, below which it counts as not working; whoever asks for idle devices chooses one of them.
pub const IDLE_LEVELS: [f64; 4] = [0.01, 0.05, 0.10, 0.25];
/// The usual one's place.
pub const IDLE_LEVEL_USUAL: usize = 1;

/// One start of a job in an observed partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedJob {
    pub start: JobStart,
    /// The number by which its nodes know it.
    pub inner_id: u32,
    pub uid: UserId,
    pub user: String,
    pub account: String,
    pub partition: String,
    /// What it runs.
    pub workload: WorkloadKey,
    pub submitted_at: UnixTime,
    pub started_at: UnixTime,
    pub ended_at: Option<UnixTime>,
    pub ending: Option<Ending>,
    pub exit: Option<(u32, u32)>,
    pub nodes: Vec<NodeName>,
    pub gres: String,
    /// The devices that it holds, as Slurm says; empty where Slurm does not say it clearly.
    pub devices: Vec<HeldDevice>,
}

/// A device that a start holds, and what was seen of it meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldDevice {
    pub node: NodeName,
    pub gres_type: GresType,
    /// Since when it is seen without a gap; `None`: nobody has looked.
    pub seen_since: Option<UnixTime>,
    /// When it was seen last.
    pub seen_at: Option<UnixTime>,
    /// When it was last busy by each of [`IDLE_LEVELS`], of a minute's mean each.
    pub busy_at: [Option<UnixTime>; 4],
    /// When a process of the job was last seen on it.
    pub process_at: Option<UnixTime>,
    /// How long it was seen at all, and of that below the usual level.
    pub seen_seconds: f64,
    pub idle_seconds: f64,
}

impl HeldDevice {
    /// One that nobody has looked at.
    pub fn new(node: NodeName, gres_type: GresType) -> Self {
        Self {
            node,
            gres_type,
            seen_since: None,
            seen_at: None,
            busy_at: [None; 4],
            process_at: None,
            seen_seconds: 0.0,
            idle_seconds: 0.0,
        }
    }
}

/// A part of a start on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedRun {
    pub node: NodeName,
    pub summary: JobSummary,
    /// The device's model and memory, as its agent announced it.
    pub device_model: String,
    pub device_memory_bytes: u64,
}

/// Observed jobs.
#[async_trait]
pub trait Observed: Send + Sync {
    /// Upserts starts.
    async fn record_observed(&self, jobs: &[ObservedJob]) -> Result<(), StoreError>;
    /// The starts of these inner numbers, the oldest first.
    async fn observed_by_number(&self, inner_ids: &[u32]) -> Result<Vec<ObservedJob>, StoreError>;
    /// The newest start of a job, with what it taught.
    async fn observed_job(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ObservedJob, Option<Lesson>)>, StoreError>;
    /// Those that were open when they were recorded last.
    async fn open_observed(&self) -> Result<Vec<ObservedJob>, StoreError>;
    /// Starts that are over, and were not learnt from yet, with all parts of them that were reported; the oldest first.
    async fn unlearned_observed(
        &self,
        limit: u32,
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError>;
    /// In one transaction: a start is learnt from, and this is the new profile of its workload, where it changed one. Nothing, where
    /// that was done before.
    async fn learn_observed(
        &self,
        start: JobStart,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError>;
}
