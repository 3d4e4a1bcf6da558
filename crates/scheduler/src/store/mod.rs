//! What makes a decision true exactly once. One trait, two implementors (`postgres`, `memory`) that pass the same suite.
//!
//! Every write that a plan could depend on makes a new revision, in the same transaction; `commit_plan` succeeds only on
//! the revision that the plan was made from. Member states change by compare-and-set along `MemberState::advance`, so
//! two schedulers cannot both release a job, and a crash between two steps leaves a row that says which step is next.

mod accounts;
mod browse;
mod credit;
mod error;
mod faults;
mod learning;
mod lesson;
pub mod memory;
mod names;
mod operators;
pub mod postgres;
mod runs;
mod starts;

pub use accounts::{Account, GroupBy, RunAccount, RunFilter, Sums};
pub use browse::{Heat, HeatCell, HeatFilter, OUTCOMES_MAX, Occupancy, Tenant};
pub use credit::{Atonement, CreditLoss};
pub use error::StoreError;
pub use faults::{Judgement, Requeue, RequeueCause, RequeueOutcome};
pub use learning::{
    MODEL_BODIES_KEPT, ModelScore, ModelState, ModelVersion, NewModel, NewObservation, Score, SharingTenant,
    StoredObservation,
};
pub use lesson::Lesson;
pub use names::{NAMESAKES_MAX, Naming};
pub use operators::{Drain, DrainChange, DrainPlace, EventFilter, Undrain, drain_of};
pub use runs::MeasuredRun;
pub use starts::SlurmStart;

use async_trait::async_trait;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::Mechanism;
use pillion_core::event::EventKind;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::name::KnownName;
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{JobSummary, Launch, Report};
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, Shards, SlurmJobId, UnixTime, UserId, WorkloadKey,
    WorkloadName,
};
use pillion_pairing::{Explanation, Role, SpeedEstimate};
use pillion_slurm::Ending;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A managed job, as the last scan that saw it reported it. Upserted by `record_jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub id: SlurmJobId,
    /// Its present restart count.
    pub restart_count: u32,
    /// Whose it is.
    pub uid: UserId,
    /// The user's name.
    pub user: String,
    /// The account.
    pub account: String,
    /// The pool partition that it is or was in.
    pub partition: String,
    /// What it runs: user and digest.
    pub workload: WorkloadKey,
    /// Its own promise, where the user gave one.
    pub slowdown_ratio_max: Option<f64>,
    /// `memory=`.
    pub memory_bytes_declared: Option<u64>,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// When Slurm starts it by itself, while it waits.
    pub eligible_at: Option<UnixTime>,
    /// When it started (this start).
    pub started_at: Option<UnixTime>,
    /// When it ended.
    pub ended_at: Option<UnixTime>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// Its node, once it runs.
    pub node: Option<NodeName>,
    /// Its GRES as Slurm shows it now.
    pub gres: String,
    /// Undone once: runs alone, is not released again.
    pub alone: bool,
    /// What it exited with, once it is over: (status, signal).
    pub exit: Option<(u32, u32)>,
}

/// A decision to be committed: one device, one or more members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDecision {
    /// The node.
    pub node: NodeName,
    /// The device.
    pub gres_type: GresType,
    /// Its model.
    pub device_model: String,
    /// The group that the members join; absent = they begin one.
    pub joins: Option<DecisionId>,
    /// Expected gain.
    pub gain: f64,
    /// Who starts, the host first.
    pub members: Vec<NewMember>,
}

/// A member to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewMember {
    /// This start and no other.
    pub start: JobStart,
    /// Whose.
    pub uid: UserId,
    /// What it runs.
    pub workload: WorkloadKey,
    /// How it comes to the device.
    pub role: Role,
    /// How it shares the device: by the same mechanism as all of the decision.
    #[serde(flatten)]
    pub sharing: Sharing,
    /// What Slurm books.
    pub shards: Shards,
    /// The device memory that it is admitted with.
    pub memory_bytes: Option<u64>,
    /// Its promise at that time.
    pub slowdown_ratio_max: f64,
    /// The prediction.
    pub estimate: Option<SpeedEstimate>,
    /// The solo duration that was known then.
    pub solo_duration_seconds: Option<f64>,
    /// Why so; `None` only in what [`Store::active_decisions`] gives.
    pub explanation: Option<Explanation>,
}

/// A committed decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its number.
    pub id: DecisionId,
    /// The decision that began this sharing (its own id, or its host's group).
    pub group: DecisionId,
    /// Where it stands.
    pub state: DecisionState,
    /// When it was committed.
    pub created_at: UnixTime,
    /// The node.
    pub node: NodeName,
    /// The device.
    pub gres_type: GresType,
    /// Its model.
    pub device_model: String,
    /// Expected gain.
    pub gain: f64,
    /// Why it was abandoned, if it was.
    pub abandoned_reason: Option<String>,
    /// The host first.
    pub members: Vec<Member>,
}

impl NewDecision {
    /// How the device is shared, as the first of its members does.
    pub fn sharing(&self) -> Sharing {
        self.members.first().map(|member| member.sharing).unwrap_or_default()
    }
}

impl Decision {
    /// How the device is shared, as the first of its members does.
    pub fn sharing(&self) -> Sharing {
        self.members.first().map(|member| member.plan.sharing).unwrap_or_default()
    }
    /// Which way that is.
    pub fn mechanism(&self) -> Mechanism {
        self.sharing().mechanism()
    }
}

/// A member of a committed decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// What was committed.
    pub plan: NewMember,
    /// Where it stands.
    pub state: MemberState,
    /// When the agent said that it is ready for it.
    pub prepared_at: Option<UnixTime>,
    /// When the lease began.
    pub released_at: Option<UnixTime>,
    /// When Slurm started it.
    pub started_at: Option<UnixTime>,
    /// When it ended or was undone.
    pub ended_at: Option<UnixTime>,
    /// What was measured afterwards (docs/principles.md#outcomes-are-measured-or-unknown); absent = unknown.
    pub measured_speed_fraction: Option<f64>,
    /// Its part of the device's energy.
    pub energy_joules: Option<f64>,
}

/// A step of one member, compare-and-set.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberStep {
    /// The decision.
    pub decision_id: DecisionId,
    /// The member.
    pub start: JobStart,
    /// Where it must stand now.
    pub from: MemberState,
    /// Where it goes.
    pub to: MemberState,
    /// When: becomes `released_at`, `started_at` or `ended_at` by the state it goes to.
    pub at: UnixTime,
}

/// Something that operators should be able to read later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: UnixTime,
    /// What happened.
    pub kind: EventKind,
    /// The job, if any.
    pub job_id: Option<SlurmJobId>,
    /// The node, if any.
    pub node: Option<NodeName>,
    /// One sentence.
    pub detail: String,
}

/// A profile, with what is needed to add the next run to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredProfile {
    /// Means so far.
    pub profile: WorkloadProfile,
    /// Sum of squared deviations of the solo duration (Welford).
    pub duration_deviation_squares: f64,
    /// How many runs each speed under a cap is the mean of.
    pub run_counts_at_cap: [u32; 9],
    /// When it last changed.
    pub updated_at: UnixTime,
}

/// Which past decisions to list; newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecisionFilter {
    /// Planned or released only.
    pub active_only: bool,
    /// Committed at or after.
    pub since: Option<UnixTime>,
    /// Committed before.
    pub until: Option<UnixTime>,
    /// With a member of this user.
    pub user: Option<String>,
    /// With this job.
    pub job_id: Option<SlurmJobId>,
    /// Of this sharing.
    pub group: Option<DecisionId>,
    /// With a member whose job is this uid's.
    pub uid: Option<UserId>,
    /// On one of these nodes; empty: on any.
    pub nodes: Vec<NodeName>,
    /// With a member that runs this workload.
    pub workload: Option<String>,
    /// With another member that runs this one, and is the same uid's where one is named: nobody finds out by asking whom he
    /// sat beside.
    pub beside: Option<String>,
    /// Older than this one.
    pub before: Option<DecisionId>,
    /// Those whose group never had a second member too.
    pub include_single: bool,
    /// At most so many; 0 = [`LIST_LIMIT_DEFAULT`].
    pub limit: u32,
}

/// Why a decision is abandoned.
pub const NOBODY_RAN: &str = "no member of it ran under it";
/// How many explanations of waiting are kept for a job.
pub const EXPLANATIONS_MAX: usize = 50;
/// How many decisions a filter without a limit lists.
pub const LIST_LIMIT_DEFAULT: u32 = 1_000;

/// Durable memory. All times are arguments; nothing here reads a clock. A row that cannot be read back is passed over, counted
/// and told to the log where rows are listed: it keeps nobody from the others.
#[async_trait]
pub trait Store: Send + Sync {
    /// The present revision: it moves with what takes a place or closes one (plans, drains), and with the model in use.
    async fn revision(&self) -> Result<Revision, StoreError>;
    /// Upserts jobs, and what Slurm says of their present start. No new revision: a plan is held against the newest scan before it is committed.
    async fn record_jobs(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), StoreError>;
    /// Those of these jobs that were ever recorded, as they were last.
    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError>;
    /// One job, as last recorded.
    async fn job(&self, id: SlurmJobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.jobs(&[id]).await?.remove(&id))
    }
    /// Where and when Slurm says that a start of a managed job ran; `None`: no scan has told of it.
    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError>;
    /// Commits decisions in order and returns their ids. All or nothing.
    ///
    /// [`StoreError::StaleView`] when the revision is not `parent` any more; [`StoreError::Conflict`] when a member is
    /// active elsewhere (P-1, held by the store itself under a named constraint).
    async fn commit_plan(
        &self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError>;
    /// Keeps an explanation for a job that was left waiting, if its reason differs from the last one kept for that job
    /// (candidates may be newer: the row is then replaced in place; the same explanation again changes nothing). At most
    /// [`EXPLANATIONS_MAX`] a job are kept.
    async fn record_explanations(
        &self,
        revision: Revision,
        explanations: &[Explanation],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// Explanations of one job, oldest first, those of its decisions included.
    async fn explanations(
        &self,
        id: SlurmJobId,
    ) -> Result<Vec<(Revision, UnixTime, Explanation)>, StoreError>;
    /// Decisions that are planned or released, oldest first, without their explanations: there are thousands, read every
    /// second by those who carry them out, and nothing else of them is long.
    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError>;
    /// One decision.
    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError>;
    /// Decisions, newest first.
    async fn decisions(&self, filter: &DecisionFilter) -> Result<Vec<Decision>, StoreError>;
    /// Every device that somebody holds or is about to.
    async fn occupancy(&self) -> Result<Vec<Occupancy>, StoreError>;
    /// Who holds the devices of these nodes, in the order of their decisions.
    async fn tenants(&self, nodes: &[NodeName]) -> Result<Vec<Tenant>, StoreError>;
    /// Where those of these jobs are that hold a device or are about to, in the order of their decisions.
    async fn tenancies(&self, jobs: &[SlurmJobId]) -> Result<Vec<Tenant>, StoreError>;
    /// What sharing did to each workload beside each other one.
    async fn heat(&self, filter: &HeatFilter) -> Result<Heat, StoreError>;
    /// Moves one member, and with it its decision ([`DecisionState::after`]). `Ok(false)`: it did not stand at `from`. An
    /// illegal step is [`StoreError::Illegal`]. No new revision: what a step frees makes no plan wrong, and what takes a place
    /// was committed before.
    async fn step_member(&self, step: &MemberStep) -> Result<bool, StoreError>;
    /// The agent is ready for this member.
    async fn member_prepared(&self, id: DecisionId, start: JobStart, at: UnixTime) -> Result<(), StoreError>;
    /// Abandons a decision none of whose members was released, and undoes them. `Ok(false)`: there is none that is planned.
    async fn abandon(&self, id: DecisionId, reason: &str, at: UnixTime) -> Result<bool, StoreError>;
    /// What was measured of a member.
    async fn record_outcome(
        &self,
        id: DecisionId,
        start: JobStart,
        measured_speed_fraction: Option<f64>,
        energy_joules: Option<f64>,
    ) -> Result<(), StoreError>;
    /// Stores a report of an agent's journal exactly once: `Ok(false)` where that sequence was stored before.
    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError>;
    /// The last sequence that is stored for a journal (0 = none).
    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError>;
    /// Remembers a device's model, for summaries that arrive when its agent is gone.
    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[pillion_core::device::DeviceDescription],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// Runs that were summarised, whose job's end is recorded (or was started again), and that were not profiled yet;
    /// oldest first.
    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError>;
    /// What profiled runs used and gained, in the order of keys.
    async fn accounts(&self, filter: &RunFilter, group_by: GroupBy) -> Result<Vec<Account>, StoreError>;
    /// In one transaction: marks a run as profiled, keeps its account and what it taught and, where given, stores the
    /// workload's new profile (a new revision). Nothing, where that was done before.
    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError>;
    /// Marks a run as done with that can make neither profile nor account, and keeps why. Nothing, where it was profiled.
    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError>;
    /// What is known of one workload alone on one device model.
    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError>;
    /// What a start taught; `None`: nobody looked at it yet, or did before this was kept.
    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError>;
    /// Runs that were summarised, whose job's end is recorded (or was started again), and that were not judged yet; oldest
    /// first.
    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError>;
    /// In one transaction: marks a run as judged and keeps what was found. `Ok(false)`: it was judged before, and nothing is
    /// kept. A job is requeued at most once: where that was decided before, it is not decided again.
    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError>;
    /// Requeues that were decided and that nothing became of yet, oldest first.
    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError>;
    /// What became of a requeue, with its event. `Ok(false)`: that was known already, and nothing is kept.
    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError>;
    /// In one transaction: intends a requeue that an operator asked for, and keeps its event. `Ok(false)`, and nothing is
    /// kept: a requeue of the job is under way.
    async fn evict(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError>;
    /// What is drained, in the order of places.
    async fn drains(&self) -> Result<Vec<Drain>, StoreError>;
    /// In one transaction: drains places, with an event for each that was not drained in the same words; says for each
    /// what changed. A new revision, where one was open.
    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError>;
    /// In one transaction: opens places again, with an event for each that was drained; says for each whether it was. A new
    /// revision, where one was.
    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError>;
    /// How these devices of a node are: a fault that begins and one that is over make an event each.
    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// Faults of a device that began at or after `since`, oldest first.
    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError>;
    /// In one transaction: a start costs its user the right to share, and its event is kept. `Ok(false)`, and nothing is kept:
    /// it has cost it before.
    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError>;
    /// Of each user who ever lost it, how many runs alone of at least so long he has ended since the last time, counted up to
    /// `runs_max`; in the order of uids.
    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError>;
    /// What these workloads are called. The first name stays, but that of a profile takes the place of a job's.
    async fn name_workloads(&self, namings: &[Naming], at: UnixTime) -> Result<(), StoreError>;
    /// The names of those of these workloads that have one.
    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError>;
    /// Workloads of that name, in the order of keys, at most [`NAMESAKES_MAX`]; `uid`: of this user only.
    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError>;
    /// All profiles.
    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError>;
    /// Keeps an event.
    async fn record_event(&self, event: &Event) -> Result<(), StoreError>;
    /// Events of one job, oldest first.
    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError>;
    /// Events of a stretch of time, in the order of time; where there are more than the limit, the newest.
    async fn list_events(&self, filter: &EventFilter) -> Result<Vec<Event>, StoreError>;
    /// How many events of a kind there are.
    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError>;
    /// The summary of a start, if it arrived.
    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError>;
    /// What SPANK was told at each task of a start, oldest first.
    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError>;
    /// The mean power of a device over the samples between two times, where they tell it.
    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError>;
    /// Adds what one tenant found out to the observation of the sharing. `Ok(false)`: it was known already. It moves to the
    /// end of the order of changes.
    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError>;
    /// Observations that changed after number `after`, oldest first; where there are more than `limit`, the newest.
    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError>;
    /// Keeps a model, its body included, and returns its version. An active one retires the one before it, and makes a
    /// new revision: a plan made with the model before is stale. `Ok(None)`, and nothing is kept: the model in use is not
    /// `incumbent` any more, so that the backtest says nothing.
    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError>;
    /// The version of the active model.
    async fn active_model(&self) -> Result<Option<u64>, StoreError>;
    /// Models, newest first, at most `limit`.
    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError>;
    /// The body of a model; absent where it was never stored, or not kept: see [`MODEL_BODIES_KEPT`].
    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError>;
    /// Deletes what is of the past alone and older than `before`: sharings that are over with what led to them, explanations,
    /// events, starts, runs and jobs. What was learnt stays. Returns how many rows went.
    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError>;
    /// Deletes device samples older than `before`; returns how many.
    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError>;
}
