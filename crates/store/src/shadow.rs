//! Decisions that are only recorded: what would have been done in observed partitions, and what came of the jobs. Nothing here is
//! ever released, and no other table knows of it.

use super::{NewMember, ObservedJob, ObservedRun, StoreError};
use async_trait::async_trait;
use pillion_core::reason::Reason;
use pillion_core::shadow::{ShadowFit, ShadowOutcome};
use pillion_core::{GresType, JobStart, NodeName, SlowdownRatio, SlurmJobId, UnixTime, UserId};
use pillion_pairing::{Role, SpeedEstimate};
use serde::{Deserialize, Serialize};

/// What would have been done with one start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShadowDecision {
    /// What would have been committed, by the same types as what is.
    pub member: NewMember,
    pub user: String,
    pub partition: String,
    pub decided_at: UnixTime,
    /// The start on whose device it would have been: its own, or its host's.
    pub group: JobStart,
    /// A joiner that would have begun together with its host, and not come to one that runs.
    pub is_with_host: bool,
    pub node: NodeName,
    pub gres_type: GresType,
    pub device_model: String,
    pub device_memory_bytes: u64,
    /// Who would have been there before it or begun with it, the host first; empty for everybody but joiners.
    pub beside: Vec<ShadowNeighbour>,
    /// What its coming gains: the sum of the speeds of all there, less what it was before; as expected, and by the pessimistic bounds.
    pub gain: f64,
    pub gain_low: f64,
    /// How many of those there would probably be slower than promised.
    pub broken_expected: f64,
    /// How long it was believed to be beside its host.
    pub overlap_seconds_believed: Option<f64>,
    pub time_limit_seconds: Option<u64>,
}

impl ShadowDecision {
    /// The start that it is about.
    pub const fn start(&self) -> JobStart {
        self.member.start
    }
    /// Why so.
    pub fn reason(&self) -> Reason {
        self.member.explanation.as_ref().map_or(Reason::Held, |explanation| explanation.reason)
    }
    /// Whether it would have come to be beside others.
    pub fn is_joiner(&self) -> bool {
        self.member.role == Role::Joiner
    }
}

/// One that would have been beside it, and how fast from then on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShadowNeighbour {
    pub start: JobStart,
    pub estimate: SpeedEstimate,
}

/// What came of the jobs, held against what was decided. Times and memory are measured, speeds stay predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShadowScore {
    pub outcome: ShadowOutcome,
    /// How long it held its GPU in truth.
    pub held_seconds: f64,
    /// Whether it ran about as long as its profile said; `None`: nobody had said.
    pub is_duration_as_believed: Option<bool>,
    /// Of a joiner alone.
    pub beside: Option<ShadowBeside>,
}

/// What came of those who would have shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShadowBeside {
    pub fit: ShadowFit,
    /// How long they would have been together, by how long each ran and the speeds that were predicted.
    pub overlap_seconds: f64,
    /// Whether that is about what was believed; `None`: nothing was.
    pub is_overlap_as_believed: Option<bool>,
    /// GPU time that would have been saved: by the pessimistic bounds, and as expected. Below zero where it would have been lost.
    pub saved_seconds_low: f64,
    pub saved_seconds: f64,
    /// Beside the others it would have come to its time limit, by the speed that was predicted.
    pub is_over_limit: bool,
}

/// Which decisions a report is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShadowFilter {
    /// Decided in this stretch of time.
    pub since: UnixTime,
    pub until: UnixTime,
    /// One user's only.
    pub uid: Option<UserId>,
}

/// Sums over decisions that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowSums {
    pub role: Role,
    pub reason: Reason,
    /// `None`: their jobs have not ended.
    pub outcome: Option<ShadowOutcome>,
    pub fit: Option<ShadowFit>,
    pub is_duration_as_believed: Option<bool>,
    pub is_overlap_as_believed: Option<bool>,
    pub count: u32,
    /// Of joiners, with those beside whom they would have been: each has a promise.
    pub promise_count: u32,
    pub broken_expected: f64,
    pub over_limit_count: u32,
    pub held_seconds: f64,
    pub overlap_seconds_believed: f64,
    pub overlap_seconds: f64,
    pub saved_seconds_low: f64,
    pub saved_seconds: f64,
}

/// A speed that was foretold of one of two in the pool when that was decided, and then measured there.
#[derive(Debug, Clone, PartialEq)]
pub struct ForetoldSpeed {
    pub estimate: SpeedEstimate,
    pub promise: SlowdownRatio,
    /// Of the time in which it was beside the other; above 1 by noise.
    pub measured_speed_fraction: f64,
}

/// Decisions that are only recorded.
#[async_trait]
pub trait Shadows: Send + Sync {
    /// Records decisions. Of a start that has one the first stays.
    async fn record_shadow(&self, decisions: &[ShadowDecision]) -> Result<(), StoreError>;
    /// Those that were not closed yet, in the order in which they were decided.
    async fn open_shadow(&self) -> Result<Vec<ShadowDecision>, StoreError>;
    /// All of these groups, closed ones too, in the order in which they were decided.
    async fn shadow_groups(&self, groups: &[JobStart]) -> Result<Vec<ShadowDecision>, StoreError>;
    /// Closes decisions with what came of them. One that is closed stays as it was.
    async fn close_shadow(&self, scores: &[(JobStart, ShadowScore)], at: UnixTime) -> Result<(), StoreError>;
    /// What would have been done with the newest start of a job.
    async fn shadow_of(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ShadowDecision, Option<ShadowScore>)>, StoreError>;
    /// These observed starts, with all parts of each that were reported.
    async fn observed_starts(
        &self,
        starts: &[JobStart],
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError>;
}
