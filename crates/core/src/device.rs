//! Devices and what is read from them, in our units. Absent is `None`, never 0.

use crate::ids::{DeviceUuid, GresType, SlurmJobId};
use crate::link::Link;
use crate::metric::{Measured, Metric, MetricSource, Metrics, Throttle};
use crate::mig::Geometry;
use crate::text::quoted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// More tenants than this a device has only where all of them are copies of one workload (docs/decisions/0037-replicas.md).
pub const TENANTS_MAX: u32 = 4;
/// More copies of one workload than this no device has.
pub const COPIES_MAX: u32 = 16;
/// Clients of one MPS daemon up to CUDA 13.0; later ones take 60.
const MPS_CLIENTS_MAX: u32 = 48;

/// A way to share a device. What one tenant is told in that way: [`crate::share::Sharing`]. Whoever asks what a mechanism can do
/// asks by name below, where the compiler wants an answer for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// NVIDIA's Multi-Process Service: concurrent kernels, a cap and a memory limit a client.
    Mps,
    /// Intel's compute command streamers: 1, 2 or 4 equal parts a card.
    Ccs,
    /// NVIDIA's Multi-Instance GPU: an instance a tenant, with memory, caches and compute units that nobody else meets.
    Mig,
    /// MPS inside an instance: tenants of one user share it as clients of a daemon of its own, behind the wall of MIG. No device is
    /// shared so as a whole.
    #[serde(rename = "mig-mps")]
    MigMps,
    /// Plain time slicing.
    #[default]
    #[serde(rename = "none")]
    TimeSliced,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Mps, Self::Ccs, Self::Mig, Self::MigMps, Self::TimeSliced];
    /// As written everywhere: `mps`, `ccs`, `mig`, `mig-mps`, `none`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Ccs => "ccs",
            Self::Mig => "mig",
            Self::MigMps => "mig-mps",
            Self::TimeSliced => "none",
        }
    }
    /// How many processes of tenants it serves at once on one device: in a mode of a card as many as that mode has parts, in an
    /// instance whoever is there.
    pub const fn processes_max(self) -> u32 {
        match self {
            Self::Mps | Self::MigMps => MPS_CLIENTS_MAX,
            Self::Ccs => 4,
            Self::Mig => 1,
            Self::TimeSliced => u32::MAX,
        }
    }
    /// Whether something is set up on the device for it, and taken down when nobody shares any more.
    pub const fn is_set_up(self) -> bool {
        match self {
            Self::Mps | Self::Ccs | Self::Mig | Self::MigMps => true,
            Self::TimeSliced => false,
        }
    }
    /// Whether each tenant can be held to a part of the compute units and of the memory.
    pub const fn can_cap(self) -> bool {
        match self {
            Self::Mps | Self::MigMps => true,
            Self::Ccs | Self::Mig | Self::TimeSliced => false,
        }
    }
    /// Whether a card is in one mode for all of its tenants.
    pub const fn has_modes(self) -> bool {
        match self {
            Self::Ccs => true,
            Self::Mps | Self::Mig | Self::MigMps | Self::TimeSliced => false,
        }
    }
    /// Whether tenants are clients of one daemon, of the device or of their instance, by which the end of one can end the others.
    pub const fn has_daemon(self) -> bool {
        match self {
            Self::Mps | Self::MigMps => true,
            Self::Ccs | Self::Mig | Self::TimeSliced => false,
        }
    }
    /// Whether one tenant can have parts of several devices: a daemon can serve a set of them, whose clients see all of it.
    pub const fn takes_several(self) -> bool {
        match self {
            Self::Mps => true,
            Self::Ccs | Self::Mig | Self::MigMps | Self::TimeSliced => false,
        }
    }
    /// Whether tenants are in instances of the device: whoever is in another one is met by nobody, and says nothing of how fast
    /// another is.
    pub const fn has_instances(self) -> bool {
        match self {
            Self::Mig | Self::MigMps => true,
            Self::Mps | Self::Ccs | Self::TimeSliced => false,
        }
    }
    /// Whether each tenant has an instance to itself, so that nobody meets anybody, and there are no pairs.
    pub const fn meets_nobody(self) -> bool {
        match self {
            Self::Mig => true,
            Self::Mps | Self::Ccs | Self::MigMps | Self::TimeSliced => false,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no mechanism.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a mechanism; allowed are mps, ccs, mig, mig-mps and none")]
pub struct UnknownMechanism(pub String);

impl std::str::FromStr for Mechanism {
    type Err = UnknownMechanism;
    fn from_str(text: &str) -> Result<Self, UnknownMechanism> {
        let named = Self::ALL.into_iter().find(|mechanism| mechanism.as_str() == text);
        named.ok_or_else(|| UnknownMechanism(quoted(text)))
    }
}

/// One device of a node, as its agent announces it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Slurm's global index on the node (`SLURM_JOB_GPUS`).
    pub index: u32,
    /// The vendor's name for it.
    pub uuid: DeviceUuid,
    /// The model, in lower case: `v100`, `a100-40`, `h100`, `h200`, `max-1550`. Profiles are kept by it.
    pub model: String,
    /// How much device memory it has.
    pub memory_bytes: u64,
    /// The GRES type that Slurm books it under: `g1`.
    pub gres_type: GresType,
    /// How it can be shared.
    pub mechanism: Mechanism,
    /// What MIG has cut it into, as its agent found it when it started; `None`: into nothing, as far as anybody knows.
    #[serde(default)]
    pub instances: Option<Vec<MigInstance>>,
    /// What its agent can cut it into by MIG, for tenants; `None`: it does not.
    #[serde(default)]
    pub geometry: Option<Geometry>,
    /// How it reaches the other devices of the node, by their indexes; those that are not there are not known.
    #[serde(default)]
    pub links: BTreeMap<u32, Link>,
}

/// A MIG instance of a device that somebody else has made: it is his to give, and Pillion lets it be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// The vendor's name for it.
    pub uuid: DeviceUuid,
    /// The GPU instance that it is in, by the driver's number: which part of the memory.
    pub gpu_instance_id: u32,
    /// The compute instance within that.
    pub compute_instance_id: u32,
    /// Its size as Slurm's `AutoDetect=nvml` writes it into the type of a GRES: `3g.40gb`.
    pub profile: String,
    /// Where its GPU instance lies; `None`: the driver tells root alone.
    pub placement: Option<MigPlacement>,
    /// Its compute units.
    pub sm_count: u32,
    /// The device memory of the instance.
    pub memory_bytes: u64,
}

/// The part of a device's memory slices that a GPU instance has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigPlacement {
    /// Its first slice, from 0.
    pub start: u32,
    /// How many slices it takes from there.
    pub size: u32,
}

/// Something that a device's driver told unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNotice {
    /// The device, by its index at the backend.
    pub index: u32,
    /// What happened to it.
    pub kind: NoticeKind,
    /// In the driver's words, for a person.
    pub detail: String,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// An error that NVIDIA's driver numbers (Xid).
    Xid {
        /// Its number in NVIDIA's list of Xids.
        code: u64,
        /// The process that it names.
        pid: Option<u32>,
    },
    /// A metric that this device gave stopped coming.
    MetricLost(Metric),
    /// It comes again.
    MetricBack(Metric),
    /// The MPS server reports a fault: no new client until all clients have left.
    MpsFault,
    /// The MPS server is well again.
    MpsClear,
    /// The MPS control daemon or its server died; its clients are suspect.
    MpsDied,
    /// MIG is enabled on the device.
    Divided,
    /// It could be shared by more than turns, and what that takes is not there.
    NoMechanism,
}

/// What one device did since the sample before, or now. Rates are means over the interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// What was measured, each with its source.
    pub metrics: Metrics,
    /// What holds the clock down now; empty if nothing does.
    throttles: Option<BTreeSet<Throttle>>,
    /// Of sources whose values are of a time of their own: how long ago it began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    reach_seconds: BTreeMap<MetricSource, f64>,
}

impl Reading {
    /// For how many seconds back the values of a source are means. 0 for one that is asked at each sample: not before the one before.
    pub fn reach_seconds(&self, source: Option<MetricSource>) -> f64 {
        source.and_then(|source| self.reach_seconds.get(&source)).copied().unwrap_or(0.0)
    }

    /// Says that the values of a source are of a time that began so long ago: an exporter collects when it likes, and repeats itself.
    pub fn set_reach(&mut self, source: MetricSource, seconds: f64) {
        self.reach_seconds.insert(source, seconds);
    }

    /// What holds the clock down now; empty if nothing does, absent if that is not known.
    pub const fn throttles(&self) -> Option<&BTreeSet<Throttle>> {
        self.throttles.as_ref()
    }

    /// Says what holds the clock down. A clock that an administrator set is how the device is for everybody, and counts for
    /// nothing.
    pub fn set_throttles(&mut self, throttles: BTreeSet<Throttle>) {
        let is_throttled = throttles.iter().any(|throttle| *throttle != Throttle::Setting);
        let (value, source) = (f64::from(u8::from(is_throttled)), self.metrics.source(Metric::Throttles));
        self.metrics.put(Metric::Throttles, Measured { value, source });
        self.throttles = Some(throttles);
    }

    /// Takes each value, with its source, that the other has and this has not. What is there stays.
    pub fn fill(&mut self, from: &Self) {
        self.metrics.fill(&from.metrics);
        if self.throttles.is_none() {
            self.throttles.clone_from(&from.throttles);
        }
        for (source, seconds) in &from.reach_seconds {
            self.reach_seconds.entry(*source).or_insert(*seconds);
        }
    }
}

impl<M: Into<Metrics>> From<M> for Reading {
    fn from(metrics: M) -> Self {
        Self { metrics: metrics.into(), ..Self::default() }
    }
}

/// A process on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// In the agent's pid namespace.
    pub pid: u32,
    /// Device memory that it holds, where the device says so.
    pub memory_bytes: Option<u64>,
}

/// What one job had on one device at the time of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantUse {
    /// The job that the tenant is.
    pub job_id: SlurmJobId,
    /// Its restart count.
    pub restart_count: u32,
    /// Memory of all its processes; absent where that of any of them cannot be read.
    pub memory_bytes: Option<u64>,
    /// How many processes of it were on the device.
    pub process_count: u32,
    /// The job's progress counter, where it writes one.
    pub progress: Option<f64>,
}
