//! One start of a job on one device, after it, as profiles, outcomes and accounts are made from it.

use super::{Decision, JobRecord, Lesson, Member, RequeueCause, StoreError};
use async_trait::async_trait;
use pillion_core::report::JobSummary;
use pillion_core::{GresType, JobStart, NodeName};

/// One start of a job, measured: the agent's summary joined with what Slurm said of it. The input of profiles,
/// outcomes and accounts.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRun {
    /// The agent's summary.
    pub summary: JobSummary,
    pub node: NodeName,
    /// The device's model.
    pub device_model: String,
    /// The device's memory.
    pub device_memory_bytes: u64,
    /// The job as recorded (it may have been started again since: compare restart counts).
    pub job: JobRecord,
    /// The decision it ran under, with its member row.
    pub decision: Option<Decision>,
    /// Why its job was to start again, where somebody wanted that of this start.
    pub requeue: Option<RequeueCause>,
}

impl MeasuredRun {
    /// Whether it was ended while it ran, so that its job starts again alone: by an operator, or by the watch; or once more as a guest, which made room.
    pub fn was_sent_back(&self) -> bool {
        let wanted = matches!(
            self.requeue,
            Some(RequeueCause::Evicted | RequeueCause::SentBack | RequeueCause::MadeRoom)
        );
        wanted && self.job.restart_count > self.summary.start.restart_count
    }

    /// Its own row of the decision that it ran under.
    pub fn own_member(&self) -> Option<&Member> {
        let members = self.decision.iter().flat_map(|decision| &decision.members);
        members.into_iter().find(|member| member.plan.start == self.summary.start)
    }

    /// The devices of its start, where they were named; this one is one of them.
    pub fn gres_types(&self) -> Vec<GresType> {
        let is_this_start = self.job.restart_count == self.summary.start.restart_count;
        if is_this_start {
            pillion_slurm::shards(&self.job.gres).filter_map(|(own, _)| own).collect()
        } else {
            self.decision.iter().flat_map(|decision| &decision.gres_types).cloned().collect()
        }
    }

    /// Whether its start had other devices besides, and this is not the first of them: what the start teaches, the first does.
    pub fn is_told_by_another(&self) -> bool {
        let named = self.gres_types();
        named.len() > 1 && named.first() != Some(&self.summary.gres_type)
    }

    /// Whether it was planned into an instance, its own or one that its user's share.
    pub fn is_in_instance(&self) -> bool {
        self.own_member().is_some_and(|member| member.plan.sharing.mechanism().has_instances())
    }
}

/// Runs that were summarised, and what is still to be done with them.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Runs that were summarised, whose job's end is recorded (or was started again), and that were not profiled yet;
    /// oldest first.
    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError>;
    /// Marks a run as done with that can make neither profile nor account, and keeps why. Nothing, where it was profiled.
    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError>;
    /// What a start taught; `None`: nobody looked at it yet, or did before this was kept.
    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError>;
    /// Runs that were summarised, whose job's end is recorded (or was started again), and that were not judged yet; oldest
    /// first.
    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError>;
    /// The summary of a start, if it arrived.
    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError>;
    /// Those of all its devices that arrived, by their names.
    async fn summaries(&self, start: JobStart) -> Result<Vec<JobSummary>, StoreError>;
}
