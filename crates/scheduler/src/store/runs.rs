//! One start of a job on one device, after it, as profiles, outcomes and accounts are made from it.

use super::{Decision, JobRecord, Member};
use pillion_core::NodeName;
use pillion_core::report::JobSummary;

/// One start of a job, measured: the agent's summary joined with what Slurm said of it. The input of profiles,
/// outcomes and accounts.
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

impl MeasuredRun {
    /// Its own row of the decision that it ran under.
    pub fn own_member(&self) -> Option<&Member> {
        let members = self.decision.iter().flat_map(|decision| &decision.members);
        members.into_iter().find(|member| member.plan.start == self.summary.start)
    }
}
