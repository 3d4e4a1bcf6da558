//! Jobs, decisions and explanations, in memory.

use super::MemoryStore;
use super::state::{Committed, State, enter, has_job, missing_decision, planned};
use async_trait::async_trait;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::{DecisionId, JobStart, Revision, SlurmJobId, UnixTime};
use pillion_pairing::Explanation;
use pillion_store::changes::start_of;
use pillion_store::{
    Decision, Decisions, Explanations, JobRecord, Jobs, MemberStep, NOBODY_RAN, NewDecision, SlurmStart,
    StoreError,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A time further ahead than this comes from a clock that was set back.
const CLOCK_STEP: Duration = Duration::from_mins(1);

#[async_trait]
impl Jobs for MemoryStore {
    async fn record_jobs(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), StoreError> {
        self.with("recording jobs", |state| {
            for job in jobs {
                let seen_at = state.jobs_seen_at.get(&job.id).copied();
                // Seen later by another scheduler; further ahead is a clock that was set back.
                if seen_at.is_some_and(|seen_at| at < seen_at && seen_at <= at + CLOCK_STEP) {
                    continue;
                }
                state.jobs_seen_at.insert(job.id, at);
                state.jobs.insert(job.id, job.clone());
                state.starts.extend(start_of(job));
            }
        })
    }

    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError> {
        let found =
            |state: &State| ids.iter().filter_map(|id| Some((*id, state.job(*id)?.clone()))).collect();
        self.with("reading jobs", |state| found(state))
    }

    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError> {
        self.with("reading a start", |state| state.starts.get(&start).cloned())
    }
}

#[async_trait]
impl Decisions for MemoryStore {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.with("reading the revision", |state| state.revision())
    }

    async fn commit_plan(
        &self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError> {
        self.call("committing a plan", |state| {
            if parent != state.revision() {
                return Err(StoreError::StaleView { parent, current: state.revision() });
            }
            state.check_members(decisions)?;
            let next = state.decisions.last_key_value().map_or(1, |(id, _)| id.0 + 1);
            let ids: Vec<_> = (next..).map(DecisionId).take(decisions.len()).collect();
            for joined in decisions.iter().filter_map(|decision| decision.joins) {
                if !state.decisions.contains_key(&joined) {
                    return Err(missing_decision(joined));
                }
            }
            for (id, new) in ids.iter().zip(decisions) {
                state.decisions.insert(*id, Committed { decision: planned(*id, new, at), parent });
                state.decided.extend(new.members.iter().map(|member| (member.start.job_id, parent)));
            }
            if !decisions.is_empty() {
                state.bump();
            }
            Ok(ids)
        })
    }

    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError> {
        self.with("reading active decisions", |state| {
            let active = state.all_decisions().filter(|decision| decision.state.is_active());
            let mut active: Vec<Decision> = active.cloned().collect();
            for member in active.iter_mut().flat_map(|decision| &mut decision.members) {
                member.plan.explanation = None;
            }
            active
        })
    }

    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError> {
        self.with("reading a decision", |state| state.decision(id).cloned())
    }

    async fn decisions_of(&self, id: SlurmJobId) -> Result<Vec<Decision>, StoreError> {
        self.with("listing decisions", |state| state.newest_first(|decision| has_job(decision, id)))
    }

    async fn group(&self, group: DecisionId) -> Result<Vec<Decision>, StoreError> {
        self.with("listing decisions", |state| state.newest_first(|decision| decision.group == group))
    }

    async fn step_member(&self, step: &MemberStep) -> Result<bool, StoreError> {
        self.call("moving a member", |state| {
            let to = step.from.advance(step.to);
            let to = to.map_err(|source| StoreError::Illegal { id: step.decision_id, source })?;
            let Ok(member) = state.member_mut(step.decision_id, step.start) else { return Ok(false) };
            if member.state != step.from {
                return Ok(false);
            }
            enter(member, to, step.at);
            let committed = state
                .decisions
                .get_mut(&step.decision_id)
                .ok_or_else(|| missing_decision(step.decision_id))?;
            let decision = &mut committed.decision;
            let members: Vec<MemberState> = decision.members.iter().map(|member| member.state).collect();
            decision.state = decision.state.after(&members);
            if decision.state == DecisionState::Abandoned {
                decision.abandoned_reason = Some(NOBODY_RAN.to_owned());
            }
            Ok(true)
        })
    }

    async fn member_prepared(&self, id: DecisionId, start: JobStart, at: UnixTime) -> Result<(), StoreError> {
        self.call("recording that a member is prepared", |state| {
            state.member_mut(id, start)?.prepared_at.get_or_insert(at);
            Ok(())
        })
    }

    async fn abandon(&self, id: DecisionId, reason: &str, at: UnixTime) -> Result<bool, StoreError> {
        self.with("abandoning a decision", |state| {
            let Some(Committed { decision, .. }) = state.decisions.get_mut(&id) else { return false };
            if decision.state != DecisionState::Planned {
                return false;
            }
            decision.state = DecisionState::Abandoned;
            decision.abandoned_reason = Some(reason.to_owned());
            for member in decision.members.iter_mut().filter(|member| member.state.is_active()) {
                enter(member, MemberState::Undone, at);
            }
            true
        })
    }

    async fn record_outcome(
        &self,
        id: DecisionId,
        start: JobStart,
        measured_speed_fraction: Option<f64>,
        energy_joules: Option<f64>,
    ) -> Result<(), StoreError> {
        self.call("recording an outcome", |state| {
            let member = state.member_mut(id, start)?;
            member.measured_speed_fraction = measured_speed_fraction;
            member.energy_joules = energy_joules;
            Ok(())
        })
    }
}

#[async_trait]
impl Explanations for MemoryStore {
    async fn record_explanations(
        &self,
        revision: Revision,
        explanations: &[Explanation],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        self.call("recording explanations", |state| {
            for explanation in explanations {
                state.record_explanation(revision, explanation, at);
            }
            Ok(())
        })
    }

    async fn explanations(
        &self,
        id: SlurmJobId,
    ) -> Result<Vec<(Revision, UnixTime, Explanation)>, StoreError> {
        self.with("reading explanations", |state| {
            let waiting = state.explanations.get(&id).into_iter().flatten().cloned();
            let decided = state.decisions.values().flat_map(|committed| {
                let members =
                    committed.decision.members.iter().filter(move |member| member.plan.start.job_id == id);
                members.filter_map(|member| {
                    let explanation = member.plan.explanation.clone()?;
                    Some((committed.parent, committed.decision.created_at, explanation))
                })
            });
            let mut all: Vec<_> = waiting.chain(decided).collect();
            all.sort_by_key(|row| row.0);
            all
        })
    }
}
