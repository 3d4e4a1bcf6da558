//! In which sizes of instance a workload has room, by what became of it there.
//!
//! What a workload held on a whole device says little: allocators take what is there. Of 21 trainings that ran in 4.9 GB, 14
//! held up to 9.9 GB where they had 40. So a size in which it has completed goes before any peak.

use pillion_core::mig::Size;
use serde::{Deserialize, Serialize};

/// What an observed peak is multiplied with where nothing better is known.
const PEAK_RATIO: f64 = 1.1;

/// What became of one workload in instances of one device model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FitRecord {
    /// The least memory in which it has completed.
    pub completed_bytes_min: Option<u64>,
    /// The most memory in which it ran out.
    pub out_of_memory_bytes_max: Option<u64>,
}

impl FitRecord {
    /// It completed in an instance of so much memory.
    pub fn completed(&mut self, memory_bytes: u64) {
        self.completed_bytes_min =
            Some(self.completed_bytes_min.map_or(memory_bytes, |least| least.min(memory_bytes)));
    }

    /// It ran out of memory there. For good: what has completed in so little was another input.
    pub fn ran_out(&mut self, memory_bytes: u64) {
        self.out_of_memory_bytes_max = self.out_of_memory_bytes_max.max(Some(memory_bytes));
    }

    /// The least memory of an instance that it may be given; `None`: nothing is known.
    pub fn need_bytes(&self, declared_bytes: Option<u64>, peak_bytes: Option<u64>) -> Option<u64> {
        let beyond = self.out_of_memory_bytes_max.map(|bytes| bytes.saturating_add(1));
        let completed = self.completed_bytes_min.filter(|bytes| beyond.is_none_or(|least| *bytes >= least));
        let told = || match (declared_bytes, peak_bytes.map(with_margin)) {
            (Some(declared), Some(peak)) => Some(declared.min(peak)),
            (declared, peak) => declared.or(peak),
        };
        completed.or_else(told).map(|need| need.max(beyond.unwrap_or(0)))
    }

    /// Whether it has room in an instance of this size. One whose memory nobody has told is the whole device.
    pub fn has_room(&self, declared_bytes: Option<u64>, peak_bytes: Option<u64>, size: &Size) -> bool {
        match (self.need_bytes(declared_bytes, peak_bytes), size.memory_bytes) {
            (Some(need), Some(memory_bytes)) => need <= memory_bytes,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "memory is far below 2^53 bytes"
)]
fn with_margin(peak_bytes: u64) -> u64 {
    (peak_bytes as f64 * PEAK_RATIO).ceil() as u64
}
