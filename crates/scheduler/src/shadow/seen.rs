//! What would be done with those that wait, for those who tell of it.

use pillion_core::SlurmJobId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the last look in the shadow made of those that it did not decide on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShadowSeen {
    /// Why each of them would wait, or start alone.
    pub reasons: BTreeMap<SlurmJobId, Arc<str>>,
}
