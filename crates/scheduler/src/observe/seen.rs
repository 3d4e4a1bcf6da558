//! What is known of observed partitions, for those who tell of it.

use pillion_core::{NodeName, UnixTime};
use pillion_slurm::{Job, Node};
use pillion_store::ObservedJob;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of observed partitions at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// When Slurm was read; `None`: not yet, or nothing is observed.
    pub at: Option<UnixTime>,
    /// The nodes that are observed.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Starts that run there, and those that are over and not forgotten.
    pub jobs: Vec<ObservedJob>,
    /// The whole queue of those partitions, as Slurm has it: also who waits.
    pub queue: Vec<Arc<Job>>,
    /// Every line of it could be read: who is not in it is not there.
    pub is_whole: bool,
}
