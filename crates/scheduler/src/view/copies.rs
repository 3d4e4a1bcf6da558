//! What was measured of copies of one workload, as the view has it: of what the store tells, the newest of each kind and number.

use pillion_pairing::{CopyBook, CopyKind};
use pillion_store::StoredObservation;
use std::collections::BTreeMap;

/// So many observations of one number of copies are kept: each has a speed at least, and more are not asked about.
const KEPT: usize = 8;

/// What came of copies before.
#[derive(Debug, Clone, Default)]
pub struct CopyHistory {
    horizon: u64,
    /// By kind and number, the oldest first.
    seen: BTreeMap<(CopyKind, u32), Vec<StoredObservation>>,
    book: CopyBook,
}

impl CopyHistory {
    /// The number of the last observation that was looked at.
    pub const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// What is known by it.
    pub const fn book(&self) -> &CopyBook {
        &self.book
    }

    /// Looks at observations, the oldest first. One that changed comes again, and counts once.
    pub fn learn(&mut self, new: &[StoredObservation]) {
        for stored in new {
            self.horizon = self.horizon.max(stored.number);
            let Some(of) = CopyKind::of(&stored.observation) else { continue };
            let seen = self.seen.entry(of).or_default();
            seen.retain(|other| other.starts != stored.starts);
            seen.push(stored.clone());
            let surplus = seen.len().saturating_sub(KEPT);
            seen.drain(..surplus);
        }
        self.book = CopyBook::of(self.seen.values().flatten().map(|stored| &stored.observation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use pillion_core::share::Sharing;
    use pillion_core::{JobStart, SlurmJobId, WorkloadKey};
    use pillion_pairing::{Observation, ObservedTenant};

    fn stored(number: u64, first: u32, speeds: [Option<f64>; 2]) -> StoredObservation {
        let tenants = speeds.map(|speed_fraction| ObservedTenant {
            workload: WorkloadKey::new("alice/a"),
            sharing: Sharing::Mps { cap: None, memory_limit_bytes: None },
            speed_fraction,
            is_self_reported: false,
        });
        StoredObservation {
            number,
            starts: [first, first + 1]
                .map(|id| JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 })
                .to_vec(),
            recorded_at: at(number),
            observation: Observation {
                device_model: "h200".to_owned(),
                tenants: tenants.to_vec(),
                power_watts: None,
                fits: true,
                run_count: 1.0,
                speed_fraction_deviation: None,
            },
        }
    }

    fn speeds(history: &CopyHistory) -> Vec<f64> {
        history.book().iter().flat_map(|record| &record.speeds).map(|speed| speed.speed_fraction).collect()
    }

    #[test]
    fn an_observation_that_comes_again_counts_once_and_one_teaches_of_all_tasks() {
        let mut history = CopyHistory::default();
        history.learn(&[stored(1, 10, [Some(0.9), None])]);
        history.learn(&[stored(2, 10, [Some(0.9), Some(0.8)])]);
        assert_eq!((speeds(&history), history.horizon()), (vec![0.9, 0.8], 2));
        // Other tasks of the same array.
        history.learn(&[stored(3, 20, [Some(0.7), None])]);
        assert_eq!(speeds(&history), [0.9, 0.8, 0.7]);
        history
            .learn(&(4..30_u32).map(|own| stored(own.into(), 100 * own, [Some(0.5); 2])).collect::<Vec<_>>());
        assert_eq!((speeds(&history), history.seen.len()), (vec![0.5; 8], 1));
    }
}
