//! What is forgotten, and when.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::UnixTime;

/// What of the past is forgotten.
#[async_trait]
pub trait History: Send + Sync {
    /// Deletes what is of the past alone and older than `before`: sharings that are over with what led to them, explanations,
    /// events, starts, runs and jobs. What was learnt stays. Returns how many rows went.
    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError>;
    /// Deletes device samples older than `before`; returns how many.
    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError>;
}
