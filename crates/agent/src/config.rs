//! The agent's configuration: one struct, read and checked once, then handed out in pieces.

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
pub struct MpsConfig {
    /// Whether several users may share a device. Their isolation from each other is then the MPS server's, which is none
    /// against faults.
    pub multi_user: bool,
    /// Whether a device is closed to all but its MPS server while its daemon is up (`EXCLUSIVE_PROCESS`): a program that
    /// does not find the daemon then fails, where it would take turns with the others. Simulated devices have no such mode.
    pub strict: bool,
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
            devices: DevicesConfig::default(),
            mps: MpsConfig::default(),
        }
    }
}

impl Default for MpsConfig {
    fn default() -> Self {
        Self { multi_user: false, strict: false, control_binary: control_binary_default() }
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
        }
    }
}

impl IntelConfig {
    /// What each setting must hold: whether it does, its name, its value, what is allowed.
    fn checks(&self) -> Vec<(bool, &'static str, String, &'static str)> {
        let Self { library, metric_burst_seconds, metric_period_seconds, cache_bytes_per_second_max } = self;
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
        if let Some(library) = library {
            let value = format!("'{}'", library.display());
            checks.push((library.is_absolute(), "intel.library", value, "an absolute path"));
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
        ]
        .into_iter()
        .chain(&mut config.nvidia.library)
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
        let mut checks: Vec<(bool, &'static str, String, &'static str)> = vec![
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
                tonic::transport::Endpoint::from_shared(self.scheduler.endpoint.clone())
                    .is_ok_and(|it| it.uri().scheme_str() == Some("http") && it.uri().host().is_some()),
                "scheduler.endpoint",
                format!("'{}'", self.scheduler.endpoint),
                "http://HOST:PORT",
            ),
        ];
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text, "n1").expect_err("must be refused").to_string()
    }

    const EXAMPLE: &str = include_str!("../../../deploy/agent.toml.example");

    /// The example with every setting that is commented out in it taken in.
    fn whole_example() -> String {
        let is_setting = |line: &str| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let taken_in = |line: &str| line.strip_prefix('#').filter(|rest| is_setting(rest)).map(str::to_owned);
        EXAMPLE.lines().map(|line| taken_in(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
    }

    #[test]
    fn the_example_holds_the_defaults() {
        let mut expected = Config { node_name: Some("n1".into()), ..Config::default() };
        expected.scheduler.endpoint = "http://controller:6820".to_owned();
        assert_eq!(Config::parse(EXAMPLE, "n1").unwrap(), expected);
    }

    #[test]
    fn the_example_names_every_setting() {
        Config::parse(&whole_example(), "n1").unwrap();
        let example: toml::Table = whole_example().parse().unwrap();
        for section in ["", "scheduler", "simulated", "nvidia", "intel", "devices", "mps"] {
            let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            let message = refused(&format!("{header}no_such_setting = 1\n"));
            // serde lists what it knows: "unknown field `x`, expected one of `a`, `b`".
            let (_, known) = message.split_once("expected").expect("a list of settings");
            let known = known.split_once(" for key").map_or(known, |(known, _)| known);
            let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            assert!(!known.is_empty(), "{message}");
            let table = if section.is_empty() { &example } else { example[section].as_table().unwrap() };
            for name in known {
                assert!(table.contains_key(name), "deploy/agent.toml.example lacks {section}.{name}");
            }
        }
    }

    #[test]
    fn nothing_given_is_a_configuration() {
        let config = Config::parse("", "n1").unwrap();
        assert_eq!(config.node(), NodeName::new("n1"));
        assert_eq!(config, Config { node_name: Some("n1".into()), ..Config::default() });
    }

    #[test]
    fn paths_carry_the_nodes_name() {
        let text = "node_name = 'n7'\nhandoff_socket = '/run/%n/a.sock'\n[simulated]\nsocket = '/x/%n.sock'\n\
                    [nvidia]\nlibrary = '/x/%n.so'\n[devices]\ngres_types = ['gpu0', 'gpu1']";
        let config = Config::parse(text, "n1").unwrap();
        assert_eq!(config.handoff_socket, PathBuf::from("/run/n7/a.sock"));
        assert_eq!(config.simulated.socket, PathBuf::from("/x/n7.sock"));
        assert_eq!(config.nvidia.library, Some(PathBuf::from("/x/n7.so")));
        assert_eq!(config.gres_type(1), Some(GresType::new("gpu1")));
        assert_eq!(config.gres_type(2), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_allowed() {
        assert!(refused("colour = 1").contains("unknown field `colour`"));
        assert!(refused("[mps]\nmulti_users = true").contains("unknown field `multi_users`"));
        let backend = refused("backend = 'nvml'");
        assert!(backend.contains("'nvml' is not a backend; allowed are simulated, nvidia and intel"), "{backend}");
        for (text, sentence) in [
            ("sample_period_seconds = 0.0", "sample_period_seconds is 0; allowed is 0.1 to 60"),
            ("sample_period_seconds = nan", "sample_period_seconds is NaN; allowed is 0.1 to 60"),
            ("journal_bytes_max = 5", "journal_bytes_max is 5; allowed is 1048576"),
            ("state_directory = 'var'", "state_directory is 'var'; allowed is an absolute path"),
            (
                "[nvidia]\nlibrary = 'libnvidia-ml.so.1'",
                "nvidia.library is 'libnvidia-ml.so.1'; allowed is an absolute",
            ),
            ("[scheduler]\nendpoint = 'localhost'", "allowed is http://HOST:PORT"),
            ("node_name = 'a b'", "node_name is a b; allowed is letters"),
            ("[intel]\nmetric_burst_seconds = -1.0", "metric_burst_seconds is -1; allowed is 0 to 3600"),
            (
                "[intel]\nmetric_burst_seconds = 90.0",
                "metric_period_seconds is 60; allowed is 1 to 86400, and no",
            ),
            ("[intel]\nlibrary = 'libze.so'", "intel.library is 'libze.so'; allowed is an absolute path"),
            ("[intel]\ncache_bytes_per_second_max = 0.0", "cache_bytes_per_second_max is 0; allowed is more"),
            ("[mps]\ncontrol_binary = 'mps'", "mps.control_binary is 'mps'; allowed is an absolute path"),
            ("[devices]\ngres_types = ['']", "devices.gres_types is ''; allowed is a list"),
        ] {
            assert!(refused(text).contains(sentence), "{}", refused(text));
        }
        let long = format!("handoff_socket = '/{}'", "x".repeat(107));
        assert!(refused(&long).contains("at most 107 bytes"));
    }

    #[test]
    fn metric_bursts_are_off_unless_they_are_asked_for() {
        let settings = |text: &str| Config::parse(text, "n1").unwrap().intel.settings();
        let plain = settings("backend = 'intel'");
        assert_eq!(plain, pillion_device::intel::Settings::default());
        let bursts = settings("[intel]\nlibrary = '/opt/ze.so'\nmetric_burst_seconds = 2.5").bursts.unwrap();
        assert_eq!((bursts.burst.as_secs_f64(), bursts.period.as_secs_f64()), (2.5, 60.0));
        assert_eq!(settings("[intel]\nlibrary = '/opt/ze.so'").library.as_deref(), Some("/opt/ze.so"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::load(Path::new("/nowhere/agent.toml"), "n1").expect_err("no such file");
        assert!(error.to_string().starts_with("/nowhere/agent.toml: No such file"));
    }
}
