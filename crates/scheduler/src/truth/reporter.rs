//! Who reports something: its node, its clock and its devices.

use pillion_core::{GresType, NodeName, UnixTime};
use std::collections::BTreeMap;

/// A clock that is further off than this is believed to be right, and what it dated to be wrong.
const SKEW_SECONDS_MAX: f64 = 86_400.0;

/// Who reports, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter<'a> {
    /// The node that its stream began with.
    pub(crate) node: &'a NodeName,
    /// Its clock less ours.
    pub(crate) skew_seconds: f64,
    /// The memory of each device that it announced.
    pub(crate) devices: &'a BTreeMap<GresType, u64>,
    /// By the scheduler's own clock, never by an agent's.
    pub(crate) now: UnixTime,
}

impl Reporter<'_> {
    /// One of its times by our clock.
    pub(super) fn seconds(&self, at: UnixTime) -> f64 {
        let skew = if self.skew_seconds.abs() <= SKEW_SECONDS_MAX { self.skew_seconds } else { 0.0 };
        at.seconds() - skew
    }
}
