//! What the agent reads: `[agent]`.

#![expect(clippy::doc_markdown, reason = "the sentences are printed for admins as they stand")]

use crate::auth::Auth;
use pillion_core::handoff::HANDOFF_SOCKET;
use pillion_core::{GresType, NodeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The agent's part of the file. In every path `%n` stands for the node's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// What the agent does. "share": it serves a node of the pool. "observe": it measures the jobs of an ordinary node, whose
    /// partitions stand in observe.partitions, and changes nothing there: no shares, no MPS, no MIG, no plugin; of the paths below
    /// only state_directory is written to. Devices are called g0, g1, .. by index then, as Slurm's GRES gpu numbers them.
    #[schemars(with = "String", extend("enum" = ["share", "observe"]))]
    pub mode: AgentMode,
    /// The node, as Slurm names it; absent: the host name up to its first dot.
    #[schemars(extend("x-rule" = "name", "x-example" = "n1"))]
    pub node_name: Option<String>,
    /// What outlives the agent: shares, runs in progress, reports that wait for the scheduler.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub state_directory: PathBuf,
    /// What does not outlive the machine: progress files, and the directories of the MPS daemons.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub runtime_directory: PathBuf,
    /// Where the SPANK plugin asks; the same path as socket= in plugstack.conf.
    #[schemars(extend("x-rule" = "socket-path"))]
    pub handoff_socket: PathBuf,
    /// Slurm's configuration on this node: 'pillion doctor' is told what the plugstack.conf beside it loads. Absent:
    /// /etc/slurm/slurm.conf, else that of a configless slurmd, /run/slurm/conf/slurm.conf.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/opt/slurm/etc/slurm.conf"))]
    pub slurm_conf: Option<PathBuf>,
    /// The time between two looks at the devices.
    #[schemars(range(min = 0.1, max = 60.0))]
    pub sample_period_seconds: f64,
    /// How much may be kept for a scheduler that is away; then the oldest samples go; summaries of runs stay.
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776u64), extend("x-unit" = "bytes"))]
    pub journal_bytes_max: u64,
    /// Which devices the node has: "nvidia" (a driver of branch R510 or later), "intel" (data centre GPUs, through Level
    /// Zero), or "simulated", those of a pillion-simulated-device.
    #[schemars(with = "String", extend("enum" = ["simulated", "nvidia", "intel"]))]
    pub backend: BackendKind,
    /// Where the scheduler is reached.
    pub scheduler: SchedulerConfig,
    /// How the agent and the scheduler prove to each other who they are.
    pub auth: Auth,
    /// The simulated devices.
    pub simulated: SimulatedConfig,
    /// How NVIDIA's devices are reached.
    pub nvidia: NvidiaConfig,
    /// Intel's data centre GPUs.
    pub intel: IntelConfig,
    /// A metrics endpoint on the node that tells more of the devices than their library.
    pub exporter: ExporterConfig,
    /// What Slurm calls the devices.
    pub devices: DevicesConfig,
    /// NVIDIA's Multi-Process Service.
    pub mps: MpsConfig,
    /// NVIDIA's Multi-Instance GPU.
    pub mig: MigConfig,
    /// What is told to Prometheus.
    pub metrics: AgentMetricsConfig,
}

/// What the agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentMode {
    /// It serves a node of the pool.
    Share,
    /// It measures the jobs of an ordinary node.
    Observe,
}

/// Which devices the node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// Those of a `pillion-simulated-device`.
    Simulated,
    /// NVIDIA's, through NVML.
    Nvidia,
    /// Intel's data centre GPUs, through Level Zero.
    Intel,
}

/// `[agent.scheduler]`: where the scheduler is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// The scheduler's listen.tcp; with several controllers each one's, with commas between them: the agent keeps to the one whose
    /// scheduler leads.
    #[schemars(extend("x-rule" = "scheduler-addresses", "x-example" = "https://controller:6820"))]
    pub endpoint: String,
    /// The longest pause between two attempts to reach it.
    #[schemars(range(min = 0.1, max = 3600.0), extend("x-unit" = "seconds"))]
    pub retry_seconds_max: f64,
}

/// `[agent.simulated]`: where the simulated devices are reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedConfig {
    /// Where pillion-simulated-device listens.
    #[schemars(extend("x-rule" = "socket-path"))]
    pub socket: PathBuf,
}

/// `[agent.nvidia]`: how NVIDIA's devices are reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NvidiaConfig {
    /// The NVML library; absent: the libnvidia-ml.so.1 that the driver installs.
    #[schemars(extend(
        "x-rule" = "absolute-path", "x-example" = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    ))]
    pub library: Option<PathBuf>,
}

/// `[agent.intel]`: how Intel's devices are reached and what is read of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntelConfig {
    /// The Level Zero loader; absent: libze_loader.so.1 where the system finds it.
    #[schemars(extend(
        "x-rule" = "absolute-path", "x-example" = "/usr/lib/x86_64-linux-gnu/libze_loader.so.1"
    ))]
    pub library: Option<PathBuf>,
    /// The metric streamer tells how busy the compute units are, how many wait for memory and how much of the cache is used.
    /// Its counters are of the whole tile, serve one reader at a time (a user's profiler would be refused) and cost programs
    /// something: it runs for so long, once a period. 0 is never.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub metric_burst_seconds: f64,
    /// From the beginning of one burst to that of the next; no less than metric_burst_seconds.
    #[schemars(range(min = 1.0, max = 86400.0))]
    pub metric_period_seconds: f64,
    /// The greatest rate of one tile's last-level cache, which no driver tells: from a benchmark; absent: no
    /// cache_bandwidth_fraction.
    #[schemars(extend("x-rule" = "positive", "x-unit" = "bytes per second", "x-example" = 6.5e12))]
    pub cache_bytes_per_second_max: Option<f64>,
    /// Where sysfs is mounted: the kernel driver and the CCS mode of each card stand there.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub sysfs_root: PathBuf,
}

/// `[agent.exporter]`: a second source of readings, asked over HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExporterConfig {
    /// dcgm-exporter for NVIDIA devices before Hopper, XPU Manager for Intel's. What the library tells goes before it. It
    /// must give the energy counter or the power, from which it is seen that it still collects. Absent: nobody is asked.
    #[schemars(extend("x-rule" = "http-url", "x-example" = "http://127.0.0.1:9400/metrics"))]
    pub url: Option<String>,
    /// How long values hold of which no newer ones come: longer than the exporter's own period.
    #[schemars(range(min = 1.0, max = 3600.0))]
    pub keep_seconds: f64,
}

/// `[agent.devices]`: what Slurm calls the devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesConfig {
    /// What Slurm calls the devices (Type= in gres.conf), by index; absent: g0, g1, ..
    #[schemars(extend("x-rule" = "name", "x-example" = ["g0", "g1", "g2", "g3"]))]
    pub gres_types: Option<Vec<String>>,
}

/// `[agent.mps]`: whether and how NVIDIA's devices are shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct MpsConfig {
    /// Whether devices are shared by MPS where its control program is there. Otherwise they are time-sliced.
    pub enabled: bool,
    /// Whether several users may share an NVIDIA device: one MPS server then serves them all, and a fault of one is a fault
    /// of all. Wanted by policy.users = "same-account" and "any".
    pub multi_user: bool,
    /// Whether a device is closed to all but its MPS server while tenants share it (compute mode EXCLUSIVE_PROCESS, else
    /// DEFAULT). A program that unsets CUDA_MPS_PIPE_DIRECTORY then fails, where it would otherwise run beside the tenants
    /// without any limit. Change it while no tenant is there. Simulated devices have no such mode.
    pub strict: bool,
    /// Whether a tenant's cap is compute units of its own (static SM partitions, CUDA 13.1 and later) rather than the most
    /// that it may use. Caps are rounded down to what the daemon gives out at a time. Where it offers none, caps stay caps,
    /// and 'pillion nodes' says why.
    pub static_partitions: bool,
    /// NVIDIA's control program.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub control_binary: PathBuf,
}

/// `[agent.mig]`: whether NVIDIA's devices are cut into instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MigConfig {
    /// Whether devices are cut into instances for tenants, and made whole again when nobody has one: those with MIG on and no
    /// instance, which then rest in the one that is all of the GPU, and with mig.toggle others too. Instances that somebody else made
    /// are never touched; a device with one is closed. Needs root, and NVreg_ModifyDeviceFiles=0 for walls between users.
    pub enabled: bool,
    /// Whether MIG is turned on for that and off again, where it needs no reset: Hopper and later. Ampere never is: an
    /// administrator turns MIG on there and leaves it without instances.
    pub toggle: bool,
}

/// `[agent.metrics]`: the agent's page for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentMetricsConfig {
    /// Where Prometheus gets the node's metrics, at /metrics; absent: nowhere. Whoever reaches it may read them, the users of
    /// this node among them: they tell of devices, and of no job or user. Where the address cannot be had, the agent goes on
    /// without.
    #[schemars(with = "Option<String>", extend("x-rule" = "socket-address", "x-example" = "127.0.0.1:9821"))]
    pub listen_address: Option<SocketAddr>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            mode: AgentMode::Share,
            node_name: None,
            state_directory: PathBuf::from("/var/lib/pillion-agent"),
            runtime_directory: PathBuf::from("/run/pillion"),
            handoff_socket: PathBuf::from(HANDOFF_SOCKET),
            slurm_conf: None,
            sample_period_seconds: 1.0,
            journal_bytes_max: 64 << 20,
            backend: BackendKind::Simulated,
            scheduler: SchedulerConfig::default(),
            auth: Auth::default(),
            simulated: SimulatedConfig::default(),
            nvidia: NvidiaConfig::default(),
            intel: IntelConfig::default(),
            exporter: ExporterConfig::default(),
            devices: DevicesConfig::default(),
            mps: MpsConfig::default(),
            mig: MigConfig::default(),
            metrics: AgentMetricsConfig::default(),
        }
    }
}

impl Default for ExporterConfig {
    fn default() -> Self {
        Self { url: None, keep_seconds: 90.0 }
    }
}

impl Default for MpsConfig {
    fn default() -> Self {
        let control_binary = PathBuf::from("/usr/bin/nvidia-cuda-mps-control");
        Self { enabled: true, multi_user: false, strict: false, static_partitions: false, control_binary }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { endpoint: "https://127.0.0.1:6820".to_owned(), retry_seconds_max: 30.0 }
    }
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        Self { socket: PathBuf::from("/run/pillion/simulated-device.sock") }
    }
}

impl Default for IntelConfig {
    fn default() -> Self {
        Self {
            library: None,
            metric_burst_seconds: 0.0,
            metric_period_seconds: 60.0,
            cache_bytes_per_second_max: None,
            sysfs_root: PathBuf::from("/sys"),
        }
    }
}

impl Agent {
    /// Gives the node its name, and its name to every path.
    pub(crate) fn named(mut self, host_name: &str) -> Self {
        let node = self.node_name.get_or_insert_with(|| host_name.to_owned()).clone();
        let paths = [
            &mut self.state_directory,
            &mut self.runtime_directory,
            &mut self.handoff_socket,
            &mut self.simulated.socket,
            &mut self.mps.control_binary,
            &mut self.intel.sysfs_root,
        ];
        let optional = [&mut self.nvidia.library, &mut self.intel.library, &mut self.slurm_conf];
        for path in paths.into_iter().chain(optional.into_iter().flatten()) {
            *path = PathBuf::from(path.to_string_lossy().replace("%n", &node));
        }
        self.auth.named(&node);
        self
    }

    /// The node's name.
    pub fn node(&self) -> NodeName {
        NodeName::new(self.node_name.as_deref().unwrap_or_default())
    }

    /// The schedulers, host and port each, in the order in which they are tried.
    pub fn scheduler_addresses(&self) -> Vec<(String, u16)> {
        crate::rules::scheduler_addresses(&self.scheduler.endpoint).unwrap_or_default()
    }

    /// The time between two looks.
    pub fn sample_period(&self) -> Duration {
        Duration::from_secs_f64(self.sample_period_seconds)
    }

    /// What Slurm calls the device with this index, where the configuration says so.
    pub fn gres_type(&self, index: u32) -> Option<GresType> {
        let given = self.devices.gres_types.as_ref()?;
        usize::try_from(index).ok().and_then(|index| given.get(index)).map(GresType::new)
    }
}
