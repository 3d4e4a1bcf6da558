//! The snapshot that a plan is made from. The scheduler fills it from Slurm, the agents and the store; `pillion plan`
//! fills it from files; both can be saved as JSON and replayed.

use crate::copies::CopyBook;
use crate::mig::SliceBook;
use crate::policy::{JobRules, Policy};
use crate::trials::TrialBook;
use compact_str::CompactString;
use pillion_core::device::Mechanism;
use pillion_core::isolation::Isolation;
use pillion_core::link::Link;
use pillion_core::metric::Metric;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{
    CapStep, DecisionId, GresType, GresTypes, JobStart, NodeName, Revision, Shards, SlowdownRatio,
    SlurmJobId, UnixTime, UserId, WorkloadKey,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The cluster at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Which commit it follows; a plan made from an older one is refused by the store.
    pub revision: Revision,
    /// When it was taken.
    pub taken_at: UnixTime,
    /// The pool's nodes.
    pub nodes: Vec<NodeView>,
    /// The pool's devices.
    pub devices: Vec<DeviceView>,
    /// Managed jobs without an active decision, in the order of service: Slurm's priority, then age.
    pub waiting: Vec<WaitingJob>,
    /// Jobs that Slurm will start alone by itself as soon as a whole device is free (undone, or past their bound): each
    /// takes one; nothing of ours may stand in its way.
    pub alone_claims: Vec<AloneClaim>,
    /// What is known of workloads.
    pub profiles: ProfileBook,
    /// What runs in instances have taught.
    #[serde(default, skip_serializing_if = "SliceBook::is_empty")]
    pub slices: SliceBook,
    /// What was measured of copies of one workload together; empty where the site lets no more than four share a device.
    #[serde(default, skip_serializing_if = "CopyBook::is_empty")]
    pub copies: CopyBook,
    /// What is being tried, and what came of trials before.
    #[serde(default, skip_serializing_if = "TrialBook::is_empty")]
    pub trials: TrialBook,
}

/// A job that is already eligible for a whole device, or for several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AloneClaim {
    /// The job that Slurm is about to start.
    pub job_id: SlurmJobId,
    /// Where it can run, by what it asks of nodes; empty = any pool node.
    pub required_nodes: Vec<NodeName>,
    /// Which devices of a node it gets; absent = one, whichever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres_types: Option<GresTypes>,
    /// On how many nodes.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub node_count: u16,
    /// CPUs of one node that it asks for.
    #[serde(default)]
    pub cpus: u32,
    /// Host memory of one node in MiB.
    #[serde(default)]
    pub memory_mib: u64,
    /// What it asks for, where it was let go on several nodes a while ago and does not run yet: it may be let go once more, with other
    /// devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Box<WaitingJob>>,
}

impl AloneClaim {
    /// Whether it gets several devices, of one node or of several.
    pub(crate) const fn is_of_several(&self) -> bool {
        self.gres_types.is_some() || self.node_count > 1
    }
    /// In how many places it can run: those that have fewer are looked after first.
    pub(crate) fn place_count(&self) -> usize {
        if self.required_nodes.is_empty() { usize::MAX } else { self.required_nodes.len() }
    }
    /// Whether it can run on a node: asked of many nodes, and there may be many that it can.
    pub(crate) fn may_run_on(&self) -> impl Fn(&NodeName) -> bool {
        let nodes: BTreeSet<&NodeName> = self.required_nodes.iter().collect();
        move |node| nodes.is_empty() || nodes.contains(node)
    }
    /// What it uses of each of its nodes.
    pub(crate) const fn demand(&self) -> Demand {
        (self.cpus, self.memory_mib)
    }
}

/// CPUs, and memory in MiB, of one node.
pub(crate) type Demand = (u32, u64);

const fn one_node() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_one_node(count: &u16) -> bool {
    *count == 1
}

const fn one_device() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_one_device(count: &u8) -> bool {
    *count == 1
}

const fn any_cpus() -> u32 {
    u32::MAX
}

const fn any_memory() -> u64 {
    u64::MAX
}

/// One pool node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Slurm's `NodeName`, by which devices and jobs refer to it.
    pub name: NodeName,
    /// Why nothing may be released there now: drained, agent gone, releases stopped after a violation, ..; absent = it may.
    pub blocked: Option<String>,
    /// CPUs that jobs may have of it; absent = as many as any asks for.
    #[serde(default = "any_cpus")]
    pub cpus: u32,
    /// Host memory in MiB that jobs may have of it; absent = as much as any asks for.
    #[serde(default = "any_memory")]
    pub memory_mib: u64,
    /// CPUs that no job holds.
    pub cpus_free: u32,
    /// Host memory in MiB that no job holds.
    pub memory_mib_free: u64,
    /// Slurm's `ActiveFeatures`; a job must find all that it asks for.
    pub features: Vec<String>,
    /// The pool partitions that it stands in.
    pub partitions: Vec<String>,
    /// So long it is everybody's from now on: then a reservation of others begins, and Slurm starts nobody there who would not have ended;
    /// absent = for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_seconds: Option<u64>,
}

impl NodeView {
    /// Whether it has so much at all, whoever is there.
    pub(crate) const fn is_large_enough(&self, (cpus, memory_mib): Demand) -> bool {
        self.cpus >= cpus && self.memory_mib >= memory_mib
    }

    /// Whether a job with this time limit would be off it before others have it.
    pub(crate) fn is_open_for(&self, time_limit_seconds: Option<u64>) -> bool {
        self.open_seconds.is_none_or(|open| time_limit_seconds.is_some_and(|limit| limit <= open))
    }

    /// A node that no job is too large for, in a partition of its own name: where a plan is about devices only.
    pub(crate) fn boundless(name: &str) -> Self {
        Self {
            name: NodeName::new(name),
            blocked: None,
            cpus: any_cpus(),
            memory_mib: any_memory(),
            cpus_free: u32::MAX,
            memory_mib_free: u64::MAX,
            features: Vec::new(),
            partitions: vec![name.to_owned()],
            open_seconds: None,
        }
    }
}

/// One device of a pool node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    /// The node that it is in; one that is not in the view takes nothing.
    pub node: NodeName,
    /// Slurm's GRES type for it.
    pub gres_type: GresType,
    /// The device model; profiles are kept by it.
    pub model: String,
    /// Names by which users may ask for it (`gpu:h100:1`).
    pub gpu_types: Vec<String>,
    /// The whole memory of the device, before the margin of the policy.
    pub memory_bytes: u64,
    /// How it can be shared.
    pub mechanism: Mechanism,
    /// Shards that nobody holds, by Slurm's own count less what is planned and not yet started.
    pub shards_free: u32,
    /// Who runs there, or was planned to.
    pub tenants: Vec<Tenant>,
    /// When the last of those ends, by time limits, whom Slurm started there by itself: they are no tenants. Absent = there is none,
    /// or nobody knows when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_until: Option<UnixTime>,
    /// Why nothing may be released there now.
    pub blocked: Option<String>,
    /// What its agent can cut it into for tenants; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometry: Option<Geometry>,
    /// Whether how it is cut cannot be changed now: what stands can be given away, and nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shape_held: bool,
    /// Instances of ours on it that stand empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances_empty: Vec<Slot>,
    /// How it reaches the other devices of its node; those that are not there are not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<GresType, Link>,
}

impl DeviceView {
    /// Whether all of it could be given to one job: nobody is there, and no instance that cannot be taken away.
    pub(crate) fn is_wholly_free(&self) -> bool {
        self.tenants.is_empty() && self.shards_free >= 100 && !self.is_shape_held
    }

    /// Of the instances that stand empty, by the agent's word, those that can lie beside those that are taken.
    pub(crate) fn standing_beside(&self, taken: &[Slot]) -> Vec<Slot> {
        let Some(geometry) = &self.geometry else { return Vec::new() };
        let mut all = taken.to_vec();
        for slot in &self.instances_empty {
            all.push(*slot);
            if geometry.check(&all).is_err() {
                all.pop();
            }
        }
        all.split_off(taken.len())
    }
}

/// A job that holds a part of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// The job that holds it, or is about to.
    pub job_id: SlurmJobId,
    /// Whose it is.
    pub uid: UserId,
    /// Its Slurm account: what `users = "same-account"` compares.
    pub account: String,
    /// What it runs; absent where it has no decision of ours.
    pub workload: Option<WorkloadKey>,
    /// Its decision's group (the host's decision); absent where it has none, and then nobody may join.
    pub group: Option<DecisionId>,
    /// Whether it runs (a joiner is released only then).
    pub is_running: bool,
    /// How it shares the device.
    #[serde(flatten)]
    pub sharing: Sharing,
    /// What it booked.
    pub shards: Shards,
    /// The greatest slowdown that it was promised.
    pub slowdown_ratio_max: SlowdownRatio,
    /// The device memory it was admitted with.
    pub memory_bytes: Option<u64>,
    /// When Slurm ends it at the latest; absent = no time limit.
    pub time_limit_at: Option<UnixTime>,
    /// When it will probably end, from its profile.
    pub expected_end_at: Option<UnixTime>,
    /// What its user wants between it and jobs of others.
    #[serde(default, skip_serializing_if = "Isolation::is_shared")]
    pub isolation: Isolation,
    /// What was seen of it so far, where nothing else is known of its workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_run: Option<Box<FirstRun>>,
    /// What the site says of it; absent = what it says of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<JobRules>,
    /// It was submitted as a guest, and goes where somebody else needs its device; absent = it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestTenant>,
    /// It is interactive; absent = it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<Session>>,
    /// The devices of the node that it has, this among them; absent = this one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<GresTypes>,
}

impl Tenant {
    /// What is known of it by looking at it while it runs, and by how much that may be off: of a first run, and of an interactive job.
    pub(crate) fn seen(&self) -> Option<(&WorkloadProfile, f64)> {
        let first = self.first_run.as_ref();
        first
            .map(|first| (&first.profile, first.activity_error_fraction.unwrap_or(1.0)))
            .or_else(|| Some((&self.session.as_ref()?.profile, 0.0)))
    }
    /// What the site says of it.
    pub(crate) fn rules(&self, policy: &Policy) -> JobRules {
        self.rules.unwrap_or_else(|| policy.of_jobs())
    }
}

/// What is free besides its part of a device when a guest has gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestTenant {
    /// CPUs of the node.
    pub cpus: u32,
    /// Host memory in MiB.
    pub memory_mib: u64,
    /// Since when it runs; absent = it does not yet.
    pub started_at: Option<UnixTime>,
    /// Whether it is being ended already.
    pub is_leaving: bool,
}

/// What is known of a tenant that is interactive: how it is at present. Nothing is foretold of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Whether it has left its device idle for so long that a guest may come, and its processes share it as they should.
    pub is_idle: bool,
    /// What it is like while it is idle.
    pub profile: WorkloadProfile,
}

impl Session {
    /// One that does nothing, which is what a guest meets until it goes.
    pub fn new(workload: WorkloadKey, device_model: &str, is_idle: bool) -> Self {
        let mut profile = WorkloadProfile::empty(workload, device_model);
        for metric in [Metric::SmActiveFraction, Metric::GpuBusyFraction, Metric::MemoryBandwidthFraction] {
            profile.metrics.set(metric, 0.0);
        }
        Self { is_idle, profile }
    }
}

/// What was seen so far of a workload's first run, while it has its device to itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstRun {
    /// Means over what was measured. Its `run_count` is 0: no run has ended.
    pub profile: WorkloadProfile,
    /// For how long it was measured alone.
    pub measured_seconds: f64,
    /// Looks at the device in that time.
    pub sample_count: u32,
    /// Standard error of its mean activity, over that mean; absent = its activity was not measured.
    pub activity_error_fraction: Option<f64>,
    /// How far the means of both halves of that time are apart, over their mean; absent = not measured.
    pub drift_fraction: Option<f64>,
    /// Whether its device memory has not grown in the second half of that time.
    pub has_memory_settled: bool,
    /// `memory=` as declared.
    pub memory_bytes_declared: Option<u64>,
}

impl FirstRun {
    /// One of which nothing was seen yet.
    pub fn unseen(workload: WorkloadKey, device_model: &str) -> Self {
        Self {
            profile: WorkloadProfile::empty(workload, device_model),
            measured_seconds: 0.0,
            sample_count: 0,
            activity_error_fraction: None,
            drift_fraction: None,
            has_memory_settled: false,
            memory_bytes_declared: None,
        }
    }
}

/// A managed job that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingJob {
    /// This start of it.
    pub start: JobStart,
    /// Whose it is.
    pub uid: UserId,
    /// Its Slurm account: what `users = "same-account"` compares.
    pub account: CompactString,
    /// The pool partition that it is in.
    pub partition: CompactString,
    /// What it runs.
    pub workload: WorkloadKey,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// When Slurm starts it alone by itself.
    pub starts_alone_at: UnixTime,
    /// Its promise: the user's, else the site's.
    pub slowdown_ratio_max: SlowdownRatio,
    /// `memory=` as declared.
    pub memory_bytes_declared: Option<u64>,
    /// Whether it would be started again, with more, if it ran out of device memory: by its user's consent, which was not made use of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_run_out: bool,
    /// Its user has it measured alone, under this cap; absent = it may share.
    #[serde(default)]
    pub solo_cap: Option<CapStep>,
    /// Runs alone that its user owes; 0 = it may share.
    #[serde(default)]
    pub owes_runs: u32,
    /// How much more of a device it was seen to use beside others than its profile says, where the site books by use; 0 =
    /// nothing, or nobody asks.
    #[serde(default)]
    pub use_beyond_fraction: f64,
    /// What its user wants between it and jobs of others.
    #[serde(default, skip_serializing_if = "Isolation::is_shared")]
    pub isolation: Isolation,
    /// `gpu:h100:1`: the type it asked for.
    pub gpu_type: Option<String>,
    /// How many devices of one node it gets, each whole where there are several: a *wide* job.
    #[serde(default = "one_device", skip_serializing_if = "is_one_device")]
    pub device_count: u8,
    /// On how many nodes it gets them, the same of each. On several Slurm starts it by itself, when it is let go.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub node_count: u16,
    /// The devices on which Slurm starts it by itself, where they are several of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<GresTypes>,
    /// It was submitted as a guest: it comes after all others, and goes where one of them needs its device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_guest: bool,
    /// What the site says of it; absent = what it says of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<JobRules>,
    /// It did not ask for co-location: its devices are whole, and nobody joins it: a *plain* job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_plain: bool,
    /// CPUs of one node that it asks for.
    pub cpus: u32,
    /// Host memory in MiB.
    pub memory_mib: u64,
    /// All of these must be on the node.
    pub features: Vec<String>,
    /// Nodes on which it must not run (`-x`).
    pub excluded_nodes: Vec<NodeName>,
    /// Its time limit.
    pub time_limit_seconds: Option<u64>,
    /// How long it would probably run alone; absent = as long as its profile says.
    #[serde(default)]
    pub duration_seconds_expected: Option<f64>,
    /// Why it cannot start now whatever the devices do: its own begin time, a dependency, an array throttle, a limit, a
    /// hold; absent = it can.
    pub held: Option<String>,
}

impl WaitingJob {
    /// What the site says of it.
    pub(crate) fn rules(&self, policy: &Policy) -> JobRules {
        self.rules.unwrap_or_else(|| policy.of_jobs())
    }
    /// What it uses of each of its nodes.
    pub(crate) const fn demand(&self) -> Demand {
        (self.cpus, self.memory_mib)
    }
    /// Whether it gets whole devices, which nobody shares: several, or it did not ask for co-location.
    pub(crate) const fn has_whole_devices(&self) -> bool {
        self.is_plain || self.device_count > 1 || self.node_count > 1
    }
    /// Why it cannot start now whatever the devices do, as a sentence; `None` = it can.
    pub(crate) fn held_text(&self) -> Option<String> {
        self.held.as_ref().map(|held| format!("cannot start now: {held}"))
    }
}

/// What is known of workloads, by workload and device model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<WorkloadProfile>", into = "Vec<WorkloadProfile>")]
pub struct ProfileBook(BTreeMap<(WorkloadKey, String), WorkloadProfile>);

impl ProfileBook {
    /// What is known of this workload on this device model.
    pub fn get(&self, workload: &WorkloadKey, device_model: &str) -> Option<&WorkloadProfile> {
        self.0.get(&(workload.clone(), device_model.to_owned()))
    }
    /// All profiles, in the order of workload and model.
    pub fn iter(&self) -> impl Iterator<Item = &WorkloadProfile> {
        self.0.values()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<WorkloadProfile>> for ProfileBook {
    fn from(profiles: Vec<WorkloadProfile>) -> Self {
        let profiles = profiles.into_iter();
        Self(profiles.map(|own| ((own.workload.clone(), own.device_model.clone()), own)).collect())
    }
}

impl From<ProfileBook> for Vec<WorkloadProfile> {
    fn from(book: ProfileBook) -> Self {
        book.0.into_values().collect()
    }
}
