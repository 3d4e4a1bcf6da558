//! The store in Postgres. One file a table; SQL is checked when it is compiled (`.sqlx/`, see `tests/sqlx-prepare`).
//!
//! Every call is one transaction (`tx`), and every write that a plan could depend on moves `plan_head` in it. Rows are
//! private to their files and leave them as domain words. Nothing here decides, reads a clock, or knows who calls.

mod account;
mod browse;
mod connect;
mod convert;
mod credit;
mod decision;
mod device;
mod event;
mod explanation;
mod fault;
mod history;
mod ingest;
mod job;
mod launch;
mod leader;
mod member;
mod model;
mod name;
mod observation;
mod operators;
mod plan_head;
mod profile;
mod run;
mod sample;
mod start;
mod tx;
mod unreadable;

pub use connect::{ConnectError, MIGRATOR};
pub use leader::Leadership;
pub use tx::{CallFigures, StoreFigures, TransactionCounts};

use super::{
    Account, Atonement, CreditLoss, Decision, DecisionFilter, Drain, DrainChange, Event, EventFilter,
    GroupBy, Heat, HeatFilter, JobRecord, Judgement, LIST_LIMIT_DEFAULT, Lesson, MeasuredRun, MemberStep,
    ModelVersion, Naming, NewDecision, NewModel, NewObservation, Occupancy, Requeue, RequeueOutcome,
    RunAccount, RunFilter, SlurmStart, Store, StoreError, StoredObservation, StoredProfile, Tenant, Undrain,
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
use sqlx::PgPool;
use std::collections::BTreeMap;
use tx::Access::{Browse, Read, Write};

/// The store in Postgres. While the database is away each call fails within seconds with a transient error; connections
/// come back by themselves.
#[derive(Debug)]
pub struct PgStore {
    pool: PgPool,
    counters: tx::Counters,
}

/// A limit as SQL takes it; 0 = the usual one.
fn integer_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { LIST_LIMIT_DEFAULT } else { limit })
}

#[async_trait]
impl Store for PgStore {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.run_tx("reading the revision", Read, |tx| Box::pin(plan_head::revision(tx.connection()))).await
    }

    async fn record_jobs(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.run_tx("recording jobs", Write, |tx| Box::pin(job::record(tx.connection(), jobs, at))).await
    }

    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        self.run_tx("reading jobs", Browse, |tx| Box::pin(job::jobs(tx.connection(), &ids))).await
    }

    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError> {
        self.run_tx("reading a start", Read, |tx| Box::pin(start::read(tx.connection(), start))).await
    }

    async fn commit_plan(
        &self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError> {
        self.run_tx("committing a plan", Write, |tx| {
            Box::pin(decision::commit(tx.connection(), parent, decisions, at))
        })
        .await
    }

    async fn record_explanations(
        &self,
        revision: Revision,
        explanations: &[Explanation],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        if explanations.is_empty() {
            return Ok(());
        }
        self.run_tx("recording explanations", Write, |tx| {
            Box::pin(explanation::record(tx.connection(), revision, explanations, at))
        })
        .await
    }

    async fn explanations(
        &self,
        id: SlurmJobId,
    ) -> Result<Vec<(Revision, UnixTime, Explanation)>, StoreError> {
        self.run_tx("reading explanations", Browse, |tx| Box::pin(explanation::of_job(tx.connection(), id)))
            .await
    }

    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError> {
        self.run_tx("reading active decisions", Read, |tx| Box::pin(decision::active(tx.connection()))).await
    }

    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError> {
        let ids = [convert::bigint(id.0)];
        let found = self
            .run_tx("reading a decision", Read, |tx| Box::pin(decision::load(tx.connection(), &ids)))
            .await?;
        Ok(found.into_iter().next())
    }

    async fn decisions(&self, filter: &DecisionFilter) -> Result<Vec<Decision>, StoreError> {
        self.run_tx("listing decisions", Browse, |tx| Box::pin(decision::list(tx.connection(), filter))).await
    }

    async fn occupancy(&self) -> Result<Vec<Occupancy>, StoreError> {
        self.run_tx("reading who holds devices", Browse, |tx| Box::pin(browse::occupancy(tx.connection())))
            .await
    }

    async fn tenants(&self, nodes: &[NodeName]) -> Result<Vec<Tenant>, StoreError> {
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        self.run_tx("reading tenants", Browse, |tx| Box::pin(browse::tenants(tx.connection(), &nodes))).await
    }

    async fn tenancies(&self, jobs: &[SlurmJobId]) -> Result<Vec<Tenant>, StoreError> {
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let jobs = jobs.as_slice();
        self.run_tx("reading where jobs are", Browse, |tx| Box::pin(browse::tenancies(tx.connection(), jobs)))
            .await
    }

    async fn heat(&self, filter: &HeatFilter) -> Result<Heat, StoreError> {
        self.run_tx("reading outcomes", Browse, |tx| Box::pin(browse::heat(tx.connection(), filter))).await
    }

    async fn step_member(&self, step: &MemberStep) -> Result<bool, StoreError> {
        self.run_tx("moving a member", Write, |tx| Box::pin(member::step(tx.connection(), step))).await
    }

    async fn member_prepared(&self, id: DecisionId, start: JobStart, at: UnixTime) -> Result<(), StoreError> {
        self.run_tx("recording that a member is prepared", Write, |tx| {
            Box::pin(member::prepared(tx.connection(), id, start, at))
        })
        .await
    }

    async fn abandon(&self, id: DecisionId, reason: &str, at: UnixTime) -> Result<bool, StoreError> {
        self.run_tx("abandoning a decision", Write, |tx| {
            Box::pin(decision::abandon(tx.connection(), id, reason, at))
        })
        .await
    }

    async fn record_outcome(
        &self,
        id: DecisionId,
        start: JobStart,
        measured_speed_fraction: Option<f64>,
        energy_joules: Option<f64>,
    ) -> Result<(), StoreError> {
        self.run_tx("recording an outcome", Write, |tx| {
            Box::pin(member::outcome(tx.connection(), id, start, measured_speed_fraction, energy_joules))
        })
        .await
    }

    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError> {
        self.run_tx("storing a report", Write, |tx| {
            Box::pin(ingest::store(tx.connection(), node, journal_id, report))
        })
        .await
    }

    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError> {
        self.run_tx("reading a journal's sequence", Read, |tx| {
            Box::pin(ingest::last_sequence(tx.connection(), node, journal_id))
        })
        .await
    }

    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[DeviceDescription],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        self.run_tx("recording devices", Write, |tx| {
            Box::pin(device::record(tx.connection(), node, devices, at))
        })
        .await
    }

    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.open_runs(run::Open::Profile, limit).await
    }

    async fn accounts(&self, filter: &RunFilter, group_by: GroupBy) -> Result<Vec<Account>, StoreError> {
        self.run_tx("reading what runs gained", Browse, |tx| {
            Box::pin(account::sums(tx.connection(), filter, group_by))
        })
        .await
    }

    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.run_tx("profiling a run", Write, |tx| {
            Box::pin(profile::profile_run(tx.connection(), start, gres_type, account, lesson, profile))
        })
        .await
    }

    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError> {
        self.run_tx("passing over a run", Write, |tx| {
            Box::pin(run::pass(tx.connection(), start, gres_type, lesson))
        })
        .await
    }

    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError> {
        self.run_tx("reading a lesson", Read, |tx| Box::pin(run::lesson(tx.connection(), start))).await
    }

    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError> {
        let found = self
            .run_tx("reading a profile", Read, |tx| Box::pin(profile::read(tx.connection(), Some(workload))))
            .await?;
        Ok(found.into_iter().find(|stored| stored.profile.device_model == device_model))
    }

    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.open_runs(run::Open::Judge, limit).await
    }

    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError> {
        self.run_tx("judging a run", Write, |tx| {
            Box::pin(fault::judge(tx.connection(), start, gres_type, judgement))
        })
        .await
    }

    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError> {
        self.run_tx("reading requeues", Read, |tx| Box::pin(fault::open_requeues(tx.connection()))).await
    }

    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError> {
        self.run_tx("settling a requeue", Write, |tx| {
            Box::pin(fault::settle(tx.connection(), start, outcome, event))
        })
        .await
    }

    async fn evict(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError> {
        self.run_tx("intending an eviction", Write, |tx| {
            Box::pin(fault::evict(tx.connection(), requeue, event))
        })
        .await
    }

    async fn drains(&self) -> Result<Vec<Drain>, StoreError> {
        self.run_tx("reading what is drained", Read, |tx| Box::pin(operators::drains(tx.connection()))).await
    }

    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError> {
        self.run_tx("draining", Write, |tx| Box::pin(operators::drain(tx.connection(), orders))).await
    }

    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError> {
        self.run_tx("undraining", Write, |tx| Box::pin(operators::undrain(tx.connection(), order))).await
    }

    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        if conditions.is_empty() {
            return Ok(());
        }
        self.run_tx("recording conditions", Write, |tx| {
            Box::pin(fault::record_conditions(tx.connection(), node, conditions, at))
        })
        .await
    }

    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError> {
        self.run_tx("reading faults of a device", Read, |tx| {
            Box::pin(fault::device_faults(tx.connection(), node, gres_type, since))
        })
        .await
    }

    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError> {
        self.run_tx("taking credit", Write, |tx| Box::pin(credit::lose(tx.connection(), loss, event))).await
    }

    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError> {
        self.run_tx("reading who owes runs alone", Read, |tx| {
            Box::pin(credit::atonements(tx.connection(), seconds_min, runs_max))
        })
        .await
    }

    async fn name_workloads(&self, namings: &[Naming], at: UnixTime) -> Result<(), StoreError> {
        self.run_tx("naming workloads", Write, |tx| Box::pin(name::keep(tx.connection(), namings, at))).await
    }

    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError> {
        if workloads.is_empty() {
            return Ok(BTreeMap::new());
        }
        let keys: Vec<String> = workloads.iter().map(ToString::to_string).collect();
        let keys = keys.as_slice();
        self.run_tx("reading names of workloads", Browse, |tx| Box::pin(name::names(tx.connection(), keys)))
            .await
    }

    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError> {
        self.run_tx("reading workloads of a name", Browse, |tx| {
            Box::pin(name::called(tx.connection(), name, uid))
        })
        .await
    }

    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        self.run_tx("reading profiles", Read, |tx| Box::pin(profile::read(tx.connection(), None))).await
    }

    async fn record_event(&self, event: &Event) -> Result<(), StoreError> {
        self.run_tx("recording an event", Write, |tx| Box::pin(event::record(tx.connection(), event))).await
    }

    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError> {
        self.run_tx("reading events", Browse, |tx| Box::pin(event::of_job(tx.connection(), id))).await
    }

    async fn list_events(&self, filter: &EventFilter) -> Result<Vec<Event>, StoreError> {
        self.run_tx("listing events", Read, |tx| Box::pin(event::list(tx.connection(), filter))).await
    }

    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError> {
        self.run_tx("counting events", Read, |tx| Box::pin(event::count(tx.connection(), kind))).await
    }

    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError> {
        self.run_tx("reading a summary", Read, |tx| Box::pin(run::summary(tx.connection(), start))).await
    }

    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError> {
        self.run_tx("reading launches", Read, |tx| Box::pin(launch::of_start(tx.connection(), start))).await
    }

    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError> {
        self.run_tx("reading a device's power", Read, |tx| {
            Box::pin(sample::power_watts_mean(tx.connection(), node, gres_type, from, until))
        })
        .await
    }

    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError> {
        self.run_tx("recording an observation", Write, |tx| {
            Box::pin(observation::record(tx.connection(), new, at))
        })
        .await
    }

    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError> {
        self.run_tx("reading observations", Read, |tx| {
            Box::pin(observation::list(tx.connection(), after, limit))
        })
        .await
    }

    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError> {
        self.run_tx("keeping a model", Write, |tx| Box::pin(model::add(tx.connection(), new, incumbent)))
            .await
    }

    async fn active_model(&self) -> Result<Option<u64>, StoreError> {
        self.run_tx("reading which model is active", Read, |tx| Box::pin(model::active(tx.connection())))
            .await
    }

    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError> {
        self.run_tx("listing models", Read, |tx| Box::pin(model::list(tx.connection(), limit))).await
    }

    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError> {
        self.run_tx("reading a model", Read, |tx| Box::pin(model::body(tx.connection(), version))).await
    }

    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.run_until_none("pruning history", |tx| Box::pin(history::prune(tx.connection(), before))).await
    }

    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.run_until_none("pruning samples", |tx| Box::pin(history::prune_samples(tx.connection(), before)))
            .await
    }
}
