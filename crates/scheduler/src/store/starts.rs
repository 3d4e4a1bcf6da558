//! Starts as Slurm reported them: what reports of agents are held against.

use super::JobRecord;
use pillion_core::{JobStart, NodeName, UnixTime};

/// Where and when a start ran.
#[derive(Debug, Clone, PartialEq)]
pub struct SlurmStart {
    /// On this node.
    pub node: NodeName,
    pub started_at: UnixTime,
    /// Until then; absent while it runs, and where the job was started again before its end was seen.
    pub ended_at: Option<UnixTime>,
}

/// The start that a job's record speaks of; `None`: it has not started.
pub(super) fn start_of(job: &JobRecord) -> Option<(JobStart, SlurmStart)> {
    let start = JobStart { job_id: job.id, restart_count: job.restart_count };
    let (node, started_at) = (job.node.clone()?, job.started_at?);
    Some((start, SlurmStart { node, started_at, ended_at: job.ended_at }))
}
