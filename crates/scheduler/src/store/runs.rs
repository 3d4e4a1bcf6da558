//! One start of a job on one device, after it: as profiles and outcomes read it, and as it is counted for what sharing
//! gained.

use super::{Decision, JobRecord};
use pillion_core::report::JobSummary;
use pillion_core::{NodeName, UnixTime, UserId, WorkloadKey};
use std::time::Duration;

/// One start of a job, measured: the agent's summary joined with what Slurm said of it. The input of profiles and outcomes.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRun {
    /// The agent's summary.
    pub summary: JobSummary,
    /// Where.
    pub node: NodeName,
    /// The device's model.
    pub device_model: String,
    /// The device's memory.
    pub device_memory_bytes: u64,
    /// The job as recorded (it may have been started again since: compare restart counts).
    pub job: JobRecord,
    /// The decision it ran under, with its member row.
    pub decision: Option<Decision>,
}

/// One start of a job on one device, as far as it is counted for what sharing gained.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountedRun {
    /// The user's name.
    pub user: String,
    /// The account.
    pub account: String,
    /// The pool partition.
    pub partition: String,
    /// What it ran.
    pub workload: WorkloadKey,
    /// Where.
    pub node: NodeName,
    /// When its first task began.
    pub started_at: UnixTime,
    /// When its last process was gone.
    pub ended_at: UnixTime,
    /// Seconds beside others.
    pub shared_seconds: f64,
    /// Its part of the device's energy.
    pub energy_joules: Option<f64>,
    /// Mean energy of its workload's runs alone on this device model.
    pub solo_energy_joules: Option<f64>,
    /// Speed beside others over speed alone, as measured.
    pub speed_fraction: Option<f64>,
    /// Its promise.
    pub slowdown_ratio_max: Option<f64>,
    /// Whether this start ran to the end of its work.
    pub is_completed: bool,
}

/// Which runs to count.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFilter {
    /// Ended at or after.
    pub since: UnixTime,
    /// Ended before.
    pub until: UnixTime,
    /// Of this user.
    pub user: Option<String>,
    /// Of this account.
    pub account: Option<String>,
    /// In this partition.
    pub partition: Option<String>,
    /// Of this workload.
    pub workload: Option<String>,
    /// On one of these nodes; empty: on any.
    pub nodes: Vec<NodeName>,
    /// Of this uid: what a user may see.
    pub uid: Option<UserId>,
}

impl RunFilter {
    /// The same runs in stretches of at most `length`, in order. Before 2020 nobody ran anything under us.
    pub fn parts(&self, length: Duration) -> impl Iterator<Item = Self> {
        let first = UnixTime::from_seconds(1_577_836_800.0);
        let (mut since, until) = (if self.since < first { first } else { self.since }, self.until);
        std::iter::from_fn(move || {
            let next = since + length;
            let part = (since, if next < until { next } else { until });
            since = part.1;
            (part.0 < part.1).then_some(part)
        })
        .map(|(since, until)| Self { since, until, ..self.clone() })
    }
}
