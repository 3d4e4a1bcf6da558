//! Who has lost the right to share for a while: by user, since the name of a workload is anybody's to make up.

use super::{Event, StoreError};
use async_trait::async_trait;
use pillion_core::{JobStart, NodeName, UnixTime, UserId};

/// A start that costs its user the right to share, for some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CreditLoss {
    pub uid: UserId,
    /// When it was seen.
    pub lost_at: UnixTime,
    /// Which start. One costs once.
    pub start: JobStart,
    pub node: NodeName,
    /// What it did, one sentence.
    pub reason: String,
}

/// What a user has done since he last lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atonement {
    pub uid: UserId,
    /// Runs alone that ended since.
    pub runs_alone: u32,
}

/// Who has lost the right to share for a while.
#[async_trait]
pub trait Credit: Send + Sync {
    /// In one transaction: a start costs its user the right to share, and its event is kept. `Ok(false)`, and nothing is kept:
    /// it has cost it before.
    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError>;
    /// Of each user who ever lost it, how many runs alone of at least so long he has ended since the last time, counted up to
    /// `runs_max`; in the order of uids.
    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError>;
}
