//! A partition, as Slurm tells it.

use pillion_core::NodeName;

/// One partition as Slurm reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// `PartitionName=`: what `-p` asks for.
    pub name: String,
    /// Whether it is the default.
    pub is_default: bool,
    /// Whether it starts jobs (`State=UP`).
    pub is_up: bool,
    /// Its nodes, hostlist expanded.
    pub nodes: Vec<NodeName>,
    /// The longest time limit; `None` = unlimited.
    pub time_limit_seconds_max: Option<u64>,
    /// `TRESBillingWeights` as printed.
    pub billing_weights: String,
    /// `PreemptMode=` as printed: what becomes of its jobs when others need their place.
    pub preempt_mode: String,
    /// Whom a node of it belongs to while a job of it runs there.
    pub exclusive: Exclusive,
    /// `OverSubscribe=` as printed: whether jobs may share CPUs.
    pub over_subscribe: String,
    /// Default memory in MiB per node (`DefMemPerNode`) if set.
    pub default_memory_mib: Option<u64>,
    /// `JobDefaults=` as printed, empty if not set: CPUs and memory by GPU (`DefCpuPerGPU=8,DefMemPerGPU=16000`).
    pub job_defaults: String,
}

/// Whom a node belongs to while a job runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusive {
    /// To whoever's jobs fit: `Exclusive=NO`, and before 26.05 none of the settings below.
    No,
    /// To that job: `Exclusive=NODE`, and before 26.05 `OverSubscribe=EXCLUSIVE`.
    Node,
    /// To jobs of its user: `Exclusive=USER`, `ExclusiveUser=YES`.
    User,
    /// To that job, with all nodes of its part of the network: `Exclusive=TOPO`, `ExclusiveTopo=YES`.
    Topology,
    /// A word that this version does not know.
    Other(String),
}
