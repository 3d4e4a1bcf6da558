//! What is known of a waiting job, as the choice takes it.

use super::bound_without_promise;
use super::choose::SliceJob;
use super::speed::{SliceSpeed, prior};
use crate::fit::MemoryFit;
use pillion_core::mig::{Geometry, MigProfile, Size};
use pillion_core::profile::WorkloadProfile;
use pillion_core::{SlowdownRatio, UnixTime};
use std::collections::BTreeMap;

/// What is known of a workload on one model of device.
#[derive(Debug, Clone, Copy, Default)]
pub struct SliceKnowledge<'k> {
    /// How it uses the whole device; `None`: it was never measured there.
    pub profile: Option<&'k WorkloadProfile>,
    /// `memory=` as declared.
    pub memory_bytes_declared: Option<u64>,
    /// What became of it with so much memory, in instances and under limits.
    pub fit: MemoryFit,
    /// Its speed in sizes in which it was measured, of its speed on the whole device.
    pub measured: Option<&'k BTreeMap<MigProfile, f64>>,
    /// Whether it may be tried in the size below the one that its peak asks for.
    pub is_tried_smaller: bool,
}

impl SliceJob {
    /// A job of which this is known, on devices that can be cut so: in each plain size in which it has room at the speed that was
    /// measured there, else at the one that is foretold. `promise`: `None` where nobody made one.
    pub fn new(
        promise: Option<SlowdownRatio>,
        submitted_at: UnixTime,
        known: &SliceKnowledge<'_>,
        geometry: &Geometry,
    ) -> Self {
        let parts = geometry.plain().filter(|size| size.profile != geometry.whole().profile);
        let tried = known.size_to_try(geometry);
        let has_room = |size: &&Size| tried == Some(size.profile) || known.has_room(size);
        let speeds = parts.filter(has_room);
        let speeds = speeds.filter_map(|size| Some((size.profile, known.speed(size, geometry.whole())?)));
        let speeds: BTreeMap<MigProfile, SliceSpeed> = speeds.collect();
        Self {
            slowdown_ratio_max: promise.unwrap_or_else(bound_without_promise),
            submitted_at,
            duration_seconds: known.profile.and_then(|profile| profile.duration_seconds),
            tried: tried.filter(|tried| speeds.contains_key(tried)),
            speeds,
        }
    }
}

impl SliceKnowledge<'_> {
    fn memory_bytes_peak(&self) -> Option<u64> {
        self.profile.and_then(|profile| profile.memory_bytes_peak)
    }

    fn has_room(&self, size: &Size) -> bool {
        self.fit.has_room(self.memory_bytes_declared, self.memory_bytes_peak(), size)
    }

    fn size_to_try(&self, geometry: &Geometry) -> Option<MigProfile> {
        let size = self.fit.size_to_try(self.memory_bytes_declared, self.memory_bytes_peak(), geometry)?;
        self.is_tried_smaller.then_some(size.profile)
    }

    /// How fast it is in this size; `None` where nobody knows.
    fn speed(&self, size: &Size, whole: &Size) -> Option<SliceSpeed> {
        let measured = self.measured.and_then(|measured| measured.get(&size.profile));
        let measured = measured.map(|speed| SliceSpeed::measured(speed.clamp(0.0, 1.0)));
        measured.or_else(|| prior(self.profile?, size, whole))
    }
}
