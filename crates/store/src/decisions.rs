//! Who was put where, and how far it came. A decision is committed once, on the view that it was made from; its members move by
//! compare-and-set along `MemberState::advance`.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, Fraction, GresType, GresTypes, JobStart, NodeName, Revision, Shards, SlurmJobId, UnixTime,
    UserId, WorkloadKey,
};
use pillion_pairing::{Explanation, FirstRun, Role, SpeedEstimate};
use serde::{Deserialize, Serialize};

/// A decision to be committed: one device and one or more members, or several devices and one member who has all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDecision {
    pub node: NodeName,
    #[serde(rename = "gres_type")]
    pub gres_types: GresTypes,
    pub device_model: String,
    /// The group that the members join; absent = they begin one.
    pub joins: Option<DecisionId>,
    /// Expected sum of all tenants' speed fractions less one.
    pub gain: f64,
    /// That it is a trial: how probably all keep their promises.
    pub trial: Option<Fraction>,
    /// What was seen of the host that they join, where that is a workload's first run.
    pub first_run: Option<Box<FirstRun>>,
    /// Who starts, the host first.
    pub members: Vec<NewMember>,
}

/// A member to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewMember {
    /// This start and no other.
    pub start: JobStart,
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
    pub estimate: Option<SpeedEstimate>,
    /// The solo duration that was known then.
    pub solo_duration_seconds: Option<f64>,
    /// Why so; `None` only in what [`Decisions::active_decisions`] gives.
    pub explanation: Option<Explanation>,
}

/// A committed decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub id: DecisionId,
    /// The decision that began this sharing (its own id, or its host's group).
    pub group: DecisionId,
    /// Where it stands.
    pub state: DecisionState,
    /// When it was committed.
    pub created_at: UnixTime,
    pub node: NodeName,
    #[serde(rename = "gres_type")]
    pub gres_types: GresTypes,
    pub device_model: String,
    /// Expected sum of all tenants' speed fractions less one.
    pub gain: f64,
    /// That it is a trial: how probably all keep their promises, as was thought when it was committed.
    pub trial: Option<Fraction>,
    /// What was seen of the host that they joined, where that was a workload's first run.
    pub first_run: Option<Box<FirstRun>>,
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
    /// Where its members are, or are to be: each of its devices.
    pub fn places(&self) -> impl Iterator<Item = (&NodeName, &GresType)> {
        self.gres_types.iter().map(|gres_type| (&self.node, gres_type))
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
    pub decision_id: DecisionId,
    pub start: JobStart,
    /// Where it must stand now.
    pub from: MemberState,
    /// Where it goes.
    pub to: MemberState,
    /// When: becomes `released_at`, `started_at` or `ended_at` by the state it goes to.
    pub at: UnixTime,
}

/// Why a decision is abandoned.
pub const NOBODY_RAN: &str = "no member of it ran under it";

/// What is decided and how far it came: each written once, on the view that it was made from.
#[async_trait]
pub trait Decisions: Send + Sync {
    /// The present revision: it moves with what takes a place or closes one (plans, drains), and with the model in use.
    async fn revision(&self) -> Result<Revision, StoreError>;
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
    /// Decisions that are planned or released, oldest first, without their explanations: there are thousands, read every
    /// second by those who carry them out, and nothing else of them is long.
    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError>;
    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError>;
    /// The decisions that name this job, newest first.
    async fn decisions_of(&self, id: SlurmJobId) -> Result<Vec<Decision>, StoreError>;
    /// The decisions of one sharing, newest first.
    async fn group(&self, group: DecisionId) -> Result<Vec<Decision>, StoreError>;
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
}
