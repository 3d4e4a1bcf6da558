//! What wide jobs are told, and what others are told of devices that they have.

use crate::view::WaitingJob;
use pillion_core::NodeName;

/// Why a wide job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// No node that matches has so many devices.
    NoNodeHasSoMany,
    /// Those that have take nothing now.
    Closed,
    /// Devices would be free, and the node's CPUs or memory are not.
    NodeTooFull,
    /// They are free, and set apart for one before it.
    BehindOthers,
    /// Nowhere are so many free.
    NotFree,
}

/// A device that a wide job gets in this plan.
pub(super) const GIVEN: &str = "it is given to a job of several GPUs";
/// A device that is set apart.
pub(super) const SET_APART: &str =
    "it is set apart for a job of several GPUs, and for jobs that end before that can start";
/// A device of a node whose CPUs or memory a wide job waits for.
pub(super) const KEPT: &str = "a job of several GPUs waits for CPUs or memory of its node";
/// A device that is not among those that are set apart.
pub(super) const ELSEWHERE: &str = "it is not set apart";

pub(super) fn starts(node: &NodeName, count: usize) -> String {
    format!("starts with {count} GPUs of {node}, which it shares with nobody")
}

/// `apart`: the node some of whose devices are set apart for it.
pub(super) fn waiting(job: &WaitingJob, wait: Wait, apart: Option<&NodeName>) -> String {
    let count = job.device_count;
    let why = match wait {
        Wait::NoNodeHasSoMany => {
            return format!(
                "waits: no node of the pool that matches its partition, features, exclusions and GPU type has {count} GPUs"
            );
        }
        Wait::Closed => format!("waits: of the nodes that match, none takes a job of {count} GPUs now"),
        Wait::NodeTooFull => {
            format!("waits: where {count} GPUs of a node are free, its CPUs or memory are not")
        }
        Wait::BehindOthers => "waits: jobs before it in the queue come first".to_owned(),
        Wait::NotFree => format!("waits: no node has {count} wholly free GPUs"),
    };
    match apart {
        Some(node) => format!("{why}; {count} of {node} are set apart for it"),
        None => why,
    }
}
