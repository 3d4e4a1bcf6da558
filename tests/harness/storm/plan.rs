//! What a storm consists of: submissions, what is done to them, and what is broken, each at its time. Plain data.

pub use crate::testbed::USERS;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The workloads that are run alone before the storm, so that they share in it.
pub const KNOWN: [&str; 2] = ["resnet50-infer", "bert-small-batch"];
/// The nodes of the pool, and those with whole GPUs.
pub const POOL_NODES: [&str; 2] = ["n1", "n2"];
/// The nodes with whole GPUs.
pub const WHOLE_NODES: [&str; 2] = ["w1", "w2"];
/// GPUs of every node.
pub const GPUS_PER_NODE: u32 = 4;
/// The most GPUs that a job asks for.
pub const GPUS_MAX: u32 = 2;

/// What kind of job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Without `--colocate`, on nodes with whole GPUs: it must meet nothing of ours.
    Plain,
    /// Without `--colocate`, in the pool: it has whole GPUs there.
    Whole,
    /// Managed, of a workload that was run before.
    Known,
    /// Managed, of a workload that nobody has seen.
    First,
    /// Managed, of a workload that was run before: it makes room for all others.
    Guest,
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Nothing, for so long.
    Sleep {
        /// Milliseconds of wall time.
        milliseconds: u32,
    },
    /// Uses the simulated device.
    Load {
        /// The workload.
        name: &'static str,
        /// Seconds of the simulated machine.
        seconds: u32,
    },
}

/// For what a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum After {
    /// `afterok` of this submission.
    Ok(usize),
    /// `afterany` of this submission.
    Any(usize),
    /// `singleton` among the jobs of this name and user.
    Singleton(u32),
}

/// An array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// How many tasks, from 0.
    pub tasks: u32,
    /// How many may run at once.
    pub throttle: u32,
}

/// One submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its number in the storm, from 0; jobs know it.
    pub number: usize,
    /// Seconds since the storm began.
    pub at: f64,
    /// By whom.
    pub user: &'static str,
    /// What kind.
    pub kind: Kind,
    /// What it does.
    pub work: Work,
    /// GPUs that it asks for, of each node: at most [`GPUS_MAX`].
    pub gpus: u32,
    /// On how many nodes: 1, or 2 (all that there are of a kind).
    pub node_count: usize,
    /// If it is an array.
    pub array: Option<Array>,
    /// If it waits for another.
    pub after: Option<After>,
}

/// What a user changes by `scontrol update`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// `StartTime=now`
    StartNow,
    /// `StartTime=now+N`
    StartIn(u32),
    /// `Partition=NAME`
    Partition(&'static str),
    /// `Gres=gpu:N`
    Gpus(u32),
    /// `TimeLimit=MINUTES`
    TimeLimit(u32),
    /// `Nice=N`
    Nice(u32),
    /// `Comment=storm`
    Comment,
    /// `Features=bogus`
    Bogus,
    /// `ReqNodeList=NODE`
    ReqNode(&'static str),
    /// `ExcNodeList=NODE`
    ExcNode(&'static str),
    /// `MinMemoryNode=MIB`
    Memory(u32),
    /// `JobName=storm`
    Name,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartNow => write!(f, "StartTime=now"),
            Self::StartIn(seconds) => write!(f, "StartTime=now+{seconds}"),
            Self::Partition(name) => write!(f, "Partition={name}"),
            Self::Gpus(count) => write!(f, "Gres=gpu:{count}"),
            Self::TimeLimit(minutes) => write!(f, "TimeLimit={minutes}"),
            Self::Nice(by) => write!(f, "Nice={by}"),
            Self::Comment => write!(f, "Comment=storm"),
            Self::Bogus => write!(f, "Features=bogus"),
            Self::ReqNode(node) => write!(f, "ReqNodeList={node}"),
            Self::ExcNode(node) => write!(f, "ExcNodeList={node}"),
            Self::Memory(mib) => write!(f, "MinMemoryNode={mib}"),
            Self::Name => write!(f, "JobName=storm"),
        }
    }
}

/// What is done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub enum Deed {
    /// `scancel`
    Cancel,
    /// `scontrol hold`
    Hold,
    /// `scontrol release`
    Release,
    /// `scontrol requeue`
    Requeue,
    /// `scontrol requeue`, and at once `StartTime=now`.
    RequeueNow,
    /// `scontrol update`
    Change(Change),
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancel => write!(f, "cancel"),
            Self::Hold => write!(f, "hold"),
            Self::Release => write!(f, "release"),
            Self::Requeue => write!(f, "requeue"),
            Self::RequeueNow => write!(f, "requeue, StartTime=now"),
            Self::Change(change) => write!(f, "{change}"),
        }
    }
}

/// When exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// At its time.
    Drawn,
    /// From its time on, when the job's begin time is first seen moved: a release has begun. Seconds later all the same.
    AtRelease,
}

/// Something done to a submission.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// Seconds since the storm began.
    pub at: f64,
    /// At that time, or waiting for a moment.
    pub moment: Moment,
    /// By root, else by its user.
    pub by_root: bool,
    /// To which.
    pub number: usize,
    /// To one task of it.
    pub task: Option<u32>,
    /// What.
    pub deed: Deed,
}

/// A process that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// `pillion-scheduler`
    Scheduler,
    /// `pillion-agent` of a node.
    Agent(&'static str),
    /// The scheduler's private Postgres.
    Postgres,
    /// The simulated driver of a node.
    Driver(&'static str),
    /// Slurm's controller.
    Slurmctld,
    /// Slurm's daemon of a node.
    Slurmd(&'static str),
}

/// How a process is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum How {
    /// `KILL`, and started again at the end.
    Kill,
    /// `STOP`, and `CONT` at the end.
    Freeze,
    /// `TERM`, and started again at the end.
    Stop,
}

/// A disk of its own that can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Disk {
    /// The scheduler's state, with its private Postgres.
    Scheduler,
    /// The state of a node's agent.
    Agent(&'static str),
}

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Broken {
    /// A process.
    Process(Part, How),
    /// Nothing new starts on a node: `scontrol update State=DRAIN`, then `RESUME`.
    Drain(&'static str),
    /// An admin reserves a node, from some minutes on: whoever would not have ended before is not started there, until he takes it back.
    Reserve(&'static str),
    /// A disk is full.
    Full(Disk),
    /// A second scheduler works on the same database.
    SecondScheduler,
    /// slurmd and the agent of a node read a clock that is off. Further than munge and Slurm allow (300 and 120 s) nothing runs
    /// there with or without us.
    Clock {
        /// Of which node.
        node: &'static str,
        /// By how much; negative = behind.
        ahead_seconds: i32,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(part, how) => {
                let how = match how {
                    How::Kill => "killed",
                    How::Freeze => "frozen",
                    How::Stop => "stopped",
                };
                match part {
                    Part::Scheduler => write!(f, "scheduler {how}"),
                    Part::Agent(node) => write!(f, "agent of {node} {how}"),
                    Part::Postgres => write!(f, "Postgres {how}"),
                    Part::Driver(node) => write!(f, "driver of {node} {how}"),
                    Part::Slurmctld => write!(f, "slurmctld {how}"),
                    Part::Slurmd(node) => write!(f, "slurmd of {node} {how}"),
                }
            }
            Self::Drain(node) => write!(f, "{node} drained"),
            Self::Reserve(node) => write!(f, "{node} about to be reserved"),
            Self::Full(Disk::Scheduler) => write!(f, "disk of the scheduler full"),
            Self::Full(Disk::Agent(node)) => write!(f, "disk of {node}'s agent full"),
            Self::SecondScheduler => write!(f, "a second scheduler"),
            Self::Clock { node, ahead_seconds } => write!(f, "clock of {node} off by {ahead_seconds:+} s"),
        }
    }
}

/// A fault with its times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// Seconds since the storm began.
    pub at: f64,
    /// When it is mended.
    pub until: f64,
    /// What.
    pub broken: Broken,
}

/// All of a storm, in the order of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Submissions, by number.
    pub orders: Vec<Order>,
    /// What is done to them.
    pub acts: Vec<Act>,
    /// What is broken.
    pub faults: Vec<Fault>,
    /// When the last submission was made, at the latest.
    pub seconds: f64,
}
