//! What the command line reads of the scheduler's configuration: where Slurm is, the pool, the heartbeat and the listeners.
//!
//! The file belongs to the scheduler, which checks it whole; here everything else in it is passed over.

use crate::error::CliError;
use pillion_config::Auth;
use pillion_slurm::CommandSettings;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the configuration is, unless `--config` names another place.
pub const CONFIG_PATH: &str = "/etc/pillion/pillion.toml";
/// The scheduler's heartbeat, unless configured: where `pillion.lua` looks for it.
const HEARTBEAT_PATH: &str = "/run/pillion/heartbeat";

/// The keys that we know.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The file by which the scheduler tells `pillion.lua` that it lives.
    pub heartbeat_path: PathBuf,
    pub pool: Pool,
    pub slurm: SlurmPlace,
    pub listen: Listen,
    pub auth: Auth,
    pub database: Database,
    pub web: Web,
    pub metrics: Metrics,
    pub agent: Agent,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// The pool's partitions.
    pub partitions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SlurmPlace {
    /// Where squeue and scontrol are; absent = `PATH`.
    pub binary_directory: Option<PathBuf>,
    /// `SLURM_CONF`; absent = Slurm's default.
    pub conf: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Listen {
    /// For agents, and for the command line on other machines; absent = loopback.
    pub tcp: Option<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Database {
    /// Where it is; absent: the scheduler's private one.
    pub url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Web {
    /// Where the page is; absent: nowhere.
    pub listen_address: Option<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Where Prometheus reads; absent: nowhere.
    pub listen_address: Option<SocketAddr>,
}

/// Of an agent that reads the same file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Agent {
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heartbeat_path: HEARTBEAT_PATH.into(),
            pool: Pool::default(),
            slurm: SlurmPlace::default(),
            listen: Listen::default(),
            auth: Auth::default(),
            database: Database::default(),
            web: Web::default(),
            metrics: Metrics::default(),
            agent: Agent::default(),
        }
    }
}

impl SlurmPlace {
    /// How to run Slurm's programs.
    pub fn command_settings(&self) -> CommandSettings {
        CommandSettings {
            binary_directory: self.binary_directory.clone(),
            conf: self.conf.clone(),
            ..CommandSettings::default()
        }
    }
}

impl Config {
    /// Reads `path`, or the usual place where it is `None`; there a missing file means defaults.
    ///
    /// # Errors
    /// [`CliError::File`] or [`CliError::Data`] where a file cannot be read or understood.
    pub fn load(path: Option<&Path>) -> Result<Self, CliError> {
        let place = path.unwrap_or(Path::new(CONFIG_PATH));
        match std::fs::read_to_string(place) {
            Ok(text) => Self::parse(&text).map_err(|error| {
                CliError::Data(format!("{} cannot be understood: {error}", place.display()))
            }),
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(source) => Err(CliError::file("read", place)(source)),
        }
    }

    /// By what callers over TCP prove who they are. A file that only the scheduler may read tells users nothing: they prove it by
    /// MUNGE, whatever stands in it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn auth(path: Option<&Path>) -> Result<Auth, CliError> {
        match Self::load(path) {
            Err(CliError::File { source, .. })
                if path.is_none() && source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Ok(Auth::default())
            }
            loaded => loaded.map(|config| config.auth),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            format!("line {line}: {}", error.message())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others_are_passed_over() {
        let text = "mode = \"off\"\n[pool]\npartitions = [\"shared\"]\n[database]\nurl = \"x\"\n";
        let config = Config::parse(text).expect("it is valid");
        assert_eq!(config.pool.partitions, ["shared"]);
        assert_eq!(config.heartbeat_path, Path::new("/run/pillion/heartbeat"));
    }

    #[test]
    fn a_wrong_type_names_its_line() {
        let message = Config::parse("[pool]\npartitions = 3\n").expect_err("3 is no list");
        assert!(message.starts_with("line 2: "), "{message}");
    }
}
