//! The scheduler's configuration file: one struct, unknown keys refused, checked once at load (STYLE R11), then handed to the
//! rooms in pieces.

use crate::context::Settings;
use crate::grpc::auth::Operators;
use crate::step::Patience;
use crate::train::Training;
use pillion_core::heartbeat::Mode;
use pillion_pairing::Policy;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `/etc/pillion/pillion.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the private database lives.
    pub state_directory: PathBuf,
    /// The file by which `pillion.lua` knows that we live; on the controller.
    pub heartbeat_path: PathBuf,
    /// `off`, `shadow` or `active`.
    pub mode: Mode,
    /// The longest that Slurm holds a job back without us, in seconds; 10 to 3600.
    pub bound_seconds: u64,
    /// How often the queue is read, in seconds.
    pub scan_period_seconds: f64,
    /// Which partitions are the pool.
    pub pool: PoolConfig,
    /// How Slurm is reached.
    pub slurm: SlurmConfig,
    /// The database.
    pub database: DatabaseConfig,
    /// Who may reach us, and where.
    pub listen: ListenConfig,
    /// The site's policy.
    pub policy: Policy,
    /// When the model is trained.
    pub training: TrainingConfig,
}

/// `[pool]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Partitions that serve shards only, in order of preference.
    pub partitions: Vec<String>,
    /// Names under which users may ask for a device model: `h100 = ["h100", "hopper"]`.
    pub gpu_types: BTreeMap<String, Vec<String>>,
}

/// `[slurm]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmConfig {
    /// Where squeue and scontrol are; absent = `PATH`.
    pub binary_directory: Option<PathBuf>,
    /// `SLURM_CONF`; absent = Slurm's default.
    pub conf: Option<PathBuf>,
    /// How long one of its programs may take.
    pub timeout_seconds: u64,
}

/// `[database]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `postgres://..`; absent = a private Postgres in the state directory.
    pub url: Option<String>,
    /// Where Postgres' programs are, for the private one; absent = looked for.
    pub binary_directory: Option<PathBuf>,
}

/// `[listen]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenConfig {
    /// For agents, and for the CLI on other machines. Loopback unless named otherwise.
    pub tcp: SocketAddr,
    /// For the CLI on this machine.
    pub socket: PathBuf,
    /// Uids that may see everything, besides root and our own.
    pub operator_uids: Vec<u32>,
    /// Whether whoever reaches `tcp` may see everything.
    pub tcp_is_operator: bool,
}

/// `[training]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// New observations of sharings, or changed profiles, that make a new model worth training.
    pub observations_min: u32,
    /// The least time between two trainings, in seconds.
    pub period_seconds_min: u64,
    /// Observations beyond so many are left out, the oldest first.
    pub observations_max: u32,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        let Training { observations_min, period_min, observations_max } = Training::default();
        Self { observations_min, period_seconds_min: period_min.as_secs(), observations_max }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_directory: PathBuf::from("/var/lib/pillion"),
            heartbeat_path: PathBuf::from("/run/pillion/heartbeat"),
            mode: Mode::Off,
            bound_seconds: 600,
            scan_period_seconds: 2.0,
            pool: PoolConfig::default(),
            slurm: SlurmConfig::default(),
            database: DatabaseConfig::default(),
            listen: ListenConfig::default(),
            policy: Policy::default(),
            training: TrainingConfig::default(),
        }
    }
}

impl Default for SlurmConfig {
    fn default() -> Self {
        Self { binary_directory: None, conf: None, timeout_seconds: 10 }
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            tcp: SocketAddr::from(([127, 0, 0, 1], 6820)),
            socket: PathBuf::from("/run/pillion/scheduler.sock"),
            operator_uids: Vec::new(),
            tcp_is_operator: false,
        }
    }
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read, or a key is unknown or of the wrong kind.
    #[error("cannot use {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: config::ConfigError,
    },
    /// A value is outside its range.
    #[error("{path}: {key} = {value} is not allowed; write {allowed}")]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// Which.
        key: &'static str,
        /// What was written.
        value: String,
        /// What may be.
        allowed: &'static str,
    },
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`ConfigError`], one sentence that says what is allowed.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let source = config::Config::builder()
            .add_source(config::File::from(path).format(config::FileFormat::Toml))
            .build()
            .map_err(unreadable)?;
        let config: Self = source.try_deserialize().map_err(unreadable)?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let range = |key, value: String, allowed, is_good: bool| {
            if is_good {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { path: path.to_owned(), key, value, allowed })
            }
        };
        let partitions = format!("{:?}", self.pool.partitions);
        range("pool.partitions", partitions, "at least one partition", !self.pool.partitions.is_empty())?;
        let bound = self.bound_seconds;
        range("bound_seconds", bound.to_string(), "10 to 3600", (10..=3600).contains(&bound))?;
        let period = self.scan_period_seconds;
        range("scan_period_seconds", period.to_string(), "0.2 to 10", (0.2..=10.0).contains(&period))?;
        let timeout = self.slurm.timeout_seconds;
        range("slurm.timeout_seconds", timeout.to_string(), "1 to 60", (1..=60).contains(&timeout))?;
        let margin = self.policy.memory_margin_fraction;
        range(
            "policy.memory_margin_fraction",
            margin.to_string(),
            "0 to 0.5",
            (0.0..=0.5).contains(&margin),
        )?;
        let budget = self.policy.broken_budget_fraction;
        range("policy.broken_budget_fraction", budget.to_string(), "0 to 1", (0.0..=1.0).contains(&budget))?;
        let tenants = self.policy.tenants_max;
        range("policy.tenants_max", tenants.to_string(), "1 to 4", (1..=4).contains(&tenants))?;
        let TrainingConfig { observations_min, period_seconds_min, observations_max } = self.training;
        range(
            "training.observations_min",
            observations_min.to_string(),
            "1 to 1000",
            (1..=1000).contains(&observations_min),
        )?;
        range(
            "training.period_seconds_min",
            period_seconds_min.to_string(),
            "1 to 86400",
            (1..=86_400).contains(&period_seconds_min),
        )?;
        range(
            "training.observations_max",
            observations_max.to_string(),
            "100 to 100000",
            (100..=100_000).contains(&observations_max),
        )
    }

    /// The reconcilers' part of it.
    pub fn settings(&self) -> Settings {
        let (bound, patience) = (Duration::from_secs(self.bound_seconds), Patience::default());
        Settings {
            pool: self.pool.partitions.clone(),
            bound,
            // A guard is a wait too: whoever is killed right after setting it must not hold the job beyond the bound.
            patience: Patience { guard: patience.guard.min(bound), ..patience },
            mode: self.mode,
            policy: self.policy.clone(),
            heartbeat_path: Some(self.heartbeat_path.clone()),
            gpu_types: self.pool.gpu_types.clone(),
            training: Training {
                observations_min: self.training.observations_min,
                period_min: Duration::from_secs(self.training.period_seconds_min),
                observations_max: self.training.observations_max,
            },
            ..Settings::default()
        }
    }

    /// Who may see everything.
    pub fn operators(&self) -> Operators {
        Operators { uids: self.listen.operator_uids.clone(), tcp_is_operator: self.listen.tcp_is_operator }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pillion.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).map_err(|error| pillion_core::report(&error))
    }

    #[test]
    fn the_shortest_file_names_the_pool_and_leaves_everything_off() {
        let config = load("pool.partitions = [\"shared\"]").unwrap();
        assert_eq!(config.mode, Mode::Off);
        assert!(config.listen.tcp.ip().is_loopback());
        assert_eq!(config.policy, Policy::default());
    }

    /// The example with every setting that is commented out in it taken in.
    fn whole_example() -> String {
        let text = include_str!("../../../deploy/pillion.toml.example");
        let is_setting = |line: &str| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let taken_in = |line: &str| line.strip_prefix('#').filter(|rest| is_setting(rest)).map(str::to_owned);
        text.lines().map(|line| taken_in(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
    }

    #[test]
    fn the_example_holds_the_defaults() {
        let config = load(include_str!("../../../deploy/pillion.toml.example")).unwrap();
        let mut expected = Config::default();
        expected.pool.partitions = vec!["shared".to_owned()];
        assert_eq!(format!("{config:#?}"), format!("{expected:#?}"));
    }

    #[test]
    fn the_example_names_every_setting() {
        let example: toml::Table = whole_example().parse().unwrap();
        load(&whole_example()).unwrap();
        for section in ["", "pool", "slurm", "database", "listen", "policy", "training"] {
            let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            let message = load(&format!("{header}no_such_setting = 1\n")).unwrap_err();
            // serde lists what it knows: "unknown field `x`, expected one of `a`, `b`".
            let (_, known) = message.split_once("expected").expect("a list of settings");
            let known = known.split_once(" for key").map_or(known, |(known, _)| known);
            let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            assert!(known.len() >= 2, "{message}");
            let table = if section.is_empty() { &example } else { example[section].as_table().unwrap() };
            for name in known {
                assert!(table.contains_key(name), "deploy/pillion.toml.example lacks {section}.{name}");
            }
        }
    }

    #[test]
    fn a_guard_holds_no_job_beyond_the_bound() {
        let guard_of = |bound: u64| {
            let text = format!("pool.partitions = [\"shared\"]\nbound_seconds = {bound}");
            load(&text).unwrap().settings().patience.guard
        };
        assert_eq!(guard_of(10), Duration::from_secs(10));
        assert_eq!(guard_of(600), Patience::default().guard);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let cases = [
            ("", "pool.partitions = [] is not allowed; write at least one partition"),
            (
                "pool.partitions = [\"a\"]\nbound_seconds = 5",
                "bound_seconds = 5 is not allowed; write 10 to 3600",
            ),
            ("pool.partitions = [\"a\"]\nboundseconds = 5", "boundseconds"),
            (
                "pool.partitions = [\"a\"]\n[training]\nobservations_min = 0",
                "training.observations_min = 0 is not allowed; write 1 to 1000",
            ),
            ("pool.partitions = [\"a\"]\nmode = \"on\"", "off"),
            ("pool.partitions = [\"a\"]\n[policy]\nusers = \"all\"", "same-user"),
            ("pool.partitions = [\"a\"\n", "pillion.toml"),
        ];
        for (text, expected) in cases {
            let message = load(text).unwrap_err();
            assert!(message.contains(expected), "{text:?} gave {message:?}");
        }
    }
}
