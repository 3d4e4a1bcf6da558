//! How workloads run alone, by device model.

use super::{Lesson, RunAccount, StoreError};
use async_trait::async_trait;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, JobStart, UnixTime, WorkloadKey};
use serde::{Deserialize, Serialize};

/// What the mean and the variation of a duration were made of (Welford).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Durations {
    /// How many runs: those alone, and those beside others whose counters tell how long they would have taken alone.
    pub run_count: u32,
    /// Sum of squared deviations from the mean, in seconds squared.
    pub deviation_squares: f64,
}

/// A profile, with what is needed to add the next run to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredProfile {
    /// Means so far.
    pub profile: WorkloadProfile,
    /// What its duration alone is the mean of.
    pub durations: Durations,
    /// How many runs each speed under a cap is the mean of.
    pub run_counts_at_cap: [u32; 9],
    /// When it last changed.
    pub updated_at: UnixTime,
}

/// How workloads run alone.
#[async_trait]
pub trait Profiles: Send + Sync {
    /// In one transaction: marks a run as profiled, keeps its account and what it taught and, where given, stores the
    /// workload's new profile (a new revision). Nothing, where that was done before.
    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError>;
    /// What is known of one workload alone on one device model.
    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError>;
    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError>;
}
