//! What is asked of a selection, and what it answers for each job.

use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{DeviceIndex, JobIndex};
use crate::planner::tries::Tries;

/// With whom a job is to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Another waiting job, by its place in the queue.
    Job(JobIndex),
    /// What runs on this device.
    Device(DeviceIndex),
}

/// What is to be matched.
pub(crate) struct Question<'q> {
    /// Jobs with a right to a device, and the device on which sharing with them is evaluated.
    pub(crate) primaries: &'q [(JobIndex, DeviceIndex)],
    /// Jobs that start alone on a device for certain.
    pub(crate) hosts: &'q [(JobIndex, DeviceIndex)],
    /// Devices that may be joined.
    pub(crate) joinable: &'q [DeviceIndex],
    /// All other jobs that could start now, in the order of placement.
    pub(crate) joiners: &'q [JobIndex],
    /// Who must not hold a device longer than the host.
    pub(crate) cutoff: Cutoff,
    /// CPUs and memory of the nodes once the primaries have theirs.
    pub(crate) capacity: &'q FreeCapacity,
    /// How many more promises may be expected to break than the new sharings bring along.
    pub(crate) allowance: f64,
    /// What is tried already.
    pub(crate) tries: &'q Tries,
}

/// Who must not hold a device longer than the host that it joins (docs/principles.md#order-of-service).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutoff {
    /// Nobody waits for a device, so everybody may.
    Nobody,
    /// Jobs behind this one.
    Behind(JobIndex),
    /// All, also the first.
    Everybody,
}

impl Cutoff {
    /// Whether this job has to end before its host.
    pub(crate) fn binds(self, job: JobIndex) -> bool {
        match self {
            Self::Nobody => false,
            Self::Behind(first) => job > first,
            Self::Everybody => true,
        }
    }
}
