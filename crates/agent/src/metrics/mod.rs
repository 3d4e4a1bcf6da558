//! What the agent tells Prometheus of its node. Everything was seen at the last sample or is counted where it happens: a scrape
//! asks no driver, reads no file, and holds a lock for a copy only. It tells of devices, never of a job or a user.

mod families;
mod figures;
mod page;

pub use families::all;
pub use figures::{DeviceSeen, Figures, Seen};
pub use page::{Snapshot, page};

use crate::journal::Journal;
use crate::node::Node;
use pillion_metrics::Page;
use std::sync::Arc;

/// What makes the page of now.
pub(crate) fn maker(node: Arc<Node>, journal: Arc<Journal>) -> impl Fn() -> Page + Send + Sync {
    move || {
        page(&Snapshot {
            node: node.name(),
            devices: &node.devices(),
            shares: &node.all_shares(),
            is_connected: node.is_connected(),
            seen: node.figures().seen(),
            journal: journal.figures(),
        })
    }
}
