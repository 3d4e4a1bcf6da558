//! What the site says of the watch.

use super::follow::Readings;
use pillion_config::Watch;
use std::collections::BTreeMap;

/// How the speed of tenants is followed, and what is done.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceSettings {
    /// What is done where a promise is being broken.
    pub watch: Watch,
    /// The same for single partitions, by that of the guest.
    pub by_partition: BTreeMap<String, Watch>,
    /// Seconds of progress until a tenant is first judged.
    pub first_seconds: f64,
    /// Seconds of progress from each further judgement to the next.
    pub steady_seconds: f64,
    /// What a restart costs besides the work that is lost, in seconds.
    pub restart_seconds: f64,
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            watch: Watch::Advise,
            by_partition: BTreeMap::new(),
            first_seconds: 60.0,
            steady_seconds: 600.0,
            restart_seconds: 120.0,
        }
    }
}

impl PaceSettings {
    /// What is done for guests of this partition; where a job that waits names several, with commas between them, in all of them.
    pub(crate) fn of(&self, partitions: &str) -> Watch {
        let of_one = |name| self.by_partition.get(name).copied().unwrap_or(self.watch);
        partitions.split(',').map(of_one).min().unwrap_or(self.watch)
    }

    pub(crate) fn is_off(&self) -> bool {
        self.watch == Watch::Off && self.by_partition.values().all(|watch| *watch == Watch::Off)
    }

    pub(super) fn readings(&self) -> Readings {
        Readings { first_seconds: self.first_seconds, steady_seconds: self.steady_seconds }
    }
}
