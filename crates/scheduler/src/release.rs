//! Row 5 of the way of a job: carries decisions out, one durable step after the other, and takes back what did not start.
//! `step::next` chooses; nothing is chosen here.
//!
//! A release is two calls to Slurm. The guard (`StartTime=now+30`) fails harmlessly where the job has started meanwhile.
//! Then one update pins the job, writes the lease into its mark and makes it eligible. The lease in `AdminComment` is what
//! `pillion rescue` undoes when nobody else is left.

use crate::context::{Context, TickError};
use crate::scan::{Scan, mark_of};
use crate::step::{Host, Next, Surroundings, next, predates};
use crate::store::{Decision, Drain, Event, Member, MemberStep, drain_of};
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::report::ToAgent;
use pillion_core::share::Share;
use pillion_core::{SlurmJobId, UnixTime, report};
use pillion_pairing::Role;
use pillion_slurm::{Job, JobState, JobUpdate, SlurmError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// How long a job that is started again waits at least. The node refuses a start whose credential is no younger than the
/// end of the one before, by the second and by its own clock, and Slurm then fails the job ("credential revoked").
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// The releaser.
pub struct Release {
    context: Arc<Context>,
}

impl Release {
    /// A releaser.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Takes every active decision as far as it can go now, then puts back leases that nobody stands behind.
    ///
    /// # Errors
    /// The first [`TickError`]; the other decisions were still tried.
    pub async fn tick(&self) -> Result<(), TickError> {
        let Some(scan) = self.context.board().scan.clone() else { return Ok(()) };
        let decisions = self.context.store.active_decisions().await?;
        let drains = self.context.store.drains().await?;
        let decisions = Arc::new(decisions);
        self.context.board_mut().active = Arc::clone(&decisions);
        let mut first_error = None;
        for decision in decisions.iter() {
            let drain = drain_of(&drains, &decision.node, &decision.gres_type);
            if let Err(error) = self.drive(decision, &decisions, &scan, drain).await {
                warn!(decision_id = %decision.id, error = %report(&error), "decision not carried on");
                first_error.get_or_insert(error);
            }
        }
        if let Err(error) = self.reset_lost_leases(&scan).await {
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn drive(
        &self,
        decision: &Decision,
        all: &[Decision],
        scan: &Scan,
        drain: Option<&Drain>,
    ) -> Result<(), TickError> {
        for member in decision.members.iter().filter(|member| member.state.is_active()) {
            // One look at the board a statement: a second one in the same statement waits for ever where a writer has
            // come between them.
            let tried_at = self.context.board().tried.get(&member.plan.start).copied();
            let is_stopped = self.context.board().stopped.contains_key(&decision.node);
            let around = Surroundings {
                scan,
                agent_connected: self.context.agents.is_connected(&decision.node),
                drain,
                host: host_of(decision, member, all),
                tried_at,
                scan_is_stale: self.context.fresh_scan().is_none(),
                releases_allowed: self.context.is_active() && !is_stopped,
            };
            let step = next(decision, member, around, self.context.settings.patience);
            self.carry_out(step, decision, member, scan).await?;
        }
        self.settle(decision).await
    }

    async fn carry_out(
        &self,
        step: Next,
        decision: &Decision,
        member: &Member,
        scan: &Scan,
    ) -> Result<(), TickError> {
        match step {
            Next::Wait => Ok(()),
            Next::Prepare => {
                let share = share_of(decision, member);
                self.context.agents.send(&decision.node, ToAgent::Prepare(share));
                Ok(())
            }
            Next::Guard | Next::Release => {
                let _alone = self.context.begin_times.lock().await;
                self.guard_and_release(decision, member, scan, step == Next::Guard).await
            }
            Next::AdoptRelease(epoch) => {
                self.step(decision, member, MemberState::Released, UnixTime::from_epoch(epoch)).await?;
                Ok(())
            }
            Next::Started(at) => {
                if member.state == MemberState::Guarded || member.state == MemberState::Released {
                    if self.step(decision, member, MemberState::Running, at).await? {
                        self.context.tally.started();
                    }
                    info!(job_id = %member.plan.start.job_id, decision_id = %decision.id, "started as planned");
                }
                Ok(())
            }
            Next::Ended(at) => {
                if self.step(decision, member, MemberState::Ended, at).await? {
                    self.revoke(decision, member);
                    self.context.nudges.engine.notify_one();
                }
                Ok(())
            }
            Next::Drop(reason) => self.give_up(decision, member, "dropped", reason).await,
            Next::Undo(reason) => {
                let _alone = self.context.begin_times.lock().await;
                self.undo(decision, member, scan, reason).await
            }
        }
    }

    /// Sets the guard (unless it stands), then pins the job and makes it eligible.
    async fn guard_and_release(
        &self,
        decision: &Decision,
        member: &Member,
        scan: &Scan,
        set_guard: bool,
    ) -> Result<(), TickError> {
        let context = &self.context;
        let Some((job, mark)) =
            scan.jobs.get(&member.plan.start.job_id).and_then(|job| Some((job, mark_of(job)?)))
        else {
            return Ok(());
        };
        if set_guard {
            if member.state == MemberState::Planned
                && !self.step(decision, member, MemberState::Guarded, context.now()).await?
            {
                return Ok(());
            }
            stop_here("release-before-guard");
            let begin = context.now() + context.settings.patience.guard;
            let guard = JobUpdate { start_time: Some(begin), ..JobUpdate::default() };
            if let Err(error) = context.slurm.update(&[job.id], &guard).await {
                // It has started or ended: the next scan tells.
                context.nudges.watch.notify_one();
                return if error.is_transient() {
                    Err(TickError::slurm("set a guard")(error))
                } else {
                    Ok(())
                };
            }
            stop_here("release-after-guard");
        }
        let at = context.now();
        context.board_mut().tried.insert(member.plan.start, at);
        let release = JobUpdate {
            gres: Some(mark.gres_with(&format!("shard:{}:{}", decision.gres_type, member.plan.shards))),
            required_nodes: Some(decision.node.to_string()),
            partition: None,
            admin_comment: Some(mark.leased(at, job.restart_count).to_string()),
            start_time: Some(at),
        };
        let answer = context.slurm.update(&[job.id], &release).await;
        let answered_at = context.now();
        context.board_mut().tried.insert(member.plan.start, answered_at);
        match answer {
            Ok(()) => {
                stop_here("release-after-release");
                self.step_from(decision, member, MemberState::Guarded, MemberState::Released, at).await?;
                context.tally.released();
                info!(job_id = %job.id, decision_id = %decision.id, node = %decision.node, "released");
                context.nudges.watch.notify_one();
                Ok(())
            }
            Err(error @ SlurmError::Failed { .. }) => {
                let reason = format!("Slurm refused the release: {}", report(&error));
                self.put_back(job).await?;
                self.give_up(decision, member, "undone", reason).await
            }
            Err(error) => Err(TickError::slurm("release a job")(error)),
        }
    }

    async fn undo(
        &self,
        decision: &Decision,
        member: &Member,
        scan: &Scan,
        reason: String,
    ) -> Result<(), TickError> {
        let Some(job) = scan.jobs.get(&member.plan.start.job_id) else { return Ok(()) };
        match self.put_back(job).await {
            Ok(()) => self.give_up(decision, member, "undone", reason).await,
            // It has started after all: the next scan tells.
            Err(TickError::Slurm { source: SlurmError::Failed { .. }, .. }) => {
                self.context.nudges.watch.notify_one();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a waiting job's request back: any whole device, now, and never released again.
    async fn put_back(&self, job: &Job) -> Result<(), TickError> {
        let Some(mark) = mark_of(job) else { return Ok(()) };
        let pause = if job.restart_count > 0 { RESTART_PAUSE } else { Duration::ZERO };
        let begin = UnixTime::from_epoch(mark.original_begin_epoch).seconds();
        let begin = UnixTime::from_seconds(begin.max((self.context.now() + pause).seconds()));
        let undo = JobUpdate {
            gres: Some(mark.gres_with("shard:100")),
            required_nodes: Some(String::new()),
            partition: None,
            admin_comment: Some(mark.undone().to_string()),
            start_time: Some(begin),
        };
        let slurm = &self.context.slurm;
        let answer = slurm.update(&[job.id], &undo).await;
        let answered_at = self.context.now();
        self.context.board_mut().tried.insert(job.start(), answered_at);
        answer.map_err(TickError::slurm("put a job's request back"))?;
        if job.priority == 0 {
            slurm
                .release_hold(job.id)
                .await
                .map_err(TickError::slurm("release a job that a pin had held"))?;
        }
        self.context.nudges.watch.notify_one();
        Ok(())
    }

    /// A waiting job that carries a lease which no active decision stands behind (requeued, or released by a scheduler
    /// that lost its memory), or an undo that was applied by half, is put back at once.
    async fn reset_lost_leases(&self, scan: &Scan) -> Result<(), TickError> {
        if !self.context.is_active() {
            return Ok(());
        }
        let decisions = self.context.store.active_decisions().await?;
        let live: BTreeSet<_> = decisions
            .iter()
            .flat_map(|decision| &decision.members)
            .filter(|member| {
                matches!(member.state, MemberState::Guarded | MemberState::Released | MemberState::Running)
            })
            .map(|member| member.plan.start)
            .collect();
        let tried = self.context.board().tried.clone();
        let lost = scan.jobs.values().filter(|job| {
            let is_known = !predates(scan, tried.get(&job.start()).copied());
            job.state == JobState::Pending && !live.contains(&job.start()) && is_known
        });
        for job in lost.filter(|job| needs_reset(job)) {
            let alone = self.context.begin_times.lock().await;
            self.put_back(job).await?;
            drop(alone);
            let detail =
                format!("it waited with the pin of an earlier release ({}); it runs alone now", job.gres);
            self.event(scan.at, "restarted", job.id, None, detail).await?;
            self.context.tally.event("restarted");
        }
        Ok(())
    }

    /// Ends a member's part in a decision without touching its job.
    async fn give_up(
        &self,
        decision: &Decision,
        member: &Member,
        kind: &str,
        reason: String,
    ) -> Result<(), TickError> {
        let now = self.context.now();
        let current = self.context.store.decision(decision.id).await?;
        let state =
            current.as_ref().and_then(|current| member_state(current, member)).unwrap_or(member.state);
        if !self.step_from(decision, member, state, MemberState::Undone, now).await? {
            return Ok(());
        }
        let job_id = member.plan.start.job_id;
        info!(%job_id, decision_id = %decision.id, kind, reason, "member given up");
        self.context.board_mut().cooling.insert(job_id, now + self.context.settings.cooling);
        self.revoke(decision, member);
        self.event(now, kind, job_id, Some(decision), reason).await?;
        self.context.tally.event(kind);
        self.context.nudges.engine.notify_one();
        Ok(())
    }

    fn revoke(&self, decision: &Decision, member: &Member) {
        let revoke = ToAgent::Revoke { decision_id: decision.id, start: member.plan.start };
        self.context.agents.send(&decision.node, revoke);
    }

    async fn event(
        &self,
        at: UnixTime,
        kind: &str,
        job_id: SlurmJobId,
        decision: Option<&Decision>,
        detail: String,
    ) -> Result<(), TickError> {
        let node = decision.map(|decision| decision.node.clone());
        let event = Event { at, kind: kind.to_owned(), job_id: Some(job_id), node, detail };
        Ok(self.context.store.record_event(&event).await?)
    }

    async fn step(
        &self,
        decision: &Decision,
        member: &Member,
        to: MemberState,
        at: UnixTime,
    ) -> Result<bool, TickError> {
        self.step_from(decision, member, member.state, to, at).await
    }

    async fn step_from(
        &self,
        decision: &Decision,
        member: &Member,
        from: MemberState,
        to: MemberState,
        at: UnixTime,
    ) -> Result<bool, TickError> {
        let step = MemberStep { decision_id: decision.id, start: member.plan.start, from, to, at };
        Ok(self.context.store.step_member(&step).await?)
    }

    /// Moves the decision itself, by what its members are now.
    async fn settle(&self, decision: &Decision) -> Result<(), TickError> {
        let store = &self.context.store;
        let Some(now) = store.decision(decision.id).await? else { return Ok(()) };
        let at = self.context.now();
        let any = |state: MemberState| now.members.iter().any(|member| member.state == state);
        let is_over = !now.members.iter().any(|member| member.state.is_active());
        let was_released = any(MemberState::Released) || any(MemberState::Running) || any(MemberState::Ended);
        if now.state == DecisionState::Planned && was_released {
            store.step_decision(now.id, DecisionState::Released, None, at).await?;
        }
        if is_over && any(MemberState::Ended) {
            store.step_decision(now.id, DecisionState::Ended, None, at).await?;
        } else if is_over {
            let reason = Some("no member of it ran under it");
            store.step_decision(now.id, DecisionState::Abandoned, reason, at).await?;
        }
        Ok(())
    }
}

/// A point at which the end-to-end tests stop or slow the release, and nothing else of this process: in a build with debug
/// assertions, and only where `FAILPOINTS` armed one.
fn stop_here(point: &'static str) {
    // The simulation's runtime has one thread, which nothing may block.
    if cfg!(debug_assertions) && !fail::list().is_empty() {
        tokio::task::block_in_place(|| fail::fail_point!(point));
    }
}

fn member_state(decision: &Decision, member: &Member) -> Option<MemberState> {
    decision.members.iter().find(|other| other.plan.start == member.plan.start).map(|other| other.state)
}

/// A pinned or leased request that should not be there any more.
fn needs_reset(job: &Job) -> bool {
    mark_of(job).is_some_and(|mark| {
        let is_plain = job.shards() == Some((None, 100)) && job.required_nodes.is_empty();
        mark.lease_epoch.is_some() || (mark.alone && !is_plain)
    })
}

fn share_of(decision: &Decision, member: &Member) -> Share {
    Share {
        decision_id: decision.id,
        start: member.plan.start,
        uid: member.plan.uid,
        gres_type: decision.gres_type.clone(),
        mechanism: decision.mechanism,
        cap_fraction: member.plan.cap_fraction,
        ccs_mode: decision.ccs_mode,
        memory_limit_bytes: member.plan.memory_limit_bytes,
        shards: member.plan.shards,
    }
}

/// Where a joiner's host stands: some other member of its group that runs, or is on its way.
fn host_of(decision: &Decision, member: &Member, all: &[Decision]) -> Host {
    if member.plan.role != Role::Joiner {
        return Host::NotNeeded;
    }
    let others = all
        .iter()
        .filter(|other| other.group == decision.group)
        .flat_map(|other| &other.members)
        .filter(|other| other.plan.start != member.plan.start);
    let mut host = Host::Gone;
    for other in others {
        match other.state {
            MemberState::Running => return Host::Running,
            MemberState::Planned | MemberState::Guarded | MemberState::Released
                if other.plan.role == Role::Host =>
            {
                host = Host::Expected;
            }
            _ => {}
        }
    }
    host
}

#[cfg(test)]
mod tests;
