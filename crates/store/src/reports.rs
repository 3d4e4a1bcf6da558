//! What agents report, each thing once.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::device::DeviceDescription;
use pillion_core::report::{Launch, Report};
use pillion_core::{GresType, JobStart, NodeName, UnixTime};

/// What agents report.
#[async_trait]
pub trait Reports: Send + Sync {
    /// Stores a report of an agent's journal exactly once: `Ok(false)` where that sequence was stored before.
    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError>;
    /// The last sequence that is stored for a journal (0 = none).
    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError>;
    /// Remembers a device's model, for summaries that arrive when its agent responds no more.
    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[DeviceDescription],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// What SPANK was told at each task of a start, oldest first.
    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError>;
    /// The mean power of a device over the samples between two times, where they tell it.
    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError>;
}
