//! What a `MemoryStore` remembers, and what each call does to it. No lock and no fault: those are in the parent.
//!
//! Every change is checked before its first write, so that a call that fails has changed nothing.

mod credit;
mod runs;

use super::super::starts::start_of;
use super::super::{
    CreditLoss, Decision, DecisionFilter, EXPLANATIONS_MAX, Event, JobRecord, LIST_LIMIT_DEFAULT, Lesson,
    Member, MemberStep, ModelState, NOBODY_RAN, NewDecision, NewMember, NewModel, RequeueOutcome, RunAccount,
    SlurmStart, StoreError, StoredProfile,
};
use super::faults::Faults;
use super::learning::Learning;
use super::names::Names;
use super::operators::Drains;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::DeviceDescription;
use pillion_core::event::EventKind;
use pillion_core::health::DeviceCondition;
use pillion_core::metric::Metric;
use pillion_core::report::{DeviceSample, JobSummary, Launch, Report, ReportBody};
use pillion_core::{DecisionId, GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, WorkloadKey};
use pillion_pairing::Explanation;
use std::collections::{BTreeMap, BTreeSet};

type Explained = (Revision, UnixTime, Explanation);

/// One start on one device, as its agent summarised it.
#[derive(Debug, Clone)]
struct Run {
    node: NodeName,
    summary: JobSummary,
    /// Once it was profiled.
    account: Option<RunAccount>,
    lesson: Option<Lesson>,
    /// It can make no account.
    is_passed: bool,
    is_judged: bool,
}

impl Run {
    fn is_done(&self) -> bool {
        self.account.is_some() || self.is_passed
    }
}

/// A committed decision and the revision of the view that it was made from.
#[derive(Debug, Clone)]
struct Committed {
    decision: Decision,
    parent: Revision,
}

/// Everything.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    revision: u64,
    pub(super) jobs: BTreeMap<SlurmJobId, JobRecord>,
    decisions: BTreeMap<DecisionId, Committed>,
    /// The parent revision of each job's last decision.
    decided: BTreeMap<SlurmJobId, Revision>,
    explanations: BTreeMap<SlurmJobId, Vec<Explained>>,
    journals: BTreeMap<(NodeName, String), u64>,
    devices: BTreeMap<(NodeName, GresType), DeviceDescription>,
    samples: Vec<(UnixTime, NodeName, DeviceSample)>,
    runs: BTreeMap<(JobStart, GresType), Run>,
    /// What Slurm said of each start.
    starts: BTreeMap<JobStart, SlurmStart>,
    launches: Vec<Launch>,
    pub(super) profiles: BTreeMap<(WorkloadKey, String), StoredProfile>,
    pub(super) events: Vec<Event>,
    pub(super) learning: Learning,
    pub(super) faults: Faults,
    pub(super) drains: Drains,
    pub(super) names: Names,
    credit_losses: Vec<CreditLoss>,
}

impl State {
    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    pub(super) fn bump(&mut self) {
        self.revision += 1;
    }

    pub(super) fn record_jobs(&mut self, jobs: &[JobRecord]) {
        self.jobs.extend(jobs.iter().map(|job| (job.id, job.clone())));
        self.starts.extend(jobs.iter().filter_map(start_of));
    }

    pub(super) fn slurm_start(&self, start: JobStart) -> Option<SlurmStart> {
        self.starts.get(&start).cloned()
    }

    pub(super) fn job(&self, id: SlurmJobId) -> Option<&JobRecord> {
        self.jobs.get(&id)
    }

    pub(super) fn commit_plan(
        &mut self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError> {
        if parent != self.revision() {
            return Err(StoreError::StaleView { parent, current: self.revision() });
        }
        self.check_members(decisions)?;
        let next = self.decisions.last_key_value().map_or(1, |(id, _)| id.0 + 1);
        let ids: Vec<_> = (next..).map(DecisionId).take(decisions.len()).collect();
        for joined in decisions.iter().filter_map(|decision| decision.joins) {
            if !self.decisions.contains_key(&joined) {
                return Err(missing_decision(joined));
            }
        }
        for (id, new) in ids.iter().zip(decisions) {
            self.decisions.insert(*id, Committed { decision: planned(*id, new, at), parent });
            self.decided.extend(new.members.iter().map(|member| (member.start.job_id, parent)));
        }
        if !decisions.is_empty() {
            self.bump();
        }
        Ok(ids)
    }

    /// P-1, over what is active and within the plan itself.
    fn check_members(&self, decisions: &[NewDecision]) -> Result<(), StoreError> {
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

    pub(super) fn explanations(&self, id: SlurmJobId) -> Vec<Explained> {
        let waiting = self.explanations.get(&id).into_iter().flatten().cloned();
        let decided = self.decisions.values().flat_map(|committed| {
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
    }

    pub(super) fn active_decisions(&self) -> Vec<Decision> {
        let active = self.all_decisions().filter(|decision| decision.state.is_active());
        let mut active: Vec<Decision> = active.cloned().collect();
        for member in active.iter_mut().flat_map(|decision| &mut decision.members) {
            member.plan.explanation = None;
        }
        active
    }

    pub(super) fn decision(&self, id: DecisionId) -> Option<&Decision> {
        self.decisions.get(&id).map(|committed| &committed.decision)
    }

    pub(super) fn decisions(&self, filter: &DecisionFilter) -> Vec<Decision> {
        let limit = if filter.limit == 0 { LIST_LIMIT_DEFAULT } else { filter.limit };
        let newest_first = self.decisions.values().rev().map(|committed| &committed.decision);
        newest_first
            .filter(|decision| self.matches(decision, filter))
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .cloned()
            .collect()
    }

    fn matches(&self, decision: &Decision, filter: &DecisionFilter) -> bool {
        let is_of = |user: &String| {
            let shown =
                decision.members.iter().filter(|member| filter.uid.is_none_or(|uid| member.plan.uid == uid));
            let mut owners = shown.filter_map(|member| self.jobs.get(&member.plan.start.job_id));
            owners.any(|job| job.user == *user)
        };
        (!filter.active_only || decision.state.is_active())
            && filter.since.is_none_or(|since| decision.created_at >= since)
            && filter.until.is_none_or(|until| decision.created_at < until)
            && filter.user.as_ref().is_none_or(is_of)
            && filter.job_id.is_none_or(|id| has_job(decision, id))
            && self.is_asked_for(decision, filter)
            && (filter.include_single || self.group_size(decision.group) > 1)
    }

    fn group_size(&self, group: DecisionId) -> usize {
        self.of_group(group).map(|decision| decision.members.len()).sum()
    }

    /// The decisions of one sharing.
    pub(super) fn of_group(&self, group: DecisionId) -> impl Iterator<Item = &Decision> {
        self.all_decisions().filter(move |decision| decision.group == group)
    }

    /// Every decision, oldest first.
    pub(super) fn all_decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.values().map(|committed| &committed.decision)
    }

    pub(super) fn step_member(&mut self, step: &MemberStep) -> Result<bool, StoreError> {
        let illegal = |source| StoreError::Illegal { id: step.decision_id, source };
        let to = step.from.advance(step.to).map_err(illegal)?;
        let Ok(member) = self.member_mut(step.decision_id, step.start) else { return Ok(false) };
        if member.state != step.from {
            return Ok(false);
        }
        enter(member, to, step.at);
        let committed =
            self.decisions.get_mut(&step.decision_id).ok_or_else(|| missing_decision(step.decision_id))?;
        let decision = &mut committed.decision;
        let members: Vec<MemberState> = decision.members.iter().map(|member| member.state).collect();
        decision.state = decision.state.after(&members);
        if decision.state == DecisionState::Abandoned {
            decision.abandoned_reason = Some(NOBODY_RAN.to_owned());
        }
        Ok(true)
    }

    pub(super) fn member_mut(&mut self, id: DecisionId, start: JobStart) -> Result<&mut Member, StoreError> {
        let committed = self.decisions.get_mut(&id).ok_or_else(|| missing_decision(id))?;
        let mut members = committed.decision.members.iter_mut();
        members
            .find(|member| member.plan.start == start)
            .ok_or_else(|| StoreError::Missing(format!("member {start} of decision {id}")))
    }

    pub(super) fn abandon(&mut self, id: DecisionId, reason: &str, at: UnixTime) -> bool {
        let Some(Committed { decision, .. }) = self.decisions.get_mut(&id) else { return false };
        if decision.state != DecisionState::Planned {
            return false;
        }
        decision.state = DecisionState::Abandoned;
        decision.abandoned_reason = Some(reason.to_owned());
        for member in decision.members.iter_mut().filter(|member| member.state.is_active()) {
            enter(member, MemberState::Undone, at);
        }
        true
    }

    pub(super) fn ingest(&mut self, node: &NodeName, journal_id: &str, report: &Report) -> bool {
        let last = self.journals.entry((node.clone(), journal_id.to_owned())).or_default();
        if report.sequence <= *last {
            return false;
        }
        *last = report.sequence;
        match &report.body {
            ReportBody::Samples(look) => {
                let samples = look.samples.iter().cloned();
                self.samples.extend(samples.map(|sample| (look.recorded_at, node.clone(), sample)));
            }
            ReportBody::JobSummary(summary) => {
                // An agent that lost its journal may tell of a start again, under another journal: the first one counts.
                let key = (summary.start, summary.gres_type.clone());
                let run = || Run {
                    node: node.clone(),
                    summary: (**summary).clone(),
                    account: None,
                    lesson: None,
                    is_passed: false,
                    is_judged: false,
                };
                self.runs.entry(key).or_insert_with(run);
            }
            ReportBody::Launch(launch) => self.launches.push(launch.clone()),
        }
        true
    }

    pub(super) fn last_sequence(&self, node: &NodeName, journal_id: &str) -> u64 {
        self.journals.get(&(node.clone(), journal_id.to_owned())).copied().unwrap_or(0)
    }

    pub(super) fn record_devices(&mut self, node: &NodeName, devices: &[DeviceDescription]) {
        for device in devices {
            self.devices.insert((node.clone(), device.gres_type.clone()), device.clone());
        }
    }

    pub(super) fn settle_requeue(&mut self, start: JobStart, outcome: RequeueOutcome, event: &Event) -> bool {
        let is_new = self.faults.settle(start, outcome);
        if is_new {
            self.events.push(event.clone());
        }
        is_new
    }

    pub(super) fn record_conditions(
        &mut self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) {
        self.events.extend(self.faults.record_conditions(node, conditions, at));
    }

    pub(super) fn profiles(&self) -> Vec<StoredProfile> {
        self.profiles.values().cloned().collect()
    }

    pub(super) fn record_event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn events(&self, id: SlurmJobId) -> Vec<Event> {
        self.events.iter().filter(|event| event.job_id == Some(id)).cloned().collect()
    }

    pub(super) fn event_count(&self, kind: &EventKind) -> u64 {
        self.events.iter().filter(|event| event.kind == *kind).map(|_| 1).sum()
    }

    pub(super) fn summary(&self, start: JobStart) -> Option<JobSummary> {
        let mut of_start = self.runs.values().filter(|run| run.summary.start == start);
        of_start.next().map(|run| run.summary.clone())
    }

    pub(super) fn launches(&self, start: JobStart) -> Vec<Launch> {
        self.launches.iter().filter(|launch| launch.start == start).cloned().collect()
    }

    pub(super) fn add_model(&mut self, new: &NewModel, incumbent: Option<u64>) -> Option<u64> {
        let version = self.learning.add_model(new, incumbent)?;
        if new.state == ModelState::Active {
            self.bump();
        }
        Some(version)
    }

    pub(super) fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Option<f64> {
        let here = self.samples.iter().filter(|(recorded_at, of_node, sample)| {
            of_node == node && sample.gres_type == *gres_type && *recorded_at >= from && *recorded_at <= until
        });
        let (sum, count) = here
            .filter_map(|(.., sample)| sample.reading.metrics.get(Metric::PowerWatts))
            .fold((0.0, 0.0), |(sum, count), watts| (sum + watts, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }

    pub(super) fn prune_history(&mut self, before: UnixTime) -> u64 {
        let count = |state: &Self| {
            let explanations: usize = state.explanations.values().map(Vec::len).sum();
            state.decisions.len()
                + explanations
                + state.events.len()
                + state.launches.len()
                + state.runs.len()
                + state.starts.len()
                + state.jobs.len()
        };
        let rows = count(self);
        let stays: BTreeSet<DecisionId> = self
            .all_decisions()
            .filter(|decision| decision.state.is_active() || decision.created_at >= before)
            .map(|decision| decision.group)
            .collect();
        self.decisions.retain(|_, committed| stays.contains(&committed.decision.group));
        for kept in self.explanations.values_mut() {
            kept.retain(|(_, at, _)| *at >= before);
        }
        self.events.retain(|event| event.at >= before);
        self.launches.retain(|launch| launch.at >= before);
        self.runs.retain(|_, run| !run.is_done() || !run.is_judged || run.summary.ended_at >= before);
        self.jobs.retain(|_, job| job.ended_at.is_none_or(|at| at >= before));
        let jobs = &self.jobs;
        self.starts.retain(|start, told| told.started_at >= before || jobs.contains_key(&start.job_id));
        (rows - count(self)).try_into().unwrap_or(u64::MAX)
    }

    pub(super) fn prune_samples(&mut self, before: UnixTime) -> u64 {
        let count = self.samples.len();
        self.samples.retain(|(recorded_at, ..)| *recorded_at >= before);
        (count - self.samples.len()).try_into().unwrap_or(u64::MAX)
    }
}

fn missing_decision(id: DecisionId) -> StoreError {
    StoreError::Missing(format!("decision {id}"))
}

fn has_job(decision: &Decision, id: SlurmJobId) -> bool {
    decision.members.iter().any(|member| member.plan.start.job_id == id)
}

/// Moves a member and notes when; the step was checked.
fn enter(member: &mut Member, to: MemberState, at: UnixTime) {
    member.state = to;
    match to {
        MemberState::Planned => {}
        MemberState::Released => member.released_at = Some(at),
        MemberState::Running => member.started_at = Some(at),
        MemberState::Ended | MemberState::Undone => member.ended_at = Some(at),
    }
}

/// The decision as it stands right after its commit.
fn planned(id: DecisionId, new: &NewDecision, at: UnixTime) -> Decision {
    let member = |plan: &NewMember| Member {
        plan: plan.clone(),
        state: MemberState::Planned,
        prepared_at: None,
        released_at: None,
        started_at: None,
        ended_at: None,
        measured_speed_fraction: None,
        energy_joules: None,
    };
    Decision {
        id,
        group: new.joins.unwrap_or(id),
        state: DecisionState::Planned,
        created_at: at,
        node: new.node.clone(),
        gres_type: new.gres_type.clone(),
        device_model: new.device_model.clone(),
        gain: new.gain,
        abandoned_reason: None,
        members: new.members.iter().map(member).collect(),
    }
}
