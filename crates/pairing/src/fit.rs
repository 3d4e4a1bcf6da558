//! How much device memory a workload needs, by what became of runs that had a known amount of it: under a limit of MPS, or in an
//! instance. One fact, whichever of them told it.
//!
//! What a workload held on a whole device says little: allocators take what is there. Of 21 trainings that ran in 4.9 GB, 14
//! held up to 9.9 GB where they had 40. So an amount with which it has completed goes before any peak.

use pillion_core::mig::{Geometry, Size};
use pillion_core::profile::WorkloadProfile;
use serde::{Deserialize, Serialize};

/// What an observed peak is multiplied with in an instance where nothing better is known.
const PEAK_RATIO: f64 = 1.1;
/// What is given of the memory with which it ran out.
const BEYOND_RATIO: f64 = 1.5;

/// What became of one workload on one device model with so much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryFit {
    /// The least with which it has completed.
    pub completed_bytes_min: Option<u64>,
    /// The most with which it ran out.
    pub ran_out_bytes_max: Option<u64>,
}

impl From<&WorkloadProfile> for MemoryFit {
    fn from(profile: &WorkloadProfile) -> Self {
        Self {
            completed_bytes_min: profile.memory_bytes_completed,
            ran_out_bytes_max: profile.memory_bytes_ran_out,
        }
    }
}

impl MemoryFit {
    /// It completed with so much.
    pub fn completed(&mut self, memory_bytes: u64) {
        self.completed_bytes_min = least(self.completed_bytes_min, Some(memory_bytes));
    }

    /// It ran out of so much. For good: what has completed with as little was another input.
    pub fn ran_out(&mut self, memory_bytes: u64) {
        self.ran_out_bytes_max = self.ran_out_bytes_max.max(Some(memory_bytes));
    }

    /// What is known from both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            completed_bytes_min: least(self.completed_bytes_min, other.completed_bytes_min),
            ran_out_bytes_max: self.ran_out_bytes_max.max(other.ran_out_bytes_max),
        }
    }

    /// The least with which it has completed, and did not run out of as much.
    pub fn enough_bytes(&self) -> Option<u64> {
        self.completed_bytes_min.filter(|bytes| self.ran_out_bytes_max < Some(*bytes))
    }

    /// What it is given at least after it ran out of memory; nothing more where a run that had enough shows how much that is.
    pub fn beyond_bytes(&self, peak_bytes: Option<u64>) -> Option<u64> {
        let ran_out = self.ran_out_bytes_max?;
        let held = least(peak_bytes, self.enough_bytes());
        held.is_none_or(|held| held <= ran_out).then(|| scaled(ran_out, BEYOND_RATIO))
    }

    /// The same whatever it held at most, which its framework may have taken because it was there.
    pub fn beyond_bytes_anyway(&self) -> Option<u64> {
        self.ran_out_bytes_max.map(|bytes| scaled(bytes, BEYOND_RATIO))
    }

    /// The least memory of an instance that it may be given; `None`: nothing is known. A peak that is no more than what it ran out of
    /// says nothing: that is where it was cut off.
    pub fn need_in_instance(&self, declared_bytes: Option<u64>, peak_bytes: Option<u64>) -> Option<u64> {
        let peak = peak_bytes.filter(|peak| self.ran_out_bytes_max < Some(*peak));
        let told = match (declared_bytes, peak.map(|peak| scaled(peak, PEAK_RATIO))) {
            (Some(declared), Some(peak)) => Some(declared.min(peak)),
            (declared, peak) => declared.or(peak),
        };
        let beyond = self.ran_out_bytes_max.map(|bytes| bytes.saturating_add(1));
        self.enough_bytes()
            .or_else(|| told.max(self.beyond_bytes(peak)))
            .map(|need| need.max(beyond.unwrap_or(0)))
    }

    /// Whether it has room in an instance of this size. One whose memory nobody has told is the whole device.
    pub fn has_room(&self, declared_bytes: Option<u64>, peak_bytes: Option<u64>, size: &Size) -> bool {
        match (self.need_in_instance(declared_bytes, peak_bytes), size.memory_bytes) {
            (Some(need), Some(memory_bytes)) => need <= memory_bytes,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The size below the least in which it has room by its peak: allocators take what is there, so it may complete in it all the
    /// same. `None` where its user has declared what it needs, where anything better than a peak is known, and where nothing is.
    pub fn size_to_try<'g>(
        &self,
        declared_bytes: Option<u64>,
        peak_bytes: Option<u64>,
        geometry: &'g Geometry,
    ) -> Option<&'g Size> {
        if *self != Self::default() || declared_bytes.is_some() || peak_bytes.is_none() {
            return None;
        }
        let whole = geometry.whole().profile;
        let mut parts = geometry.plain().filter(|size| size.profile != whole);
        parts.find(|size| !self.has_room(None, peak_bytes, size))
    }
}

/// The lesser of two of which either may be unknown.
pub(crate) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// So many times as much.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "memory is far below 2^53 bytes"
)]
pub(crate) fn scaled(bytes: u64, ratio: f64) -> u64 {
    (bytes as f64 * ratio).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_ran_out_needs_more_than_its_peak_and_than_it_declared() {
        let mut fit = MemoryFit::default();
        assert_eq!(fit.need_in_instance(Some(6 * GIB), Some(20 * GIB)), Some(6 * GIB), "it declared less");
        fit.ran_out(10 * GIB);
        assert_eq!(
            fit.need_in_instance(None, Some(9 * GIB)),
            Some(15 * GIB),
            "the peak is where it was cut off"
        );
        assert_eq!(fit.need_in_instance(Some(12 * GIB), Some(9 * GIB)), Some(15 * GIB));
        assert_eq!(fit.need_in_instance(Some(18 * GIB), Some(9 * GIB)), Some(18 * GIB));
        assert_eq!(fit.need_in_instance(None, None), Some(15 * GIB));
        assert_eq!(
            fit.need_in_instance(None, Some(11 * GIB)),
            Some(scaled(11 * GIB, 1.1)),
            "a run had enough"
        );
        fit.completed(12 * GIB);
        assert_eq!(fit.need_in_instance(None, Some(9 * GIB)), Some(12 * GIB));
    }

    #[test]
    fn one_size_below_its_peak_is_tried_and_nothing_where_more_is_known() {
        let geometry = Geometry::of_model("h100").unwrap();
        let to_try = |fit: MemoryFit, declared: Option<u64>, peak: u64| {
            let size = fit.size_to_try(declared, Some(peak * GIB), geometry);
            size.map(|size| size.profile.to_string())
        };
        let nothing = MemoryFit::default();
        assert_eq!(to_try(nothing, None, 15).as_deref(), Some("1g.10gb"));
        assert_eq!(to_try(nothing, None, 30).as_deref(), Some("2g.20gb"));
        assert_eq!(to_try(nothing, None, 76).as_deref(), Some("4g.40gb"), "one that looks full");
        assert_eq!(to_try(nothing, None, 4), None, "it has room in the smallest");
        assert_eq!(to_try(nothing, Some(15 * GIB), 15), None, "its user knows better");
        let known = MemoryFit { completed_bytes_min: Some(18 * GIB), ran_out_bytes_max: None };
        assert_eq!(to_try(known, None, 15), None);
        let known = MemoryFit { completed_bytes_min: None, ran_out_bytes_max: Some(9 * GIB) };
        assert_eq!(to_try(known, None, 15), None);
        assert_eq!(nothing.size_to_try(None, None, geometry), None);
    }

    #[test]
    fn a_limit_and_an_instance_tell_the_same() {
        let limited = MemoryFit { completed_bytes_min: Some(8 * GIB), ran_out_bytes_max: Some(4 * GIB) };
        let cut = MemoryFit { completed_bytes_min: Some(6 * GIB), ran_out_bytes_max: None };
        let both = MemoryFit { completed_bytes_min: Some(6 * GIB), ran_out_bytes_max: Some(4 * GIB) };
        assert_eq!((limited.and(cut), cut.and(limited)), (both, both));
        assert_eq!(limited.and(MemoryFit::default()), limited);
    }
}
