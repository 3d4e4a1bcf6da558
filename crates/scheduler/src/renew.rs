//! The dead man's switch, held down: moves the begin time of waiting jobs ahead of them, one bound from now, in few calls.
//! When this stops, Slurm starts each job alone, at the latest one bound later (DESIGN D2).

use crate::context::{Context, TickError};
use crate::scan::{Scan, is_waiting, mark_of};
use pillion_core::decision::MemberState;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobUpdate, SlurmError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// How many jobs one call renews; bounds the command line.
const JOBS_PER_CALL: usize = 200;

/// The renewer.
pub struct Renew {
    context: Arc<Context>,
}

impl Renew {
    /// A renewer.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Renews what is due.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let Some(scan) = context.fresh_scan().filter(|_| context.is_active()) else { return Ok(()) };
        let busy = self.jobs_being_released().await?;
        let due = due(&scan, &busy, context.settings.bound);
        let begin = context.now() + context.settings.bound;
        for jobs in due.at_bound.chunks(JOBS_PER_CALL) {
            self.set_begin(jobs, begin).await?;
        }
        for (job, own_begin) in due.at_own_begin {
            self.set_begin(&[job], own_begin).await?;
        }
        Ok(())
    }

    /// Guarded and released jobs have begin times that `release` set: not ours to move.
    async fn jobs_being_released(&self) -> Result<BTreeSet<SlurmJobId>, TickError> {
        let decisions = self.context.store.active_decisions().await?;
        let members = decisions.iter().flat_map(|decision| &decision.members);
        let busy =
            members.filter(|member| matches!(member.state, MemberState::Guarded | MemberState::Released));
        Ok(busy.map(|member| member.plan.start.job_id).collect())
    }

    async fn set_begin(&self, jobs: &[SlurmJobId], begin: UnixTime) -> Result<(), TickError> {
        let update = JobUpdate { start_time: Some(begin), ..JobUpdate::default() };
        match self.context.slurm.update(jobs, &update).await {
            Ok(()) => Ok(()),
            // One of them started or ended meanwhile: the others were updated, and the next scan shows which were not.
            Err(error @ SlurmError::Failed { .. }) => {
                debug!(%error, jobs = jobs.len(), "some begin times were not moved");
                Ok(())
            }
            Err(error) => Err(TickError::slurm("renew begin times")(error)),
        }
    }
}

/// Which jobs to renew.
#[derive(Debug, PartialEq, Default)]
struct Due {
    /// To one bound from now.
    at_bound: Vec<SlurmJobId>,
    /// To their user's own begin time, which is further away.
    at_own_begin: Vec<(SlurmJobId, UnixTime)>,
}

fn due(scan: &Scan, busy: &BTreeSet<SlurmJobId>, bound: Duration) -> Due {
    let mut due = Due::default();
    let waiting =
        scan.jobs.values().filter(|job| is_waiting(job) && !busy.contains(&job.id) && job.priority > 0);
    for job in waiting {
        let own_begin = mark_of(job).map_or(0, |mark| mark.original_begin_epoch);
        let begin = UnixTime::from_epoch(own_begin);
        if begin > scan.at + bound {
            if job.eligible_at.is_none_or(|at| at.epoch() != own_begin) {
                due.at_own_begin.push((job.id, begin));
            }
        } else if is_due(job, scan, bound) {
            due.at_bound.push(job.id);
        }
    }
    due
}

/// Due when less than two thirds of the bound are left: two renewals may fail before Slurm takes over.
fn is_due(job: &Job, scan: &Scan, bound: Duration) -> bool {
    job.eligible_at.is_none_or(|at| at < scan.at + bound.mul_f64(2.0 / 3.0))
}
