//! Managed jobs, as Slurm showed them last.

use super::{SlurmStart, StoreError};
use async_trait::async_trait;
use pillion_core::{JobStart, NodeName, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_slurm::Ending;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A managed job, as the last scan that saw it reported it. Upserted by `record_jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub id: SlurmJobId,
    /// Its present restart count.
    pub restart_count: u32,
    /// Whose it is.
    pub uid: UserId,
    /// The user's name.
    pub user: String,
    pub account: String,
    /// The pool partition that it is or was in.
    pub partition: String,
    /// What it runs: user and digest.
    pub workload: WorkloadKey,
    /// Its own promise, where the user gave one.
    pub slowdown_ratio_max: Option<f64>,
    /// What it asked for with `memory=`.
    pub memory_bytes_declared: Option<u64>,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// When it started (this start).
    pub started_at: Option<UnixTime>,
    /// When it ended.
    pub ended_at: Option<UnixTime>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// Its node, once it runs; the first of several.
    pub node: Option<NodeName>,
    /// On how many it is; `None` before it runs, and of what an earlier release wrote.
    pub node_count: Option<u32>,
    /// Its GRES as Slurm shows it now.
    pub gres: String,
    /// Undone once: runs alone, is not released again.
    pub alone: bool,
    /// What it exited with, once it is over: (status, signal).
    pub exit: Option<(u32, u32)>,
}

/// The start that a job's record speaks of; `None`: it has not started.
pub fn start_of(job: &JobRecord) -> Option<(JobStart, SlurmStart)> {
    let start = JobStart { job_id: job.id, restart_count: job.restart_count };
    let (node, started_at) = (job.node.clone()?, job.started_at?);
    Some((start, SlurmStart { node, started_at, ended_at: job.ended_at }))
}

/// What Slurm said of jobs.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Upserts jobs, and what Slurm says of their present start. No new revision: a plan is held against the newest scan before it is committed.
    async fn record_jobs(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), StoreError>;
    /// Those of these jobs that were ever recorded, as they were last.
    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError>;
    /// One job, as last recorded.
    async fn job(&self, id: SlurmJobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.jobs(&[id]).await?.remove(&id))
    }
    /// Where and when Slurm says that a start of a managed job ran; `None`: no scan has shown it.
    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError>;
}
