//! The page of now, from the node and its journal.

use super::page::{Snapshot, page};
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
