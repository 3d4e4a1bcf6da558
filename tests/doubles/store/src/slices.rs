//! What became of runs in instances.

use super::MemoryStore;
use super::state::State;
use async_trait::async_trait;
use pillion_pairing::mig::SliceRecord;
use pillion_store::{RunAccount, Slices, StoreError};

impl State {
    /// Adds a run, where it ran in an instance.
    pub(super) fn add_slice(&mut self, run: &RunAccount) {
        let Some(slice) = &run.slice else { return };
        let key = (run.workload.clone(), slice.device_model.clone(), slice.profile.to_string());
        let record = self.slices.entry(key).or_insert_with(|| SliceRecord {
            workload: run.workload.clone(),
            device_model: slice.device_model.clone(),
            profile: slice.profile,
            memory_bytes: None,
            completed_count: 0,
            out_of_memory_count: 0,
            speed_count: 0,
            speed_fraction: None,
        });
        record.memory_bytes = slice.memory_bytes.or(record.memory_bytes);
        record.completed_count += u32::from(slice.has_completed);
        record.out_of_memory_count += u32::from(slice.ran_out_of_memory);
        if let Some(speed) = slice.speed_fraction {
            record.speed_count += 1;
            let mean = record.speed_fraction.unwrap_or(0.0);
            record.speed_fraction = Some(mean + (speed - mean) / f64::from(record.speed_count));
        }
    }
}

#[async_trait]
impl Slices for MemoryStore {
    async fn slices(&self) -> Result<Vec<SliceRecord>, StoreError> {
        self.with("reading what runs in instances taught", |state| state.slices.values().cloned().collect())
    }
}
