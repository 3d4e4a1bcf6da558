//! Everything that the checks may look at. Gathered once; a check sees nothing else.

use crate::config::Config;
use pillion_api::StatusResponse;
use pillion_core::UnixTime;
use pillion_slurm::{Node, Partition, SlurmVersion};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Something that was looked for: there it is, or one sentence why it could not be seen.
pub type Known<T> = Result<T, String>;

/// The set-up at one moment.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: UnixTime,
    /// What the command line knows of the configuration.
    pub config: Config,
    /// The configuration file itself.
    pub config_text: TextFile,
    /// Whether that is the file that the running scheduler reports, for there is none in the usual place.
    pub is_config_reported: bool,
    /// The controller's release.
    pub version: Known<SlurmVersion>,
    /// `scontrol show config`.
    pub slurm_conf: Known<SlurmConf>,
    /// MUNGE on this machine; absent: Slurm proves who calls by other means.
    pub munge: Option<Munge>,
    pub partitions: Known<Vec<Partition>>,
    pub nodes: Known<Vec<Node>>,
    /// Limits of QOS and associations.
    pub limits: Known<Vec<Limit>>,
    /// `job_submit.lua` beside slurm.conf.
    pub job_submit_lua: TextFile,
    /// `pillion.lua`, where the site's script loads it from.
    pub pillion_lua: TextFile,
    /// `plugstack.conf`, with what it includes.
    pub plugstack: TextFile,
    /// Every SPANK plugin file of ours that plugstack.conf names, or that lies in the plugin folder.
    pub plugins: Vec<Plugin>,
    /// `job_container.conf` beside slurm.conf.
    pub job_container: TextFile,
    /// `namespace.yaml` beside it, of Slurm 25.11 and later.
    pub namespace: TextFile,
    /// The scheduler's heartbeat.
    pub heartbeat: TextFile,
    /// Whether it lies on a file system in memory; absent where that cannot be told.
    pub is_heartbeat_in_memory: Option<bool>,
    /// Whose it is: who the scheduler runs as.
    pub heartbeat_uid: Known<u32>,
    /// The scripts behind `Prolog`, `Epilog` and `EpilogSlurmctld`.
    pub hooks: Vec<Hook>,
    /// `systemctl is-active pillion-rescue.timer`.
    pub rescue_timer: Known<String>,
    /// What the scheduler says of itself.
    pub status: Known<StatusResponse>,
}

impl Facts {
    /// The pool's partitions: from the configuration, else from the scheduler.
    pub fn pool_names(&self) -> &[String] {
        if self.config.pool.partitions.is_empty() {
            self.status.as_ref().map_or(&[], |status| &status.pool_partitions)
        } else {
            &self.config.pool.partitions
        }
    }
    /// The pool's partitions that exist.
    pub fn pool_partitions(&self) -> Vec<&Partition> {
        let all = self.partitions.as_ref().map_or(&[][..], Vec::as_slice);
        all.iter().filter(|partition| self.pool_names().contains(&partition.name)).collect()
    }
    /// The pool's nodes.
    pub fn pool_nodes(&self) -> Vec<&Node> {
        let all = self.nodes.as_ref().map_or(&[][..], Vec::as_slice);
        all.iter()
            .filter(|node| node.partitions.iter().any(|name| self.pool_names().contains(name)))
            .collect()
    }
}

/// `scontrol show config`: names in lower case, `(null)` left out, `Prolog[0]` and the like under their plain name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlurmConf(BTreeMap<String, Vec<String>>);

impl SlurmConf {
    /// From the names and values of `scontrol show config`.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in pairs {
            let name = name.split_once('[').map_or(name.as_str(), |(plain, _)| plain).to_ascii_lowercase();
            if !value.is_empty() && value != "(null)" {
                settings.entry(name).or_default().push(value);
            }
        }
        Self(settings)
    }
    /// The value of a setting, the first where there are several; the empty text where it is not set.
    pub fn get(&self, name: &str) -> &str {
        self.all(name).first().map_or("", String::as_str)
    }
    /// Every value of a setting.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(&name.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }
    /// Whether a comma-separated setting has this word, whatever its case.
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.get(name).split(',').any(|each| each.trim().eq_ignore_ascii_case(word))
    }
    /// A length of time as `300 sec`.
    pub fn seconds(&self, name: &str) -> Option<f64> {
        self.get(name).split_whitespace().next()?.parse().ok()
    }
    /// The folder of slurm.conf, where Slurm looks for its other files.
    pub fn folder(&self) -> PathBuf {
        let file = Path::new(self.get("SLURM_CONF"));
        file.parent().filter(|_| file.is_absolute()).unwrap_or(Path::new("/etc/slurm")).to_owned()
    }
}

/// A text file, if it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Where it was looked for.
    pub path: PathBuf,
    /// What is in it; `Err`: why it could not be read.
    pub text: Known<String>,
}

/// One limit on TRES.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// `qos normal`, `account ml`, `user alice of account ml`.
    pub owner: String,
    /// `MaxTRESPerUser`, `GrpTRES`, ..
    pub field: String,
    /// As `sacctmgr` prints it: `cpu=10,gres/gpu=2`.
    pub value: String,
}

/// MUNGE, as Slurm here asks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Munge {
    /// The socket of `AuthInfo`, else MUNGE's own.
    pub socket: PathBuf,
    /// Whether it is there.
    pub has_socket: bool,
    /// What `munge -n | unmunge` did.
    pub credential: Credential,
}

/// What became of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// It was made and read back.
    Read,
    /// It could not be, and what the program said.
    Refused(String),
    /// Nobody tried, and why.
    NotTried(String),
}

/// A SPANK plugin file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    pub path: PathBuf,
    /// Whether plugstack.conf loads it.
    pub is_loaded: bool,
    /// `plugin_version` inside it: (major, minor). `Err`: why it could not be read.
    pub built_for: Known<(u32, u32)>,
}

/// Which of Slurm's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// On the node, before the job.
    Prolog,
    /// On the node, after the job.
    Epilog,
    /// On the controller, after the job.
    EpilogSlurmctld,
}

impl HookKind {
    /// The name of the setting.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Prolog => "Prolog",
            Self::Epilog => "Epilog",
            Self::EpilogSlurmctld => "EpilogSlurmctld",
        }
    }
}

/// One script behind a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub kind: HookKind,
    pub file: TextFile,
    /// Whether it may be executed.
    pub is_executable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_conf_reads_what_scontrol_prints() {
        let pairs = [
            ("SLURM_CONF", "/srv/c1/slurm.conf"),
            ("GresTypes", "gpu,shard"),
            ("Epilog[0]", "/a"),
            ("Epilog[1]", "/b"),
            ("Prolog", "(null)"),
            ("MinJobAge", "300 sec"),
        ];
        let conf = SlurmConf::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(conf.folder(), Path::new("/srv/c1"));
        assert!(conf.has_word("grestypes", "SHARD") && !conf.has_word("GresTypes", "mps"));
        assert_eq!(conf.all("Epilog"), ["/a", "/b"]);
        assert_eq!(conf.get("Prolog"), "");
        assert_eq!((conf.seconds("MinJobAge"), conf.seconds("Prolog")), (Some(300.0), None));
        assert_eq!(SlurmConf::default().folder(), Path::new("/etc/slurm"));
    }
}
