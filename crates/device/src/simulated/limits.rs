//! What an MPS server of a simulated device holds each of its clients to: the server sets it, and the client keeps what it came
//! under.

use crate::MpsSettings;
use pillion_core::Fraction;

/// What a server holds each of its clients to, whatever their environment says.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Limits {
    pub(super) cap: Option<Fraction>,
    pub(super) memory_bytes: Option<u64>,
}

impl Limits {
    /// What a daemon begins its servers with.
    pub(super) fn of(settings: &MpsSettings) -> Self {
        Self { cap: settings.cap_default, memory_bytes: settings.memory_limit_bytes_default }
    }
}
