//! The agent's configuration: one struct, read and checked once, then handed out in pieces.

use crate::mechanism::MpsPolicy;
use pillion_core::handoff::HANDOFF_SOCKET;
use pillion_core::{GresType, NodeName};
use pillion_device::mps::control_binary_default;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path of a Unix socket.
const SOCKET_PATH_LENGTH_MAX: usize = 107;

/// `agent.toml`. In every path `%n` stands for the node's name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The node, as Slurm names it; the host name up to its first dot if absent.
    pub node_name: Option<String>,
    /// What outlives the agent: shares, runs in progress, reports that wait for the scheduler.
    pub state_directory: PathBuf,
    /// What does not outlive the machine: progress files, MPS directories.
    pub runtime_directory: PathBuf,
    /// Where the SPANK plugin asks. Markers of jobs stand beside it, in `jobs/`.
    pub handoff_socket: PathBuf,
    /// The time between two looks at the devices.
    pub sample_period_seconds: f64,
    /// How much the report journal may hold.
    pub journal_bytes_max: u64,
    /// Which devices the node has.
    pub backend: BackendKind,
    /// The scheduler.
    pub scheduler: SchedulerConfig,
    /// The simulated devices.
    pub simulated: SimulatedConfig,
    /// NVIDIA's devices.
    pub nvidia: NvidiaConfig,
    /// Intel's data centre GPUs.
    pub intel: IntelConfig,
    /// What tells more of the devices than their library.
    pub exporter: ExporterConfig,
    /// What Slurm calls the devices.
    pub devices: DevicesConfig,
    /// NVIDIA's Multi-Process Service.
    pub mps: MpsConfig,
}

/// Which devices the node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum BackendKind {
    /// Those of a `pillion-simulated-device`.
    Simulated,
    /// NVIDIA's, through NVML.
    Nvidia,
    /// Intel's data centre GPUs, through Level Zero.
    Intel,
}

/// A word that names no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a backend; allowed are simulated, nvidia and intel")]
pub struct UnknownBackend(pub String);

impl TryFrom<String> for BackendKind {
    type Error = UnknownBackend;
    fn try_from(text: String) -> Result<Self, UnknownBackend> {
        match text.as_str() {
            "simulated" => Ok(Self::Simulated),
            "nvidia" => Ok(Self::Nvidia),
            "intel" => Ok(Self::Intel),
            _ => Err(UnknownBackend(text)),
        }
    }
}

/// The scheduler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// Where it listens for agents.
    pub endpoint: String,
    /// The longest pause between two attempts to reach it.
    pub retry_seconds_max: f64,
}

/// The simulated devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedConfig {
    /// Where their driver process listens.
    pub socket: PathBuf,
}

/// NVIDIA's devices.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NvidiaConfig {
    /// The NVML library; the driver's own `libnvidia-ml.so.1` if absent.
    pub library: Option<PathBuf>,
}

/// Intel's data centre GPUs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IntelConfig {
    /// The Level Zero loader; where the system finds it if absent.
    pub library: Option<PathBuf>,
    /// How long the metric streamer runs at a time; never if 0.
    pub metric_burst_seconds: f64,
    /// From the beginning of one burst to that of the next.
    pub metric_period_seconds: f64,
    /// The greatest rate of one tile's last-level cache, as the site measured it.
    pub cache_bytes_per_second_max: Option<f64>,
    /// Where sysfs is mounted: the kernel driver and the CCS mode of each card stand there.
    pub sysfs_root: PathBuf,
}

/// A metrics endpoint on the node that tells more of the devices than their library: dcgm-exporter for NVIDIA's before
/// Hopper, XPU Manager for Intel's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExporterConfig {
    /// Where it answers, `http://127.0.0.1:9400/metrics`; nobody is asked if absent.
    pub url: Option<String>,
    /// How long values hold of which no newer ones come: longer than the exporter's own period.
    pub keep_seconds: f64,
}

/// What Slurm calls the devices.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesConfig {
    /// The GRES type of each device, by index; if absent as the backend says: `g0`, `g1`, ..
    pub gres_types: Option<Vec<String>>,
}

/// NVIDIA's Multi-Process Service.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct MpsConfig {
    /// Whether devices are shared by MPS where it is there; by time slices otherwise.
    pub enabled: bool,
    /// Whether several users may share a device. Their isolation from each other is then the MPS server's, which is none
    /// against faults.
    pub multi_user: bool,
    /// Whether a device is closed to all but its MPS server while its daemon is up (`EXCLUSIVE_PROCESS`): a program that
    /// does not find the daemon then fails, where it would take turns with the others. Simulated devices have no such mode.
    pub strict: bool,
    /// Whether a tenant's cap is to be compute units that it has to itself, as static SM partitions (CUDA 13.1 and later),
    /// where it else is only the most that it may use. Where the MPS daemon offers none, caps stay caps, and the device's
    /// condition says so.
    pub static_partitions: bool,
    /// NVIDIA's control program.
    pub control_binary: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: None,
            state_directory: PathBuf::from("/var/lib/pillion-agent"),
            runtime_directory: PathBuf::from("/run/pillion"),
            handoff_socket: PathBuf::from(HANDOFF_SOCKET),
            sample_period_seconds: 1.0,
            journal_bytes_max: 64 << 20,
            backend: BackendKind::Simulated,
            scheduler: SchedulerConfig::default(),
            simulated: SimulatedConfig::default(),
            nvidia: NvidiaConfig::default(),
            intel: IntelConfig::default(),
            exporter: ExporterConfig::default(),
            devices: DevicesConfig::default(),
            mps: MpsConfig::default(),
        }
    }
}

impl Default for ExporterConfig {
    fn default() -> Self {
        Self { url: None, keep_seconds: 90.0 }
    }
}

impl MpsConfig {
    /// As the mechanisms take it.
    pub fn policy(&self) -> MpsPolicy {
        MpsPolicy { multi_user: self.multi_user, static_partitions: self.static_partitions }
    }
}

impl Default for MpsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            multi_user: false,
            strict: false,
            static_partitions: false,
            control_binary: control_binary_default(),
        }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { endpoint: "http://127.0.0.1:6820".to_owned(), retry_seconds_max: 30.0 }
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

/// Whether a setting holds what it must, its name, its value, and what is allowed.
type Check = (bool, &'static str, String, &'static str);

impl IntelConfig {
    /// What each setting must hold.
    fn checks(&self) -> Vec<Check> {
        let Self {
            library,
            metric_burst_seconds,
            metric_period_seconds,
            cache_bytes_per_second_max,
            sysfs_root,
        } = self;
        let mut checks = vec![
            (
                (0.0..=3600.0).contains(metric_burst_seconds),
                "intel.metric_burst_seconds",
                metric_burst_seconds.to_string(),
                "0 to 3600",
            ),
            (
                (1.0..=86400.0).contains(metric_period_seconds)
                    && metric_period_seconds >= metric_burst_seconds,
                "intel.metric_period_seconds",
                metric_period_seconds.to_string(),
                "1 to 86400, and no less than intel.metric_burst_seconds",
            ),
        ];
        let paths =
            library.iter().map(|path| ("intel.library", path)).chain([("intel.sysfs_root", sysfs_root)]);
        for (key, path) in paths {
            checks.push((path.is_absolute(), key, format!("'{}'", path.display()), "an absolute path"));
        }
        if let Some(most) = cache_bytes_per_second_max {
            let is_rate = most.is_finite() && *most > 0.0;
            checks.push((is_rate, "intel.cache_bytes_per_second_max", most.to_string(), "more than 0"));
        }
        checks
    }

    /// As the backend takes it.
    pub fn settings(&self) -> pillion_device::intel::Settings {
        let bursts = (self.metric_burst_seconds > 0.0).then(|| pillion_device::intel::Bursts {
            burst: Duration::from_secs_f64(self.metric_burst_seconds),
            period: Duration::from_secs_f64(self.metric_period_seconds),
        });
        pillion_device::intel::Settings {
            library: self.library.as_ref().map(|library| library.to_string_lossy().into_owned()),
            bursts,
            cache_bytes_per_second_max: self.cache_bytes_per_second_max,
            sysfs_root: self.sysfs_root.clone(),
            ..pillion_device::intel::Settings::default()
        }
    }
}

/// A configuration that the agent cannot run with; one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read, or holds something that is no setting.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A setting out of range.
    #[error("{key} is {value}; allowed is {allowed}")]
    Value {
        /// The setting.
        key: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        allowed: &'static str,
    },
}

impl Config {
    /// Reads and checks `path`. `host_name` stands in for a node name that is not given.
    ///
    /// # Errors
    /// [`ConfigError`], a sentence for whoever wrote the file.
    pub fn load(path: &Path, host_name: &str) -> Result<Self, ConfigError> {
        let unreadable = |reason: String| ConfigError::Unreadable { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&text, host_name).map_err(|error| match error {
            ConfigError::Unreadable { reason, .. } => unreadable(reason),
            value @ ConfigError::Value { .. } => value,
        })
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, host_name: &str) -> Result<Self, ConfigError> {
        let source = config::File::from_str(text, config::FileFormat::Toml);
        let read =
            config::Config::builder().add_source(source).build().and_then(config::Config::try_deserialize);
        let mut config: Self = read
            .map_err(|error| ConfigError::Unreadable { path: PathBuf::new(), reason: error.to_string() })?;
        let node = config.node_name.get_or_insert_with(|| host_name.to_owned()).clone();
        for path in [
            &mut config.state_directory,
            &mut config.runtime_directory,
            &mut config.handoff_socket,
            &mut config.simulated.socket,
            &mut config.mps.control_binary,
            &mut config.intel.sysfs_root,
        ]
        .into_iter()
        .chain(&mut config.nvidia.library)
        .chain(&mut config.intel.library)
        {
            *path = PathBuf::from(path.to_string_lossy().replace("%n", &node));
        }
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let node = self.node_name.as_deref().unwrap_or_default();
        let is_name = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let mut checks: Vec<Check> = vec![
            (is_name(node), "node_name", node.to_owned(), "letters, digits, dots, underscores and dashes"),
            (
                (0.1..=60.0).contains(&self.sample_period_seconds),
                "sample_period_seconds",
                self.sample_period_seconds.to_string(),
                "0.1 to 60",
            ),
            (
                (1 << 20..=1 << 40).contains(&self.journal_bytes_max),
                "journal_bytes_max",
                self.journal_bytes_max.to_string(),
                "1048576 (1 MiB) to 1099511627776 (1 TiB)",
            ),
            (
                (0.1..=3600.0).contains(&self.scheduler.retry_seconds_max),
                "scheduler.retry_seconds_max",
                self.scheduler.retry_seconds_max.to_string(),
                "0.1 to 3600",
            ),
            (
                is_plain_http(&self.scheduler.endpoint),
                "scheduler.endpoint",
                format!("'{}'", self.scheduler.endpoint),
                "http://HOST:PORT",
            ),
            (
                self.exporter.url.as_ref().is_none_or(|url| is_plain_http(url)),
                "exporter.url",
                format!("'{}'", self.exporter.url.as_deref().unwrap_or_default()),
                "http://HOST:PORT/PATH",
            ),
            (
                (1.0..=3600.0).contains(&self.exporter.keep_seconds),
                "exporter.keep_seconds",
                self.exporter.keep_seconds.to_string(),
                "1 to 3600",
            ),
        ];
        checks.extend(self.path_checks());
        checks.extend(self.intel.checks());
        for gres_type in self.devices.gres_types.iter().flatten() {
            let allowed = "a list of GRES types such as [\"g0\", \"g1\"]";
            checks.push((is_name(gres_type), "devices.gres_types", format!("'{gres_type}'"), allowed));
        }
        match checks.into_iter().find(|(holds, ..)| !holds) {
            Some((_, key, value, allowed)) => Err(ConfigError::Value { key, value, allowed }),
            None => Ok(()),
        }
    }

    /// As [`IntelConfig::checks`], of the paths.
    fn path_checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        let library = self.nvidia.library.iter().map(|path| ("nvidia.library", path));
        for (key, path) in [
            ("state_directory", &self.state_directory),
            ("runtime_directory", &self.runtime_directory),
            ("handoff_socket", &self.handoff_socket),
            ("simulated.socket", &self.simulated.socket),
            ("mps.control_binary", &self.mps.control_binary),
        ]
        .into_iter()
        .chain(library)
        {
            checks.push((path.is_absolute(), key, format!("'{}'", path.display()), "an absolute path"));
        }
        for (key, path) in
            [("handoff_socket", &self.handoff_socket), ("simulated.socket", &self.simulated.socket)]
        {
            let fits = path.as_os_str().len() <= SOCKET_PATH_LENGTH_MAX;
            checks.push((fits, key, format!("'{}'", path.display()), "a path of at most 107 bytes"));
        }
        checks
    }

    /// The node's name.
    pub fn node(&self) -> NodeName {
        NodeName::new(self.node_name.as_deref().unwrap_or_default())
    }

    /// The time between two looks.
    pub fn sample_period(&self) -> Duration {
        Duration::from_secs_f64(self.sample_period_seconds)
    }

    /// Beneath it each device's MPS daemon has its directories, by the device's GRES type.
    pub fn mps_directory(&self) -> PathBuf {
        crate::mechanism::mps::directory(&self.runtime_directory)
    }

    /// What Slurm calls the device with this index, where the configuration says so.
    pub fn gres_type(&self, index: u32) -> Option<GresType> {
        let given = self.devices.gres_types.as_ref()?;
        usize::try_from(index).ok().and_then(|index| given.get(index)).map(GresType::new)
    }
}

/// Whether it names a host to be asked without TLS.
fn is_plain_http(url: &str) -> bool {
    tonic::transport::Endpoint::from_shared(url.to_owned())
        .is_ok_and(|it| it.uri().scheme_str() == Some("http") && it.uri().host().is_some())
}

#[cfg(test)]
mod tests;
