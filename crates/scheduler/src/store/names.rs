//! What people call workloads.

use pillion_core::name::NameSource;
use pillion_core::{UserId, WorkloadKey, WorkloadName};

/// How many workloads of one name are told at most.
pub const NAMESAKES_MAX: u32 = 1_000;

/// A workload's name, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// The workload.
    pub workload: WorkloadKey,
    /// Whose it is.
    pub uid: UserId,
    /// Its name.
    pub name: WorkloadName,
    /// Where it was read.
    pub source: NameSource,
}

/// The user in a key: everything before the digest.
pub(super) fn owner(workload: &WorkloadKey) -> &str {
    workload.as_str().split_once('/').map_or("", |(user, _)| user)
}
