//! What people call workloads.

use super::MemoryStore;
use crate::store;
use crate::store::names::owner;
use crate::store::{NAMESAKES_MAX, Naming, StoreError};
use async_trait::async_trait;
use pillion_core::name::{KnownName, NameSource};
use pillion_core::{UnixTime, UserId, WorkloadKey, WorkloadName};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(super) struct Names(BTreeMap<WorkloadKey, Naming>);

impl Names {
    pub(super) fn keep(&mut self, namings: &[Naming]) {
        for new in namings {
            let is_better = self
                .0
                .get(&new.workload)
                .is_none_or(|old| (old.source, new.source) == (NameSource::Job, NameSource::Profile));
            if is_better {
                self.0.insert(new.workload.clone(), new.clone());
            }
        }
    }

    pub(super) fn names(&self, workloads: &[WorkloadKey]) -> BTreeMap<WorkloadKey, KnownName> {
        let known = workloads.iter().filter_map(|key| {
            let name = self.0.get(key)?.name.clone();
            let is_shared = self.0.values().any(|other| {
                other.workload != *key && other.name == name && owner(&other.workload) == owner(key)
            });
            Some((key.clone(), KnownName { name, is_shared }))
        });
        known.collect()
    }

    pub(super) fn called(&self, name: &WorkloadName, uid: Option<UserId>) -> Vec<WorkloadKey> {
        let namings = self.0.values();
        let meant = namings.filter(|one| one.name == *name && uid.is_none_or(|uid| one.uid == uid));
        meant.map(|one| one.workload.clone()).take(NAMESAKES_MAX as usize).collect()
    }
}

#[async_trait]
impl store::Names for MemoryStore {
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
