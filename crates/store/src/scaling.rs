//! Which runs are looked at to tell how workloads scale.

use pillion_core::{UnixTime, UserId, WorkloadKey};

/// Runs that are looked at in one question, the newest first, where nobody says otherwise.
pub const SCALING_RUNS_MAX: u32 = 20_000;

/// Completed starts of observed partitions; `None` is any.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingFilter {
    pub uid: Option<UserId>,
    pub workload: Option<WorkloadKey>,
    /// Of those that ended in this stretch of time.
    pub since: Option<UnixTime>,
    pub until: Option<UnixTime>,
    pub limit: u32,
}

impl Default for ScalingFilter {
    fn default() -> Self {
        Self { uid: None, workload: None, since: None, until: None, limit: SCALING_RUNS_MAX }
    }
}
