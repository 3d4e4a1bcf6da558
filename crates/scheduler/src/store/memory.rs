//! The store of the simulation and of unit tests: plain maps behind one lock, in the order of their keys.
//!
//! It passes the same suite as Postgres (`conformance`), and fails on request, before or after a call took effect: a
//! caller must survive both, because a commit whose answer is lost looks just like one that never happened. It knows
//! nothing of SQL, and nothing here outlives the process.

mod browse;
mod faults;
mod learning;
mod names;
mod operators;
mod state;

use super::{
    Account, Atonement, CreditLoss, Decision, DecisionFilter, Drain, DrainChange, Event, EventFilter,
    GroupBy, Heat, HeatFilter, JobRecord, Judgement, Lesson, MeasuredRun, MemberStep, ModelVersion, Naming,
    NewDecision, NewModel, NewObservation, Occupancy, Requeue, RequeueOutcome, RunAccount, RunFilter,
    SlurmStart, Store, StoreError, StoredObservation, StoredProfile, Tenant, Undrain,
};
use async_trait::async_trait;
use pillion_core::device::DeviceDescription;
use pillion_core::event::EventKind;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::name::KnownName;
use pillion_core::report::{JobSummary, Launch, Report};
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, UserId, WorkloadKey,
    WorkloadName,
};
use pillion_pairing::Explanation;
use state::State;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// When a call that is to fail does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailWhen {
    /// Nothing was stored.
    Before,
    /// It was stored, and the answer was lost.
    After,
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    faults: VecDeque<FailWhen>,
}

/// All that a store held at one moment.
#[derive(Debug, Clone)]
pub struct Backup(State);

/// What a call fails with that was told to.
#[derive(Debug, thiserror::Error)]
#[error("injected fault")]
struct InjectedFault;

impl MemoryStore {
    /// An empty store at revision 0.
    pub fn new() -> Self {
        Self::default()
    }
    /// The next `count` calls, after those that were told to fail already, fail with [`StoreError::Database`].
    pub fn fail_next(&self, count: usize, when: FailWhen) {
        self.lock().faults.extend(std::iter::repeat_n(when, count));
    }
    /// Forgets every fault that has not happened yet.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// What it holds now.
    pub fn backup(&self) -> Backup {
        Backup(self.lock().state.clone())
    }
    /// Holds what it held then, and has forgotten all that came after: as a database restored from a backup, or one whose
    /// copy took over before it had everything.
    pub fn restore(&self, backup: &Backup) {
        self.lock().state = backup.0.clone();
    }

    /// A profile, as if runs had made it.
    #[cfg(test)]
    pub(crate) fn know(&self, profile: &StoredProfile) {
        let key = (profile.profile.workload.clone(), profile.profile.device_model.clone());
        self.lock().state.profiles.insert(key, profile.clone());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        action: &'static str,
        body: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut inner = self.lock();
        let fault = inner.faults.pop_front();
        if fault == Some(FailWhen::Before) {
            return Err(StoreError::Database { action, source: Box::new(InjectedFault) });
        }
        let result = body(&mut inner.state)?;
        match fault {
            Some(_) => Err(StoreError::Database { action, source: Box::new(InjectedFault) }),
            None => Ok(result),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.call("reading the revision", |state| Ok(state.revision()))
    }

    async fn record_jobs(&self, jobs: &[JobRecord], _at: UnixTime) -> Result<(), StoreError> {
        self.call("recording jobs", |state| {
            state.record_jobs(jobs);
            Ok(())
        })
    }

    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError> {
        let found =
            |state: &State| ids.iter().filter_map(|id| Some((*id, state.job(*id)?.clone()))).collect();
        self.call("reading jobs", |state| Ok(found(state)))
    }

    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError> {
        self.call("reading a start", |state| Ok(state.slurm_start(start)))
    }

    async fn commit_plan(
        &self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError> {
        self.call("committing a plan", |state| state.commit_plan(parent, decisions, at))
    }

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
        self.call("reading explanations", |state| Ok(state.explanations(id)))
    }

    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError> {
        self.call("reading active decisions", |state| Ok(state.active_decisions()))
    }

    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError> {
        self.call("reading a decision", |state| Ok(state.decision(id).cloned()))
    }

    async fn decisions(&self, filter: &DecisionFilter) -> Result<Vec<Decision>, StoreError> {
        self.call("listing decisions", |state| Ok(state.decisions(filter)))
    }

    async fn occupancy(&self) -> Result<Vec<Occupancy>, StoreError> {
        self.call("reading who holds devices", |state| Ok(state.occupancy()))
    }

    async fn tenants(&self, nodes: &[NodeName]) -> Result<Vec<Tenant>, StoreError> {
        self.call("reading tenants", |state| Ok(state.tenants(nodes)))
    }

    async fn tenancies(&self, jobs: &[SlurmJobId]) -> Result<Vec<Tenant>, StoreError> {
        self.call("reading where jobs are", |state| Ok(state.tenancies(jobs)))
    }

    async fn heat(&self, filter: &HeatFilter) -> Result<Heat, StoreError> {
        self.call("reading outcomes", |state| Ok(state.heat(filter)))
    }

    async fn step_member(&self, step: &MemberStep) -> Result<bool, StoreError> {
        self.call("moving a member", |state| state.step_member(step))
    }

    async fn member_prepared(&self, id: DecisionId, start: JobStart, at: UnixTime) -> Result<(), StoreError> {
        self.call("recording that a member is prepared", |state| {
            state.member_mut(id, start)?.prepared_at.get_or_insert(at);
            Ok(())
        })
    }

    async fn abandon(&self, id: DecisionId, reason: &str, at: UnixTime) -> Result<bool, StoreError> {
        self.call("abandoning a decision", |state| Ok(state.abandon(id, reason, at)))
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

    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError> {
        self.call("storing a report", |state| Ok(state.ingest(node, journal_id, report)))
    }

    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError> {
        self.call("reading a journal's sequence", |state| Ok(state.last_sequence(node, journal_id)))
    }

    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[DeviceDescription],
        _at: UnixTime,
    ) -> Result<(), StoreError> {
        self.call("recording devices", |state| {
            state.record_devices(node, devices);
            Ok(())
        })
    }

    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.call("reading unprofiled runs", |state| Ok(state.unprofiled_runs(limit)))
    }

    async fn accounts(&self, filter: &RunFilter, group_by: GroupBy) -> Result<Vec<Account>, StoreError> {
        self.call("reading what runs gained", |state| Ok(state.accounts(filter, group_by)))
    }

    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.call("profiling a run", |state| state.profile_run(start, gres_type, account, lesson, profile))
    }

    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError> {
        self.call("passing over a run", |state| {
            state.pass_run(start, gres_type, lesson);
            Ok(())
        })
    }

    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError> {
        self.call("reading a lesson", |state| Ok(state.lesson(start)))
    }

    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError> {
        self.call("reading a profile", |state| {
            let is_it = |stored: &StoredProfile| {
                stored.profile.workload == *workload && stored.profile.device_model == device_model
            };
            Ok(state.profiles().into_iter().find(is_it))
        })
    }

    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.call("reading unjudged runs", |state| Ok(state.unjudged_runs(limit)))
    }

    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError> {
        self.call("judging a run", |state| state.judge_run(start, gres_type, judgement))
    }

    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError> {
        self.call("reading requeues", |state| Ok(state.faults.open_requeues()))
    }

    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError> {
        self.call("settling a requeue", |state| Ok(state.settle_requeue(start, outcome, event)))
    }

    async fn evict(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError> {
        self.call("intending an eviction", |state| Ok(state.evict(requeue, event)))
    }

    async fn drains(&self) -> Result<Vec<Drain>, StoreError> {
        self.call("reading what is drained", |state| Ok(state.drains.all()))
    }

    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError> {
        self.call("draining", |state| Ok(state.drain(orders)))
    }

    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError> {
        self.call("undraining", |state| Ok(state.undrain(order)))
    }

    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        self.call("recording conditions", |state| {
            state.record_conditions(node, conditions, at);
            Ok(())
        })
    }

    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError> {
        self.call("reading faults of a device", |state| {
            Ok(state.faults.device_faults(node, gres_type, since))
        })
    }

    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError> {
        self.call("taking credit", |state| Ok(state.lose_credit(loss, event)))
    }

    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError> {
        self.call("reading who owes runs alone", |state| Ok(state.atonements(seconds_min, runs_max)))
    }

    async fn name_workloads(&self, namings: &[Naming], _at: UnixTime) -> Result<(), StoreError> {
        self.call("naming workloads", |state| {
            state.names.keep(namings);
            Ok(())
        })
    }

    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError> {
        self.call("reading names of workloads", |state| Ok(state.names.names(workloads)))
    }

    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError> {
        self.call("reading workloads of a name", |state| Ok(state.names.called(name, uid)))
    }

    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        self.call("reading profiles", |state| Ok(state.profiles()))
    }

    async fn record_event(&self, event: &Event) -> Result<(), StoreError> {
        self.call("recording an event", |state| {
            state.record_event(event.clone());
            Ok(())
        })
    }

    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError> {
        self.call("reading events", |state| Ok(state.events(id)))
    }

    async fn list_events(&self, filter: &EventFilter) -> Result<Vec<Event>, StoreError> {
        self.call("listing events", |state| Ok(state.list_events(filter)))
    }

    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError> {
        self.call("counting events", |state| Ok(state.event_count(kind)))
    }

    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError> {
        self.call("reading a summary", |state| Ok(state.summary(start)))
    }

    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError> {
        self.call("reading launches", |state| Ok(state.launches(start)))
    }

    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError> {
        self.call(
            "reading a device's power",
            |state| Ok(state.power_watts_mean(node, gres_type, from, until)),
        )
    }

    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError> {
        self.call("recording an observation", |state| state.learning.record_observation(new, at))
    }

    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError> {
        self.call("reading observations", |state| Ok(state.learning.observations(after, limit)))
    }

    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError> {
        self.call("keeping a model", |state| Ok(state.add_model(new, incumbent)))
    }

    async fn active_model(&self) -> Result<Option<u64>, StoreError> {
        self.call("reading which model is active", |state| Ok(state.learning.active_model()))
    }

    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError> {
        self.call("listing models", |state| Ok(state.learning.models(limit)))
    }

    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError> {
        self.call("reading a model", |state| Ok(state.learning.model_body(version)))
    }

    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.call("pruning history", |state| Ok(state.prune_history(before)))
    }

    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.call("pruning samples", |state| Ok(state.prune_samples(before)))
    }
}
