//! Which runs are looked at to tell how workloads scale, and what is known of each: of observed partitions, and of the pool.

use super::{HeldDevice, ObservedJob, ObservedRun};
use pillion_core::workload::on_any;
use pillion_core::{JobStart, UnixTime, UserId, WorkloadKey};

/// Runs that are looked at in one question, the newest first, where nobody says otherwise.
pub const SCALING_RUNS_MAX: u32 = 20_000;

/// Completed starts, observed and of the pool; `None` is any.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingFilter {
    pub uid: Option<UserId>,
    /// As on one device: [`on_any`].
    pub workload: Option<WorkloadKey>,
    /// Of those that ended in this stretch of time.
    pub since: Option<UnixTime>,
    pub until: Option<UnixTime>,
    /// At most so many, or so many a page.
    pub limit: u32,
}

impl Default for ScalingFilter {
    fn default() -> Self {
        Self { uid: None, workload: None, since: None, until: None, limit: SCALING_RUNS_MAX }
    }
}

/// A start that came to its end by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingRun {
    pub start: JobStart,
    pub user: String,
    /// What it runs, whatever the number of its devices.
    pub workload: WorkloadKey,
    pub started_at: UnixTime,
    pub ended_at: UnixTime,
    /// On how many nodes; `None`: an earlier release did not write it down.
    pub node_count: Option<u32>,
    /// Devices on all of them as Slurm booked them; `None`: those that are named below.
    pub device_count: Option<u32>,
    /// What they are, where no part says it and it is known: the only model of its node.
    pub device_model: Option<String>,
    /// Those that are known by name; in the pool those of the first node.
    pub devices: Vec<HeldDevice>,
    /// Whether it had all of each of them: it was booked so, and held to no part by a cap, a mode or an instance. One that was booked
    /// less may have had it to itself all the same, which its parts tell.
    pub has_whole_devices: bool,
    /// Whether it was held to a part of its device.
    pub is_of_a_part: bool,
    /// What was reported of each device; in the pool by the first node's agent alone, and not of a job that Slurm
    /// started without us.
    pub parts: Vec<ObservedRun>,
}

impl ScalingRun {
    /// One of an observed partition, that is over.
    pub fn observed(job: ObservedJob, parts: Vec<ObservedRun>) -> Option<Self> {
        Some(Self {
            start: job.start,
            user: job.user,
            workload: on_any(&job.workload),
            started_at: job.started_at,
            ended_at: job.ended_at?,
            node_count: Some(u32::try_from(job.nodes.len()).unwrap_or(u32::MAX).max(1)),
            device_count: None,
            device_model: None,
            devices: job.devices,
            has_whole_devices: true,
            is_of_a_part: false,
            parts,
        })
    }
}
