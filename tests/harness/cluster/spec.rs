//! What a test asks for: nodes, GPUs, accounting, policy. Plain data; `files` turns it into configuration.

use pillion_core::device::Mechanism;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Who may share a device; the scheduler's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharingPolicy {
    /// Jobs of one user.
    #[default]
    SameUser,
    /// Jobs of one account.
    SameAccount,
    /// Anybody's jobs.
    Any,
}

impl SharingPolicy {
    /// As the scheduler's configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameUser => "same-user",
            Self::SameAccount => "same-account",
            Self::Any => "any",
        }
    }
}

/// Through what a node's agent reaches its devices. They are simulated, but for [`NodeBackend::NvidiaGpu`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeBackend {
    /// The simulated driver itself.
    #[default]
    Simulated,
    /// The simulated driver, through the socket `between.sock` in the node's folder, where a test listens and passes on what is
    /// asked and answered.
    SimulatedThroughTest,
    /// The double of NVIDIA's library, and those of its MPS programs.
    Nvidia,
    /// The double of Level Zero.
    Intel,
    /// As `Nvidia`, with the double of dcgm-exporter beside it: what devices before Hopper need.
    NvidiaAndDcgm,
    /// As `Intel` with the metric streamer off, with the double of XPU Manager beside it.
    IntelAndXpum,
    /// The double of XPU Manager alone, where Level Zero cannot be loaded.
    Xpum,
    /// NVIDIA's own library, on a machine without its driver: behind the link `library` in the node's folder.
    NvidiaWithoutDriver,
    /// A real GPU of this machine, by its driver's own library and programs: `tests/gpu slurm`.
    NvidiaGpu,
    /// Intel's own loader and runtime, on a machine without a device: likewise.
    IntelWithoutDevice,
}

impl NodeBackend {
    /// As the agent's configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Simulated | Self::SimulatedThroughTest => "simulated",
            Self::Nvidia | Self::NvidiaAndDcgm | Self::NvidiaWithoutDriver | Self::NvidiaGpu => "nvidia",
            Self::Intel | Self::IntelAndXpum | Self::Xpum | Self::IntelWithoutDevice => "intel",
        }
    }

    /// The page of the exporter beside it, if there is one.
    pub(crate) const fn exporter_kind(self) -> Option<&'static str> {
        match self {
            Self::Simulated
            | Self::SimulatedThroughTest
            | Self::Nvidia
            | Self::Intel
            | Self::NvidiaWithoutDriver
            | Self::NvidiaGpu
            | Self::IntelWithoutDevice => None,
            Self::NvidiaAndDcgm => Some("dcgm-4.9"),
            Self::IntelAndXpum | Self::Xpum => Some("xpum-1.2"),
        }
    }
}

/// What Slurm keeps a job's processes together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Containment {
    /// Who started whom: needs nothing of the machine.
    #[default]
    Parents,
    /// Control groups of version 1, in which the devices that a job has not booked are closed to it. The names of nodes have to be
    /// this cluster's alone: all testbeds of a machine see the same hierarchy.
    ControlGroups,
}

/// One node of the pool: its GPUs are all of one model and shared by one mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolNode {
    /// As Slurm calls it.
    pub name: String,
    /// A named machine of the simulated backend: `h200`, `max-1550`, ..
    pub device_model: String,
    /// How its devices are shared.
    pub mechanism: Mechanism,
    /// Slurm's features of the node.
    pub features: Vec<String>,
    /// Through what its agent reaches them.
    pub backend: NodeBackend,
    /// Whether its devices are cut into instances: `[agent.mig]` is on there, and MIG is turned over where the model lets it. An
    /// Ampere comes up with MIG on.
    pub is_cut: bool,
}

impl PoolNode {
    /// A node without features.
    pub fn new(name: &str, device_model: &str, mechanism: Mechanism) -> Self {
        let (features, backend) = (Vec::new(), NodeBackend::default());
        Self {
            name: name.into(),
            device_model: device_model.into(),
            mechanism,
            features,
            backend,
            is_cut: false,
        }
    }

    /// The same node with these features.
    #[must_use]
    pub fn with_features(self, features: &[&str]) -> Self {
        Self { features: features.iter().map(|&feature| feature.to_owned()).collect(), ..self }
    }
}

/// What `job_submit.lua` of the cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum JobSubmit {
    /// The example of `deploy/slurm`, which loads `pillion.lua`, where the checkout has them; else none.
    #[default]
    Pillion,
    /// No module: `JobSubmitPlugins` is not set.
    Absent,
    /// This text.
    Text(String),
}

/// A cluster to start.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSpec {
    /// Nodes of the partition `shared`, which serve shards only.
    pub pool_nodes: Vec<PoolNode>,
    /// How many nodes `w1`, `w2`, .. the default partition `gpu` has, which serves whole GPUs only.
    pub whole_gpu_node_count: usize,
    /// GPUs of every node.
    pub gpus_per_node: u32,
    /// Further GRES of every node, counted only: `lscratch:1000`.
    pub gres_extra: Vec<String>,
    /// CPUs that every node claims to have.
    pub cpus_per_node: u32,
    /// Memory that every node claims to have, in MiB.
    pub memory_mib_per_node: u64,
    /// A private `MariaDB` and `slurmdbd`, with an account for each user; needed for QOS and limits. Takes seconds.
    pub accounting: bool,
    /// The job submit module.
    pub job_submit: JobSubmit,
    /// Further options that it configures `pillion.lua` with: `guest_qos = "scavenger"`.
    pub module_options: Vec<String>,
    /// Load the SPANK plugin, where it was built.
    pub spank: bool,
    /// What slurmd starts in the place of `slurmstepd`.
    pub slurmstepd: Option<PathBuf>,
    /// How Slurm knows which processes are a job's.
    pub containment: Containment,
    /// The hooks of `deploy/slurm/hooks`, where the checkout has them and the programs were built.
    pub hooks: bool,
    /// Who may share.
    pub policy: SharingPolicy,
    /// How long a workload must have run alone, in real seconds, before it shares. 0: jobs of a moment are enough.
    pub solo_seconds_min: u32,
    /// The longest that a job may be held back.
    pub bound_seconds: u64,
    /// From one look at the queue to the next where nothing happens, in seconds.
    pub scan_period_seconds: f64,
    /// How much faster simulated work runs than the clock.
    pub time_scale: f64,
    /// Lines of `[machine]` in the configuration of the simulated devices.
    pub machine_conf_extra: Vec<String>,
    /// Ports that are given, by the names by which [`super::Cluster::port`] knows them; the others are found.
    pub ports: BTreeMap<String, u16>,
    /// Lines added at the end of `slurm.conf`.
    pub slurm_conf_extra: Vec<String>,
    /// Lines added to `[pool]` of the scheduler's configuration.
    pub pool_conf_extra: Vec<String>,
    /// Lines added at the end of the scheduler's configuration, in `[policy]` until another section begins.
    pub scheduler_conf_extra: Vec<String>,
}

/// A line of `[pool]` with which jobs have whole GPUs there that do not ask for co-location.
pub const ADMITS_PLAIN: &str = "plain_jobs = \"whole\"";

impl Default for ClusterSpec {
    /// Two pool nodes, one NVIDIA-like and one Intel-like, and one node with whole GPUs.
    fn default() -> Self {
        Self {
            pool_nodes: vec![
                PoolNode::new("n1", "h200", Mechanism::Mps),
                PoolNode::new("n2", "max-1550", Mechanism::Ccs),
            ],
            whole_gpu_node_count: 1,
            gpus_per_node: 4,
            gres_extra: Vec::new(),
            cpus_per_node: 64,
            memory_mib_per_node: 256_000,
            accounting: false,
            job_submit: JobSubmit::default(),
            module_options: Vec::new(),
            spank: true,
            slurmstepd: None,
            containment: Containment::default(),
            hooks: true,
            policy: SharingPolicy::default(),
            solo_seconds_min: 0,
            bound_seconds: 60,
            scan_period_seconds: 0.5,
            time_scale: 60.0,
            machine_conf_extra: Vec::new(),
            ports: BTreeMap::new(),
            slurm_conf_extra: Vec::new(),
            pool_conf_extra: Vec::new(),
            scheduler_conf_extra: Vec::new(),
        }
    }
}

impl ClusterSpec {
    /// The names of all nodes, those of the pool first.
    pub fn node_names(&self) -> Vec<String> {
        let pool = self.pool_nodes.iter().map(|node| node.name.clone());
        pool.chain(self.whole_gpu_node_names()).collect()
    }
    /// The names of the nodes with whole GPUs.
    pub fn whole_gpu_node_names(&self) -> Vec<String> {
        (1..=self.whole_gpu_node_count).map(|number| format!("w{number}")).collect()
    }
}
