//! A node with two simulated devices, the doubles on its path, and programs that use the devices.

use pillion_core::{DeviceUuid, UserId};
use pillion_device::mps::{ModeControl, MpsDaemons};
use pillion_device::simulated::{Machine, MachineConfig, Progress, Simulated, serve};
use pillion_device::{MpsControl, MpsPlace, MpsSettings, MpsStatus};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

const PROGRAMS: [&str; 3] = [
    env!("CARGO_BIN_EXE_nvidia-cuda-mps-control"),
    env!("CARGO_BIN_EXE_nvidia-cuda-mps-server"),
    env!("CARGO_BIN_EXE_mps-client"),
];

/// Whether there is anything to test: MPS is set up by root. Where there is not, the test says so.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        pillion_test_kit::skipped("MPS is set up by root");
    }
    is_root
}

/// Waits for something that takes a moment.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come: {what}");
}

/// Waits until these are the clients of a device's daemon, in whatever order it tells them: a server initialises first.
pub(crate) fn connected(daemons: &mut MpsDaemons, index: u32, pids: &[u32]) -> MpsStatus {
    let expected: BTreeSet<u32> = pids.iter().copied().collect();
    let mut seen = None;
    until("its clients", || {
        seen = daemons.status(&MpsPlace::device(index)).unwrap();
        let has = seen.as_ref().map(|status| status.client_pids.iter().copied().collect());
        has.as_ref() == Some(&expected)
    });
    seen.unwrap()
}

pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a test of programs runs programs")]
    Command::new(program)
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The simulated devices are in this process; all else are processes.
pub(crate) struct Node {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) programs: PathBuf,
    driver: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::with_programs(Path::new(PROGRAMS[0]).parent().unwrap().to_owned(), false)
    }

    /// One on which a client that is killed at work takes its neighbours along.
    pub(crate) fn harsh() -> Self {
        Self::with_programs(Path::new(PROGRAMS[0]).parent().unwrap().to_owned(), true)
    }

    /// With programs that every user may run.
    pub(crate) fn for_all_users() -> Self {
        let mut node = Self::start();
        let programs = node.directory.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        for program in PROGRAMS.map(Path::new) {
            std::fs::copy(program, programs.join(program.file_name().unwrap())).unwrap();
        }
        node.programs = programs;
        node.write_control("");
        node
    }

    fn with_programs(programs: PathBuf, killed_client_ends_mps: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let config = MachineConfig { killed_client_ends_mps, ..MachineConfig::plain("n1", "h200", 2) };
        let machine = Machine::new(&config).unwrap();
        let socket = directory.path().join("driver.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        let driver = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async move { drop(stopped.await) };
            runtime.block_on(serve(machine, &socket, stopped)).unwrap();
        });
        let node = Self { directory, programs, driver: Some((stop, driver)) };
        until("the driver", || node.socket().exists());
        node.write_control("");
        node
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("driver.sock")
    }

    /// The control program as the agent is told of it. `before`: shell commands that come first.
    pub(crate) fn write_control(&self, before: &str) {
        let text = format!(
            "#!/bin/sh\nexport PILLION_SIMULATED_DEVICE={}\n{before}\nexec {} \"$@\"\n",
            self.socket().display(),
            self.programs.join("nvidia-cuda-mps-control").display()
        );
        // Replaced whole: it may be running.
        let new = self.directory.path().join("control.new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.control()).unwrap();
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    pub(crate) fn mps_directory(&self) -> PathBuf {
        self.directory.path().join("mps")
    }

    pub(crate) fn driver(&self) -> Simulated {
        Simulated::new(self.socket())
    }

    pub(crate) fn devices() -> Vec<(u32, DeviceUuid)> {
        let machine = MachineConfig::plain("n1", "h200", 2).describe().unwrap();
        machine.into_iter().map(|device| (device.index, device.uuid)).collect()
    }

    pub(crate) fn daemons(&self) -> MpsDaemons {
        MpsDaemons::new(self.control(), &self.mps_directory(), None, Self::devices())
    }

    pub(crate) fn daemons_with(&self, modes: ModeControl) -> MpsDaemons {
        MpsDaemons::new(self.control(), &self.mps_directory(), Some(modes), Self::devices())
    }

    pub(crate) fn settings(&self, index: u32) -> MpsSettings {
        let directory = self.mps_directory().join(format!("g{index}"));
        MpsSettings {
            pipe_directory: directory.join("pipe"),
            log_directory: directory.join("log"),
            multi_user: false,
            partitions: false,
            users: std::collections::BTreeSet::new(),
            cap_default: None,
            memory_limit_bytes_default: None,
        }
    }

    /// The process of the daemon, by its pid file.
    pub(crate) fn daemon_pid(&self, index: u32) -> u32 {
        let file = self.settings(index).pipe_directory.join("nvidia-cuda-mps-control.pid");
        std::fs::read_to_string(file).unwrap().parse().unwrap()
    }

    /// Says one command to the daemon: its exit code and what it printed, on either side.
    pub(crate) fn says(&self, index: u32, text: &str) -> (Option<i32>, String) {
        let mut child = self.say(index, text);
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(printed).unwrap().trim().to_owned())
    }

    pub(crate) fn say(&self, index: u32, text: &str) -> Child {
        let mut child = command(self.control())
            .env("CUDA_MPS_PIPE_DIRECTORY", self.settings(index).pipe_directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
        child
    }

    /// A program on the device of a daemon.
    pub(crate) fn client(&self, index: u32, environment: &[(&str, &str)]) -> Client {
        self.client_of(UserId(0), index, environment)
    }

    pub(crate) fn client_of(&self, uid: UserId, index: u32, environment: &[(&str, &str)]) -> Client {
        let mut process = command(self.programs.join("mps-client"))
            .env("PILLION_SIMULATED_DEVICE", self.socket())
            .env("CUDA_MPS_PIPE_DIRECTORY", self.settings(index).pipe_directory)
            .envs(environment.iter().copied())
            .uid(uid.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let mut client = Client { process, input, output };
        client.line();
        client
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whatever a failed test left: without their driver the daemons end by themselves.
        if let Some((stop, driver)) = self.driver.take() {
            let _ = stop.send(());
            let _ = driver.join();
        }
    }
}

/// A process on a device, for as long as this value lives.
pub(crate) struct Client {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn progress(&mut self) -> Progress {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line()
    }

    fn line(&mut self) -> Progress {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("a client has no device"))
    }

    pub(crate) fn leave(mut self) {
        drop(self.input.take());
        self.process.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
