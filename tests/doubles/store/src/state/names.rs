//! What is remembered of names of workloads.

use pillion_core::name::{KnownName, NameSource};
use pillion_core::{UserId, WorkloadKey, WorkloadName};
use pillion_store::changes::owner;
use pillion_store::{NAMESAKES_MAX, Naming};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Names(BTreeMap<WorkloadKey, Naming>);

impl Names {
    pub(crate) fn keep(&mut self, namings: &[Naming]) {
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

    pub(crate) fn names(&self, workloads: &[WorkloadKey]) -> BTreeMap<WorkloadKey, KnownName> {
        let known = workloads.iter().filter_map(|key| {
            let name = self.0.get(key)?.name.clone();
            let is_shared = self.0.values().any(|other| {
                other.workload != *key && other.name == name && owner(&other.workload) == owner(key)
            });
            Some((key.clone(), KnownName { name, is_shared }))
        });
        known.collect()
    }

    pub(crate) fn called(&self, name: &WorkloadName, uid: Option<UserId>) -> Vec<WorkloadKey> {
        let namings = self.0.values();
        let meant = namings.filter(|one| one.name == *name && uid.is_none_or(|uid| one.uid == uid));
        meant.map(|one| one.workload.clone()).take(NAMESAKES_MAX as usize).collect()
    }
}
