//! The trait and the words of it: what both the real Slurm and the fake one answer.

use crate::gpu_defaults::GpuDefaults;
use crate::parse::held::HeldDevices;
use crate::partition::Partition;
use crate::reservation::Reservation;
use crate::version::SlurmVersion;
use async_trait::async_trait;
use compact_str::CompactString;
use pillion_core::mark::{InvalidMark, Mark};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Slurm as the scheduler, `pillion rescue` and doctor see it.
#[async_trait]
pub trait Slurm: Send + Sync {
    /// The version of the controller.
    async fn version(&self) -> Result<SlurmVersion, SlurmError>;
    /// What users may not see of each other (`PrivateData`).
    async fn privacy(&self) -> Result<Privacy, SlurmError>;
    /// What jobs get by GPU where they ask for nothing, in each partition that gives anything (`JobDefaults`).
    async fn gpu_defaults(&self) -> Result<BTreeMap<String, GpuDefaults>, SlurmError> {
        Ok(BTreeMap::new())
    }
    /// How long processes may take from SIGTERM to SIGKILL (`KillWait`), where a job is ended.
    async fn kill_wait(&self) -> Result<Duration, SlurmError> {
        Ok(KILL_WAIT_DEFAULT)
    }
    /// Every job in these partitions, ended ones included while Slurm still knows them (`MinJobAge`); one call.
    /// Empty `partitions` means all.
    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError>;
    /// Every node, in one call.
    async fn nodes(&self) -> Result<Vec<Node>, SlurmError>;
    /// Every reservation that begins later or is under way, in one call.
    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError>;
    /// Every partition, in one call.
    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError>;
    /// One `scontrol update` for one job or many. Slurm may have applied a part of it when it fails: read back.
    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError>;
    /// Many updates, each of one job and refused on its own: how many of them were. In few calls; an error means that Slurm
    /// could not be told at all, or not all of it.
    async fn update_each(&self, updates: &[(SlurmJobId, JobUpdate)]) -> Result<u64, SlurmError> {
        let mut refused_count = 0;
        for (job, update) in updates {
            match self.update(&[*job], update).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => refused_count += 1,
            }
        }
        Ok(refused_count)
    }
    /// Whether Slurm would requeue this job: not where it was submitted with `--no-requeue`.
    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError>;
    /// The names of these jobs, as their users wrote them (any bytes, read as UTF-8 with replacements): foreign text, for
    /// `pillion_core::WorkloadName::safe` and nothing else. One call for at most [`NAMED_JOBS_MAX`] jobs; those that Slurm
    /// does not know any more are left out. Beside `jobs` and not in it, so that no user's text ever stands in what decisions
    /// are made of.
    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError>;
    /// On how many nodes at least each of these jobs is to run, or runs. One call for at most [`NAMED_JOBS_MAX`] jobs; those that
    /// Slurm does not know any more are left out.
    async fn node_counts(&self, _jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, u32>, SlurmError> {
        Ok(BTreeMap::new())
    }
    /// The devices that these jobs hold, by Slurm's inner numbers of them. One call for at most [`NAMED_JOBS_MAX`] jobs; those that
    /// hold none, or of which Slurm does not say it clearly, are left out or empty.
    async fn held_devices(&self, _jobs: &[u32]) -> Result<BTreeMap<u32, HeldDevices>, SlurmError> {
        Ok(BTreeMap::new())
    }
    /// The batch script of a job, by its inner number: any bytes, at most [`SCRIPT_BYTES_MAX`]. `None`: it has none, or Slurm keeps
    /// it no more.
    async fn batch_script(&self, _job: u32) -> Result<Option<Vec<u8>>, SlurmError> {
        Ok(None)
    }
    /// The command line by which a job was submitted, as its user wrote it; `None`: Slurm keeps no account of it.
    async fn submit_line(&self, _job: u32) -> Result<Option<String>, SlurmError> {
        Ok(None)
    }
    /// `scontrol requeue`: the job waits again. One that runs is ended for it.
    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError>;
}

/// Which job a requeue is meant for: Slurm does nothing where the job is not so any more, and may not say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeued {
    /// One that is over, or is about to be.
    Over,
    /// One that runs, and nobody has ended meanwhile: a plain requeue starts a job again that its user cancelled a moment before
    /// (`scontrol requeue Incomplete`).
    Running,
}

/// `KillWait` where slurm.conf says nothing.
pub const KILL_WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// `PrivateData` of slurm.conf, as far as it is about what we show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privacy {
    /// `jobs`: a user sees no job of others.
    pub jobs: bool,
}

impl Privacy {
    /// From the setting's value: words with commas between them, or `none`.
    pub fn parse(value: &str) -> Self {
        let mut words = value.split(',').map(str::trim);
        Self { jobs: words.any(|word| ["jobs", "all"].iter().any(|own| word.eq_ignore_ascii_case(own))) }
    }
}

/// A longer script is none to us; slurmctld's own bound is 4 MiB unless a site raised it.
pub const SCRIPT_BYTES_MAX: usize = 16 << 20;

/// Of how many jobs one call of [`Slurm::job_names`], [`Slurm::node_counts`] or [`Slurm::held_devices`] asks; further ones are left out.
pub const NAMED_JOBS_MAX: usize = 200;

/// What one update changes; `None` leaves a field as it is. Written in Slurm's own order: GRES first, begin time last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobUpdate {
    /// `Gres=`: all of it, as in `shard:g1:40,lscratch:100`.
    pub gres: Option<String>,
    /// `ReqNodeList=`; the empty text clears it.
    pub required_nodes: Option<String>,
    /// `Partition=`: one name, or several with commas.
    pub partition: Option<String>,
    /// `AdminComment=`; the empty text clears it.
    pub admin_comment: Option<String>,
    /// `StartTime=`: absolute, in epoch seconds; a time that is past means now.
    pub start_time: Option<UnixTime>,
}

/// All jobs of one scan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobsScan {
    /// In the order that Slurm printed them. One that stood in the answer before as it does in this one is the same value.
    pub jobs: Vec<Arc<Job>>,
    /// Lines that did not parse whole: dropped, counted, never guessed.
    pub dropped_line_count: u64,
}

/// One job (an array: one task) as Slurm reports it. Nothing in it is text that a user wrote, but for names that Slurm
/// itself checks (user, account, partition, QOS, features). A long queue has many, so short texts stand in the job itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The job, `33_2` for an array task.
    pub id: SlurmJobId,
    /// How often it was restarted.
    pub restart_count: u32,
    /// The job id that Slurm uses inside (equal to `id.id` until an array task is split off).
    pub inner_id: u32,
    /// Slurm's state of it, from pending to ended.
    pub state: JobState,
    /// Why it waits.
    pub reason: ReasonKind,
    /// Whose it is.
    pub uid: UserId,
    /// The user's name.
    pub user: CompactString,
    /// The account that it is charged to.
    pub account: CompactString,
    /// The partition it is in (the list, where it asked for several).
    pub partition: CompactString,
    /// The QOS that it runs under.
    pub qos: CompactString,
    /// Slurm's priority; 0 = held.
    pub priority: u64,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// Not before this (`EligibleTime`/begin time of a waiting job).
    pub eligible_at: Option<UnixTime>,
    /// When it started, if it did.
    pub started_at: Option<UnixTime>,
    /// When it ended, if it did; while it runs, its time limit's end, as Slurm prints it.
    pub ended_at: Option<UnixTime>,
    /// Its time limit; `None` = unlimited.
    pub time_limit_seconds: Option<u64>,
    /// The GRES it asked for per node, without `gres/` or `gres:`: `shard:g1:40,lscratch:100`.
    pub gres: CompactString,
    /// Where it runs, hostlist expanded; empty while it waits.
    pub nodes: Vec<NodeName>,
    /// `ReqNodeList`, hostlist expanded.
    pub required_nodes: Vec<NodeName>,
    /// `ExcNodeList`, hostlist expanded.
    pub excluded_nodes: Vec<NodeName>,
    /// Features demanded, as written; empty for none.
    pub features: CompactString,
    /// CPUs asked for, or held.
    pub cpus: u32,
    /// Memory per node asked for, in MiB (memory per CPU already multiplied out); 0 = the node's default.
    pub memory_mib: u64,
    /// The reservation it asked for; empty for none.
    pub reservation: CompactString,
    /// Whether it waits for another job.
    pub has_dependency: bool,
    /// The most tasks of its array that may run at once (`%N`).
    pub array_throttle: Option<u32>,
    /// The exit status, for an ended job: (status, signal).
    pub exit: Option<(u32, u32)>,
    /// Our mark: `Ok(None)` where it is not managed.
    pub mark: Result<Option<Mark>, InvalidMark>,
}

impl Job {
    /// This start of it.
    pub fn start(&self) -> JobStart {
        JobStart { job_id: self.id, restart_count: self.restart_count }
    }
    /// The shards it asked for or holds, and on which device where it is pinned to one: `shard:g1:40` gives
    /// `(Some(g1), 40)`, `shard:100` gives `(None, 100)`; an entry a device.
    pub fn shards(&self) -> impl Iterator<Item = (Option<GresType>, u32)> {
        shards(&self.gres)
    }
}

/// The shards in a list of GRES, as [`Job::shards`] gives them.
pub fn shards(gres: &str) -> impl Iterator<Item = (Option<GresType>, u32)> {
    gres.split(',').filter_map(|entry| {
        let mut parts = entry.strip_prefix("shard")?.split(':').skip(1);
        match (parts.next(), parts.next()) {
            (Some(count), None) => Some((None, count.parse().ok()?)),
            (Some(gres_type), Some(count)) => Some((Some(GresType::new(gres_type)), count.parse().ok()?)),
            (None, _) => Some((None, 1)),
        }
    })
}

/// Every state of `slurm/slurm.h`; an unknown one is a value, not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Waiting (also `REQUEUED`, `REQUEUE_HOLD`, `SPECIAL_EXIT`, `RESV_DEL_HOLD`, `EXPEDITING`).
    Pending,
    /// Running (also `CONFIGURING`, `SIGNALING`, `STAGE_OUT`, `RESIZING`).
    Running,
    /// Stopped with its resources kept or taken (`SUSPENDED`, `STOPPED`).
    Suspended,
    /// Ending: its processes are being cleaned up, its GRES is still booked.
    Completing,
    /// It is over, and will not run again but by a requeue.
    Ended(Ending),
    /// A state that this version does not know.
    Other(String),
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Exit status 0.
    Completed,
    /// Another exit status.
    Failed,
    /// By its user or an admin.
    Cancelled,
    /// At its time limit or deadline.
    Timeout,
    /// Its node failed (`NODE_FAIL`, `BOOT_FAIL`).
    NodeFail,
    /// It was preempted.
    Preempted,
    /// The host's memory limit (not the device's).
    OutOfMemory,
    /// Revoked, or moved to another cluster.
    Revoked,
}

impl Ending {
    /// All of them, in the order of this list.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::NodeFail,
        Self::Preempted,
        Self::OutOfMemory,
        Self::Revoked,
    ];

    /// As stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::NodeFail => "node-fail",
            Self::Preempted => "preempted",
            Self::OutOfMemory => "out-of-memory",
            Self::Revoked => "revoked",
        }
    }
}

/// Why a job waits, as far as it matters to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasonKind {
    /// `None`, or not waiting.
    None,
    /// `BeginTime`: as a managed job should.
    BeginTime,
    /// `Resources`, `Priority`, `ReqNodeNotAvail`: it is eligible and could not start.
    Resources(String),
    /// Held by user or admin.
    Held(String),
    /// It waits for another job (`Dependency`, `DependencyNeverSatisfied`).
    Dependency,
    /// A limit of association, QOS, partition or array (`Assoc*`, `QOS*`, `Partition*`, `JobArrayTaskLimit`, `Licenses`).
    Limit(String),
    /// A word that none of the above knows.
    Other(String),
}

impl fmt::Display for ReasonKind {
    /// Slurm's own word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::BeginTime => "BeginTime",
            Self::Dependency => "Dependency",
            Self::Resources(word) | Self::Held(word) | Self::Limit(word) | Self::Other(word) => word,
        })
    }
}

/// One node as Slurm reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// `NodeName=`, by which jobs are pinned to it.
    pub name: NodeName,
    /// Where it is reached, `NodeAddr=`: a host name or an address; empty where Slurm does not say.
    pub address: String,
    /// Whether a job could start there now, and if not why.
    pub availability: NodeAvailability,
    /// Slurm's state text, such as `MIXED+DRAIN`.
    pub state: String,
    /// CPUs that jobs may have, `CPUEfctv=`: all but those of `CoreSpecCount`.
    pub cpus: u32,
    /// CPUs held by jobs.
    pub cpus_allocated: u32,
    /// Memory in MiB that jobs may have, without `MemSpecLimit`.
    pub memory_mib: u64,
    /// Memory held by jobs in MiB.
    pub memory_mib_allocated: u64,
    /// `ActiveFeatures=`: what `-C` is held against.
    pub features: Vec<String>,
    /// Partitions that it stands in.
    pub partitions: Vec<String>,
    /// Shards of each GRES type: (total, used). From `Gres=` and `GresUsed=`.
    pub shards: BTreeMap<GresType, (u32, u32)>,
    /// Whole GPUs of each GRES type: (total, used).
    pub gpus: BTreeMap<GresType, (u32, u32)>,
    /// Other GRES that jobs may have of it, by name and by `name:type`; `None`: it has some that cannot be counted (`no_consume`).
    pub other_gres: Option<BTreeMap<String, u64>>,
    /// Scratch space in MiB (`TmpDisk`): what `--tmp` is held against.
    pub scratch_mib: u64,
    /// When slurmd started there.
    pub slurmd_started_at: Option<UnixTime>,
    /// When the next reservation begins that keeps all of it from whoever does not ask for that; `None`: none is known. Nobody is started
    /// there who would not end before (`scontrol show reservation`: who reads the nodes writes it down).
    pub reserved_from: Option<UnixTime>,
}

impl Node {
    /// Whether a job that is started there at `now` with this time limit would be off it before the next reservation begins.
    #[must_use]
    pub fn is_open_for(&self, time_limit_seconds: Option<u64>, now: UnixTime) -> bool {
        let ends_at = time_limit_seconds.map(|seconds| now + Duration::from_secs(seconds));
        self.reserved_from.is_none_or(|from| ends_at.is_some_and(|end| end <= from))
    }
}

/// Whether a node takes new jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAvailability {
    /// Yes, as far as its resources go.
    Up,
    /// No: down, drained, reserved, powering, rebooting, not responding, .. (Slurm's word for it).
    Unavailable(String),
}

/// Why Slurm could not be asked or told.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// The program could not be run.
    #[error("cannot run {program}")]
    Spawn {
        /// The program, without its directory.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{program} did not answer within {seconds} s")]
    Timeout {
        /// The program, without its directory.
        program: String,
        /// How long it was given, `slurm.timeout_seconds`.
        seconds: u64,
    },
    /// It ended with an error; `detail` is its own first line, control characters removed.
    #[error("{program} failed with status {status}: {detail}")]
    Failed {
        /// The program, without its directory.
        program: String,
        /// Its exit status.
        status: i32,
        /// What it said.
        detail: String,
    },
    /// `pillion.lua` refused an update of ours whole: the job is not any more what the update presupposed.
    #[error("the fence refused it: {reason}")]
    Fenced {
        /// What was different.
        reason: String,
    },
    /// Slurm could not serve this call now: the controller is not responding or in standby, or its backfill holds the job (an
    /// update of `Partition=` often meets that). The same call may work a moment later.
    #[error("{program} could not be served now: {detail}")]
    Unavailable {
        /// The program, without its directory.
        program: String,
        /// What it said.
        detail: String,
    },
    /// A value that must not reach a command line; nothing was run.
    #[error("{argument} '{value}' is not allowed: {allowed}")]
    InvalidArgument {
        /// The argument that it was to be the value of, in Slurm's words.
        argument: &'static str,
        /// What was given, shortened and with its control characters escaped.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// It does not know what it was asked for, and says so, mostly with a good end: a field of a later release, or an option. What it
    /// printed beside that is no answer.
    #[error("{program} does not understand the question: {detail}")]
    Misunderstood {
        /// The program, without its directory.
        program: String,
        /// What it said.
        detail: String,
    },
    /// Its answer as a whole made no sense.
    #[error("{program} answered something else than {expected}")]
    Unreadable {
        /// The program, without its directory.
        program: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl SlurmError {
    /// Whether trying again later may help: everything but what Slurm, or we ourselves, refused.
    pub const fn is_transient(&self) -> bool {
        !matches!(
            self,
            Self::Failed { .. }
                | Self::Fenced { .. }
                | Self::InvalidArgument { .. }
                | Self::Misunderstood { .. }
        )
    }
}
