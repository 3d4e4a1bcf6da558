//! What jobs are told that get whole devices, and what others are told of devices that they have.

use super::near::Reach;
use crate::view::WaitingJob;
use pillion_core::NodeName;
use pillion_core::reason::Reason;

/// Why such a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// No node that matches has so many devices.
    NoNodeHasSoMany,
    /// Those that have are others' before its time limit is over.
    Reserved,
    /// Those that have take nothing now.
    Closed,
    /// Devices would be free, and the node's CPUs or memory are not.
    NodeTooFull,
    /// They are free, and set apart for one before it.
    BehindOthers,
    /// Nowhere are so many free.
    NotFree,
}

/// A device that such a job gets in this plan.
pub(super) const GIVEN: &str = "it is given to a job that shares with nobody";
/// A device that is set apart.
pub(super) const SET_APART: &str =
    "it is set apart for a job that shares with nobody, and for jobs that end well before that can start";
/// A device of a node whose CPUs or memory such a job waits for.
pub(super) const KEPT: &str = "a job that shares with nobody waits for CPUs or memory of its node";
/// A device that is not among those that are set apart.
pub(super) const ELSEWHERE: &str = "it is not set apart";

pub(super) fn starts(node: &NodeName, job: &WaitingJob, reach: Reach) -> String {
    let near = match reach {
        Reach::NvLink if job.device_count > 1 => " and reach each other by NVLink",
        Reach::OneNumaNode => " and are of one NUMA node",
        Reach::NvLink | Reach::Anyhow => "",
    };
    let which = if near.is_empty() { "which it shares with nobody" } else { "which are shared with nobody" };
    format!("starts with {} of {node}, {which}{near}", gpus(job))
}

/// One that shares its devices, or may be joined on them. `how`: what is said of it on one device.
pub(super) fn shares(node: &NodeName, device_count: usize, how: &str) -> String {
    format!("has {device_count} GPUs of {node}: {how}")
}

/// One that waits, and why nobody is there whom it could share with.
pub(super) fn alone(waits: &str, why: &str) -> String {
    format!("{waits}; beside others: {why}")
}

/// A job on several nodes.
pub(super) fn let_go(job: &WaitingJob) -> String {
    format!(
        "Slurm starts it on {} nodes, with {} each, which it shares with nobody",
        job.node_count,
        gpus(job)
    )
}

fn gpus(job: &WaitingJob) -> String {
    match job.device_count {
        1 => "a GPU".to_owned(),
        count => format!("{count} GPUs"),
    }
}

fn few(node_count: u16) -> String {
    if node_count == 1 { "no nodes".to_owned() } else { format!("fewer than {node_count} nodes") }
}

/// `apart`: the node, or one of those, some of whose devices are set apart for it.
pub(super) fn waiting(job: &WaitingJob, wait: Wait, apart: Option<&NodeName>) -> String {
    let gpus = gpus(job);
    let is_several = job.node_count > 1;
    let same = if is_several && job.device_count > 1 { ", the same ones of each" } else { "" };
    let why = match wait {
        Wait::NoNodeHasSoMany => {
            let what =
                "of the pool that match its partition, features, exclusions, GPU type, CPUs and memory";
            return format!("waits: {} {what} have {gpus}{same}", few(job.node_count));
        }
        Wait::Reserved => return Reason::NodeReserved.of_waiting().to_owned(),
        Wait::Closed => format!("waits: of the nodes that match, none takes a job of {gpus} now"),
        Wait::NodeTooFull => {
            format!("waits: where {gpus} of a node would be free, its CPUs or memory are not")
        }
        Wait::BehindOthers => "waits: jobs before it in the queue come first".to_owned(),
        Wait::NotFree if is_several => {
            format!("waits: no {} nodes have {gpus} that are wholly free{same}", job.node_count)
        }
        Wait::NotFree if job.device_count == 1 => "waits: no GPU is wholly free".to_owned(),
        Wait::NotFree => format!("waits: no node has {} wholly free GPUs", job.device_count),
    };
    match apart {
        Some(_) if is_several => format!("{why}; they are set apart for it as they fall free"),
        Some(node) if job.device_count == 1 => format!("{why}; one of {node} is set apart for it"),
        Some(node) => format!("{why}; {} of {node} are set apart for it", job.device_count),
        None => why,
    }
}
