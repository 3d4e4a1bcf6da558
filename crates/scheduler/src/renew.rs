//! The dead man's switch, held down: moves the begin time of waiting jobs ahead of them, one bound from now, in few
//! calls. When this stops, Slurm starts each job alone, at the latest one bound later
//! (docs/decisions/0007-begin-time-fails-open.md). So too for a job that only nodes could run whose agents are away
//! or have no device that is open, or that is to have a cap where nobody can set one: nobody can release it.

use crate::context::{Context, TickError};
use crate::scan::{Scan, is_waiting, mark_of};
use pillion_core::decision::MemberState;
use pillion_core::{JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobUpdate, Node, NodeAvailability, SlurmError};
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
        let agents = &context.agents;
        let Some(scan) = context.fresh_scan().filter(|_| context.is_active()) else { return Ok(()) };
        // From here on nothing is released or put back, so what is due is not moved by anybody else.
        let _alone = context.begin_times.lock().await;
        let mut busy = self.jobs_being_released().await?;
        let touched = |(start, at): (&JobStart, &UnixTime)| (*at >= scan.at).then_some(start.job_id);
        busy.extend(context.board().tried.iter().filter_map(touched));
        let mut due = due(&scan, &busy, context.settings.bound);
        due.at_bound.retain(|id| {
            scan.jobs.get(id).is_some_and(|job| {
                let needs_cap = wants_cap(job);
                let takes = |node: &NodeName| {
                    if needs_cap { agents.sets_caps(node) } else { agents.takes_tenants(node) }
                };
                !is_abandoned(job, &scan, takes)
            })
        });
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

/// Whether a job is to run where caps can be set.
fn wants_cap(job: &Job) -> bool {
    mark_of(job).is_some_and(|mark| mark.cap.is_some())
}

/// Whether some node could run the job, and the agents of all that could are away or have no device for it, or can set no cap
/// where it is to have one: a release would never come.
fn is_abandoned(job: &Job, scan: &Scan, takes: impl Fn(&NodeName) -> bool) -> bool {
    let suits = |node: &&Node| {
        node.availability == NodeAvailability::Up
            && node.partitions.contains(&job.partition)
            && !job.excluded_nodes.contains(&node.name)
            && job
                .features
                .split('&')
                .filter(|name| !name.is_empty())
                .all(|name| node.features.iter().any(|has| has == name))
    };
    let mut suitable = scan.nodes.iter().filter(suits).peekable();
    suitable.peek().is_some() && suitable.all(|node| !takes(&node.name))
}

/// Due when less than two thirds of the bound are left: two renewals may fail before Slurm takes over.
fn is_due(job: &Job, scan: &Scan, bound: Duration) -> bool {
    job.eligible_at.is_none_or(|at| at < scan.at + bound.mul_f64(2.0 / 3.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, job, node};
    use pillion_core::mark::Mark;
    use pillion_slurm::JobState;

    fn due_of(job: Job, busy: bool) -> Due {
        let busy = if busy { [job.id].into() } else { BTreeSet::new() };
        let scan = Scan::new(at(NOW), vec![job], Vec::new(), &[], 0);
        due(&scan, &busy, Duration::from_mins(10))
    }

    #[test]
    fn a_job_is_renewed_when_less_than_two_thirds_of_the_bound_are_left() {
        let begins = |epoch| due_of(Job { eligible_at: Some(at(epoch)), ..job(JobState::Pending) }, false);
        assert_eq!(begins(NOW + 401), Due::default());
        assert_eq!(begins(NOW + 399).at_bound.len(), 1);
        assert_eq!(begins(NOW - 100).at_bound.len(), 1, "we were away: it is ours again");
    }

    #[test]
    fn what_is_being_released_undone_or_held_is_not_ours_to_move() {
        let late = || Job { eligible_at: Some(at(NOW + 5)), ..job(JobState::Pending) };
        assert_eq!(due_of(late(), true), Due::default());
        assert_eq!(due_of(Job { priority: 0, ..late() }, false), Due::default());
        let alone = Job { mark: Ok(Some(Mark { alone: true, ..Mark::default() })), ..late() };
        assert_eq!(due_of(alone, false), Due::default());
        assert_eq!(due_of(Job { mark: Ok(None), ..late() }, false), Due::default());
    }

    #[test]
    fn a_job_that_only_silent_nodes_could_run_is_let_go() {
        let away = |job: Job, node: Node| {
            let scan = Scan::new(at(NOW), vec![job.clone()], vec![node], &["shared".to_owned()], 0);
            (is_abandoned(&job, &scan, |_| false), is_abandoned(&job, &scan, |_| true))
        };
        let waiting = || job(JobState::Pending);
        assert_eq!(away(waiting(), node(NodeAvailability::Up)), (true, false));
        let excluded = Job { excluded_nodes: vec![NodeName::new("n1")], ..waiting() };
        assert_eq!(away(excluded, node(NodeAvailability::Up)), (false, false), "no node could run it anyway");
        let down = node(NodeAvailability::Unavailable("DOWN".into()));
        assert_eq!(away(waiting(), down), (false, false), "nor would Slurm start it there");
    }

    #[test]
    fn who_is_measured_under_a_cap_needs_somebody_who_sets_it() {
        let with = |tenths| {
            let mark = Mark { cap: pillion_core::CapStep::from_tenths(tenths), ..Mark::default() };
            wants_cap(&Job { mark: Ok(Some(mark)), ..job(JobState::Pending) })
        };
        assert_eq!((with(3), with(10), with(0)), (true, true, false));
    }

    #[test]
    fn a_users_own_begin_time_is_kept() {
        let mark = Mark { original_begin_epoch: NOW + 5000, ..Mark::default() };
        let waiting = |epoch| Job {
            eligible_at: Some(at(epoch)),
            mark: Ok(Some(mark.clone())),
            ..job(JobState::Pending)
        };
        assert_eq!(due_of(waiting(NOW + 5000), false), Due::default());
        assert_eq!(due_of(waiting(NOW + 10), false).at_own_begin, [(SlurmJobId::plain(7), at(NOW + 5000))]);
    }
}
