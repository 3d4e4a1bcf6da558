//! The driver process's shell around a [`Machine`]: a Unix socket that all may connect to, as all may open /dev/nvidia*,
//! and the real clock. Decides nothing.
//!
//! Nothing ticks: each request first lets the machine catch up with the clock. So an idle node costs nothing.

use super::capabilities::Capabilities;
use super::client::ClientId;
use super::machine::Machine;
use super::meter::Totals;
use super::mig::Way;
use super::wire::{LINE_LENGTH_MAX, Refusal, Reply, Request};
use crate::{DeviceError, MpsPlace};
use pillion_core::UserId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::LocalSet;
use tokio::time::Instant;

/// Why the driver process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another one serves there.
    #[error("another driver process serves {}", .0.display())]
    InUse(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// The socket at which nobody can listen.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The machine and the moment up to which it has been stepped.
struct Driver {
    machine: Machine,
    capabilities: Capabilities,
    stepped: Instant,
}

impl Driver {
    /// The machine as it is now.
    fn now(&mut self) -> &mut Machine {
        let now = Instant::now();
        self.machine.advance(now - self.stepped);
        self.stepped = now;
        &mut self.machine
    }
}

/// Serves `machine` at `socket` until `stop` is done; then the socket is gone and so is every process on the devices.
///
/// # Errors
/// [`ServeError`] if the socket cannot be made.
pub async fn serve(
    machine: Machine,
    socket: &Path,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let listener = listen(socket)?;
    let driver = Rc::new(RefCell::new(Driver {
        machine,
        capabilities: Capabilities::new(socket),
        stepped: Instant::now(),
    }));
    let connections = LocalSet::new();
    let accept = connections.run_until(async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let driver = Rc::clone(&driver);
                    tokio::task::spawn_local(async move { connection(&driver, stream).await });
                }
                // Out of file descriptors: those who are connected go on, and will leave.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    });
    tokio::select! { () = stop => {}, () = accept => {} }
    // Nobody is left to tell if this fails; a stale socket is found and replaced at the next start.
    let _ = std::fs::remove_file(socket);
    Ok(())
}

fn listen(socket: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Listen { path: socket.to_owned(), source };
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(ServeError::InUse(socket.to_owned()));
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

/// Who is at the other end, by the kernel's word, and what this connection has done so far.
struct Peer {
    pid: u32,
    uid: UserId,
    client: Option<ClientId>,
    /// Whose MPS control daemon this is.
    serves_mps_of: Option<MpsPlace>,
    /// The device that it keeps open.
    holds: Option<u32>,
    marks: BTreeMap<u32, Option<Totals>>,
}

/// Serves one connection to its end; then its process is off the devices.
async fn connection(driver: &RefCell<Driver>, stream: UnixStream) {
    let Ok(credentials) = stream.peer_cred() else {
        return;
    };
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let uid = UserId(credentials.uid());
    let mut peer = Peer { pid, uid, client: None, serves_mps_of: None, holds: None, marks: BTreeMap::new() };
    if let Err(error) = converse(driver, stream, &mut peer).await {
        tracing::debug!(pid, %error, "a connection ended");
    }
    if let Some(client) = peer.client {
        driver.borrow_mut().now().detach(client);
    }
    if let Some(index) = peer.holds {
        // It was there when it was opened.
        let _ = driver.borrow_mut().now().hold(index, peer.pid, false);
    }
    if let Some(place) = peer.serves_mps_of {
        driver.borrow_mut().now().mps_daemon_ended(&place, peer.pid);
    }
}

async fn converse(driver: &RefCell<Driver>, stream: UnixStream, peer: &mut Peer) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut stream).take(LINE_LENGTH_MAX).read_until(b'\n', &mut line).await?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => answered(&mut driver.borrow_mut(), peer, request),
            Err(error) => Reply::Garbled(format!("this is no request: {error}")),
        };
        let mut reply = serde_json::to_vec(&reply)?;
        reply.push(b'\n');
        stream.get_mut().write_all(&reply).await?;
    }
}

/// Who may open an instance, its files say, whoever changed them; and what the driver changes, they show.
fn answered(driver: &mut Driver, peer: &mut Peer, request: Request) -> Reply {
    driver.now();
    let Driver { machine, capabilities, .. } = driver;
    let changed = match &request {
        Request::MakeInstance { index, .. }
        | Request::DestroyInstance { index, .. }
        | Request::GiveInstance { index, .. } => Some(*index),
        _ => None,
    };
    if changed.is_some() || matches!(request, Request::Attach { .. }) {
        capabilities.read(machine);
    }
    let reply = answer(machine, peer, request);
    let Some(index) = changed else { return reply };
    match capabilities.write(machine, index) {
        Ok(()) => reply,
        Err(error) => {
            let reason = format!("the files of an instance cannot be changed: {error}");
            Reply::DeviceError(DeviceError::Refused { index, reason }.into())
        }
    }
}

fn answer(machine: &mut Machine, peer: &mut Peer, request: Request) -> Reply {
    let result = match request {
        Request::MigGeometry { .. }
        | Request::MigNeedsReset { .. }
        | Request::MigLayout { .. }
        | Request::MakeInstance { .. }
        | Request::DestroyInstance { .. }
        | Request::SetMigMode { .. }
        | Request::GiveInstance { .. }
        | Request::MigHolders { .. }
        | Request::Hold { .. } => of_instances(machine, peer, &request),
        Request::Describe => Ok(Reply::Devices(machine.descriptions())),
        Request::ReadAll => Ok(Reply::States(read_all(machine, peer))),
        Request::Read { index } => {
            let reading = machine.read(index, peer.marks.entry(index).or_default());
            reading.map(|reading| Reply::Reading(Box::new(reading)))
        }
        Request::Processes { index } => machine.processes(index).map(Reply::Processes),
        Request::StartMps { place, settings } => done(machine.start_mps(peer.uid, &place, &settings)),
        Request::StopMps { place } => done(machine.stop_mps(peer.uid, &place)),
        Request::Mps { place } => machine.mps(&place).map(Reply::Mps),
        Request::MpsInstances { index } => machine.mps_instances(index).map(Reply::MpsInstances),
        Request::MpsSets => Ok(Reply::MpsSets(machine.mps_sets())),
        Request::TerminateMpsClient { place, pid } => {
            done(machine.terminate_mps_client(peer.uid, &place, pid))
        }
        Request::ServeMps { .. } if peer.serves_mps_of.is_some() => {
            Ok(Reply::Garbled("this connection is an MPS control daemon already".to_owned()))
        }
        Request::ServeMps { place, settings } => {
            let served = machine.serve_mps(peer.uid, peer.pid, &place, settings);
            done(served.inspect(|()| peer.serves_mps_of = Some(place)))
        }
        Request::SetMpsDefaults { cap, memory_limits_bytes } => {
            of_its_daemon(peer, |place| machine.set_mps_defaults(place, cap, &memory_limits_bytes))
        }
        Request::SetMpsServerLimits { cap, memory_limits_bytes } => {
            of_its_daemon(peer, |place| machine.set_mps_server_limits(place, cap, &memory_limits_bytes))
        }
        Request::MpsServerDied => of_its_daemon(peer, |place| machine.mps_server_died(place)),
        Request::FaultMps { place } => done(machine.fault_mps(peer.uid, &place)),
        Request::CcsMode { index } => machine.ccs_mode(index).map(Reply::CcsMode),
        Request::SetCcsMode { index, mode } => done(machine.set_ccs_mode(peer.uid, index, mode)),
        Request::ComputeMode { index } => machine.compute_mode(index).map(Reply::ComputeMode),
        Request::SetComputeMode { index, mode } => done(machine.set_compute_mode(peer.uid, index, mode)),
        Request::Counters { index } => machine.counters(index).map(Reply::Counters),
        Request::Tenants { index } => machine.tenants(index).map(Reply::Tenants),
        Request::Attach { .. } if peer.client.is_some() => {
            Ok(Reply::Garbled("this connection has a process on a device already".to_owned()))
        }
        Request::Attach { request } => Ok(match machine.attach(&request, peer.pid, peer.uid) {
            Ok(client) => {
                peer.client = Some(client);
                Reply::Done
            }
            Err(error) => Reply::ClientError(error),
        }),
        Request::Progress => Ok(match peer.client.and_then(|client| machine.progress(client)) {
            Some(progress) => Reply::Progress(progress),
            None => Reply::Garbled("this connection has no process on any device".to_owned()),
        }),
    };
    result.unwrap_or_else(|error| Reply::DeviceError(error.into()))
}

/// What concerns MIG.
fn of_instances(machine: &mut Machine, peer: &mut Peer, request: &Request) -> Result<Reply, DeviceError> {
    match *request {
        Request::MigGeometry { index } => machine.mig_geometry(index).map(Reply::MigGeometry),
        Request::MigNeedsReset { index } => machine.mig_needs_reset(index).map(Reply::MigNeedsReset),
        Request::MigLayout { index } => machine.mig_layout(index).map(Reply::MigLayout),
        Request::MakeInstance { index, slot } => {
            machine.make_instance(peer.uid, index, slot).map(Reply::Instance)
        }
        Request::DestroyInstance { index, id } => done(machine.destroy_instance(peer.uid, index, id)),
        Request::SetMigMode { index, is_on } => done(machine.set_mig_mode(peer.uid, index, is_on)),
        Request::GiveInstance { index, id, to } => {
            done(machine.set_instance_way(peer.uid, index, id, Way::from(to)))
        }
        Request::MigHolders { index } => {
            let mut holders = machine.mig_holders(index)?;
            for holder in &mut holders {
                let name = std::fs::read_to_string(format!("/proc/{}/comm", holder.pid));
                name.unwrap_or_default().trim().clone_into(&mut holder.program);
            }
            Ok(Reply::Holders(holders))
        }
        Request::Hold { index } if peer.holds.is_none() => {
            let held = machine.hold(index, peer.pid, true);
            done(held.inspect(|()| peer.holds = Some(index)))
        }
        _ => Ok(Reply::Garbled("this connection keeps a device open already".to_owned())),
    }
}

fn done(result: Result<(), DeviceError>) -> Result<Reply, DeviceError> {
    result.map(|()| Reply::Done)
}

/// What only the daemon itself may ask for.
fn of_its_daemon(
    peer: &Peer,
    act: impl FnOnce(&MpsPlace) -> Result<(), DeviceError>,
) -> Result<Reply, DeviceError> {
    match &peer.serves_mps_of {
        Some(place) => done(act(place)),
        None => Ok(Reply::Garbled("this connection is no MPS control daemon".to_owned())),
    }
}

fn read_all(machine: &mut Machine, peer: &mut Peer) -> Vec<(u32, Result<crate::DeviceState, Refusal>)> {
    let indexes: Vec<u32> = machine.descriptions().into_iter().map(|device| device.index).collect();
    let mut states = Vec::new();
    for index in indexes {
        let reading = machine.read(index, peer.marks.entry(index).or_default());
        let state = reading
            .and_then(|reading| Ok(crate::DeviceState { reading, processes: machine.processes(index)? }));
        states.push((index, state.map_err(Refusal::from)));
    }
    states
}
