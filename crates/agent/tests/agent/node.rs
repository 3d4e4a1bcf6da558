//! A node: simulated devices in a thread, the agent as a program, tasks as processes.

use crate::scheduler::eventually;
use crate::task::{self, Step, Task};
use pillion_core::handoff::{HANDOFF_VERSION, HandoffRequest};
use pillion_core::{JobStart, SlurmJobId, UserId};
use pillion_device::simulated::{Machine, MachineConfig, Simulated, serve};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Runs programs: the one place of these tests.
#[expect(
    clippy::disallowed_methods,
    reason = "these tests start the agent and tasks as Slurm and systemd would"
)]
pub(crate) fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(path)
}

/// A node.
pub(crate) struct TestNode {
    directory: tempfile::TempDir,
    machine: MachineConfig,
    metrics: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    driver: Option<JoinHandle<()>>,
}

/// A running agent; killed when dropped.
pub(crate) struct Agent(Child);

impl TestNode {
    /// Two devices of a model, and an agent that looks ten times a second.
    pub(crate) fn new(model: &str, scheduler_port: u16) -> Self {
        Self::with(&MachineConfig::plain("n1", model, 2), scheduler_port, 0.1)
    }

    /// Devices on which a client that is killed takes its neighbours along.
    pub(crate) fn harsh(scheduler_port: u16) -> Self {
        let plain = MachineConfig::plain("n1", "h200", 2);
        Self::with(&MachineConfig { killed_client_ends_mps: true, ..plain }, scheduler_port, 0.1)
    }

    /// The same, looking once a minute.
    pub(crate) fn slow(model: &str, scheduler_port: u16) -> Self {
        Self::with(&MachineConfig::plain("n1", model, 2), scheduler_port, 60.0)
    }

    /// Eight devices, and an agent as it is installed.
    pub(crate) fn large(model: &str, scheduler_port: u16) -> Self {
        Self::with(&MachineConfig::plain("n1", model, 8), scheduler_port, 1.0)
    }

    /// Devices that are cut into instances; `is_on`: MIG is on when they come up.
    pub(crate) fn cut(model: &str, is_on: bool, scheduler_port: u16) -> Self {
        let mut machine = MachineConfig::plain("n1", model, 2);
        for device in &mut machine.devices {
            device.mig = is_on;
        }
        let node = Self::with(&machine, scheduler_port, 0.1);
        let path = node.path("agent.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, config + "[mig]\nenabled = true\ntoggle = true\n").unwrap();
        node
    }

    /// One whose devices are NVIDIA's, without the library of their driver.
    pub(crate) fn without_library(scheduler_port: u16) -> Self {
        let node = Self::new("h200", scheduler_port);
        let path = node.path("agent.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let config =
            format!("backend = 'nvidia'\n{config}[nvidia]\nlibrary = '/nowhere/libnvidia-ml.so.1'\n");
        std::fs::write(path, config).unwrap();
        node
    }

    /// An ordinary node, whose agent observes.
    pub(crate) fn observing(model: &str, scheduler_port: u16) -> Self {
        let node = Self::new(model, scheduler_port);
        let path = node.path("agent.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let config = config.replace("\n[", "\n[agent.");
        std::fs::write(path, format!("[agent]\nmode = 'observe'\n{config}")).unwrap();
        node
    }

    /// How many devices the driver shows when it comes up next.
    pub(crate) fn set_device_count(&mut self, count: usize) {
        self.machine = MachineConfig::plain("n1", "h200", count);
    }

    fn with(machine: &MachineConfig, scheduler_port: u16, period_seconds: f64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        // Free a moment ago; nobody else of these tests gets it meanwhile.
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "node_name = 'n1'\nstate_directory = '{root}/state'\nruntime_directory = '{root}'\n\
             handoff_socket = '{root}/agent.sock'\nsample_period_seconds = {period_seconds}\n\
             [metrics]\nlisten_address = '{metrics}'\n\
             [scheduler]\nendpoint = 'https://127.0.0.1:{scheduler_port}'\nretry_seconds_max = 0.2\n\
             [auth]\nmethod = 'none'\n\
             [simulated]\nsocket = '{root}/devices.sock'\n"
        );
        std::fs::write(directory.path().join("agent.toml"), config).unwrap();
        let mut node = Self { directory, machine: machine.clone(), metrics, stop: None, driver: None };
        node.start_driver();
        node
    }

    /// Another scheduler may be at this port.
    pub(crate) fn knows_another(&self, port: u16) {
        let path = self.path("agent.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let both = format!(",https://127.0.0.1:{port}'\nretry_seconds_max");
        std::fs::write(path, config.replace("'\nretry_seconds_max", &both)).unwrap();
    }

    /// The devices come up.
    pub(crate) fn start_driver(&mut self) {
        let machine = Machine::new(&self.machine).unwrap();
        let socket = self.path("devices.sock");
        let (stop, stopped) = oneshot::channel();
        let driver = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async move { drop(stopped.await) };
            runtime.block_on(serve(machine, &socket, stopped)).unwrap();
        });
        (self.stop, self.driver) = (Some(stop), Some(driver));
    }

    /// The devices answer no more.
    pub(crate) fn stop_driver(&mut self) {
        drop(self.stop.take());
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the agent tells its metrics.
    pub(crate) const fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    pub(crate) fn handoff_socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    fn agent(&self) -> Command {
        let mut agent = program(env!("CARGO_BIN_EXE_pillion-agent"));
        agent.arg("--config").arg(self.path("agent.toml"));
        agent
    }

    /// Starts the agent; its log stands in the node's directory.
    pub(crate) fn start_agent(&self) -> Agent {
        let log = std::fs::File::options().create(true).append(true).open(self.path("agent.log")).unwrap();
        Agent(self.agent().env("RUST_LOG", "info").stderr(log).spawn().unwrap())
    }

    /// Pokes the agent: how it ended, and whether it complained.
    pub(crate) fn poke(&self) -> (Option<i32>, bool) {
        let output = self.agent().arg("poke").output().unwrap();
        (output.status.code(), !output.stderr.is_empty())
    }

    /// What the Epilog of a job does: how it ended, and whether it complained.
    pub(crate) fn clean_up_after(&self, job: u32) -> (Option<i32>, bool) {
        let output = self.agent().arg("cleanup").env("SLURM_JOB_ID", job.to_string()).output().unwrap();
        (output.status.code(), !output.stderr.is_empty())
    }

    /// The same, and what it printed.
    pub(crate) fn cleaned_up_after(&self, job: u32) -> (Option<i32>, String) {
        let output = self.agent().arg("cleanup").env("SLURM_JOB_ID", job.to_string()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// What the Prolog of a job does that Slurm gave this device.
    pub(crate) fn prolog(&self, job: u32, device: u32) {
        let (job, device) = (job.to_string(), device.to_string());
        let output =
            self.agent().arg("poke").env("SLURM_JOB_ID", job).env("SLURM_JOB_GPUS", device).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }

    /// What the plugin would ask for a job with this device.
    pub(crate) fn request(job: u32, device: u32, option: Option<&str>) -> HandoffRequest {
        HandoffRequest {
            version: HANDOFF_VERSION,
            start: JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 },
            inner_job_id: Some(job),
            uid: UserId(rustix::process::getuid().as_raw()),
            gid: rustix::process::getgid().as_raw(),
            step_id: 0xffff_fffb,
            devices: vec![device],
            shards: None,
            option: option.map(str::to_owned),
        }
    }

    /// Starts a task of a job: it asks the agent, then works on the device.
    pub(crate) fn start_task(&self, job: u32, device: u32, option: Option<&str>) -> Task {
        self.start_task_without("", job, device, option)
    }

    /// The same with a task that takes a variable away from what it is given.
    pub(crate) fn start_task_without(
        &self,
        variable: &str,
        job: u32,
        device: u32,
        option: Option<&str>,
    ) -> Task {
        self.start_asking(variable, &Self::request(job, device, option))
    }

    /// A step of an interactive job, which has no script: all that its environment says is its user's.
    pub(crate) fn start_session_step(&self, job: u32, step_id: u32) -> Task {
        let request = HandoffRequest { step_id, devices: Vec::new(), ..Self::request(job, 0, None) };
        self.start_asking("", &request)
    }

    /// A task of a job of two devices, which works on both.
    pub(crate) fn start_wide_task(&self, job: u32) -> Task {
        let request = HandoffRequest { devices: vec![0, 1], ..Self::request(job, 0, Some("yes")) };
        self.start_asking("", &request)
    }

    fn start_asking(&self, variable: &str, request: &HandoffRequest) -> Task {
        let job = request.start.job_id;
        let answer = self.path(&format!("task-{job}-{}.json", request.step_id));
        let child = program(std::env::current_exe().unwrap())
            .args(["--exact", "task::the_task_itself", "--ignored", "--nocapture"])
            .env(task::REQUEST, serde_json::to_string(request).unwrap())
            .env(task::HANDOFF_SOCKET, self.handoff_socket())
            .env(task::DEVICE_SOCKET, self.path("devices.sock"))
            .env(task::ANSWER, &answer)
            .env(task::UNSET, variable)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Task::new(child, answer, self.path(&format!("progress/{job}+0")))
    }

    /// A program of another user, begun by no job, on the device of the other tests.
    pub(crate) fn start_outsider(&self, uid: u32) -> Task {
        // Where he may run it.
        let (own, copy) = (std::env::current_exe().unwrap(), self.path("outsider"));
        std::fs::hard_link(&own, &copy).or_else(|_| std::fs::copy(&own, &copy).map(drop)).unwrap();
        std::fs::set_permissions(self.directory(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let child = program(copy)
            .args(["--exact", "task::the_outsider_itself", "--ignored", "--nocapture"])
            .env(task::DEVICE_SOCKET, self.path("devices.sock"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .uid(uid)
            .spawn()
            .unwrap();
        Task::new(child, self.path("none"), self.path("none"))
    }

    /// A step of a job as Slurm runs it: a program of root's that is called slurmstepd and says in its title whose step it is, and
    /// beneath it a process on the device of the other tests. `variables`: what that has in its environment.
    pub(crate) fn start_step(&self, job: u32, variables: &[(&str, &str)]) -> Step {
        let (own, copy) = (std::env::current_exe().unwrap(), self.path("slurmstepd"));
        if !copy.exists() {
            std::fs::hard_link(&own, &copy).or_else(|_| std::fs::copy(&own, &copy).map(drop)).unwrap();
        }
        let pid_path = self.path(&format!("step-{job}"));
        let child = program(copy)
            .arg0(format!("slurmstepd: [{job}.batch]"))
            .args(["--exact", "task::the_step_itself", "--ignored", "--nocapture"])
            .env(task::DEVICE_SOCKET, self.path("devices.sock"))
            .env(task::ANSWER, &pid_path)
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Step::new(child, pid_path)
    }

    /// The driver, as the agent asks it.
    pub(crate) fn driver(&self) -> Simulated {
        Simulated::new(self.path("devices.sock"))
    }

    /// The log of the agent, for the message of a failed assertion.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- agent.log\n{}", self.log());
        }
        self.stop_driver();
    }
}

impl Agent {
    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// SIGTERM; gives how it ended.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

impl crate::FakeScheduler {
    /// Waits until the scheduler has every report that the agent has to give, by watching the stream run dry: two looks'
    /// time without anything new while no job runs.
    pub(crate) async fn all_acknowledged(&self, _node: &TestNode) {
        let mut before = usize::MAX;
        let mut same = 0;
        eventually("the journal to run dry", || {
            let now = self.received().len();
            same = if now == before { same + 1 } else { 0 };
            before = now;
            same > 30
        })
        .await;
    }
}
