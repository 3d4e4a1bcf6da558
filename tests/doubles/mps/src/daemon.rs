//! The control daemon: the device's MPS daemon for as long as it runs, with one server process at most.

use crate::commands::{self, Client, Command};
use crate::partitions::Partitions;
use crate::{control, driver_socket, pipe_directory, variable};
use pillion_core::{DeviceUuid, Fraction, UserId};
use pillion_device::simulated::{MpsService, Simulated};
use pillion_device::{Backend as _, MpsSettings, MpsState, MpsStatus};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How often it looks whether clients came or went.
const TICK: Duration = Duration::from_millis(5);

/// How long a server initialises: its clients connect when it has.
const INITIALIZING: Duration = Duration::from_millis(150);

/// The compute units of every device that it plays: an H100's.
const COMPUTE_UNITS: u32 = 132;

struct Server {
    process: Child,
    uid: UserId,
    started: Instant,
}

impl Server {
    fn is_initializing(&self) -> bool {
        self.started.elapsed() < INITIALIZING
    }
}

struct Daemon {
    device: DeviceUuid,
    service: MpsService,
    server: Option<Server>,
    percentage: f64,
    memory_limit_bytes: Option<u64>,
    /// Where it was started for static partitions.
    partitions: Option<Partitions>,
    /// Whoever said `quit`: it returns when the last client has gone.
    quitting: Vec<UnixStream>,
    log: File,
    /// Held for life: one daemon a pipe directory.
    _lock: File,
}

/// Serves until `quit`.
///
/// # Errors
/// A sentence: why it cannot, or not any longer.
pub fn serve(multi_user: bool, partitions: bool) -> Result<(), String> {
    let pipe_directory = pipe_directory();
    let log_directory = variable("CUDA_MPS_LOG_DIRECTORY").unwrap_or("/var/log/nvidia-mps".to_owned());
    for directory in [&pipe_directory, Path::new(&log_directory)] {
        std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let lock = File::create(pipe_directory.join("control_lock")).map_err(|error| error.to_string())?;
    lock.try_lock().map_err(|_| "An instance of this daemon is already running".to_owned())?;
    let settings = MpsSettings {
        pipe_directory: pipe_directory.clone(),
        log_directory: log_directory.clone().into(),
        multi_user,
        // The driver knows nothing of them: they are kept here.
        partitions: false,
        cap_default: None,
        memory_limit_bytes_default: None,
    };
    let (index, device) = device()?;
    let service = MpsService::open(driver_socket(), index, settings).map_err(|error| error.to_string())?;
    write_pid_file(&pipe_directory)?;
    std::thread::sleep(milliseconds("MPS_DOUBLE_DEAF_MS"));
    let socket = pipe_directory.join(control::SOCKET);
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    let log = File::options().append(true).create(true).open(Path::new(&log_directory).join("control.log"));
    let partitions = partitions && variable("MPS_DOUBLE_WITHOUT_PARTITIONS").is_none();
    let partitions = partitions.then(|| Partitions::new(device.as_str(), COMPUTE_UNITS));
    let mut daemon = Daemon {
        partitions,
        device,
        service,
        server: None,
        percentage: 100.0,
        memory_limit_bytes: None,
        quitting: Vec::new(),
        log: log.map_err(|error| error.to_string())?,
        _lock: lock,
    };
    daemon.note("Starting control daemon");
    daemon.run(&listener)
}

fn write_pid_file(pipe_directory: &Path) -> Result<(), String> {
    if variable("MPS_DOUBLE_WITHOUT_PID_FILE").is_some() {
        return Ok(());
    }
    let file = pipe_directory.join("nvidia-cuda-mps-control.pid");
    std::fs::write(file, std::process::id().to_string()).map_err(|error| error.to_string())
}

/// The time that a variable names, or none.
fn milliseconds(name: &str) -> Duration {
    Duration::from_millis(variable(name).and_then(|value| value.parse().ok()).unwrap_or_default())
}

/// The one device that `CUDA_VISIBLE_DEVICES` names by its UUID: this double serves no list.
fn device() -> Result<(u32, DeviceUuid), String> {
    let given = variable("CUDA_VISIBLE_DEVICES").ok_or("CUDA_VISIBLE_DEVICES names no device")?;
    let devices = Simulated::new(driver_socket()).devices().map_err(|error| error.to_string())?;
    let found = devices.into_iter().find(|device| device.uuid.as_str() == given);
    let found = found.ok_or(format!("CUDA_VISIBLE_DEVICES={given} is the UUID of no device here"))?;
    Ok((found.index, found.uuid))
}

impl Daemon {
    fn run(&mut self, listener: &UnixListener) -> Result<(), String> {
        loop {
            let status = self.settle()?;
            if !self.quitting.is_empty() && status.client_pids.is_empty() && self.service.stop().is_ok() {
                self.end_server();
                std::thread::sleep(milliseconds("MPS_DOUBLE_QUIT_MS"));
                self.note("Exit");
                for stream in self.quitting.drain(..) {
                    control::answer(&stream, &Ok(String::new()));
                }
                return Ok(());
            }
            match listener.accept() {
                Ok((stream, _)) => self.serve_one(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(TICK),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Keeps a server process for the user whom the device serves now, and tells the device if it has died.
    fn settle(&mut self) -> Result<MpsStatus, String> {
        let has_died = match &mut self.server {
            Some(server) => !matches!(server.process.try_wait(), Ok(None)),
            None => false,
        };
        if has_died {
            self.server = None;
            self.note("Server died");
            self.service.server_died().map_err(|error| error.to_string())?;
        }
        let status = self.service.status().map_err(|error| error.to_string())?;
        let status = status.ok_or("the driver has no such daemon any more")?;
        if status.server_uid != self.server.as_ref().map(|server| server.uid) {
            self.end_server();
            self.server = status.server_uid.map(start_server).transpose()?;
            self.note("Starting new server");
        }
        if let Some(partitions) = &self.partitions {
            // A client without a partition has CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION at once.
            let has_none = |pid: &&u32| !partition_of(**pid).is_some_and(|name| partitions.is_known(&name));
            for pid in status.client_pids.iter().filter(has_none) {
                // It has left by itself: as good.
                let _ = self.service.terminate(*pid);
            }
        }
        Ok(status)
    }

    fn end_server(&mut self) {
        if let Some(Server { mut process, .. }) = self.server.take() {
            // It ends when its standard input does.
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }

    fn serve_one(&mut self, stream: UnixStream) -> Result<(), String> {
        let _ = stream.set_nonblocking(false);
        let line = control::hear(&stream).unwrap_or_default();
        self.note(&line);
        let status = self.settle()?;
        match commands::read(&line) {
            Ok(Command::Quit) => self.quitting.push(stream),
            Ok(command) => control::answer(&stream, &self.answer(&command, &status)),
            Err(reason) => control::answer(&stream, &Err(reason)),
        }
        Ok(())
    }

    fn answer(&mut self, command: &Command, status: &MpsStatus) -> Result<String, String> {
        let running = self.server.as_ref().map(|server| server.process.id());
        // A fault is one of clients that it has.
        let is_faulted = status.state == MpsState::Fault;
        let is_initializing = !is_faulted && self.server.as_ref().is_some_and(Server::is_initializing);
        // Whoever asks gets them in no order that the document names: here the last comes first.
        let is_connected = |_: &&u32| !is_initializing;
        let client_pids: Vec<u32> = status.client_pids.iter().rev().filter(is_connected).copied().collect();
        let is_its = |server: &u32| {
            if running == Some(*server) { Ok(()) } else { Err(format!("Server {server} not found")) }
        };
        match command {
            Command::ServerList => Ok(commands::pids(running.as_slice())),
            Command::ServerStatus(server) => is_its(server).map(|()| match (is_faulted, is_initializing) {
                (true, _) => "FAULT\n".to_owned(),
                (false, true) => "INITIALIZING\n".to_owned(),
                (false, false) => "ACTIVE\n".to_owned(),
            }),
            Command::ClientList(server) => is_its(server).map(|()| commands::pids(&client_pids)),
            Command::Clients(server) => {
                server.as_ref().map_or(Ok(()), is_its)?;
                let clients: Vec<Client> = client_pids.into_iter().map(client).collect();
                Ok(commands::table(running.unwrap_or_default(), self.device.as_str(), &clients))
            }
            Command::SetDefaultPercentage(percentage) => {
                self.percentage = *percentage;
                self.tell_defaults().map(|()| format!("{percentage:.1}\n"))
            }
            Command::DefaultPercentage => Ok(format!("{:.1}\n", self.percentage)),
            Command::SetDefaultMemoryLimit(device, bytes) => {
                if device != "0" && device != self.device.as_str() {
                    return Err(format!("Invalid device: {device}"));
                }
                self.memory_limit_bytes = Some(*bytes);
                self.tell_defaults().map(|()| String::new())
            }
            Command::TerminateClient(server, pid) => {
                is_its(server)?;
                // CUDA_SUCCESS, or CUDA_ERROR_INVALID_VALUE.
                Ok(if self.service.terminate(*pid).is_ok() { "0\n" } else { "1\n" }.to_owned())
            }
            Command::AddPartition(device, chunks) => Ok(self.partitions()?.add(device, *chunks)),
            Command::RemovePartition(device, name) => {
                self.partitions()?.remove(device, name, &partitions_of(status))
            }
            Command::Partitions => Ok(self.partitions()?.table(&partitions_of(status))),
            Command::Quit => unreachable!("answered when the last client has gone"),
        }
    }

    fn partitions(&mut self) -> Result<&mut Partitions, String> {
        self.partitions.as_mut().ok_or("Static partitioning is not enabled".to_owned())
    }

    fn tell_defaults(&mut self) -> Result<(), String> {
        let cap = Fraction::try_new(self.percentage / 100.0).map_err(|error| error.to_string())?;
        self.service.set_defaults(Some(cap), self.memory_limit_bytes).map_err(|error| error.to_string())
    }

    fn note(&mut self, text: &str) {
        // A log that cannot be written stops no daemon.
        let _ = writeln!(self.log, "[Control {}] {text}", std::process::id());
    }
}

fn start_server(uid: UserId) -> Result<Server, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "it plays a program that runs another")]
    let mut command = std::process::Command::new(program.with_file_name("nvidia-cuda-mps-server"));
    command.uid(uid.0).stdin(Stdio::piped()).stdout(Stdio::null());
    let process = command.spawn().map_err(|error| format!("no server: {error}"))?;
    Ok(Server { process, uid, started: now() })
}

#[expect(clippy::disallowed_methods, reason = "a daemon has the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

/// The partition that a client names.
fn partition_of(pid: u32) -> Option<String> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = String::from_utf8_lossy(&environ).into_owned();
    text.split('\0').find_map(|it| it.strip_prefix("CUDA_MPS_SM_PARTITION=")).map(str::to_owned)
}

fn partitions_of(status: &MpsStatus) -> Vec<String> {
    status.client_pids.iter().filter_map(|pid| partition_of(*pid)).collect()
}

fn client(pid: u32) -> Client {
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&cmdline).replace('\0', " ").trim().to_owned();
    let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    let namespace = namespace.to_string_lossy().replace("pid:[", "").replace(']', "");
    Client { pid, command, namespace }
}
