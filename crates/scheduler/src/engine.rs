//! Rows 3 and 4 of the way of a job: makes the view, asks the pure engine, commits what it answers. Touches no job.

use crate::context::{Context, TickError};
use crate::store::{NewDecision, NewMember, StoreError, StoredProfile};
use crate::view::{Sources, cluster_view};
use pillion_pairing::{ClusterView, Explanation, Pairing, Plan, Reason, plan};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::{debug, info};

/// The pairing engine's shell.
pub struct Engine {
    context: Arc<Context>,
}

impl Engine {
    /// An engine that predicts with the context's model.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Plans once and commits.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer. A plan that came too late is no error.
    pub async fn tick(&self) -> Result<(), TickError> {
        if !self.context.is_active() {
            return Ok(());
        }
        let begun = Instant::now();
        let Some((view, profiles)) = self.view().await? else { return Ok(()) };
        if view.waiting.is_empty() {
            self.context.board_mut().reason_counts.clear();
            return Ok(());
        }
        let plan = self.plan(&view).await?;
        self.commit(&view, &plan, &profiles, begun).await
    }

    /// The engine's input now; `None` while there is no fresh scan.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn view(&self) -> Result<Option<(ClusterView, Vec<StoredProfile>)>, TickError> {
        let context = &self.context;
        // The revision is read first: whatever changes while the rest is read makes the plan stale.
        let revision = context.store.revision().await?;
        let Some(scan) = context.fresh_scan() else { return Ok(None) };
        let decisions = context.store.active_decisions().await?;
        let profiles = context.store.profiles().await?;
        let drains = context.store.drains().await?;
        let agents = context.agents.all();
        let board = context.board();
        let view = cluster_view(Sources {
            revision,
            scan: &scan,
            decisions: &decisions,
            agents: &agents,
            stopped: &board.stopped,
            drains: &drains,
            cooling: &board.cooling,
            profiles: &profiles,
            policy: &context.settings.policy,
            gpu_types: &context.settings.gpu_types,
        });
        drop(board);
        Ok(Some((view, profiles)))
    }

    /// Plans on the view of now without committing, for `pillion plan --live`.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub async fn dry_run(&self) -> Result<Option<(ClusterView, Plan)>, TickError> {
        let Some((view, _)) = self.view().await? else { return Ok(None) };
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

    async fn commit(
        &self,
        view: &ClusterView,
        plan: &Plan,
        profiles: &[StoredProfile],
        begun: Instant,
    ) -> Result<(), TickError> {
        let context = &self.context;
        let now = context.now();
        let reason = |left: &Explanation| (left.job_id, left.text.clone());
        context.board_mut().reasons = plan.left_waiting.iter().map(reason).collect();
        context.board_mut().reason_counts = reason_counts(&plan.left_waiting);
        context.store.record_explanations(plan.parent_revision, &plan.left_waiting, now).await?;
        if plan.pairings.is_empty() {
            return Ok(());
        }
        let decisions: Vec<NewDecision> =
            plan.pairings.iter().map(|pairing| new_decision(pairing, view, profiles)).collect();
        match context.store.commit_plan(plan.parent_revision, &decisions, now).await {
            Ok(ids) => {
                context.tally.committed(&plan.pairings, begun.elapsed());
                info!(decisions = ids.len(), waiting = plan.left_waiting.len(), "plan committed");
                context.nudges.release.notify_one();
                Ok(())
            }
            Err(error @ (StoreError::StaleView { .. } | StoreError::Conflict(_))) => {
                context.tally.plan_refused();
                debug!(%error, "plan refused; the next one is made from what is true now");
                context.nudges.watch.notify_one();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn reason_counts(left: &[Explanation]) -> BTreeMap<Reason, u64> {
    let mut counts = BTreeMap::new();
    for explanation in left {
        *counts.entry(explanation.reason).or_default() += 1;
    }
    counts
}

fn new_decision(pairing: &Pairing, view: &ClusterView, profiles: &[StoredProfile]) -> NewDecision {
    let members = pairing.members.iter().map(|member| {
        let job = view.waiting.iter().find(|job| job.start == member.start);
        let solo = profiles.iter().map(|stored| &stored.profile).find(|profile| {
            profile.workload == member.workload && profile.device_model == pairing.device_model
        });
        NewMember {
            start: member.start,
            uid: job.map_or(pillion_core::UserId(u32::MAX), |job| job.uid),
            workload: member.workload.clone(),
            role: member.role,
            cap_fraction: member.cap_fraction,
            shards: member.shards,
            memory_bytes: member.memory_bytes,
            memory_limit_bytes: member.memory_limit_bytes,
            slowdown_ratio_max: job.map_or(1.0, |job| job.slowdown_ratio_max.value()),
            estimate: member.estimate.clone(),
            solo_duration_seconds: solo.and_then(|profile| profile.duration_seconds),
            explanation: member.explanation.clone(),
        }
    });
    NewDecision {
        node: pairing.node.clone(),
        gres_type: pairing.gres_type.clone(),
        device_model: pairing.device_model.clone(),
        mechanism: pairing.mechanism,
        ccs_mode: pairing.ccs_mode,
        joins: pairing.joins,
        gain: pairing.gain,
        members: members.collect(),
    }
}
