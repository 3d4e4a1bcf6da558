//! Rows 3 and 4 of the way of a job: makes the view, asks the pure engine, commits what it answers. Touches no job.

mod room;
mod tried;
mod written;

use crate::context::{Context, LetGoTurns, Settings};
use crate::job_rules::decided_on;
use crate::scan::{Scan, is_waiting};
use crate::tick_error::TickError;
use crate::view::{Charged, CopyHistory, Sources, TrialHistory, TrialSources, cluster_view};
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, JobStart, NodeName, Revision, SlurmJobId, UserId, WorkloadKey};
use pillion_pairing::{ClusterView, Explanation, FirstRun, Pairing, Plan, Reason, WaitingJob, plan};
use pillion_store::{NewDecision, NewMember, StoreError, StoredProfile};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::{debug, info};
use written::Written;

/// How many pairings are committed at once. More than are released until the next plan would only grow old, and the devices that
/// they hold with them.
const PAIRINGS_MAX: usize = 1_000;

/// The pairing engine's shell.
pub struct Engine {
    context: Arc<Context>,
    written: Mutex<Written>,
    /// What came of sharings before, where trials are wanted.
    history: Mutex<Arc<TrialHistory>>,
    /// What was measured of copies of one workload, where more than four may share a device.
    copies: Mutex<Arc<CopyHistory>>,
}

impl Engine {
    /// An engine that predicts with the context's model.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, written: Mutex::default(), history: Mutex::default(), copies: Mutex::default() }
    }

    /// Plans once and commits.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer. A plan that came too late is no error.
    pub async fn tick(&self) -> Result<(), TickError> {
        if !self.context.is_active() {
            // Whoever leads meanwhile writes down what he finds, and what we last said of jobs is not true any more.
            *self.written() = Written::default();
            let mut board = self.context.board_mut();
            board.reasons.clear();
            board.reason_counts.clear();
            board.set_apart.clear();
            board.decided_on.clear();
            board.let_go = LetGoTurns::default();
            return Ok(());
        }
        let begun = Instant::now();
        let Some(scan) = self.context.fresh_scan() else { return Ok(()) };
        let (mut view, profiles) = self.view(&scan).await?;
        // One that was let go and lost its devices is looked after also where nobody else waits.
        let is_stuck = view.alone_claims.iter().any(|claim| claim.waits.is_some());
        if view.waiting.is_empty() && !is_stuck {
            {
                let mut board = self.context.board_mut();
                board.reason_counts.clear();
                board.set_apart.clear();
                board.planned_at = Some(scan.at);
            }
            return self.make_room(&view, &Plan::empty(view.revision), &scan).await;
        }
        // Where nothing can be cut nobody asks how anything goes in a slice.
        if view.devices.iter().any(|device| device.geometry.is_some()) {
            view.slices = self.context.store.slices().await?.into();
        }
        let mut plan = self.plan(&view).await?;
        self.leave_steadfast(&mut plan, &scan).await;
        let newest = self.context.board().scan.clone().unwrap_or_else(|| Arc::clone(&scan));
        plan.pairings.retain(|pairing| !is_overtaken(pairing, &scan, &newest));
        if plan.pairings.len() > PAIRINGS_MAX {
            // In the order of service: those that are left out are the first of the next plan.
            plan.pairings.truncate(PAIRINGS_MAX);
            self.context.nudges.engine.notify_one();
        }
        self.remember(&plan, &scan);
        if !self.commit(&view, &plan, &profiles, begun).await? {
            return Ok(());
        }
        // Before the plan is taken to pieces: what it lets go, and for whom it sets what apart, says for whom guests would go in vain.
        self.make_room(&view, &plan, &scan).await?;
        let due = std::mem::take(&mut plan.let_go);
        let set_apart = std::mem::take(&mut plan.set_apart).into_iter();
        let set_apart =
            set_apart.flat_map(|one| one.devices.into_iter().map(move |place| (place, one.job_id))).collect();
        drop(view);
        let is_some_ones_turn = !due.is_empty();
        {
            let mut board = self.context.board_mut();
            board.planned_at = Some(scan.at);
            board.set_apart = set_apart;
            board.let_go = LetGoTurns { planned_at: Some(scan.at), all: due };
        }
        if is_some_ones_turn {
            self.context.nudges.release.notify_one();
        }
        self.explain(&plan).await
    }

    /// The engine's input, by this scan.
    async fn view(&self, scan: &Scan) -> Result<(ClusterView, Vec<StoredProfile>), TickError> {
        let context = &self.context;
        // The revision is read first: whatever takes or closes a place while the rest is read makes the plan stale.
        let revision = context.store.revision().await?;
        let decisions = context.store.active_decisions().await?;
        let profiles = context.store.profiles().await?;
        let drains = context.store.drains().await?;
        let (owed, charged) = (self.owed().await?, self.charged().await?);
        let agents = context.agents.all();
        let (history, copies) = (self.history().await?, self.copies().await?);
        let board = context.board();
        let view = cluster_view(Sources {
            revision,
            scan,
            decisions: &decisions,
            agents: &agents,
            stopped: &board.stopped,
            drains: &drains,
            cooling: &board.cooling,
            profiles: &profiles,
            policy: &context.settings.policy,
            by_job: context.settings.by_job(),
            owed: &owed,
            charged: &charged,
            amiss: &board.amiss,
            first_runs: &board.first_runs,
            idle_sessions: &board.idle_sessions,
            alone_devices_max: context.settings.alone_devices_max,
            gpu_types: &context.settings.gpu_types,
            room_asked: &board.room_asked,
            steadfast: &board.steadfast,
            restarts_by_consent: context.settings.restarts_by_consent,
            watched: &board.watched,
            copies: copies.book(),
            trials: history.as_deref().map(|history| TrialSources {
                pace: &context.settings.pace,
                speeds: &board.speeds,
                is_parting_unsafe: board.is_parting_unsafe,
                history,
            }),
        });
        drop(board);
        Ok((view, profiles))
    }

    /// Runs alone that users owe: of those who lost the right to share, and have not run alone often enough since.
    async fn owed(&self) -> Result<BTreeMap<UserId, u32>, TickError> {
        let Settings { credit_runs, policy, .. } = &self.context.settings;
        if *credit_runs == 0 {
            return Ok(BTreeMap::new());
        }
        let since = self.context.store.atonements(policy.solo_seconds_min, *credit_runs).await?;
        Ok(since
            .into_iter()
            .map(|one| (one.uid, credit_runs.saturating_sub(one.runs_alone)))
            .filter(|(_, runs)| *runs > 0)
            .collect())
    }

    /// What jobs are booked with beyond their profiles, where the site books by use.
    async fn charged(&self) -> Result<Charged, TickError> {
        if !self.context.settings.books_by_use {
            return Ok(Charged::default());
        }
        Ok(self.context.store.charges().await?.into_iter().collect())
    }

    /// Plans on the view of now without committing, for `pillion plan --live`.
    ///
    /// `None` while there is no fresh scan.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn dry_run(&self) -> Result<Option<(ClusterView, Plan)>, TickError> {
        let Some(scan) = self.context.fresh_scan() else { return Ok(None) };
        let (mut view, _) = self.view(&scan).await?;
        // Whoever asks may want to know how devices would be cut that nobody cuts.
        view.slices = self.context.store.slices().await?.into();
        let plan = self.plan(&view).await?;
        Ok(Some((view, plan)))
    }

    async fn plan(&self, view: &ClusterView) -> Result<Plan, TickError> {
        // Read after the view's revision: a model that is promoted in between makes the plan stale.
        let model = self.context.models.current(self.context.store.as_ref()).await?;
        let begun = Instant::now();
        let plan = plan(view, model.as_ref(), &self.context.settings.policy);
        self.context.tally.planned(begun.elapsed());
        Ok(plan)
    }

    /// What this plan presupposes of its jobs, where the policy is not the same for all: before anybody can carry it out.
    fn remember(&self, plan: &Plan, scan: &Scan) {
        if self.context.settings.job_policy.is_uniform() {
            return;
        }
        let mut board = self.context.board_mut();
        board.decided_on.retain(|start, _| scan.job_of(*start).is_some());
        let starts = plan.pairings.iter().flat_map(|pairing| &pairing.members).map(|member| member.start);
        let known = starts.filter_map(|start| Some((start, decided_on(scan.job_of(start)?))));
        board.decided_on.extend(known);
    }

    /// `false`: the plan came too late.
    async fn commit(
        &self,
        view: &ClusterView,
        plan: &Plan,
        profiles: &[StoredProfile],
        begun: Instant,
    ) -> Result<bool, TickError> {
        let (context, now) = (&self.context, self.context.now());
        if plan.pairings.is_empty() {
            return Ok(true);
        }
        let known = Known::new(view, profiles);
        let decisions: Vec<NewDecision> =
            plan.pairings.iter().map(|pairing| new_decision(pairing, &known)).collect();
        match context.store.commit_plan(plan.parent_revision, &decisions, now).await {
            Ok(ids) => {
                context.tally.committed(&plan.pairings, begun.elapsed());
                info!(decisions = ids.len(), waiting = plan.left_waiting.len(), "plan committed");
                context.nudges.release.notify_one();
                Ok(true)
            }
            Err(error @ (StoreError::StaleView { .. } | StoreError::Conflict(_))) => {
                context.tally.plan_refused();
                debug!(%error, "plan refused; the next one is made from what is true now");
                if let StoreError::Conflict(job_id) = error {
                    // It is active in a decision that this plan did not know, and may be so for long.
                    context.board_mut().cooling.insert(job_id, now + context.settings.cooling);
                }
                context.nudges.watch.notify_one();
                Ok(false)
            }
            Err(error) if error.is_of_one_row() => {
                self.commit_one_by_one(plan.parent_revision, &decisions).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes down why jobs wait; where that is refused, of each on its own.
    async fn record(&self, plan: &Plan, left_waiting: &[Explanation]) -> Result<(), TickError> {
        let (store, parent, now) = (&self.context.store, plan.parent_revision, self.context.now());
        match store.record_explanations(parent, left_waiting, now).await {
            Err(error) if error.is_of_one_row() => {}
            kept => return Ok(kept?),
        }
        for left in left_waiting {
            let kept = store.record_explanations(parent, std::slice::from_ref(left), now).await;
            kept.or_else(|error| self.context.pass_over("engine", left.job_id, error.into()))?;
        }
        Ok(())
    }

    /// A plan one of whose decisions the store does not take: the others are committed, each on the revision that the one
    /// before it made. The jobs of that one are left out for a while.
    async fn commit_one_by_one(
        &self,
        mut parent: Revision,
        decisions: &[NewDecision],
    ) -> Result<bool, TickError> {
        let context = &self.context;
        for decision in decisions {
            let now = context.now();
            match context.store.commit_plan(parent, std::slice::from_ref(decision), now).await {
                Ok(_) => parent = Revision(parent.0 + 1),
                Err(StoreError::StaleView { .. }) => {
                    context.tally.plan_refused();
                    return Ok(false);
                }
                Err(error) => {
                    let jobs: Vec<SlurmJobId> =
                        decision.members.iter().map(|member| member.start.job_id).collect();
                    context.pass_over("engine", format_args!("the decision for {jobs:?}"), error.into())?;
                    let until = now + context.settings.cooling;
                    context.board_mut().cooling.extend(jobs.into_iter().map(|job| (job, until)));
                }
            }
        }
        context.nudges.release.notify_one();
        Ok(true)
    }
}

impl Engine {
    /// Tells why jobs wait: on the board all of it, in the store what is new.
    async fn explain(&self, plan: &Plan) -> Result<(), TickError> {
        let (context, left) = (&self.context, &plan.left_waiting);
        {
            let mut board = context.board_mut();
            // Not both at once: a long queue has as many sentences.
            board.reasons.clear();
            board.reasons.extend(left.iter().map(|one| (one.job_id, one.text.clone())));
            board.reason_counts = reason_counts(left);
        }
        let due = {
            let mut written = self.written();
            written.retain(left);
            written.due(left, context.now())
        };
        if !due.explanations.is_empty() {
            self.record(plan, &due.explanations).await?;
            self.written().keep(due);
        }
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something happened since the scan that was planned on which makes this pairing wrong: one of its devices was given more
/// (by Slurm itself, to a job whose begin time came), or one of its jobs does not wait any more. The others still hold.
fn is_overtaken(pairing: &Pairing, planned_on: &Scan, newest: &Scan) -> bool {
    let used = |scan: &Scan, gres_type: &GresType| {
        let node = scan.node(&pairing.node)?;
        node.shards.get(gres_type).map(|(_, used)| *used)
    };
    let is_fuller = pairing.gres_types.iter().any(|gres_type| {
        let [before, now] = [planned_on, newest].map(|scan| used(scan, gres_type));
        now.zip(before).is_none_or(|(now, before)| now > before)
    });
    is_fuller || !pairing.members.iter().all(|member| newest.job_of(member.start).is_some_and(is_waiting))
}

fn reason_counts(left: &[Explanation]) -> BTreeMap<Reason, u64> {
    let mut counts = BTreeMap::new();
    for explanation in left {
        *counts.entry(explanation.reason).or_default() += 1;
    }
    counts
}

/// What a decision keeps of its jobs and their workloads, found by name: a plan may have thousands of both.
struct Known<'a> {
    waiting: BTreeMap<JobStart, &'a WaitingJob>,
    profiles: BTreeMap<(&'a WorkloadKey, &'a str), &'a WorkloadProfile>,
    first_runs: BTreeMap<(&'a NodeName, &'a GresType), &'a FirstRun>,
}

impl<'a> Known<'a> {
    fn new(view: &'a ClusterView, profiles: &'a [StoredProfile]) -> Self {
        let profiles = profiles.iter().map(|stored| &stored.profile);
        let first_runs = view.devices.iter().filter_map(|device| {
            let first = device.tenants.iter().find_map(|tenant| tenant.first_run.as_deref())?;
            Some(((&device.node, &device.gres_type), first))
        });
        Self {
            waiting: view.waiting.iter().map(|job| (job.start, job)).collect(),
            profiles: profiles
                .map(|profile| ((&profile.workload, profile.device_model.as_str()), profile))
                .collect(),
            first_runs: first_runs.collect(),
        }
    }

    /// What was seen of the first run that runs where this pairing goes.
    fn first_run_on(&self, pairing: &Pairing) -> Option<Box<FirstRun>> {
        let first = self.first_runs.get(&(&pairing.node, pairing.gres_types.first()))?;
        Some(Box::new(FirstRun::clone(first)))
    }
}

fn new_decision(pairing: &Pairing, known: &Known<'_>) -> NewDecision {
    let members = pairing.members.iter().map(|member| {
        let job = known.waiting.get(&member.start);
        let solo = known.profiles.get(&(&member.workload, pairing.device_model.as_str()));
        NewMember {
            start: member.start,
            uid: job.map_or(pillion_core::UserId(u32::MAX), |job| job.uid),
            workload: member.workload.clone(),
            role: member.role,
            sharing: member.sharing,
            shards: member.shards,
            memory_bytes: member.memory_bytes,
            slowdown_ratio_max: job.map_or(1.0, |job| job.slowdown_ratio_max.value()),
            estimate: member.estimate.clone(),
            solo_duration_seconds: solo.and_then(|profile| profile.duration_seconds),
            explanation: Some(member.explanation.clone()),
        }
    });
    NewDecision {
        node: pairing.node.clone(),
        gres_types: pairing.gres_types.clone(),
        device_model: pairing.device_model.clone(),
        joins: pairing.joins,
        gain: pairing.gain,
        trial: pairing.trial,
        first_run: pairing.joins.and_then(|_| known.first_run_on(pairing)),
        members: members.collect(),
    }
}

#[cfg(test)]
mod tests;
