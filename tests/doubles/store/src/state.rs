//! What a `MemoryStore` remembers. No lock and no fault: those are in the parent; what each call does to it stands beside the
//! call, and what has rules of its own in a file here. Every change is checked before its first write, so that a call that
//! fails has changed nothing.

mod drains;
mod faults;
mod learning;
mod names;

use super::observed::Watched;
use drains::Drains;
use faults::Faults;
use learning::Learning;
use names::Names;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::DeviceDescription;
use pillion_core::report::{DeviceSample, JobSummary, Launch};
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, UserId, WorkloadKey,
};
use pillion_pairing::Explanation;
use pillion_pairing::mig::SliceRecord;
use pillion_store::{
    CreditLoss, Decision, EXPLANATIONS_MAX, Event, JobRecord, LIST_LIMIT_DEFAULT, Lesson, Member,
    NewDecision, RunAccount, ShadowDecision, ShadowScore, SlurmStart, StoreError, StoredProfile,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Explained = (Revision, UnixTime, Explanation);

/// One start on one device, as its agent summarised it.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) node: NodeName,
    pub(super) summary: JobSummary,
    /// Once it was profiled.
    pub(super) account: Option<RunAccount>,
    pub(super) lesson: Option<Lesson>,
    /// It can make no account.
    pub(super) is_passed: bool,
    pub(super) is_judged: bool,
}

impl Run {
    pub(super) fn is_done(&self) -> bool {
        self.account.is_some() || self.is_passed
    }
}

/// A committed decision and the revision of the view that it was made from.
#[derive(Debug, Clone)]
pub(super) struct Committed {
    pub(super) decision: Decision,
    pub(super) parent: Revision,
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) jobs: BTreeMap<SlurmJobId, JobRecord>,
    /// When each was seen last.
    pub(super) jobs_seen_at: BTreeMap<SlurmJobId, UnixTime>,
    pub(super) decisions: BTreeMap<DecisionId, Committed>,
    /// The parent revision of each job's last decision.
    pub(super) decided: BTreeMap<SlurmJobId, Revision>,
    pub(super) explanations: BTreeMap<SlurmJobId, Vec<Explained>>,
    pub(super) journals: BTreeMap<(NodeName, String), u64>,
    pub(super) devices: BTreeMap<(NodeName, GresType), DeviceDescription>,
    pub(super) samples: Vec<(UnixTime, NodeName, DeviceSample)>,
    pub(super) runs: BTreeMap<(JobStart, GresType), Run>,
    /// What Slurm said of each start.
    pub(super) starts: BTreeMap<JobStart, SlurmStart>,
    pub(super) launches: Vec<Launch>,
    pub(super) profiles: BTreeMap<(WorkloadKey, String), StoredProfile>,
    pub(super) events: Vec<Event>,
    pub(super) learning: Learning,
    pub(super) faults: Faults,
    pub(super) drains: Drains,
    pub(super) names: Names,
    pub(super) watched: Watched,
    /// What would have been done, and what came of it.
    pub(super) shadow: BTreeMap<JobStart, (ShadowDecision, Option<(UnixTime, ShadowScore)>)>,
    pub(super) credit_losses: Vec<CreditLoss>,
    /// Of each workload of a user and of all of his: how many runs count, and their mean.
    pub(super) charges: BTreeMap<(UserId, Option<WorkloadKey>), (u32, f64)>,
    /// By workload, model and size.
    pub(super) slices: BTreeMap<(WorkloadKey, String, String), SliceRecord>,
}

impl State {
    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    pub(super) fn bump(&mut self) {
        self.revision += 1;
    }

    pub(super) fn job(&self, id: SlurmJobId) -> Option<&JobRecord> {
        self.jobs.get(&id)
    }

    /// P-1, over what is active and within the plan itself.
    pub(super) fn check_members(&self, decisions: &[NewDecision]) -> Result<(), StoreError> {
        let mut active: BTreeSet<SlurmJobId> = self
            .decisions
            .values()
            .flat_map(|committed| &committed.decision.members)
            .filter(|member| member.state.is_active())
            .map(|member| member.plan.start.job_id)
            .collect();
        for member in decisions.iter().flat_map(|decision| &decision.members) {
            if !active.insert(member.start.job_id) {
                return Err(StoreError::Conflict(member.start.job_id));
            }
        }
        Ok(())
    }

    pub(super) fn record_explanation(&mut self, revision: Revision, explanation: &Explanation, at: UnixTime) {
        let decided = self.decided.get(&explanation.job_id);
        let kept = self.explanations.entry(explanation.job_id).or_default();
        let row = (revision, at, explanation.clone());
        match kept.last_mut() {
            // A decision in between begins a new chapter, even where the same reason follows it.
            Some(last)
                if last.2.reason == explanation.reason && decided.is_none_or(|parent| last.0 > *parent) =>
            {
                if last.2 != row.2 {
                    *last = row;
                }
            }
            _ => kept.push(row),
        }
        let surplus = kept.len().saturating_sub(EXPLANATIONS_MAX);
        kept.drain(..surplus);
    }

    pub(super) fn decision(&self, id: DecisionId) -> Option<&Decision> {
        self.decisions.get(&id).map(|committed| &committed.decision)
    }

    /// The newest of those that `is_meant` takes.
    pub(super) fn newest_first(&self, is_meant: impl Fn(&Decision) -> bool) -> Vec<Decision> {
        let all = self.decisions.values().rev().map(|committed| &committed.decision);
        all.filter(|decision| is_meant(decision)).take(LIST_LIMIT_DEFAULT as usize).cloned().collect()
    }

    /// Every decision, oldest first.
    pub(super) fn all_decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.values().map(|committed| &committed.decision)
    }

    pub(super) fn member_mut(&mut self, id: DecisionId, start: JobStart) -> Result<&mut Member, StoreError> {
        let committed = self.decisions.get_mut(&id).ok_or_else(|| missing_decision(id))?;
        let mut members = committed.decision.members.iter_mut();
        members
            .find(|member| member.plan.start == start)
            .ok_or_else(|| StoreError::Missing(format!("member {start} of decision {id}")))
    }

    pub(super) fn profiles(&self) -> Vec<StoredProfile> {
        self.profiles.values().cloned().collect()
    }

    pub(super) fn record_event(&mut self, event: Event) {
        self.events.push(event);
    }
}

pub(super) fn missing_decision(id: DecisionId) -> StoreError {
    StoreError::Missing(format!("decision {id}"))
}

pub(super) fn has_job(decision: &Decision, id: SlurmJobId) -> bool {
    decision.members.iter().any(|member| member.plan.start.job_id == id)
}

/// Moves a member and notes when; the step was checked.
pub(super) fn enter(member: &mut Member, to: MemberState, at: UnixTime) {
    member.state = to;
    match to {
        MemberState::Planned => {}
        MemberState::Released => member.released_at = Some(at),
        MemberState::Running => member.started_at = Some(at),
        MemberState::Ended | MemberState::Undone => member.ended_at = Some(at),
    }
}

/// The decision as it stands right after its commit.
pub(super) fn planned(id: DecisionId, new: &NewDecision, at: UnixTime) -> Decision {
    let members = new.members.iter().map(|plan| Member {
        plan: plan.clone(),
        state: MemberState::Planned,
        prepared_at: None,
        released_at: None,
        started_at: None,
        ended_at: None,
        measured_speed_fraction: None,
        energy_joules: None,
    });
    Decision {
        id,
        group: new.joins.unwrap_or(id),
        state: DecisionState::Planned,
        created_at: at,
        node: new.node.clone(),
        gres_types: new.gres_types.clone(),
        device_model: new.device_model.clone(),
        gain: new.gain,
        trial: new.trial,
        first_run: new.first_run.clone(),
        abandoned_reason: None,
        members: members.collect(),
    }
}
