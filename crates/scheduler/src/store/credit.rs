//! Who has lost the right to share for a while: by user, since the name of a workload is anybody's to make up.

use pillion_core::{JobStart, NodeName, UnixTime, UserId};

/// A start that costs its user the right to share, for some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CreditLoss {
    /// Whose.
    pub uid: UserId,
    /// When it was seen.
    pub lost_at: UnixTime,
    /// Which start. One costs once.
    pub start: JobStart,
    /// Where.
    pub node: NodeName,
    /// What it did, one sentence.
    pub reason: String,
}

/// What a user has done since he last lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atonement {
    /// Who.
    pub uid: UserId,
    /// Runs alone that ended since.
    pub runs_alone: u32,
}
