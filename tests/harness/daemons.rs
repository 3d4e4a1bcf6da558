//! The programs of Pillion on a test cluster: the scheduler, one agent and one machine of simulated devices a node, the
//! SPANK plugin, the job submit module. The only file of the harness that knows their options and configuration keys.
//!
//! ```text
//! DIR/scheduler/            state of the scheduler: heartbeat, private PostgreSQL        (owned by slurm)
//! DIR/run/scheduler.sock    for the command line
//! DIR/run/n1/agent.sock     for the SPANK plugin; markers of jobs beside it              (owned by root)
//! DIR/run/n1/devices.sock   for pillion-load and for the agent
//! DIR/agent/n1/             state of the agent
//! ```

use crate::cluster::Cluster;
use crate::cluster::spec::{ClusterSpec, NodeBackend, PoolNode, SharingPolicy};
use crate::doubles;
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use crate::testbed::{BIN_DIR, identity_of};
use crate::wait::{Look, wait_for};
use pillion_core::device::Mechanism;
use pillion_core::mig::needs_reset;
use rustix::fs::{Mode, chmod};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that the SPANK plugin is built as, and what writes the Slurm's version into a copy.
const SPANK_LIBRARY: &str = "libpillion_slurm_spank.so";
const SPANK_STAMP: &str = "pillion-spank-stamp";
/// Names of daemons, as [`Cluster::daemon`] knows them.
const SCHEDULER: &str = "pillion-scheduler";
const SECOND_SCHEDULER: &str = "pillion-scheduler-second";
/// How long one of our daemons may take to be ready; the scheduler makes a database at its first start.
const READY_DEADLINE: Duration = Duration::from_mins(1);

/// The checkout that the harness was built from; it appears in the testbed under the same path.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").to_owned()
}

/// A program of ours, where it was built.
///
/// # Errors
/// [`HarnessError::Refused`] where it was not.
pub fn built(name: &str) -> Result<PathBuf> {
    let path = Path::new(BIN_DIR).join(name);
    if path.exists() {
        return Ok(path);
    }
    Err(HarnessError::Refused(format!("{name} was not built; `cargo build --workspace` builds it")))
}

/// `plugstack.conf`: our plugin for the Slurm at hand, where the cluster wants it and it was built.
pub(crate) fn plugstack_conf(cluster: &Cluster) -> Result<String> {
    let (Ok(library), Ok(stamp)) = (built(SPANK_LIBRARY), built(SPANK_STAMP)) else {
        return Ok(String::new());
    };
    if !cluster.spec().spank {
        return Ok(String::new());
    }
    let said = cluster.program("slurmctld").arg("-V").stdout()?;
    let version = said.split_whitespace().last().unwrap_or_default();
    let stamped = cluster.layout().path("conf/pillion.so");
    cluster.program(&stamp.display().to_string()).arg(library).arg(&stamped).arg(version).stdout()?;
    let socket = cluster.root().join("run/%n/agent.sock");
    Ok(format!("optional {} socket={}\n", stamped.display(), socket.display()))
}

/// `job_submit.lua`: the example of `deploy/slurm` with the paths of this cluster, and `pillion.lua` beside it; `None`
/// where the checkout has none.
///
/// # Errors
/// Where a file cannot be copied, or the example no longer holds what is replaced in it.
pub(crate) fn job_submit_lua(cluster: &Cluster) -> Result<Option<String>> {
    let folder = checkout().join("deploy/slurm");
    let Ok(mut text) = std::fs::read_to_string(folder.join("job_submit.lua.example")) else {
        return Ok(None);
    };
    let module = folder.join("pillion.lua");
    let bytes = std::fs::read(&module).map_err(io_error("read", &module))?;
    let copy = cluster.layout().write("conf/pillion.lua", bytes)?;
    let usual =
        [format!("heartbeat = \"{}\"", heartbeat(cluster).display()), "pools = { \"shared\" }".into()];
    let options = [&usual, &cluster.spec().module_options[..]].concat().join(", ");
    let replacements =
        [("/etc/slurm/pillion.lua", copy.display().to_string()), ("pools = { \"shared\" }", options)];
    for (from, to) in replacements {
        if !text.contains(from) {
            return Err(HarnessError::Refused(format!("job_submit.lua.example no longer holds '{from}'")));
        }
        text = text.replace(from, &to);
    }
    Ok(Some(text))
}

/// The hooks of `deploy/slurm/hooks` for this cluster: writes copies with its paths and returns the lines of `slurm.conf`
/// that name them. Empty where the cluster wants none, or the checkout or the build has none.
///
/// # Errors
/// Where a copy cannot be written, or a hook no longer holds what is replaced in it.
pub(crate) fn hooks(cluster: &Cluster) -> Result<String> {
    let mut lines = String::new();
    if !cluster.spec().hooks || built("pillion-agent").is_err() || built("pillion").is_err() {
        return Ok(lines);
    }
    let (scheduler, address) = scheduler_address(cluster.root());
    let path = format!("{scheduler}={address}; export {scheduler}\nPATH={BIN_DIR}:/usr/sbin:");
    let config = cluster.layout().path("conf").join(agent_name("$SLURMD_NODENAME.toml"));
    let agent = format!("pillion-agent --config {}", config.display());
    for (option, name) in
        [("Prolog", "prolog"), ("Epilog", "epilog"), ("EpilogSlurmctld", "epilog_slurmctld")]
    {
        let Ok(text) = std::fs::read_to_string(checkout().join("deploy/slurm/hooks").join(name)) else {
            continue;
        };
        if !text.contains("PATH=/usr/sbin:") {
            return Err(HarnessError::Refused(format!("the hook {name} no longer sets PATH=/usr/sbin:..")));
        }
        let text = text.replace("PATH=/usr/sbin:", &path);
        let text = ["poke", "cleanup"].iter().fold(text, |text, task| {
            text.replace(&format!("pillion-agent {task}"), &format!("{agent} {task}"))
        });
        let beat = format!("heartbeat={}\n", heartbeat(cluster).display());
        let text = text.replace("heartbeat=/run/pillion/heartbeat\n", &beat);
        let state = format!("state={}\n", cluster.layout().path("agent").join("$SLURMD_NODENAME").display());
        let text = text.replace("state=/var/lib/pillion-agent\n", &state);
        let copy = cluster.layout().write(&format!("conf/{name}"), text)?;
        chmod(&copy, Mode::from_raw_mode(0o755))
            .map_err(system_error(format!("make {} executable", copy.display())))?;
        let _ = writeln!(lines, "{option}={}", copy.display());
    }
    Ok(lines)
}

/// The file by which the scheduler tells lua that it lives.
pub fn heartbeat(cluster: &Cluster) -> PathBuf {
    cluster.layout().path("scheduler/heartbeat")
}

/// What a user's programs need to find the simulated devices of the node that they run on.
pub(crate) fn user_environment(root: &Path) -> (&'static str, PathBuf) {
    ("PILLION_SIMULATED_DEVICE", root.join("run/%n/devices.sock"))
}

/// What the command line needs to find the scheduler.
pub(crate) fn scheduler_address(root: &Path) -> (&'static str, String) {
    ("PILLION_SCHEDULER", format!("unix:{}", root.join("run/scheduler.sock").display()))
}

fn agent_name(node: &str) -> String {
    format!("pillion-agent-{node}")
}

fn devices_name(node: &str) -> String {
    format!("pillion-simulated-device-{node}")
}

impl Cluster {
    /// Starts everything of ours: devices, scheduler, agents; and waits until all of it is ready.
    ///
    /// # Errors
    /// What the first that failed said.
    pub fn start_pillion(&mut self) -> Result<()> {
        let nodes: Vec<String> = self.spec().pool_nodes.iter().map(|node| node.name.clone()).collect();
        for node in self.spec().node_names() {
            self.start_devices(&node)?;
        }
        self.start_scheduler()?;
        for node in &nodes {
            self.start_agent(node)?;
        }
        Ok(())
    }

    /// Starts the simulated devices of a node; a node with whole GPUs has those of the first pool node.
    ///
    /// # Errors
    /// Where they were not built or do not start.
    pub fn start_devices(&mut self, node: &str) -> Result<()> {
        let of_node = self.spec().pool_nodes.iter().find(|pool| pool.name == node);
        let text = devices_toml(self, node, of_node.or(self.spec().pool_nodes.first()));
        let socket = self.node_file(node, "devices.sock")?;
        self.start_ours(&devices_name(node), "pillion-simulated-device", &text, None, &[], &socket)
    }
    /// Ends the simulated devices of a node.
    ///
    /// # Errors
    /// Where they do not end.
    pub fn stop_devices(&mut self, node: &str, signal: Signal) -> Result<()> {
        self.stop_daemon(&devices_name(node), signal)
    }

    /// Starts the scheduler, as Slurm's user.
    ///
    /// # Errors
    /// Where it was not built or does not get ready, with the end of its log.
    pub fn start_scheduler(&mut self) -> Result<()> {
        self.start_scheduler_program(&[])
    }

    /// Starts a scheduler that stops, or takes its time, where `failpoints` says: `release-before-release=pause`,
    /// `release-before-release=sleep(3000);release-after-release=2*off->pause`. The points are in its `release.rs`; `pause`
    /// lasts until it is killed.
    ///
    /// # Errors
    /// As [`Cluster::start_scheduler`].
    pub fn start_scheduler_with_failpoints(&mut self, failpoints: &str) -> Result<()> {
        self.start_scheduler_program(&[("FAILPOINTS", failpoints)])
    }

    /// Ends the scheduler that runs and starts it again with these lines in `[policy]`, in the place of those it had.
    ///
    /// # Errors
    /// Where it does not end, and as [`Cluster::start_scheduler`].
    pub fn start_scheduler_with(&mut self, policy: &[&str]) -> Result<()> {
        self.kill_scheduler(Signal::TERM)?;
        self.set_scheduler_conf(policy);
        self.start_scheduler()
    }

    fn start_scheduler_program(&mut self, environment: &[(&str, &str)]) -> Result<()> {
        self.give_folder("scheduler", "slurm")?;
        let agents = self.local_address("scheduler")?;
        let (web, metrics) = (self.web_address()?, self.metrics_address("scheduler")?);
        let scan_period_seconds = self.spec().scan_period_seconds;
        let text = scheduler_toml(self, &Own { agents, web, metrics, scan_period_seconds });
        let socket = self.layout().path("run/scheduler.sock");
        let beat = heartbeat(self);
        let written_at = || std::fs::metadata(&beat).and_then(|file| file.modified()).ok();
        let before = written_at();
        let mode = format!(" mode={}", mode(self.spec()));
        self.start_ours(SCHEDULER, SCHEDULER, &text, Some("slurm"), environment, &socket)?;
        // A scheduler that has just begun does not act yet, and says so in its first heartbeat. One that was killed before it has
        // left a heartbeat that says that it acts.
        wait_for("heartbeat of a scheduler that is ready", READY_DEADLINE, || {
            self.daemon(SCHEDULER)?.check_running()?;
            let text = std::fs::read_to_string(&beat).unwrap_or_default();
            let first = text.lines().next().unwrap_or_default().to_owned();
            let is_its_own = written_at() > before;
            let is_ready = is_its_own && first.ends_with(&mode);
            Ok(if is_ready { Look::Ready(()) } else { Look::NotYet(first) })
        })
    }
    /// Starts another scheduler on the database of the first, which runs: one leads, the other follows, as on a controller of its own:
    /// nobody here reads its heartbeat. It looks at Slurm every so many seconds. Returns its name as [`Cluster::daemon`] knows it.
    ///
    /// # Errors
    /// Where the first has no private database yet, or this one cannot be started; nobody waits for it to be ready.
    pub fn start_second_scheduler(&mut self, scan_period_seconds: f64) -> Result<&'static str> {
        self.give_folder("scheduler-second", "slurm")?;
        let agents = self.local_address("scheduler-second")?;
        let (web, metrics) = (self.local_address("web-second")?, self.metrics_address("scheduler-second")?);
        let first = self.layout().path("scheduler/postgres");
        let password = first.join("password");
        let password = std::fs::read_to_string(&password).map_err(io_error("read", &password))?;
        let host: String = first.display().to_string().replace('/', "%2F");
        let toml = scheduler_toml(self, &Own { agents, web, metrics, scan_period_seconds })
            .replace("scheduler.sock", "scheduler-second.sock")
            .replacen("/scheduler\"", "/scheduler-second\"", 1)
            .replace("/scheduler/heartbeat", "/scheduler-second/heartbeat")
            + &format!(
                "[database]\nurl = \"postgres://pillion:{}@localhost:5432/postgres?host={host}\"\n",
                password.trim()
            );
        let config = self.layout().write(&format!("conf/{SECOND_SCHEDULER}.toml"), toml)?;
        let program = self.program(&built(SCHEDULER)?.display().to_string()).arg("--config").arg(config);
        self.start_daemon(SECOND_SCHEDULER, &program.identity(identity_of("slurm")?))?;
        Ok(SECOND_SCHEDULER)
    }

    /// Ends the scheduler. After `KILL` its private database still runs; the next start must cope with that.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn kill_scheduler(&mut self, signal: Signal) -> Result<()> {
        self.stop_daemon(SCHEDULER, signal)
    }

    /// Starts the agent of a node, as root.
    ///
    /// # Errors
    /// Where it was not built or does not get ready, with the end of its log.
    pub fn start_agent(&mut self, node: &str) -> Result<()> {
        self.give_folder("agent", "root")?;
        self.give_folder(&format!("agent/{node}"), "root")?;
        let port = self.port("scheduler")?;
        let socket = self.node_file(node, "agent.sock")?;
        let metrics = self.metrics_address(node)?;
        let text = agent_toml(self, node, port, metrics) + &doubles::agent_toml(self, node)?;
        if self.daemon(&format!("pillion-exporter-{node}")).is_err() {
            doubles::start_exporter(self, node)?;
        }
        // The doubles look for the driver as a job does.
        let (variable, devices) = user_environment(self.root());
        let devices = devices.display().to_string().replace("%n", node);
        let libraries = doubles::library_folder(self, node)?.map(|folder| folder.display().to_string());
        let mut environment = vec![(variable, devices.as_str())];
        environment.extend(libraries.iter().map(|folder| ("LD_LIBRARY_PATH", folder.as_str())));
        self.start_ours(&agent_name(node), "pillion-agent", &text, None, &environment, &socket)
    }
    /// Starts the agent of an ordinary node, which observes: it listens nowhere, so nobody waits for it here.
    pub(crate) fn start_observing_agent(&mut self, node: &str) -> Result<()> {
        self.give_folder("agent", "root")?;
        self.give_folder(&format!("agent/{node}"), "root")?;
        let port = self.port("scheduler")?;
        let text = observing_agent_toml(self, node, port);
        let name = agent_name(node);
        let config = self.layout().write(&format!("conf/{name}.toml"), text)?;
        let program =
            self.program(&built("pillion-agent")?.display().to_string()).arg("--config").arg(config);
        self.start_daemon(&name, &program)
    }

    /// Ends the agent of a node.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn kill_agent(&mut self, node: &str, signal: Signal) -> Result<()> {
        self.stop_daemon(&agent_name(node), signal)
    }

    /// The command line, run by a user.
    ///
    /// # Errors
    /// Where there is no such user.
    pub fn pillion_as(&self, user: &str, arguments: &[&str]) -> Result<Program> {
        let (scheduler, address) = scheduler_address(self.root());
        Ok(self.program_as(user, "pillion")?.env(scheduler, address).args(arguments))
    }

    /// A line for the shell, as a user who has `pillion` types it.
    ///
    /// # Errors
    /// Where there is no such user.
    pub fn shell_as(&self, user: &str, line: &str) -> Result<Program> {
        let (scheduler, address) = scheduler_address(self.root());
        Ok(self.program_as(user, "bash")?.env(scheduler, address).args(["-c", line]))
    }

    /// Where the scheduler (`scheduler`) or a node's agent tells its metrics.
    ///
    /// # Errors
    /// Where no port is free.
    pub fn metrics_address(&mut self, whose: &str) -> Result<SocketAddr> {
        self.local_address(&format!("metrics-{whose}"))
    }

    /// Where the scheduler serves its page.
    ///
    /// # Errors
    /// Where no port is free.
    pub fn web_address(&mut self) -> Result<SocketAddr> {
        self.local_address("web")
    }

    fn local_address(&mut self, name: &str) -> Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], self.port(name)?)))
    }

    /// A file in a node's folder for sockets, which is made if need be.
    fn node_file(&self, node: &str, name: &str) -> Result<PathBuf> {
        let folder = format!("run/{node}");
        self.give_folder(&folder, "root")?;
        Ok(self.layout().path(folder).join(name))
    }

    /// Writes the configuration, starts the program and waits for the socket that it listens on. A socket that one before
    /// it left behind says nothing, so it is removed first.
    fn start_ours(
        &mut self,
        name: &str,
        program: &str,
        toml: &str,
        user: Option<&str>,
        environment: &[(&str, &str)],
        socket: &Path,
    ) -> Result<()> {
        let program = built(program)?;
        let config = self.layout().write(&format!("conf/{name}.toml"), toml)?;
        let _ = std::fs::remove_file(socket);
        let mut program = self
            .program(&program.display().to_string())
            .arg("--config")
            .arg(config)
            .env("RUST_BACKTRACE", "1");
        for (variable, value) in environment {
            program = program.env(*variable, *value);
        }
        if let Some(user) = user {
            program = program.identity(identity_of(user)?);
        }
        self.start_daemon(name, &program)?;
        self.wait_for_file(name, socket)
    }

    /// Waits for a file that a daemon makes when it is ready.
    pub(crate) fn wait_for_file(&mut self, daemon: &str, path: &Path) -> Result<()> {
        wait_for(&format!("{} of {daemon}", path.display()), READY_DEADLINE, || {
            self.daemon(daemon)?.check_running()?;
            Ok(if path.exists() { Look::Ready(()) } else { Look::NotYet("it is not there".into()) })
        })
    }
}

/// What one scheduler has to itself: where it listens, and how often it looks at Slurm.
struct Own {
    agents: SocketAddr,
    web: SocketAddr,
    metrics: SocketAddr,
    scan_period_seconds: f64,
}

/// A cluster without a pool is observed, and decided on in the shadow.
fn mode(spec: &ClusterSpec) -> &'static str {
    if spec.pool_nodes.is_empty() { "shadow" } else { "active" }
}

/// The configuration of `pillion-scheduler`.
fn scheduler_toml(cluster: &Cluster, own: &Own) -> String {
    let root = cluster.root().display();
    let spec = cluster.spec();
    let Own { agents, web, metrics, scan_period_seconds } = own;
    let (part, partition) = if spec.pool_nodes.is_empty() { ("observe", "gpu") } else { ("pool", "shared") };
    format!(
        "state_directory = \"{root}/scheduler\"\nmode = \"{mode}\"\nbound_seconds = {bound}\n\
         scan_period_seconds = {scan_period_seconds:?}\nheartbeat_path = \"{root}/scheduler/heartbeat\"\n\
         [{part}]\npartitions = [\"{partition}\"]\n{pool}\n\
         [slurm]\nconf = \"{conf}\"\n\
         [listen]\ntcp = \"{agents}\"\nsocket = \"{root}/run/scheduler.sock\"\n\
         [auth]\nmethod = \"munge\"\nmunge_socket = \"{root}/munge/sock\"\n\
         [web]\nlisten_address = \"{web}\"\n\
         [metrics]\nlisten_address = \"{metrics}\"\n\
         [policy]\nusers = \"{users}\"\nsolo_seconds_min = {solo}\n{extra}\n",
        pool = spec.pool_conf_extra.join("\n"),
        extra = spec.scheduler_conf_extra.join("\n"),
        mode = mode(spec),
        bound = spec.bound_seconds,
        solo = spec.solo_seconds_min,
        conf = cluster.layout().slurm_conf().display(),
        users = spec.policy.as_str(),
    )
}

/// The configuration of `pillion-agent`, but for what doubles need; its last section is `[mps]`.
fn agent_toml(cluster: &Cluster, node: &str, port: u16, metrics: SocketAddr) -> String {
    let (root, backend) = (cluster.root().display(), doubles::backend(cluster, node));
    format!(
        "node_name = \"{node}\"\nstate_directory = \"{root}/agent/{node}\"\nruntime_directory = \"{root}/run/{node}\"\n\
         handoff_socket = \"{root}/run/{node}/agent.sock\"\nbackend = \"{backend}\"\n\
         [scheduler]\nendpoint = \"https://127.0.0.1:{port}\"\nretry_seconds_max = 1.0\n\
         [auth]\nmethod = \"munge\"\nmunge_socket = \"{root}/munge/sock\"\n\
         [simulated]\nsocket = \"{root}/run/{node}/{driver}\"\n\
         [metrics]\nlisten_address = \"{metrics}\"\n\
         [mig]\nenabled = {is_cut}\ntoggle = {is_cut}\n\
         [mps]\nmulti_user = {multi_user}\n",
        is_cut = cluster.spec().pool_nodes.iter().any(|pool| pool.name == node && pool.is_cut),
        backend = backend.as_str(),
        driver = if backend == NodeBackend::SimulatedThroughTest { "between.sock" } else { "devices.sock" },
        multi_user = cluster.spec().policy != SharingPolicy::SameUser,
    )
}

/// The configuration of an agent that observes.
fn observing_agent_toml(cluster: &Cluster, node: &str, port: u16) -> String {
    let root = cluster.root().display();
    format!(
        "[agent]\nmode = \"observe\"\nnode_name = \"{node}\"\nstate_directory = \"{root}/agent/{node}\"\n\
         backend = \"simulated\"\n\
         [agent.scheduler]\nendpoint = \"https://127.0.0.1:{port}\"\nretry_seconds_max = 1.0\n\
         [agent.auth]\nmethod = \"munge\"\nmunge_socket = \"{root}/munge/sock\"\n\
         [agent.simulated]\nsocket = \"{root}/run/{node}/devices.sock\"\n",
    )
}

/// The configuration of `pillion-simulated-device`.
fn devices_toml(cluster: &Cluster, node: &str, like: Option<&PoolNode>) -> String {
    let (model, mechanism) =
        like.map_or(("h200", Mechanism::Mps), |pool| (pool.device_model.as_str(), pool.mechanism));
    let mut text = format!(
        "socket = \"{root}/run/{node}/devices.sock\"\n[machine]\nnode = \"{node}\"\ntime_scale = {scale:?}\n",
        root = cluster.root().display(),
        scale = cluster.spec().time_scale,
    );
    for line in &cluster.spec().machine_conf_extra {
        let _ = writeln!(text, "{line}");
    }
    // An administrator turned it on there.
    let mig = like.is_some_and(|pool| pool.is_cut) && needs_reset(model);
    for _ in 0..cluster.spec().gpus_per_node {
        let _ = write!(
            text,
            "[[machine.devices]]\nmodel = \"{model}\"\nmechanism = \"{mechanism}\"\nmig = {mig}\n"
        );
    }
    text
}
