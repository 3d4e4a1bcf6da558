//! What people call workloads.

use super::MemoryStore;
use async_trait::async_trait;
use pillion_core::name::KnownName;
use pillion_core::{UnixTime, UserId, WorkloadKey, WorkloadName};
use pillion_store::{Naming, StoreError};
use std::collections::BTreeMap;

#[async_trait]
impl pillion_store::Names for MemoryStore {
    async fn name_workloads(&self, namings: &[Naming], _at: UnixTime) -> Result<(), StoreError> {
        self.with("naming workloads", |state| {
            state.names.keep(namings);
        })
    }

    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError> {
        self.with("reading names of workloads", |state| state.names.names(workloads))
    }

    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError> {
        self.with("reading workloads of a name", |state| state.names.called(name, uid))
    }
}
