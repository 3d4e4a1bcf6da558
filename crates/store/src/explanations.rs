//! Why jobs were left waiting.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::{Revision, SlurmJobId, UnixTime};
use pillion_pairing::Explanation;

/// How many explanations of waiting are kept for a job.
pub const EXPLANATIONS_MAX: usize = 50;

/// Why jobs were left waiting.
#[async_trait]
pub trait Explanations: Send + Sync {
    /// Keeps an explanation for a job that was left waiting, if its reason differs from the last one kept for that job
    /// (candidates may be newer: the row is then replaced in place; the same explanation again changes nothing). At most
    /// [`EXPLANATIONS_MAX`] a job are kept.
    async fn record_explanations(
        &self,
        revision: Revision,
        explanations: &[Explanation],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// Explanations of one job, oldest first, those of its decisions included.
    async fn explanations(
        &self,
        id: SlurmJobId,
    ) -> Result<Vec<(Revision, UnixTime, Explanation)>, StoreError>;
}
