//! Starts as Slurm reported them: what reports of agents are held against.

use pillion_core::{NodeName, UnixTime};

/// Where and when a start ran.
#[derive(Debug, Clone, PartialEq)]
pub struct SlurmStart {
    /// On this node.
    pub node: NodeName,
    pub started_at: UnixTime,
    /// Until then; absent while it runs, and where the job was started again before its end was seen.
    pub ended_at: Option<UnixTime>,
}
