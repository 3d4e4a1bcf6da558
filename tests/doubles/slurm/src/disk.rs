//! What slurmctld has on disk. One that is killed comes back with it, and knows nothing of the seconds since: jobs that were
//! submitted are gone and their ids are given again, jobs that were started wait again, and those that ended run.

use super::settings::FakeCall;
use super::world::{Record, World};
use pillion_core::SlurmJobId;
use std::collections::BTreeMap;

/// The state of all jobs, as slurmctld wrote it last.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    records: BTreeMap<SlurmJobId, Record>,
    next_id: u32,
    next_priority: u64,
}

impl World {
    pub(super) fn save(&mut self) {
        let records = self.records.clone();
        self.saved = Some(Saved { records, next_id: self.next_id, next_priority: self.next_priority });
    }

    /// `false`: nothing was ever written.
    pub(super) fn forget(&mut self) -> bool {
        let Some(saved) = self.saved.clone() else { return false };
        self.records = saved.records;
        (self.next_id, self.next_priority) = (saved.next_id, saved.next_priority);
        self.journal.push(FakeCall::Forgot { at: self.now });
        self.wake();
        true
    }
}
