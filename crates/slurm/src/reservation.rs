//! What admins have reserved, and until when a node is everybody's.

use crate::types::Node;
use pillion_core::{NodeName, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

impl Node {
    /// Whether a job that is started there at `now` with this time limit would be off it before the next reservation begins.
    #[must_use]
    pub fn is_open_for(&self, time_limit_seconds: Option<u64>, now: UnixTime) -> bool {
        let ends_at = time_limit_seconds.map(|seconds| now + Duration::from_secs(seconds));
        self.reserved_from.is_none_or(|from| ends_at.is_some_and(|end| end <= from))
    }
}

/// One reservation of whole nodes, for those who ask for it and for nobody else.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// Its nodes, hostlist expanded.
    pub nodes: Vec<NodeName>,
    /// When it begins, or when it begins next.
    pub starts_at: UnixTime,
    /// When it ends then.
    pub ends_at: UnixTime,
}

impl Reservation {
    /// Writes down in each node when the first of these begins that is not over at `now`.
    pub fn reserve(nodes: &mut [Node], reservations: &[Self], now: UnixTime) {
        let mut first: BTreeMap<&NodeName, UnixTime> = BTreeMap::new();
        for reservation in reservations.iter().filter(|one| one.ends_at > now) {
            for name in &reservation.nodes {
                let from = first.entry(name).or_insert(reservation.starts_at);
                if reservation.starts_at < *from {
                    *from = reservation.starts_at;
                }
            }
        }
        for node in nodes {
            node.reserved_from = first.get(&node.name).copied();
        }
    }
}
