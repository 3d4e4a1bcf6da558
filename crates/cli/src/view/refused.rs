//! Who was not let in over TCP.

use crate::format::clean;
use pillion_proto::v1 as wire;
use serde::Serialize;

/// One who was not let in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RefusedRow {
    /// As it said itself.
    pub who: String,
    /// From where it came.
    pub address: String,
    /// Why.
    pub why: String,
    /// The last time.
    pub at_seconds: f64,
    /// How often.
    pub count: u64,
}

impl From<wire::RefusedPeer> for RefusedRow {
    fn from(refused: wire::RefusedPeer) -> Self {
        let wire::RefusedPeer { who, address, why, at_seconds, count } = refused;
        Self { who: clean(&who), address: clean(&address), why: clean(&why), at_seconds, count }
    }
}
