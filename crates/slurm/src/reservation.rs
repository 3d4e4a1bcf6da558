//! What admins have reserved.

use pillion_core::{NodeName, UnixTime};
use std::collections::BTreeMap;

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
    /// When the first of these begins that is not over at `now`, of each node that has one.
    #[must_use]
    pub fn first_of(reservations: &[Self], now: UnixTime) -> BTreeMap<&NodeName, UnixTime> {
        let mut first: BTreeMap<&NodeName, UnixTime> = BTreeMap::new();
        for reservation in reservations.iter().filter(|one| one.ends_at > now) {
            for name in &reservation.nodes {
                let from = first.entry(name).or_insert(reservation.starts_at);
                if reservation.starts_at < *from {
                    *from = reservation.starts_at;
                }
            }
        }
        first
    }
}
