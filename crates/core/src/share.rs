//! What one tenant gets on one device: the decision as the agent carries it out.

use crate::device::Mechanism;
use crate::ids::{DecisionId, GresType, JobStart, UserId};
use crate::units::{Fraction, Shards};
use serde::{Deserialize, Serialize};

/// One tenant's share, complete: the agent has nothing left to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The decision that it carries out.
    pub decision_id: DecisionId,
    /// The start that it holds for, and no other.
    pub start: JobStart,
    /// Whose job it is.
    pub uid: UserId,
    /// The device, by Slurm's GRES type on this node.
    pub gres_type: GresType,
    /// How the device is shared; `None` for a job that has it alone and cannot be joined.
    pub mechanism: Mechanism,
    /// The most compute units that the tenant may use (`mps`); absent = no cap.
    pub cap_fraction: Option<Fraction>,
    /// The card's mode, 1, 2 or 4, equal for all tenants (`ccs`).
    pub ccs_mode: Option<u8>,
    /// The most device memory a process of the tenant may pin (`mps`); absent = no limit.
    pub memory_limit_bytes: Option<u64>,
    /// What Slurm booked for it.
    pub shards: Shards,
}
