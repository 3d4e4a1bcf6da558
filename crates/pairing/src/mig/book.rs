//! What runs in instances have taught, by workload, model of device and size.

use crate::fit::MemoryFit;
use pillion_core::WorkloadKey;
use pillion_core::mig::MigProfile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of the runs of one workload in instances of one size on one model of device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceRecord {
    /// What ran.
    pub workload: WorkloadKey,
    /// On which model of device.
    pub device_model: String,
    /// In which size.
    pub profile: MigProfile,
    /// The memory of such an instance; absent where nobody has told it.
    pub memory_bytes: Option<u64>,
    /// How many completed.
    pub completed_count: u32,
    /// How many ran out of memory.
    pub out_of_memory_count: u32,
    /// How many told how fast they were.
    pub speed_count: u32,
    /// How fast they were in the mean, of their speed on the whole device; absent where none told.
    pub speed_fraction: Option<f64>,
}

/// What is known of one workload on one model of device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlicesKnown {
    /// With how much memory it completed there, and ran out of it.
    pub fit: MemoryFit,
    /// Its speed where it was measured.
    pub measured: BTreeMap<MigProfile, f64>,
}

/// All that is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<SliceRecord>", into = "Vec<SliceRecord>")]
pub struct SliceBook {
    records: Vec<SliceRecord>,
    known: BTreeMap<(WorkloadKey, String), SlicesKnown>,
}

impl SliceBook {
    /// What is known of this workload on this model of device.
    pub fn get(&self, workload: &WorkloadKey, device_model: &str) -> Option<&SlicesKnown> {
        self.known.get(&(workload.clone(), device_model.to_owned()))
    }
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
    /// Every size of every workload of which something is known.
    pub fn iter(&self) -> impl Iterator<Item = &SliceRecord> {
        self.records.iter()
    }
}

impl From<Vec<SliceRecord>> for SliceBook {
    fn from(records: Vec<SliceRecord>) -> Self {
        let mut known: BTreeMap<(WorkloadKey, String), SlicesKnown> = BTreeMap::new();
        for record in &records {
            let own = known.entry((record.workload.clone(), record.device_model.clone())).or_default();
            if let Some(memory_bytes) = record.memory_bytes {
                if record.completed_count > 0 {
                    own.fit.completed(memory_bytes);
                }
                if record.out_of_memory_count > 0 {
                    own.fit.ran_out(memory_bytes);
                }
            }
            if let Some(speed) = record.speed_fraction.filter(|speed| speed.is_finite() && *speed > 0.0) {
                own.measured.insert(record.profile, speed);
            }
        }
        Self { records, known }
    }
}

impl From<SliceBook> for Vec<SliceRecord> {
    fn from(book: SliceBook) -> Self {
        book.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(profile: &str, memory_mib: u64, completed_count: u32, out_of_memory_count: u32) -> SliceRecord {
        SliceRecord {
            workload: WorkloadKey::new("w"),
            device_model: "a100-40".to_owned(),
            profile: profile.parse().unwrap(),
            memory_bytes: Some(memory_mib << 20),
            completed_count,
            out_of_memory_count,
            speed_count: completed_count,
            speed_fraction: (completed_count > 0).then_some(0.9),
        }
    }

    #[test]
    fn sizes_in_which_it_completed_and_ran_out_make_one_record_of_fit() {
        let book = SliceBook::from(vec![
            record("1g.5gb", 4_864, 0, 1),
            record("2g.10gb", 9_856, 3, 0),
            record("3g.20gb", 19_968, 1, 0),
        ]);
        let known = book.get(&WorkloadKey::new("w"), "a100-40").unwrap();
        assert_eq!(known.fit.completed_bytes_min, Some(9_856 << 20));
        assert_eq!(known.fit.ran_out_bytes_max, Some(4_864 << 20));
        assert_eq!(known.measured.len(), 2);
        assert_eq!(book.get(&WorkloadKey::new("w"), "h100"), None);
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<SliceBook>(&text).unwrap(), book);
    }
}
