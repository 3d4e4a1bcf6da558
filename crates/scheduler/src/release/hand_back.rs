//! Jobs that no decision stands behind: whose lease is left from before, and whose turn it is on several nodes. They go back to Slurm.

use super::{Release, SIDE_BY_SIDE};
use crate::analysis::mebibytes;
use crate::context::LetGoTurns;
use crate::fence;
use crate::idle::suits;
use crate::scan::{Scan, held_reason, is_waiting, mark_of};
use crate::step::{is_before, predates};
use crate::tick_error::TickError;
use futures::StreamExt;
use pillion_core::event::EventKind;
use pillion_core::mark::Mark;
use pillion_core::{GresType, UnixTime};
use pillion_pairing::LetGo;
use pillion_slurm::{Job, JobState, Node, SlurmError, updates};
use pillion_store::Decision;
use std::collections::BTreeSet;

/// By a scan that is so much older than the newest one nobody is let go.
const TURN_SECONDS_MAX: f64 = 10.0;

impl Release {
    /// Hands waiting jobs back to Slurm that no decision stands behind: those that carry a lease all the same (requeued, or released by a
    /// scheduler that lost its memory) or an undo that was applied by half, at once; and those of several nodes whose turn it is by
    /// the last plan. A crash before that costs nothing: the lease is still there, and the next plan says the same.
    pub(super) async fn hand_back(
        &self,
        scan: &Scan,
        decisions: &[Decision],
        turns: &LetGoTurns,
    ) -> Result<(), TickError> {
        if !self.context.is_active() {
            return Ok(());
        }
        let live: BTreeSet<_> = decisions
            .iter()
            .flat_map(|decision| &decision.members)
            .filter(|member| member.state.is_active())
            .map(|member| member.plan.start)
            .collect();
        let tried = self.context.board().tried.clone();
        // Few of the queue have a lease.
        let pending = scan.jobs.values().filter(|job| job.state == JobState::Pending);
        let lost = pending.filter(|job| needs_reset(job) && !live.contains(&job.start()));
        // A scan that is newer than the plan may show that somebody else has them by now.
        let newest = self.context.board().scan.clone();
        let of_turn = turns.all.iter().filter(|_| self.context.is_fresh(scan)).filter_map(|turn| {
            let scan = newest.as_deref()?;
            let planned_at = turns.planned_at?;
            let age_seconds = scan.at.seconds_since(planned_at);
            // A plan that was made while it was let go knows nothing of that, and chose others.
            let is_new = !is_before(planned_at, tried.get(&turn.start).copied());
            let job = scan.job_of(turn.start).filter(|job| is_its_turn(job, turn, scan))?;
            (is_new && age_seconds <= TURN_SECONDS_MAX).then_some((job, Some(turn)))
        });
        let due = lost.map(|job| (job, None)).chain(of_turn);
        let due = due.filter(|(job, _)| !predates(scan, tried.get(&job.start()).copied()));
        let handed = due.map(async |(job, turn)| {
            let done = match turn {
                Some(turn) => self.let_go(job, turn, scan).await,
                None => self.reset(job, scan.at).await,
            };
            done.or_else(|error| self.context.pass_over("release", job.id, error))
        });
        let handed: Vec<_> =
            futures::stream::iter(handed.collect::<Vec<_>>()).buffer_unordered(SIDE_BY_SIDE).collect().await;
        handed.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    /// Slurm starts it on what the planner keeps for it from then on.
    async fn let_go(&self, job: &Job, turn: &LetGo, scan: &Scan) -> Result<(), TickError> {
        let Some(mark) = mark_of(job) else { return Ok(()) };
        let at = self.context.now();
        if !fence::holds(&self.context, job, mark).await? || !self.context.may_act_by(scan) {
            return Ok(());
        }
        let update = updates::let_go(job, mark, turn.gres_types.as_ref(), turn.at_once, at);
        if !self.hand_to_slurm(job, &update).await? {
            // The same would be refused again, while its devices stand idle for it.
            self.context.board_mut().cooling.insert(job.id, at + self.context.settings.cooling);
            self.context.nudges.watch.notify_one();
            return Ok(());
        }
        let detail = match &turn.gres_types {
            Some(gres_types) => format!("{gres_types} are free on as many nodes as it asks for"),
            None => "a GPU is free on as many nodes as it asks for".to_owned(),
        };
        self.event(at, EventKind::LetGo, job.id, None, detail).await?;
        self.context.tally.event(&EventKind::LetGo);
        Ok(())
    }

    async fn reset(&self, job: &Job, at: UnixTime) -> Result<(), TickError> {
        if let Some(mark) = self.with_more_memory(job).await?
            && self.wait_again(job, &mark).await?
        {
            let more = mark.memory_bytes().unwrap_or(0);
            let detail =
                format!("it waits again after it ran out of device memory, for at least {}", mebibytes(more));
            self.event(at, EventKind::Restarted, job.id, None, detail).await?;
            self.context.tally.event(&EventKind::Restarted);
            return Ok(());
        }
        if let Some(mark) = mark_of(job).and_then(Mark::once_more)
            && self.wait_again(job, &mark).await?
        {
            let detail = "it waits for a GPU that nobody else needs, once more".to_owned();
            self.event(at, EventKind::Restarted, job.id, None, detail).await?;
            self.context.tally.event(&EventKind::Restarted);
            return Ok(());
        }
        if !self.put_back(job).await? {
            return Ok(());
        }
        let detail =
            format!("it waited with the pin of an earlier release ({}); it runs alone now", job.gres);
        self.event(at, EventKind::Restarted, job.id, None, detail).await?;
        self.context.tally.event(&EventKind::Restarted);
        Ok(())
    }

    /// The mark with which a job waits again that was started again for lack of device memory; `None` for any other.
    async fn with_more_memory(&self, job: &Job) -> Result<Option<Mark>, TickError> {
        let started_again =
            |mark: &&Mark| mark.lease_restart_count.is_some_and(|count| job.restart_count > count);
        let Some(mark) = mark_of(job).filter(|mark| mark.restart.is_given()).filter(started_again) else {
            return Ok(None);
        };
        let last = self.context.store.last_requeue(job.id).await?;
        let of_it = last.filter(|last| {
            // Not of another job of that number: that was decided before this one had its lease. Its time of submission tells
            // nothing, for Slurm sets it anew at a requeue.
            let had_lease = mark.lease_epoch.is_some_and(|lease| last.decided_at.epoch() >= lease);
            mark.lease_restart_count == Some(last.start.restart_count) && had_lease
        });
        let need = of_it.and_then(|last| last.cause.memory_bytes()).map(|bytes| bytes.div_ceil(1 << 20));
        Ok(need.and_then(|mib| mark.again(mib.max(mark.memory_mib.unwrap_or(0)))))
    }

    /// `false`: it was changed since, or a `pillion.lua` of an earlier release is there, which knows nothing of this.
    async fn wait_again(&self, job: &Job, mark: &Mark) -> Result<bool, TickError> {
        let context = &self.context;
        let again = updates::again(mark, context.now(), context.settings.bound);
        let answer = context.slurm.update(&[job.id], &again).await;
        let answered_at = context.now();
        context.board_mut().tried.insert(job.start(), answered_at);
        context.nudges.watch.notify_one();
        match answer {
            Ok(()) => Ok(true),
            Err(SlurmError::Failed { .. } | SlurmError::Fenced { .. }) => Ok(false),
            Err(error) => Err(TickError::slurm("have a job wait again")(error)),
        }
    }
}

/// A pinned or leased request that should not be there any more.
fn needs_reset(job: &Job) -> bool {
    mark_of(job)
        .is_some_and(|mark| mark.lease_epoch.is_some() || (mark.alone && updates::is_pinned(job, mark)))
}

/// Whether a job on several nodes may still be let go as planned: it can start, and these devices are free on as many nodes. One that
/// was let go before may be once more, with others.
fn is_its_turn(job: &Job, turn: &LetGo, scan: &Scan) -> bool {
    let Some(mark) = mark_of(job) else { return false };
    let waits = is_waiting(job) || (job.state == JobState::Pending && mark.alone && mark.let_go.is_some());
    let is_free = |node: &&Node| {
        let is_unbooked = |gres_type: &GresType| {
            node.shards.get(gres_type).is_some_and(|(total, used)| *total > 0 && *used == 0)
        };
        match &turn.gres_types {
            Some(gres_types) => gres_types.iter().all(is_unbooked),
            None => node.shards.keys().any(is_unbooked),
        }
    };
    let free_count = scan.nodes.iter().filter(|node| suits(job, node, scan.at)).filter(is_free).count();
    waits && held_reason(job, scan).is_none() && free_count >= usize::from(mark.node_count())
}
