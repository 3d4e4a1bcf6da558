//! The control daemon: the MPS daemon of a device, of one MIG instance or of several devices, for as long as it runs, with one server
//! process at most.

use crate::commands::{self, Client, Command};
use crate::files::Files;
use crate::partitions::Partitions;
use crate::{control, driver_socket, pipe_directory, variable};
use pillion_core::{DeviceUuid, Fraction, UserId};
use pillion_device::simulated::{MpsService, Simulated};
use pillion_device::{Backend as _, MigControl as _, MpsPlace, MpsSettings, MpsState, MpsStatus};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How often it looks whether clients came or went.
const TICK: Duration = Duration::from_millis(5);

/// How long a server initialises, unless `MPS_DOUBLE_INITIALIZING_MS` says otherwise: its clients connect when it has.
const INITIALIZING: Duration = Duration::from_millis(150);

/// The compute units of every device that it plays: an H100's.
const COMPUTE_UNITS: u32 = 132;

struct Server {
    process: Child,
    uid: UserId,
    started: Instant,
    /// What it holds its next clients to: the daemon's defaults of when it was started, until it is told otherwise.
    percentage: f64,
    memory_limits_bytes: MemoryLimits,
}

/// By the numbers of devices, in which its clients see them.
type MemoryLimits = BTreeMap<u32, u64>;

impl Server {
    fn is_initializing(&self) -> bool {
        let patience = milliseconds("MPS_DOUBLE_INITIALIZING_MS");
        self.started.elapsed() < if patience.is_zero() { INITIALIZING } else { patience }
    }
}

struct Daemon {
    devices: Vec<DeviceUuid>,
    service: MpsService,
    server: Option<Server>,
    /// For whom a server was asked for by name: it is there without a client until another user's is wanted.
    asked_for: Option<UserId>,
    /// Of the first of its servers that ended by itself with a failure, the exit status: the daemon's own in the end.
    failure: Option<u8>,
    percentage: f64,
    /// It takes limits of more devices than it serves.
    memory_limits_bytes: MemoryLimits,
    /// Of a release that knows of static partitions; they are there where it was started for them.
    has_partitions: bool,
    partitions: Option<Partitions>,
    /// Whoever said `quit`: it returns when the last client has gone.
    quitting: Vec<UnixStream>,
}

/// How it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// `-multiuser-server`
    pub multi_user: bool,
    /// `-S`
    pub partitions: bool,
}

/// Serves until `quit`. Returns the exit status: that of the first server that ended by itself with a failure, else 0.
///
/// # Errors
/// A sentence: why it cannot, or not any longer.
pub fn serve(options: Options) -> Result<u8, String> {
    let pipe_directory = pipe_directory();
    let log_directory = variable("CUDA_MPS_LOG_DIRECTORY").unwrap_or("/var/log/nvidia-mps".to_owned());
    let (files, listener) = Files::take(&pipe_directory, log_directory.as_ref())?;
    let settings = MpsSettings {
        pipe_directory,
        log_directory: log_directory.into(),
        multi_user: options.multi_user,
        // The driver knows nothing of them: they are kept here.
        partitions: false,
        users: std::collections::BTreeSet::new(),
        cap_default: None,
        memory_limit_bytes_default: None,
    };
    let (place, devices) = served()?;
    let service = MpsService::open(driver_socket(), place, settings).map_err(|error| error.to_string())?;
    let partitions = options.partitions && variable("MPS_DOUBLE_WITHOUT_PARTITIONS").is_none();
    let only = devices.first().filter(|_| devices.len() == 1);
    if partitions && only.is_none() {
        return Err("the double parts no more than one device".to_owned());
    }
    let mut daemon = Daemon {
        partitions: only.filter(|_| partitions).map(|only| Partitions::new(only.as_str(), COMPUTE_UNITS)),
        has_partitions: crate::knows_partitions(),
        devices,
        service,
        server: None,
        asked_for: None,
        failure: None,
        percentage: 100.0,
        memory_limits_bytes: BTreeMap::new(),
        quitting: Vec::new(),
    };
    Daemon::note("Starting control daemon");
    daemon.run(&listener)?;
    let status = daemon.failure.unwrap_or(0);
    Daemon::note(&format!("Exit with status {status}"));
    // Whoever asked is told when nothing of it is left that goes.
    files.leave();
    for stream in &daemon.quitting {
        control::part(stream, status);
    }
    Ok(status)
}

/// The time that a variable names, or none.
pub(crate) fn milliseconds(name: &str) -> Duration {
    Duration::from_millis(variable(name).and_then(|value| value.parse().ok()).unwrap_or_default())
}

/// The devices, or the one MIG instance, that `CUDA_VISIBLE_DEVICES` names by their UUIDs: this double takes no numbers, and no list
/// of instances. The real one takes both (NVIDIA, MIG User Guide, "CUDA MPS with MIG": `CUDA_VISIBLE_DEVICES=MIG-..` of the control
/// daemon). A list that ends early, as CUDA reads one with a name that nobody has, is refused.
fn served() -> Result<(MpsPlace, Vec<DeviceUuid>), String> {
    let given = variable("CUDA_VISIBLE_DEVICES").ok_or("CUDA_VISIBLE_DEVICES names no device")?;
    let mut driver = Simulated::new(driver_socket());
    let devices = driver.devices().map_err(|error| error.to_string())?;
    let named = |name| devices.iter().find(|device| device.uuid.as_str() == name);
    let all: Option<Vec<_>> = given.split(',').map(named).collect();
    if let Some([first, beside @ ..]) = all.as_deref() {
        let uuids = std::iter::once(first).chain(beside).map(|device| device.uuid.clone()).collect();
        return Ok((MpsPlace::set(first.index, beside.iter().map(|device| device.index).collect()), uuids));
    }
    for device in devices {
        // One that has no MIG has no instances.
        let instances = driver.layout(device.index).map(|layout| layout.instances).unwrap_or_default();
        let mut compute = instances.into_iter().flat_map(|instance| instance.compute);
        if let Some(found) = compute.find(|compute| compute.uuid.as_str() == given) {
            return Ok((MpsPlace::instance(device.index, found.uuid.clone()), vec![found.uuid]));
        }
    }
    Err(format!("CUDA_VISIBLE_DEVICES={given} is the UUID of no device here"))
}

impl Daemon {
    /// Until it was told to quit, and all have gone.
    fn run(&mut self, listener: &UnixListener) -> Result<(), String> {
        loop {
            let status = self.settle()?;
            if !self.quitting.is_empty() && status.client_pids.is_empty() && self.service.stop().is_ok() {
                self.end_server();
                std::thread::sleep(milliseconds("MPS_DOUBLE_QUIT_MS"));
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
        let ended = self.server.as_mut().and_then(|server| server.process.try_wait().transpose());
        let has_died = ended.is_some();
        let status = self.status()?;
        if has_died {
            let served = self.server.take().map(|server| server.uid);
            // One that was killed has none, and counts as no failure.
            let code = ended.and_then(Result::ok).and_then(|status| status.code()).unwrap_or(0);
            Self::note(&format!("Server exited with status {code}"));
            self.failure = self.failure.or(u8::try_from(code).ok().filter(|code| *code > 0));
            self.asked_for = None;
            if status.server_uid.is_some() && status.server_uid == served {
                self.service.server_died().map_err(|error| error.to_string())?;
            }
        }
        let status = if has_died { self.status()? } else { status };
        if status.server_uid.is_some() {
            self.asked_for = None;
        }
        let wanted = status.server_uid.or(self.asked_for);
        if wanted != self.server.as_ref().map(|server| server.uid) {
            self.end_server();
            self.server = wanted.map(|uid| self.start_server(uid)).transpose()?;
            Self::note("Starting new server");
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

    fn status(&mut self) -> Result<MpsStatus, String> {
        let status = self.service.status().map_err(|error| error.to_string())?;
        status.ok_or("the driver has no such daemon any more".to_owned())
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
        let Ok(Some((line, who))) = control::hear(&stream) else { return Ok(()) };
        Self::note(&format!("Cmd:{line}"));
        let status = self.settle()?;
        let answer = match commands::read(&line, self.has_partitions) {
            Ok(Command::Quit) if is_ours(who) => {
                self.quitting.push(stream);
                return Ok(());
            }
            Ok(Command::Quit) => "Not enough privilege to execute quit command\n".to_owned(),
            Ok(command) => self.answer(&command, who, &status),
            Err(refusal) => refusal,
        };
        Self::note(answer.trim_end());
        control::answer(&stream, &answer);
        Ok(())
    }

    /// What is printed, of a refusal too.
    fn answer(&mut self, command: &Command, who: UserId, status: &MpsStatus) -> String {
        match command {
            Command::ServerList => commands::pids(self.running().as_slice()),
            Command::StartServer(uid) => self.ask_for_server(*uid, who),
            Command::ServerStatus(None) => "A server PID is required\n".to_owned(),
            Command::ServerStatus(Some(server)) => self.server_status(*server, status),
            Command::ClientList(server) if !self.is_its(*server) => not_found(*server),
            Command::ClientList(_) => commands::pids(&self.clients(status)),
            Command::Clients(server) => self.table(*server, status),
            Command::SetDefaultPercentage(_) | Command::SetDefaultMemoryLimit(..) if !is_ours(who) => {
                format!(
                    "Insufficient privileges for UID {who}. Control deamon settings can only be modified by the user started it \
                 or by the root user.\n"
                )
            }
            Command::SetDefaultPercentage(percentage) => {
                self.percentage = percentage.unwrap_or(self.percentage);
                self.tell_defaults();
                format!("{:.1}\n", self.percentage)
            }
            Command::DefaultPercentage => format!("{:.1}\n", self.percentage),
            Command::SetPercentage(server, percentage) => self.limit_server(*server, status, |server| {
                server.percentage = percentage.unwrap_or(server.percentage);
            }),
            Command::SetMemoryLimit(server, device, bytes) => self.limit_server(*server, status, |server| {
                server.memory_limits_bytes.extend(device.map(|device| (device, *bytes)));
            }),
            Command::SetDefaultMemoryLimit(device, bytes) => {
                if let Some(device) = device {
                    self.memory_limits_bytes.insert(*device, *bytes);
                }
                self.tell_defaults();
                String::new()
            }
            Command::DefaultMemoryLimit(device) => {
                let limit = device.and_then(|device| self.memory_limits_bytes.get(&device));
                limit.filter(|bytes| **bytes > 0).map_or_else(String::new, |it| commands::printed_limit(*it))
            }
            Command::TerminateClient(server, pid) => self.terminate(*server, *pid),
            Command::AddPartition(device, chunks) => {
                self.partitions.as_mut().map_or_else(without_partitions, |it| it.add(device, *chunks))
            }
            Command::RemovePartition(device, name) => {
                let removed =
                    self.partitions.as_mut().map(|it| it.remove(device, name, &partitions_of(status)));
                removed.map_or_else(without_partitions, |it| it.unwrap_or_else(|refusal| refusal + "\n"))
            }
            Command::Partitions => self
                .partitions
                .as_ref()
                .map_or_else(without_partitions, |it| it.table(&partitions_of(status))),
            Command::Quit => unreachable!("answered when the last client has gone"),
        }
    }

    fn running(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.process.id())
    }

    fn is_its(&self, server: u32) -> bool {
        self.running() == Some(server)
    }

    /// A fault is one of clients that it has.
    fn is_initializing(&self, status: &MpsStatus) -> bool {
        status.state != MpsState::Fault && self.server.as_ref().is_some_and(Server::is_initializing)
    }

    /// Whoever asks gets them in no order that the document names: here the last comes first.
    fn clients(&self, status: &MpsStatus) -> Vec<u32> {
        if self.is_initializing(status) {
            return Vec::new();
        }
        status.client_pids.iter().rev().copied().collect()
    }

    fn ask_for_server(&mut self, uid: Option<u32>, who: UserId) -> String {
        let Some(uid) = uid.map(UserId) else {
            return "A user id (UID) is required to start a new server\n".to_owned();
        };
        if uid != who && who != UserId(0) {
            return format!(
                "Insufficient privileges for UID {who}. Only the root user may start server for another user.\n"
            );
        }
        if self.server.is_none() {
            self.asked_for = Some(uid);
        }
        String::new()
    }

    fn server_status(&self, server: u32, status: &MpsStatus) -> String {
        if !self.is_its(server) {
            not_found(server)
        } else if status.state == MpsState::Fault {
            "FAULT\n".to_owned()
        } else if self.is_initializing(status) {
            "INITIALIZING\n".to_owned()
        } else {
            "ACTIVE\n".to_owned()
        }
    }

    /// `ps`: a server that initialises is not found.
    fn table(&self, server: Option<u32>, status: &MpsStatus) -> String {
        let ready = self.running().filter(|_| !self.is_initializing(status));
        match (server, ready) {
            (None, None) => "Server not found\n".to_owned(),
            // With an empty line after it.
            (Some(server), _) if !self.is_its(server) => not_found(server).repeat(2) + "\n",
            (Some(server), None) => not_found(server) + "\n",
            (_, Some(ready)) => {
                let clients: Vec<Client> = self.clients(status).into_iter().map(client).collect();
                let device = self.devices.first().map_or("", DeviceUuid::as_str);
                commands::table(ready, device, &clients)
            }
        }
    }

    /// `terminate_client`: `CUDA_SUCCESS`, or `CUDA_ERROR_INVALID_VALUE`.
    fn terminate(&mut self, server: u32, pid: u32) -> String {
        if !self.is_its(server) {
            return format!("{}Server {server} not found!\n1\n", not_found(server));
        }
        if self.server.as_ref().is_some_and(Server::is_initializing) {
            return format!("Server {server} not found!\n1\n");
        }
        if self.service.terminate(pid).is_ok() { "0\n" } else { "1\n" }.to_owned()
    }

    /// What a server holds its next clients to. One that initialises is busy, and is told nothing; what a ready one prints is
    /// not documented: here nothing. Whoever asks may: the real one looks at the server first and at him never.
    fn limit_server(&mut self, server: u32, status: &MpsStatus, set: impl FnOnce(&mut Server)) -> String {
        if !self.is_its(server) {
            return not_found(server);
        }
        if self.is_initializing(status) {
            return String::new();
        }
        let Some(server) = &mut self.server else { return not_found(server) };
        set(server);
        let cap = Some(Fraction::clamped(server.percentage / 100.0));
        let limits = limits_of(&self.devices, &server.memory_limits_bytes);
        if let Err(error) = self.service.set_server_limits(cap, limits) {
            Self::note(&error.to_string());
        }
        String::new()
    }

    fn start_server(&self, uid: UserId) -> Result<Server, String> {
        let process = start_server(uid)?;
        let (percentage, memory_limits_bytes) = (self.percentage, self.memory_limits_bytes.clone());
        Ok(Server { process, uid, started: now(), percentage, memory_limits_bytes })
    }

    fn tell_defaults(&mut self) {
        let limits = limits_of(&self.devices, &self.memory_limits_bytes);
        let told = self.service.set_defaults(Some(Fraction::clamped(self.percentage / 100.0)), limits);
        if let Err(error) = told {
            Self::note(&error.to_string());
        }
    }

    /// In the foreground its log is its standard output.
    fn note(text: &str) {
        // One that cannot be written stops no daemon.
        let _ = writeln!(std::io::stdout(), "[Control {:>5}] {text}", std::process::id());
    }
}

/// A limit for each device that has one: 0 is none.
fn limits_of(devices: &[DeviceUuid], limits: &MemoryLimits) -> Vec<Option<u64>> {
    let numbered = (0..).zip(devices);
    numbered.map(|(number, _)| limits.get(&number).copied().filter(|bytes| *bytes > 0)).collect()
}

fn not_found(server: u32) -> String {
    format!("Server {server} not found\n")
}

fn without_partitions() -> String {
    "Static partitioning is not enabled\n".to_owned()
}

/// Whoever started it, and root.
fn is_ours(who: UserId) -> bool {
    who == UserId(0) || who.0 == rustix::process::geteuid().as_raw()
}

fn start_server(uid: UserId) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "it plays a program that runs another")]
    let mut command = std::process::Command::new(program.with_file_name("nvidia-cuda-mps-server"));
    command.uid(uid.0).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().map_err(|error| format!("no server: {error}"))
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
