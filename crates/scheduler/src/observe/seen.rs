//! What is known of observed partitions, for those who tell of it.

use pillion_core::{NodeName, UnixTime};
use pillion_slurm::Node;
use pillion_store::ObservedJob;
use std::collections::BTreeMap;

/// What is known of observed partitions at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// When Slurm was read; `None`: not yet, or nothing is observed.
    pub at: Option<UnixTime>,
    /// The nodes that are observed.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Starts that run there, and those that are over and not forgotten.
    pub jobs: Vec<ObservedJob>,
}
