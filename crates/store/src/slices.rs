//! What runs in instances have taught: in which sizes workloads have room, and how fast they are there.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::mig::MigProfile;
use pillion_pairing::mig::SliceRecord;

/// What one run in an instance of its own says of its workload there.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceLesson {
    pub device_model: String,
    pub profile: MigProfile,
    /// The memory of such an instance; `None` where nobody has told it.
    pub memory_bytes: Option<u64>,
    pub has_completed: bool,
    /// Surely: any doubt means that it did not.
    pub ran_out_of_memory: bool,
    /// How fast it was, of its speed on the whole device.
    pub speed_fraction: Option<f64>,
}

/// What is known of workloads in instances.
#[async_trait]
pub trait Slices: Send + Sync {
    /// All of it, in the order of workloads, models and sizes' names. A run is added where it is profiled
    /// ([`super::RunAccount::slice`]).
    async fn slices(&self) -> Result<Vec<SliceRecord>, StoreError>;
}
