//! What people call workloads.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::name::{KnownName, NameSource};
use pillion_core::{UnixTime, UserId, WorkloadKey, WorkloadName};
use std::collections::BTreeMap;

/// How many workloads of one name are told at most.
pub const NAMESAKES_MAX: u32 = 1_000;

/// A workload's name, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    pub workload: WorkloadKey,
    /// Whose it is.
    pub uid: UserId,
    pub name: WorkloadName,
    /// Where it was read.
    pub source: NameSource,
}

/// The user in a key: everything before the digest.
pub fn owner(workload: &WorkloadKey) -> &str {
    workload.as_str().split_once('/').map_or("", |(user, _)| user)
}

/// What workloads are called.
#[async_trait]
pub trait Names: Send + Sync {
    /// What these workloads are called. The first name stays, but that of a profile takes the place of a job's.
    async fn name_workloads(&self, namings: &[Naming], at: UnixTime) -> Result<(), StoreError>;
    /// The names of those of these workloads that have one.
    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError>;
    /// Workloads of that name, in the order of keys, at most [`NAMESAKES_MAX`]; `uid`: of this user only.
    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError>;
}
