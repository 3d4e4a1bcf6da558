//! Which runs are first ones, and what is told of them.

use pillion_core::UnixTime;
use pillion_pairing::{FirstRun, Role};
use pillion_store::Member;

/// A first run, as far as it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstRunSeen {
    /// What was seen; what its user declared is not.
    pub first: FirstRun,
    /// Since when that suffices for others to join it.
    pub joinable_since: Option<UnixTime>,
}

/// Whether it was started as a host with nothing known of what it needs: a first run.
pub(crate) fn is_first_run(member: &Member) -> bool {
    let plan = &member.plan;
    plan.role == Role::Host && plan.memory_bytes.is_none() && plan.estimate.is_none()
}
