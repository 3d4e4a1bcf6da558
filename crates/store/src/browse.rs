//! What people look at of a whole cluster or of a long time: as few rows as tell it, found by index.

use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, GresTypes, NodeName, Shards, SlurmJobId, UnixTime, UserId, WorkloadKey,
};
use pillion_pairing::Role;

/// How many outcomes one heatmap is made of at most: the newest. It bounds the time that a question takes.
pub const OUTCOMES_MAX: u32 = 5_000;

/// How many hold a device, or are about to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupancy {
    pub node: NodeName,
    pub gres_type: GresType,
    /// Members that are planned, released or running.
    pub tenant_count: u32,
}

/// An active member of an active decision, without its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub decision_id: DecisionId,
    pub node: NodeName,
    pub gres_types: GresTypes,
    pub job_id: SlurmJobId,
    pub uid: UserId,
    /// The user's name; absent: the job was never recorded.
    pub user: Option<String>,
    /// What it runs.
    pub workload: WorkloadKey,
    /// How it came to the device.
    pub role: Role,
    /// Where it stands.
    pub state: pillion_core::decision::MemberState,
    /// How it shares the device.
    pub sharing: Sharing,
    /// What Slurm booked.
    pub shards: Shards,
    pub speed_fraction: Option<f64>,
    /// When Slurm started it.
    pub started_at: Option<UnixTime>,
}

/// Which outcomes a heatmap is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatFilter {
    /// Ended at or after.
    pub since: UnixTime,
    /// Runs that ended before this.
    pub until: UnixTime,
    /// Of this workload only.
    pub workload: Option<String>,
    /// Where both tenants are this user's: nobody learns whom he sat beside.
    pub uid: Option<UserId>,
    /// At most so many outcomes, the newest.
    pub limit: u32,
}

/// One workload beside one other.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatCell {
    /// Whose speed it is.
    pub workload: WorkloadKey,
    pub beside: WorkloadKey,
    /// How many outcomes.
    pub outcome_count: u32,
    /// Mean of time beside the other over time alone.
    pub slowdown_ratio: f64,
    /// The mean that was foretold, of those that were.
    pub predicted_slowdown_ratio: Option<f64>,
    /// Energy of the runs over that of as many runs alone, where both are known.
    pub energy_ratio: Option<f64>,
    /// Outcomes that were slower than promised.
    pub promises_broken: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heat {
    /// Most outcomes first.
    pub cells: Vec<HeatCell>,
    /// Outcomes that it is made of.
    pub outcome_count: u32,
}

/// Which past decisions to list; newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecisionFilter {
    /// Planned or released only.
    pub active_only: bool,
    /// Committed at or after.
    pub since: Option<UnixTime>,
    /// Decisions that were committed before this.
    pub until: Option<UnixTime>,
    /// With a member of this user.
    pub user: Option<String>,
    /// With this job.
    pub job_id: Option<SlurmJobId>,
    /// Of this sharing.
    pub group: Option<DecisionId>,
    /// With a member whose job is this uid's.
    pub uid: Option<UserId>,
    /// On one of these nodes; empty: on any.
    pub nodes: Vec<NodeName>,
    /// With a member that runs this workload.
    pub workload: Option<String>,
    /// With another member that runs this one, and is the same uid's where one is named: nobody finds out by asking whom he
    /// sat beside.
    pub beside: Option<String>,
    /// Older than this one.
    pub before: Option<DecisionId>,
    /// Those whose group never had a second member too.
    pub include_single: bool,
    /// At most so many; 0 = [`LIST_LIMIT_DEFAULT`].
    pub limit: u32,
}

/// How many decisions a filter without a limit lists.
pub const LIST_LIMIT_DEFAULT: u32 = 1_000;
