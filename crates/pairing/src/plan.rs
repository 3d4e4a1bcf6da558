//! What comes out: who shares which device with whom, and a reason for every job. `planner` makes it.

use crate::model::SpeedEstimate;
use pillion_core::device::Mechanism;
use pillion_core::mig::Slot;
pub use pillion_core::reason::Reason;
use pillion_core::share::{Sharing, SharingColumns};
use pillion_core::{
    DecisionId, Fraction, GresType, GresTypes, JobStart, NodeName, Revision, Shards, SlurmJobId, WorkloadKey,
};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What to do now: complete, with nothing left to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The view that it was made from.
    pub parent_revision: Revision,
    /// One for each device that gets a job: alone (one member), a pair, or a joiner; and one for each job of several devices.
    pub pairings: Vec<Pairing>,
    /// Every waiting job that is not in `pairings`, and why.
    pub left_waiting: Vec<Explanation>,
    /// Those of them whose turn it is and that Slurm starts by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub let_go: Vec<LetGo>,
    /// What is set apart for them: nobody else gets it who does not end in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_apart: Vec<SetApart>,
}

/// Devices that are kept for a job until it has all that it needs; some of them may be free already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetApart {
    /// For whom.
    pub job_id: SlurmJobId,
    /// Which.
    pub devices: Vec<(NodeName, GresType)>,
}

/// A job on several nodes whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetGo {
    /// This start of it.
    pub start: JobStart,
    /// The devices that Slurm gives it of each of its nodes; absent = one, whichever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres_types: Option<GresTypes>,
    /// What is kept for it until it starts: so many of each of so many nodes. It is pinned to none of them.
    pub devices: Vec<(NodeName, GresType)>,
    /// Nobody else is about to start on a node that would do as well, so that it may begin now; else Slurm might give it that one.
    pub at_once: bool,
}

impl LetGo {
    /// Its nodes.
    pub fn nodes(&self) -> BTreeSet<&NodeName> {
        self.devices.iter().map(|(node, _)| node).collect()
    }
}

impl Plan {
    /// One for a view in which nobody waits.
    pub const fn empty(parent_revision: Revision) -> Self {
        Self {
            parent_revision,
            pairings: Vec::new(),
            left_waiting: Vec::new(),
            let_go: Vec::new(),
            set_apart: Vec::new(),
        }
    }
}

/// Jobs to be started on one device, or on a set of several, all of which share it by the same mechanism; or one job that has several
/// devices to itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "PairingDocument")]
pub struct Pairing {
    /// The node that the members are pinned to.
    pub node: NodeName,
    /// The device of that node, by the GRES type that Slurm has for it; several that each of the members has.
    #[serde(rename = "gres_type")]
    pub gres_types: GresTypes,
    /// The device's model, by which the profiles were looked up.
    pub device_model: String,
    /// The group of the running host that the members join; absent = the device is free.
    pub joins: Option<DecisionId>,
    /// Who starts here, the host first.
    pub members: Vec<Member>,
    /// Expected sum of all tenants' speed fractions less one (0 for a job alone), for each of its devices.
    pub gain: f64,
    /// That it is a trial, which the bounds do not admit: how probably all keep their promises; absent = it is none.
    pub trial: Option<Fraction>,
}

impl Pairing {
    /// How the device is shared, as the first of its members does; by turns with one of 100 shards and no cap.
    pub fn sharing(&self) -> Sharing {
        self.members.first().map(|member| member.sharing).unwrap_or_default()
    }
    /// Which way that is.
    pub fn mechanism(&self) -> Mechanism {
        self.sharing().mechanism()
    }
}

/// In JSON, what is the same for all members stands beside them.
impl Serialize for Pairing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Named each, so that a new column is not forgotten: of these three each member has its own.
        let SharingColumns { mechanism, ccs_mode, cap_fraction: _, memory_limit_bytes: _, mig_slot: _ } =
            self.sharing().into();
        let mut pairing = serializer.serialize_struct("Pairing", 8 + usize::from(self.trial.is_some()))?;
        pairing.serialize_field("node", &self.node)?;
        pairing.serialize_field("gres_type", &self.gres_types)?;
        pairing.serialize_field("device_model", &self.device_model)?;
        pairing.serialize_field("mechanism", &mechanism)?;
        pairing.serialize_field("ccs_mode", &ccs_mode)?;
        pairing.serialize_field("joins", &self.joins)?;
        pairing.serialize_field("members", &self.members)?;
        pairing.serialize_field("gain", &self.gain)?;
        match &self.trial {
            Some(keep) => pairing.serialize_field("trial", keep)?,
            None => pairing.skip_field("trial")?,
        }
        pairing.end()
    }
}

#[derive(Deserialize)]
struct PairingDocument {
    node: NodeName,
    gres_type: GresTypes,
    device_model: String,
    mechanism: Mechanism,
    ccs_mode: Option<u8>,
    joins: Option<DecisionId>,
    members: Vec<Member>,
    gain: f64,
    #[serde(default)]
    trial: Option<Fraction>,
}

impl From<PairingDocument> for Pairing {
    fn from(document: PairingDocument) -> Self {
        let PairingDocument {
            node,
            gres_type,
            device_model,
            mechanism,
            ccs_mode,
            joins,
            members,
            gain,
            trial,
        } = document;
        let members = members.into_iter().map(|member| {
            let SharingColumns { cap_fraction, memory_limit_bytes, mig_slot, mechanism: _, ccs_mode: _ } =
                member.sharing.into();
            let sharing = match mig_slot {
                Some(Slot { profile, start }) if mechanism.has_daemon() => {
                    Sharing::MigMps { profile, start, cap: cap_fraction, memory_limit_bytes }
                }
                Some(Slot { profile, start }) => Sharing::Mig { profile, start },
                None => Sharing::by(mechanism, cap_fraction, ccs_mode).limited_to(memory_limit_bytes),
            };
            Member { sharing, ..member }
        });
        Self { node, gres_types: gres_type, device_model, joins, members: members.collect(), gain, trial }
    }
}

/// Of a member, what is not the same for all.
fn own_columns<S: Serializer>(sharing: &Sharing, serializer: S) -> Result<S::Ok, S::Error> {
    let slot = sharing.mig_slot();
    let mut own = serializer.serialize_struct("Sharing", 2 + usize::from(slot.is_some()))?;
    own.serialize_field("cap_fraction", &sharing.cap())?;
    own.serialize_field("memory_limit_bytes", &sharing.memory_limit_bytes())?;
    match slot {
        Some(slot) => own.serialize_field("mig_slot", &slot)?,
        None => own.skip_field("mig_slot")?,
    }
    own.end()
}

/// How a job comes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// First on a device that others share or may join.
    Host,
    /// Beside a host.
    Joiner,
    /// With the whole device for itself.
    Alone,
}

/// One job to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// This start of the job: a requeue makes it another.
    pub start: JobStart,
    /// What it runs.
    pub workload: WorkloadKey,
    /// How it comes to the device.
    pub role: Role,
    /// How it shares the device.
    #[serde(flatten, serialize_with = "own_columns")]
    pub sharing: Sharing,
    /// What Slurm is to book.
    pub shards: Shards,
    /// The device memory that it is admitted with; absent when alone with nothing known.
    pub memory_bytes: Option<u64>,
    /// How fast it will run; absent when alone.
    pub estimate: Option<SpeedEstimate>,
    /// Why it starts here and so, and what else was considered.
    pub explanation: Explanation,
}

/// Everything that was considered for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job that it is about.
    pub job_id: SlurmJobId,
    /// The deciding reason.
    pub reason: Reason,
    /// One sentence for people.
    pub text: Arc<str>,
    /// The name of the model.
    pub model: Arc<str>,
    /// Partners that were considered, best first, at most 16. Jobs with the same answer share one list.
    pub candidates: Arc<[Candidate]>,
}

/// How many candidates an explanation keeps.
pub(crate) const CANDIDATES_MAX: usize = 16;

/// One partner that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The other job; of several that are alike, one.
    pub partner: SlurmJobId,
    /// What it runs.
    pub workload: WorkloadKey,
    /// Whether it runs already.
    pub is_running: bool,
    /// The caps tried: (ours, the partner's).
    pub cap_fractions: (Option<Fraction>, Option<Fraction>),
    /// The speed of the job that the explanation is about.
    pub own: Option<SpeedEstimate>,
    /// The partner's speed.
    pub other: Option<SpeedEstimate>,
    /// The expected gain.
    pub gain: Option<f64>,
    /// The rule that excluded it; absent = it was allowed.
    pub excluded_by: Option<Reason>,
    /// Whether it was chosen.
    pub chosen: bool,
}
