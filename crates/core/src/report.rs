//! What an agent and the scheduler tell each other, as domain words. The wire form is `proto/pillion/v1/agent.proto`; the
//! conversions are in `pillion-proto`. Rows 6 and 8 of the way of a job (docs/architecture.md).

use crate::clock::UnixTime;
use crate::device::{DeviceDescription, Reading, TenantUse};
use crate::fault::FaultSigns;
use crate::health::DeviceCondition;
use crate::ids::{DecisionId, GresType, JobStart, NodeName};
use crate::metric::{MEANS, Metrics};
use crate::setup::NodeSetup;
use crate::share::Share;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of the stream between agent and scheduler.
pub const PROTOCOL_VERSION: u32 = 1;

/// Everything that an agent says.
#[derive(Debug, Clone, PartialEq)]
pub enum FromAgent {
    /// The first message of every stream.
    Hello(AgentHello),
    /// What must arrive exactly once.
    Report(Report),
    /// The answer to [`ToAgent::Prepare`] and [`ToAgent::Revoke`].
    ShareResult(ShareResult),
    /// How all devices of the node are now, told whenever that changes.
    Conditions(Vec<DeviceCondition>),
    /// The answer to [`ToAgent::End`].
    EndResult(EndResult),
}

/// Everything that the scheduler says to an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum ToAgent {
    /// Every report up to and including this sequence is stored.
    Ack(u64),
    /// A decision to carry out.
    Prepare(Share),
    /// A decision that no longer holds.
    Revoke {
        /// The decision that is taken back.
        decision_id: DecisionId,
        /// The start that it held for.
        start: JobStart,
    },
    /// Take a sample at once, whenever the next is due.
    Poke,
    /// A start is being ended beside others: its clients are to go through the daemon of their device before a signal ends them.
    End {
        /// The start that ends.
        start: JobStart,
        /// What is to be done now.
        order: EndOrder,
    },
}

/// What is done with a start that is being ended, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EndOrder {
    /// All its processes stand still, Slurm's own among them: whether Slurm takes it is not known yet.
    Hold,
    /// Slurm ends it. Clients that SIGTERM would kill go now, the others, who may be writing a checkpoint, in so many seconds;
    /// nothing is held any more.
    End {
        /// From now, at most [`END_DELAY_SECONDS_MAX`].
        delay_seconds: f64,
    },
    /// Slurm did not take it: it goes on as if nothing had been.
    LetGo,
}

/// The longest that the end of a client is put off: Slurm's greatest `KillWait`.
pub const END_DELAY_SECONDS_MAX: f64 = 65_533.0;

/// The answer to [`ToAgent::End`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndResult {
    /// The start that ends.
    pub start: JobStart,
    /// What was done.
    pub outcome: EndOutcome,
}

/// What became of an [`EndOrder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndOutcome {
    /// It stands still, for some seconds at most.
    Held,
    /// It goes on.
    NotHeld {
        /// Why it cannot be held, one sentence.
        why: String,
        /// SIGTERM kills none of its clients, so that the daemon can end them before SIGKILL does.
        outlasts_sigterm: bool,
        /// Others may be held here all the same.
        is_of_it_alone: bool,
    },
    /// So many of its clients were ended through the daemon, more than none.
    Ended {
        /// How many.
        client_count: u32,
    },
}

/// Who the agent is and what its node has.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentHello {
    /// [`PROTOCOL_VERSION`] of the agent.
    pub protocol_version: u32,
    /// The node that the agent is of.
    pub node: NodeName,
    /// The agent's release, as `--version` prints it.
    pub agent_version: String,
    /// Made once for its report journal; sequences count within it.
    pub journal_id: String,
    /// The node's devices.
    pub devices: Vec<DeviceDescription>,
    /// The agent's clock.
    pub sent_at: UnixTime,
    /// Shares that it holds from before.
    pub decision_ids: Vec<DecisionId>,
    /// How its devices are; those that it has not looked at yet are left out.
    pub conditions: Vec<DeviceCondition>,
    /// How its node is set up beside them; `None`: an agent of an earlier release.
    pub setup: Option<NodeSetup>,
    /// It observes the jobs of an ordinary node: nobody is given a share by it.
    pub observes: bool,
}

/// The answer to a prepared or revoked share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareResult {
    /// The decision that was carried out, or was not.
    pub decision_id: DecisionId,
    /// The start that it holds for.
    pub start: JobStart,
    /// Why the mechanism could not be set up, one sentence; `None` = done.
    pub error: Option<String>,
    /// Whether this answers a revocation.
    pub revoked: bool,
}

/// Something that must arrive exactly once.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its place in the agent's journal, from 1; gaps mean that the journal was full and samples were dropped.
    pub sequence: u64,
    /// What the agent saw.
    pub body: ReportBody,
}

/// What a report tells.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportBody {
    /// One sample of the devices.
    Samples(DeviceSamples),
    /// A start that ended.
    JobSummary(Box<JobSummary>),
    /// A part of a start that was only observed. Its agent knows Slurm's inner number of the job alone, which is told as the job
    /// of the start, and not which start of it: the scheduler knows, by the times. So it is for the neighbours.
    ObservedRun(Box<JobSummary>),
    /// A task that began.
    Launch(Launch),
}

/// One sample of the node's devices.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSamples {
    /// When the sample was taken, by the node's clock.
    pub recorded_at: UnixTime,
    /// One a device; devices with nothing to tell are left out.
    pub samples: Vec<DeviceSample>,
}

/// One device at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSample {
    /// The device, by its GRES type.
    pub gres_type: GresType,
    /// What it did.
    pub reading: Reading,
    /// Who was on it.
    pub tenants: Vec<TenantUse>,
}

/// Means over the samples in which a job had its device alone; absent where the device does not say. Each is over values
/// of one source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivityMeans(pub Metrics);

impl Serialize for ActivityMeans {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        MEANS.write(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for ActivityMeans {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        MEANS.read(from).map(Self)
    }
}

/// How far a job's counter went in some part of its run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProgressPart {
    /// How far; `None` where the job wrote no counter.
    pub progress: Option<f64>,
    /// In how many seconds.
    pub seconds: f64,
}

/// One start of a job on one device, told when its last process has gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The start that is over.
    pub start: JobStart,
    /// On which device.
    pub gres_type: GresType,
    /// When its first task began.
    pub started_at: UnixTime,
    /// When its last process was gone.
    pub ended_at: UnixTime,
    /// Seconds of the run during which another tenant had processes on the device.
    pub shared_seconds: f64,
    /// Of them, the device's time that is this start's part: each second divided by the tenants of the device; `None` from
    /// an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_device_seconds: Option<f64>,
    /// The most device memory that its processes held together, of the samples at which that of all could be read; absent if
    /// there was none.
    pub memory_bytes_peak: Option<u64>,
    /// The most processes that it had on the device at once.
    pub process_count_peak: u32,
    /// The most device memory that any one of them held, of the same samples; absent as `memory_bytes_peak` is, and from an older
    /// agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_memory_bytes_peak: Option<u64>,
    /// The device's energy while it had it alone, plus its part while shared.
    pub energy_joules: Option<f64>,
    /// Progress while alone.
    pub solo: ProgressPart,
    /// Progress beside others.
    pub shared: ProgressPart,
    /// Means while alone; `None` where it never was.
    pub solo_means: Option<ActivityMeans>,
    /// Over how many samples.
    pub solo_sample_count: u32,
    /// The other starts that were seen on the device meanwhile.
    pub neighbours: Vec<JobStart>,
    /// What may tell why it failed, if it did; `None` from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<FaultSigns>,
}

/// What SPANK was told at the start of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// When it was, by the node's clock.
    pub at: UnixTime,
    /// The start whose task began.
    pub start: JobStart,
    /// The step, in Slurm's numbering.
    pub step_id: u32,
    /// The decision that was carried out; `None` = none was known (a miss).
    pub decision_id: Option<DecisionId>,
    /// The devices that Slurm gave it.
    pub gres_types: Vec<GresType>,
    /// `profile=` of the job's own `--colocate`; `None`: it gave none, the step did not carry it, or an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_name: Option<String>,
}
