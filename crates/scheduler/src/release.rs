//! Row 5 of the way of a job: carries decisions out, one durable step after the other, and takes back what did not start.
//! `step::next` chooses; nothing is chosen here.
//!
//! A release is one call to Slurm and one transaction: an update pins the job, writes the lease into its mark and makes it
//! eligible, then the store says so. `pillion.lua` refuses the update where the job is not any more what was decided on
//! (docs/decisions/0012-a-fence-under-slurms-lock.md). The lease in `AdminComment` is adopted after a crash in between, and
//! is what `pillion rescue` undoes when nobody else is left.

mod hand_back;

use crate::context::Context;
use crate::fence;
use crate::scan::{Scan, mark_of};
use crate::step::{Host, Next, Surroundings, next};
use crate::tick_error::TickError;
use futures::StreamExt;
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::mark::Mark;
use pillion_core::report::ToAgent;
use pillion_core::share::Share;
use pillion_core::workload::is_session;
use pillion_core::{DecisionId, JobStart, SlurmJobId, UnixTime, report};
use pillion_pairing::Role;
use pillion_slurm::{Job, JobUpdate, SlurmError, updates};
use pillion_store::{Decision, Drain, Event, Member, MemberStep, drain_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{info, warn};

/// How many decisions are carried on side by side. Each waits for Slurm and the database, and neither for the others.
const SIDE_BY_SIDE: usize = 12;

/// How many releases one tick begins at most: what ended meanwhile, and what is to be undone, is not to wait for thousands, and
/// each is to be judged by a scan that is fresh.
const RELEASES_PER_TICK: usize = 200;
/// Why what another scheduler decided is not released, where the policy is not the same for all.
const DECIDED_ON_UNKNOWN: &str =
    "another scheduler decided it, and on which account, QOS and partition is not known here";
/// How long an agent has to answer before it is asked once more to prepare the same.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(3);

pub struct Release {
    context: Arc<Context>,
    /// When agents were last asked to prepare a member.
    asked: Mutex<HashMap<(DecisionId, JobStart), UnixTime>>,
    /// How many releases the tick may still begin.
    releases_left: AtomicUsize,
}

impl Release {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, asked: Mutex::default(), releases_left: AtomicUsize::new(0) }
    }

    /// Takes every active decision as far as it can go now, then puts back leases that nobody stands behind. Who does not lead carries
    /// nothing on: his scans may be older than what the leader did, and he cannot know.
    ///
    /// # Errors
    /// The first [`TickError`]; the other decisions were still tried.
    pub async fn tick(&self) -> Result<(), TickError> {
        let Some(scan) = self.context.board().scan.clone() else { return Ok(()) };
        // Whatever comes of this tick, the next plan says anew whose turn it is.
        let turns = std::mem::take(&mut self.context.board_mut().let_go);
        let decisions = Arc::new(self.context.store.active_decisions().await?);
        let drains = self.context.store.drains().await?;
        self.context.board_mut().active = Arc::clone(&decisions);
        if !self.context.is_leading() {
            return Ok(());
        }
        let all = decisions.as_slice();
        let mut groups: BTreeMap<DecisionId, Vec<&Decision>> = BTreeMap::new();
        for decision in all {
            groups.entry(decision.group).or_default().push(decision);
        }
        self.releases_left.store(RELEASES_PER_TICK, Ordering::Relaxed);
        let now = self.context.now();
        self.asked().retain(|_, at| now < *at + ASKED_AGAIN_AFTER);
        let mut driven = Vec::with_capacity(all.len());
        for decision in all {
            let drain = decision.places().find_map(|(node, gres_type)| drain_of(&drains, node, gres_type));
            driven.push(self.drive(decision, &groups, &scan, drain));
        }
        let carried: Vec<_> = futures::stream::iter(driven).buffer_unordered(SIDE_BY_SIDE).collect().await;
        let mut errors: Vec<TickError> = carried.into_iter().filter_map(Result::err).collect();
        errors.extend(self.hand_back(&scan, all, &turns).await.err());
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    async fn drive(
        &self,
        decision: &Decision,
        groups: &BTreeMap<DecisionId, Vec<&Decision>>,
        scan: &Scan,
        drain: Option<&Drain>,
    ) -> Result<(), TickError> {
        let beside = groups.get(&decision.group).map(Vec::as_slice).unwrap_or_default();
        let mut first_error = None;
        for member in decision.members.iter().filter(|member| member.state.is_active()) {
            // One look at the board a statement: a second one in the same statement waits for ever where a writer has
            // come between them.
            let tried_at = self.context.board().tried.get(&member.plan.start).copied();
            let launched_at = self.context.board().launched.get(&member.plan.start).copied();
            let is_stopped = self.context.board().stopped.contains_key(&decision.node);
            let led_since = self.context.board().led_since;
            let unanswered_at = self.context.board().unanswered.get(&member.plan.start).copied();
            let is_known = self.context.settings.job_policy.is_uniform()
                || self.context.board().decided_on.contains_key(&member.plan.start);
            let around = Surroundings {
                scan,
                agent_connected: self.context.agents.is_connected(&decision.node),
                drain,
                host: host_of(member, beside),
                tried_at,
                launched_at,
                unanswered_at,
                unknown: (!is_known).then_some(DECIDED_ON_UNKNOWN),
                scan_is_stale: !self.context.is_fresh(scan),
                led_since,
                releases_allowed: self.context.is_active() && !is_stopped,
            };
            let step = next(decision, member, around, self.context.settings.timeouts);
            // One member that cannot go on does not keep the others.
            let carried = self.carry_out(step, decision, member, scan).await;
            let start = member.plan.start;
            if let Err(error) = carried.or_else(|error| self.context.pass_over("release", start, error)) {
                let text = report(&error);
                if self.context.repeats.is_news(&format!("release {start} {text}"), self.context.now()) {
                    warn!(decision_id = %decision.id, %start, error = text, "not carried on");
                }
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
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
                self.prepare(decision, member, scan);
                Ok(())
            }
            Next::Release if self.may_begin() => self.release(decision, member, scan).await,
            Next::Release => {
                self.context.nudges.release.notify_one();
                Ok(())
            }
            Next::AdoptRelease(epoch) => {
                self.step(decision, member, MemberState::Released, UnixTime::from_epoch(epoch)).await?;
                self.context.nudges.release.notify_one();
                Ok(())
            }
            Next::Started(at) => {
                if self.step(decision, member, MemberState::Running, at).await? {
                    self.context.tally.started();
                    info!(job_id = %member.plan.start.job_id, decision_id = %decision.id, "started as planned");
                    // Whoever joins it has waited for this.
                    self.context.nudges.release.notify_one();
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
            Next::Drop { reason, is_refused } => {
                self.give_up(decision, member, EventKind::Dropped, reason, is_refused).await
            }
            Next::Undo(reason) => self.undo(decision, member, scan, reason).await,
        }
    }

    /// Asks the agent to get ready, unless it was asked a moment ago: thousands may wait for their turn.
    fn prepare(&self, decision: &Decision, member: &Member, scan: &Scan) {
        let key = (decision.id, member.plan.start);
        let is_asked = self.asked().contains_key(&key);
        if is_asked {
            return;
        }
        let share = ToAgent::Prepare(share_of(decision, member, scan));
        if self.context.agents.send(&decision.node, share) {
            self.asked().insert(key, self.context.now());
        }
    }

    fn may_begin(&self) -> bool {
        let taken =
            self.releases_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<(DecisionId, JobStart), UnixTime>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins the job and makes it eligible.
    async fn release(&self, decision: &Decision, member: &Member, scan: &Scan) -> Result<(), TickError> {
        let context = &self.context;
        let Some((job, mark)) =
            scan.jobs.get(&member.plan.start.job_id).and_then(|job| Some((job, mark_of(job)?)))
        else {
            return Ok(());
        };
        // What was forgotten in this moment is given up by the next tick.
        let Some(mark) = self.as_decided(member, mark) else { return Ok(()) };
        // Before anything is waited for: whoever is stopped from here on is refused for his age.
        let at = context.now();
        if !fence::holds(context, job, &mark).await? || !context.may_act_by(scan) {
            return Ok(());
        }
        context.board_mut().tried.insert(member.plan.start, at);
        let release =
            updates::release(job, &mark, &decision.node, &decision.gres_types, member.plan.shards, at);
        stop_here("release-before-release", job.id);
        let answer = context.slurm.update(&[job.id], &release).await;
        stop_here("release-after-release", job.id);
        let answered_at = context.now();
        context.board_mut().tried.insert(member.plan.start, answered_at);
        if answer.as_ref().is_err_and(SlurmError::is_transient) {
            context.board_mut().unanswered.insert(member.plan.start, at);
        }
        if answer.is_err() {
            // What became of it only a scan tells. One that was taken its node tells of when it begins.
            context.nudges.watch.notify_one();
        }
        match answer {
            Ok(()) => {
                if self.step(decision, member, MemberState::Released, at).await? {
                    context.tally.released();
                    info!(job_id = %job.id, decision_id = %decision.id, node = %decision.node, "released");
                }
                Ok(())
            }
            // An earlier call of ours or of another scheduler's came first: the next scan tells whose lease that is.
            Err(SlurmError::Fenced { reason, .. }) if reason == fence::HAS_LEASE => Ok(()),
            Err(SlurmError::Fenced { reason, .. }) => {
                let reason = format!("it changed before it was released: {reason}");
                self.give_up(decision, member, EventKind::Dropped, reason, true).await
            }
            Err(error @ SlurmError::Failed { .. }) => {
                // A refused update may be applied in part.
                let reason = format!("Slurm refused the release: {}", report(&error));
                self.undo(decision, member, scan, reason).await
            }
            Err(error) => Err(TickError::slurm("release a job")(error)),
        }
    }

    /// The mark with what the decision presupposes of the job, so that the release is refused where that is not so any more: whoever moves
    /// his job to another account, QOS or partition has other rules. `None`: that is not known.
    fn as_decided(&self, member: &Member, mark: &Mark) -> Option<Mark> {
        if self.context.settings.job_policy.is_uniform() {
            return Some(mark.clone());
        }
        let board = self.context.board();
        let decided_on = board.decided_on.get(&member.plan.start)?;
        Some(Mark { decided_on: Some(decided_on.as_str().into()), ..mark.clone() })
    }

    async fn undo(
        &self,
        decision: &Decision,
        member: &Member,
        scan: &Scan,
        reason: String,
    ) -> Result<(), TickError> {
        let Some(job) = scan.jobs.get(&member.plan.start.job_id) else { return Ok(()) };
        if self.put_back(job).await? {
            // At once: it becomes eligible in a moment, and is to find nothing of this decision then.
            self.revoke(decision, member);
            return self.give_up(decision, member, EventKind::Undone, reason, false).await;
        }
        self.context.nudges.watch.notify_one();
        Ok(())
    }

    /// Puts a waiting job's request back: any whole device, in a moment, and never released again. `false`: it has started after all,
    /// or was changed; the next scan tells.
    async fn put_back(&self, job: &Job) -> Result<bool, TickError> {
        let Some(mark) = mark_of(job) else { return Ok(true) };
        let now = self.context.now();
        let mut update = updates::undo(job, mark, now);
        if self.context.board().forgotten.contains(&job.start()) {
            // Slurm would start it as soon as it may, and it may be on its node still.
            let gone = now + updates::FORGOTTEN_PAUSE;
            update.start_time = update.start_time.map(|begin| if begin < gone { gone } else { begin });
        }
        self.hand_to_slurm(job, &update).await
    }

    /// `false`: it has started after all, or was changed; the next scan tells.
    async fn hand_to_slurm(&self, job: &Job, update: &JobUpdate) -> Result<bool, TickError> {
        let answer = self.context.slurm.update(&[job.id], update).await;
        let answered_at = self.context.now();
        self.context.board_mut().tried.insert(job.start(), answered_at);
        match answer {
            Err(SlurmError::Failed { .. } | SlurmError::Fenced { .. }) => return Ok(false),
            answer => answer.map_err(TickError::slurm("put a job's request back"))?,
        }
        self.context.nudges.watch.notify_one();
        Ok(true)
    }

    /// Ends a member's part in a decision without touching its job. `is_refused`: the same plan would fail again.
    async fn give_up(
        &self,
        decision: &Decision,
        member: &Member,
        kind: EventKind,
        reason: String,
        is_refused: bool,
    ) -> Result<(), TickError> {
        let now = self.context.now();
        if !self.step(decision, member, MemberState::Undone, now).await? {
            return Ok(());
        }
        let job_id = member.plan.start.job_id;
        info!(%job_id, decision_id = %decision.id, %kind, reason, "member given up");
        if is_refused {
            self.context.board_mut().cooling.insert(job_id, now + self.context.settings.cooling);
        }
        self.revoke(decision, member);
        self.event(now, kind.clone(), job_id, Some(decision), reason).await?;
        self.context.tally.event(&kind);
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
        kind: EventKind,
        job_id: SlurmJobId,
        decision: Option<&Decision>,
        detail: String,
    ) -> Result<(), TickError> {
        let node = decision.map(|decision| decision.node.clone());
        let event = Event { at, kind, job_id: Some(job_id), node, detail };
        Ok(self.context.store.record_event(&event).await?)
    }

    async fn step(
        &self,
        decision: &Decision,
        member: &Member,
        to: MemberState,
        at: UnixTime,
    ) -> Result<bool, TickError> {
        let (decision_id, start, from) = (decision.id, member.plan.start, member.state);
        Ok(self.context.store.step_member(&MemberStep { decision_id, start, from, to, at }).await?)
    }
}

/// A point at which the end-to-end tests stop or slow the release of a job, and nothing else of this process: in a build with
/// debug assertions, and only where `FAILPOINTS` armed one.
fn stop_here(point: &'static str, job_id: SlurmJobId) {
    // The simulation's runtime has one thread, which nothing may block.
    if cfg!(debug_assertions) && !fail::list().is_empty() {
        info!(%job_id, point, "a fail point is here");
        tokio::task::block_in_place(|| fail::fail_point!(point));
    }
}

fn share_of(decision: &Decision, member: &Member, scan: &Scan) -> Share {
    let limit_of_each = member.plan.sharing.memory_limit_bytes();
    Share {
        decision_id: decision.id,
        start: member.plan.start,
        uid: member.plan.uid,
        gres_types: decision.gres_types.clone(),
        sharing: member.plan.sharing,
        shards: member.plan.shards,
        memory_bytes: member.plan.memory_bytes.filter(|all| limit_of_each.is_some_and(|each| each < *all)),
        is_session: is_session(&member.plan.workload),
        is_plain: scan.is_plain(member.plan.start.job_id),
    }
}

/// Where a joiner's host stands: some other member of its group that runs, or is on its way.
fn host_of(member: &Member, group: &[&Decision]) -> Host {
    if member.plan.role != Role::Joiner {
        return Host::NotNeeded;
    }
    let others =
        group.iter().flat_map(|other| &other.members).filter(|other| other.plan.start != member.plan.start);
    let mut host = Host::Gone;
    for other in others {
        match other.state {
            MemberState::Running => return Host::Running,
            MemberState::Planned | MemberState::Released if other.plan.role == Role::Host => {
                host = Host::Expected;
            }
            _ => {}
        }
    }
    host
}

#[cfg(test)]
mod tests;
