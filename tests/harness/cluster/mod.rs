//! One private Slurm cluster: own key, ports, configuration and state under one folder; starts in a second or two, and is
//! gone with all its processes when dropped. Several live side by side in one testbed.
//!
//! ```text
//!   munged ◄── mariadbd ◄── slurmdbd (only with accounting)
//!     ▲                        ▲
//!     └── slurmctld ◄──────────┘
//!            ▲
//!            └── slurmd -N n1, slurmd -N n2, slurmd -N w1     all on this host, one port each
//! ```

mod accounting;
mod client;
pub mod control_groups;
mod disk;
mod files;
mod layout;
pub mod show;
pub mod spec;
mod start;
pub mod sweep;

pub use client::{JobOutput, Submission};
pub use layout::{Layout, Ports};

use crate::error::{HarnessError, Result};
use crate::process::{Daemon, Program, describe, log_tail};
use crate::testbed;
use rustix::process::Signal;
use spec::ClusterSpec;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon of Slurm may take to start or to end.
const DAEMON_DEADLINE: Duration = Duration::from_secs(30);
/// How much of each log a failing test shows.
const LOG_SHOWN_BYTES: usize = 3000;

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    spec: ClusterSpec,
    layout: Layout,
    ports: Ports,
    daemons: BTreeMap<String, Daemon>,
    /// How each daemon was started last.
    programs: BTreeMap<String, Program>,
    /// Folders that are disks of their own.
    disks: Vec<PathBuf>,
    stopped: bool,
}

impl Cluster {
    /// Starts a cluster and waits until all its nodes are idle. Our own daemons are started by [`crate::daemons`].
    ///
    /// # Errors
    /// [`HarnessError::NotInTestbed`] outside a testbed; else what Slurm's daemons said.
    pub fn start(spec: ClusterSpec) -> Result<Self> {
        if !testbed::is_inside() {
            return Err(HarnessError::NotInTestbed);
        }
        let layout = Layout::claim()?;
        let ports = Ports::given(spec.ports.clone());
        let (daemons, programs) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self { spec, layout, ports, daemons, programs, disks: Vec::new(), stopped: false };
        if let Err(error) = start::start(&mut cluster) {
            eprintln!("{}", cluster.log_tails());
            return Err(error);
        }
        Ok(cluster)
    }

    /// What it was started with.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }
    /// What the next start of its scheduler finds in `[policy]`, in the place of what it had.
    pub(crate) fn set_scheduler_conf(&mut self, lines: &[&str]) {
        self.spec.scheduler_conf_extra = lines.iter().map(|line| (*line).to_owned()).collect();
    }
    /// Where its files lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// The folder of all of it.
    pub fn root(&self) -> &Path {
        self.layout.root()
    }
    /// A port of this cluster by name; the same at every call.
    ///
    /// # Errors
    /// Where none is free.
    pub fn port(&mut self, name: &str) -> Result<u16> {
        self.ports.get(name)
    }

    /// A program with the environment that every daemon of this cluster has.
    pub fn program(&self, name: &str) -> Program {
        Program::new(name)
            .env("PATH", testbed::search_path())
            .env("SLURM_CONF", self.layout.slurm_conf())
            .env("PILLION_CLUSTER", self.root())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("NO_COLOR", "1")
            .folder(self.root())
    }

    /// Starts a daemon under a name; its output goes to `log/NAME.out.log`.
    ///
    /// # Errors
    /// Where it cannot be started, or one of that name still runs.
    pub fn start_daemon(&mut self, name: &str, program: &Program) -> Result<()> {
        if self.daemons.get_mut(name).is_some_and(|daemon| daemon.ended().is_none()) {
            return Err(HarnessError::Refused(format!("{name} already runs in this cluster")));
        }
        let daemon = program.daemon(name, &self.layout.log(&format!("{name}.out")))?;
        self.daemons.insert(name.to_owned(), daemon);
        self.programs.insert(name.to_owned(), program.clone());
        Ok(())
    }

    /// Starts a daemon that has ended as it was started before, and waits for nothing: what systemd does.
    ///
    /// # Errors
    /// Where none of that name was started, or it still runs.
    pub fn start_again(&mut self, name: &str) -> Result<()> {
        let missing = || HarnessError::Refused(format!("no daemon '{name}' was started in this cluster"));
        let program = self.programs.get(name).cloned().ok_or_else(missing)?;
        self.start_daemon(name, &program)
    }

    /// The same, with further variables this once.
    ///
    /// # Errors
    /// As [`Cluster::start_again`].
    pub fn start_again_with(&mut self, name: &str, environment: &[(&str, String)]) -> Result<()> {
        let missing = || HarnessError::Refused(format!("no daemon '{name}' was started in this cluster"));
        let usual = self.programs.get(name).cloned().ok_or_else(missing)?;
        let program = environment
            .iter()
            .fold(usual.clone(), |program, (variable, value)| program.env(*variable, value));
        let started = self.start_daemon(name, &program);
        self.programs.insert(name.to_owned(), usual);
        started
    }

    /// The names of the daemons that have ended, and how.
    pub fn ended_daemons(&mut self) -> Vec<(String, String)> {
        let ended = |(name, daemon): (&String, &mut Daemon)| {
            daemon.ended().map(|status| (name.clone(), describe(status)))
        };
        self.daemons.iter_mut().filter_map(ended).collect()
    }

    /// A daemon by name.
    ///
    /// # Errors
    /// Where none was started.
    pub fn daemon(&mut self, name: &str) -> Result<&mut Daemon> {
        let missing = || HarnessError::Refused(format!("no daemon '{name}' was started in this cluster"));
        self.daemons.get_mut(name).ok_or_else(missing)
    }

    /// Sends a signal to a daemon and waits for its end.
    ///
    /// # Errors
    /// Where there is none of that name, or it does not end.
    pub fn stop_daemon(&mut self, name: &str, signal: Signal) -> Result<()> {
        self.daemon(name)?.stop(signal, DAEMON_DEADLINE).map(drop)
    }

    /// Makes a folder of this cluster, if need be, and gives it to a user; everybody may read it.
    pub(crate) fn give_folder(&self, name: &str, user: &str) -> Result<()> {
        start::give_folder(&self.layout.path(name), user, 0o755)
    }

    /// Ends `slurmctld`; Slurm's clients then wait or fail until [`Cluster::start_slurmctld`]. It saves its state some
    /// seconds late, so after `KILL` it forgets the last starts and submissions; after `TERM` it forgets nothing.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn stop_slurmctld(&mut self, signal: Signal) -> Result<()> {
        self.stop_daemon("slurmctld", signal)
    }
    /// Starts `slurmctld` from its saved state and waits until it answers.
    ///
    /// # Errors
    /// Where it ends, with the end of its log.
    pub fn start_slurmctld(&mut self) -> Result<()> {
        start::slurmctld(self)
    }
    /// Ends the `slurmd` of a node. Its running steps stay.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn stop_slurmd(&mut self, node: &str, signal: Signal) -> Result<()> {
        self.stop_daemon(&format!("slurmd-{node}"), signal)
    }
    /// Starts the `slurmd` of a node; [`Cluster::wait_for_node`] waits for its state.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start_slurmd(&mut self, node: &str) -> Result<()> {
        start::slurmd(self, node)
    }

    /// Ends everything and removes the cluster's files.
    ///
    /// # Errors
    /// Where a process does not end.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        let nodes = self.spec.node_names();
        control_groups::thaw(&nodes);
        sweep::sweep(self.root())?;
        self.daemons.clear();
        control_groups::remove(&nodes)?;
        self.remove_disks()?;
        let root = self.root();
        std::fs::remove_dir_all(root).map_err(crate::error::io_error("remove", root))
    }

    /// The end of every log, for a failing test.
    pub fn log_tails(&self) -> String {
        let folder = self.layout.path("log");
        let mut paths: Vec<_> =
            std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        // Slurm's daemons write the same to both; the other programs have only the second.
        let is_doubled = |path: &std::path::PathBuf| {
            path.to_str()
                .and_then(|text| text.strip_suffix(".out.log"))
                .is_some_and(|stem| Path::new(&format!("{stem}.log")).exists())
        };
        paths.retain(|path| !is_doubled(path));
        paths.sort();
        let shown = |path: &std::path::PathBuf| {
            let tail = log_tail(path, LOG_SHOWN_BYTES);
            (!tail.trim().is_empty()).then(|| format!("---- {}\n{}\n", path.display(), tail.trim_end()))
        };
        paths.iter().filter_map(shown).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.stopped {
            eprintln!("{}", self.log_tails());
        }
        if let Err(error) = self.end() {
            eprintln!(
                "the cluster in {} did not end: {}",
                self.root().display(),
                pillion_core::report(&error)
            );
        }
    }
}
