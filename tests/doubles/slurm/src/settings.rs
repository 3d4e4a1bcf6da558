//! What a fake cluster is made of, and what it writes down of the calls it gets.

use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime, UserId};
use pillion_slurm::{JobUpdate, Privacy, SlurmVersion};
use std::collections::BTreeMap;
use std::time::Duration;

/// The delays of Slurm itself; the defaults are those of 24.11.5.
#[derive(Debug, Clone)]
pub struct FakeSettings {
    /// What the controller says it is.
    pub version: SlurmVersion,
    /// How much later a requeued job may begin again.
    pub requeue_delay: Duration,
    /// How long an ended job is still listed.
    pub min_job_age: Duration,
    /// How long an ending job still holds its GRES.
    pub completing: Duration,
    /// Whether a job that waits for resources keeps later ones, which would end after it could start, off its node.
    pub waiting_jobs_block: bool,
    /// From a change to the pass of the scheduler that sees it.
    pub scheduling_delay: Duration,
    /// The pool's partitions, as `pillion.lua` knows them.
    pub pools: Vec<String>,
    /// Whether `pillion.lua` is loaded, and refuses updates of ours that presuppose something else.
    pub is_fenced: bool,
    /// What users may not see of each other.
    pub privacy: Privacy,
}

impl Default for FakeSettings {
    fn default() -> Self {
        Self {
            version: SlurmVersion { major: 24, minor: 11, patch: 5 },
            requeue_delay: Duration::from_secs(121),
            min_job_age: Duration::from_mins(5),
            completing: Duration::from_millis(200),
            waiting_jobs_block: true,
            scheduling_delay: Duration::from_millis(300),
            pools: vec!["shared".to_owned()],
            is_fenced: true,
            privacy: Privacy::default(),
        }
    }
}

/// A node as slurm.conf and gres.conf would describe it.
#[derive(Debug, Clone)]
pub struct FakeNode {
    /// `NodeName=`, by which jobs are pinned to it.
    pub name: NodeName,
    /// `CPUs=` of a node, `-c` of a job.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// `Features=`, all of them active.
    pub features: Vec<String>,
    /// One device for each GRES type, with its shards; 0 shards: a device that is served whole only.
    pub devices: BTreeMap<GresType, u32>,
    /// Other GRES by name, such as `lscratch`.
    pub other_gres: BTreeMap<String, u64>,
}

impl FakeNode {
    /// A pool node: devices `g0..`, 100 shards each, 64 CPUs, 512 GiB.
    pub fn pool(name: &str, device_count: u32) -> Self {
        Self {
            name: NodeName::new(name),
            cpus: 64,
            memory_mib: 512 * 1024,
            features: Vec::new(),
            devices: (0..device_count).map(|index| (GresType::new(format!("g{index}")), 100)).collect(),
            other_gres: BTreeMap::new(),
        }
    }
}

/// A partition as slurm.conf would describe it.
#[derive(Debug, Clone)]
pub struct FakePartition {
    /// `PartitionName=`: what jobs ask for.
    pub name: String,
    /// `Nodes=`, the hostlist expanded.
    pub nodes: Vec<NodeName>,
    /// `PriorityTier`: jobs of a higher one are looked at first.
    pub tier: u32,
    /// `MaxTime=` in seconds; `None` = unlimited.
    pub time_limit_seconds_max: Option<u64>,
}

impl FakePartition {
    /// A partition of tier 1 without a time limit.
    pub fn new(name: &str, nodes: &[&str]) -> Self {
        let nodes = nodes.iter().map(|&node| NodeName::new(node)).collect();
        Self { name: name.to_owned(), nodes, tier: 1, time_limit_seconds_max: None }
    }
}

/// The tasks of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeArray {
    /// The numbers of its tasks, each at most once.
    pub tasks: Vec<u32>,
    /// `%N`: how many of its tasks may run at once.
    pub throttle: Option<u32>,
}

/// What is submitted, as it stands after `job_submit.lua`.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeJob {
    /// Whose it is.
    pub uid: UserId,
    /// The name of that user.
    pub user: String,
    /// `-A`: the account that it is charged to.
    pub account: String,
    /// The partition, or several: `urgent,shared`.
    pub partition: String,
    /// `-q`: the QOS that it runs under.
    pub qos: String,
    /// `--gres`, without `gres/`: `shard:100,lscratch:100`.
    pub gres: String,
    /// `--gpus`: while it is set, Slurm refuses an update of the GRES.
    pub gres_per_job: Option<String>,
    /// `-N`: on so many nodes, with all of its request on each.
    pub node_count: u16,
    /// `CPUs=` of a node, `-c` of a job.
    pub cpus: u32,
    /// Memory in MiB of each node.
    pub memory_mib: u64,
    /// `-C`: names joined by `&`, or by `|`.
    pub features: String,
    /// `-w`: nodes of which it runs on one; empty = any.
    pub required_nodes: Vec<NodeName>,
    /// `-x`: nodes on which it does not run.
    pub excluded_nodes: Vec<NodeName>,
    /// `--begin`: not before this; `None` = at once.
    pub begin: Option<UnixTime>,
    /// `-t`; `None` = that of the partition.
    pub time_limit_seconds: Option<u64>,
    /// `-H`: submitted with priority 0.
    pub held: bool,
    /// `-d afterany`: waits until that job is over.
    pub dependency: Option<SlurmJobId>,
    /// `-a`: it is an array of these tasks.
    pub array: Option<FakeArray>,
    /// `--reservation`; such a job never starts here, the fake has no reservations that admit one.
    pub reservation: String,
    /// `-J`; the empty text is Slurm's own, `wrap`.
    pub name: String,
    /// The batch script; `None`: it was begun by salloc or srun.
    pub script: Option<String>,
    /// The command line, as accounting keeps it; `None`: nobody keeps accounts.
    pub submit_line: Option<String>,
    /// What `job_submit.lua` wrote.
    pub admin_comment: String,
    /// `--requeue`, Slurm's default; `--no-requeue` is `false`.
    pub requeue: bool,
    /// How long it runs if nobody ends it; `None`: until [`crate::FakeSlurm::finish`] or its time limit.
    pub run_seconds: Option<f64>,
}

impl FakeJob {
    /// Whether it asked for this partition, alone or among others.
    pub(super) fn asks_for(&self, partition: &str) -> bool {
        self.partition.split(',').any(|own| own == partition)
    }
}

impl Default for FakeJob {
    fn default() -> Self {
        Self {
            uid: UserId(2001),
            user: "alice".to_owned(),
            account: "physics".to_owned(),
            partition: "shared".to_owned(),
            qos: "normal".to_owned(),
            gres: "shard:100".to_owned(),
            gres_per_job: None,
            node_count: 1,
            cpus: 1,
            memory_mib: 1024,
            features: String::new(),
            required_nodes: Vec::new(),
            excluded_nodes: Vec::new(),
            begin: None,
            time_limit_seconds: Some(3600),
            held: false,
            dependency: None,
            array: None,
            reservation: String::new(),
            name: String::new(),
            script: None,
            submit_line: None,
            admin_comment: String::new(),
            requeue: true,
            run_seconds: None,
        }
    }
}

/// A call through the trait. `ok`: whether it was answered and not refused.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum FakeCall {
    /// A call of [`crate::Slurm::version`].
    Version { at: UnixTime, ok: bool },
    /// A call of [`crate::Slurm::jobs`], of all partitions or some.
    Jobs { at: UnixTime, ok: bool },
    /// A call of [`crate::Slurm::nodes`].
    Nodes { at: UnixTime, ok: bool },
    /// A call of [`crate::Slurm::partitions`].
    Partitions { at: UnixTime, ok: bool },
    /// A call of [`crate::Slurm::job_names`] of these jobs.
    JobNames { at: UnixTime, ok: bool, jobs: Vec<SlurmJobId> },
    /// A call of [`crate::Slurm::node_counts`] of these jobs.
    NodeCounts { at: UnixTime, ok: bool, jobs: Vec<SlurmJobId> },
    /// A call of [`crate::Slurm::held_devices`] of these jobs.
    HeldDevices { at: UnixTime, ok: bool, jobs: Vec<u32> },
    /// A call of [`crate::Slurm::batch_script`] of this job.
    BatchScript { at: UnixTime, ok: bool, job: u32 },
    /// A call of [`crate::Slurm::submit_line`] of this job.
    SubmitLine { at: UnixTime, ok: bool, job: u32 },
    /// A call of [`crate::Slurm::update`] of these jobs, answered or refused.
    Update { at: UnixTime, ok: bool, jobs: Vec<SlurmJobId>, update: JobUpdate },
    /// A call of [`crate::Slurm::requeue`] of this job.
    Requeue { at: UnixTime, ok: bool, job: SlurmJobId },
    /// No call: the controller was killed, and all since its last save is forgotten.
    Forgot { at: UnixTime },
}

impl FakeCall {
    /// Whether it changes nothing in Slurm: those that are named here, and no other.
    pub fn is_reading(&self) -> bool {
        matches!(
            self,
            Self::Version { .. }
                | Self::Jobs { .. }
                | Self::Nodes { .. }
                | Self::Partitions { .. }
                | Self::JobNames { .. }
                | Self::NodeCounts { .. }
                | Self::HeldDevices { .. }
                | Self::BatchScript { .. }
                | Self::SubmitLine { .. }
        )
    }
}
