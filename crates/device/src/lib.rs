//! Devices: what they are, what they do just now, and how they are shared, behind one trait.
//!
//! This is the only room, besides `slurm-spank`, that may call a vendor's library. It knows nothing of Slurm's queue,
//! of decisions, of profiles or of the network: the agent asks it once a second and carries the answers on.
//!
//! The simulated devices are a production backend like any other: a driver process plays driver and hardware of all
//! GPUs of a node, so that jobs and their contention survive the agent's death as they do on real hardware.

mod error;
pub mod exporter;
pub mod intel;
pub mod mps;
pub mod nvidia;
pub mod simulated;
mod worker;

pub use error::DeviceError;

use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use pillion_core::{Fraction, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// How the MPS control daemon of one device is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MpsSettings {
    /// `CUDA_MPS_PIPE_DIRECTORY` of the daemon and of all its clients; one directory a device.
    pub pipe_directory: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY` of the daemon.
    pub log_directory: PathBuf,
    /// Serve several users at once (`-multiuser-server`). Otherwise a second user waits until the first has left.
    pub multi_user: bool,
    /// Give compute units out as partitions that belong to one tenant alone (`-S`, CUDA 13.1 and later): a client without
    /// one is refused, and percentages do not count.
    #[serde(default)]
    pub partitions: bool,
    /// Who reaches the pipe directory besides root: the users of the device's tenants. It may change while the daemon runs.
    #[serde(default)]
    pub users: BTreeSet<UserId>,
    /// The most compute units of each client, whatever its environment says; a client can only lower it. It may change while
    /// the daemon runs; clients that are there keep what they came under.
    pub cap_default: Option<Fraction>,
    /// The same for the device memory of each client process; `None`: nothing is said of it.
    pub memory_limit_bytes_default: Option<u64>,
}

impl MpsSettings {
    /// Whether a daemon that was started so can be made one of `wanted` while it runs.
    pub fn can_become(&self, wanted: &Self) -> bool {
        let Self { users, cap_default, memory_limit_bytes_default, .. } = self.clone();
        *self == Self { users, cap_default, memory_limit_bytes_default, ..wanted.clone() }
    }
}

/// How an MPS control daemon and its server are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MpsState {
    /// It was started and has not answered yet.
    Starting,
    /// It takes clients.
    Up,
    /// It is to stop when its last client has left.
    Draining,
    /// A client's fatal fault blocks the server: no new client until all have left.
    Fault,
    /// It, or the server of running clients, is gone: these are suspect, and it serves nobody until it was restarted.
    Died,
}

impl MpsState {
    /// Whether a new tenant may come.
    pub fn takes_clients(self) -> bool {
        matches!(self, Self::Starting | Self::Up | Self::Draining)
    }
}

/// An MPS control daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MpsStatus {
    /// How it was started.
    pub settings: MpsSettings,
    /// How it is.
    pub state: MpsState,
    /// Whose server is active: the user of its clients (root in multi-user mode); `None` while there is none. A server
    /// outlives its clients until another user comes.
    pub server_uid: Option<UserId>,
    /// The clients that are connected, in the agent's pid namespace; of a daemon that died, those that it had.
    pub client_pids: Vec<u32>,
}

/// One device at one moment: what it did, and who is on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// What the device did.
    pub reading: Reading,
    /// Who is on it, and with how much memory.
    pub processes: Vec<DeviceProcess>,
}

/// The devices of a node by ascending index, each with its state or with what kept it from telling.
pub type DeviceStates = Vec<(u32, Result<DeviceState, DeviceError>)>;

/// All devices of one node, of one vendor.
///
/// Synchronous: the agent calls it once a second from one blocking task. Every call is bounded in time (a driver
/// process is given up after a second), and none panics on what a driver says.
pub trait Backend: Send {
    /// The devices of this node, by ascending index.
    ///
    /// # Errors
    /// If the driver cannot be asked at all.
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError>;

    /// What one device did since the last reading, and does now.
    ///
    /// # Errors
    /// [`DeviceError::NoSuchDevice`], [`DeviceError::Gone`], or what kept the driver from answering.
    fn read(&mut self, index: u32) -> Result<Reading, DeviceError>;

    /// The processes on one device.
    ///
    /// # Errors
    /// As [`Backend::read`].
    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError>;

    /// Reads all devices at once, by ascending index: the agent's call a second. A device that fails says so in its
    /// own place, and hides nothing of the others.
    ///
    /// # Errors
    /// If no device could be asked.
    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        let indexes: Vec<u32> = self.devices()?.into_iter().map(|device| device.index).collect();
        let read_one = |index| {
            let state = self
                .read(index)
                .and_then(|reading| Ok(DeviceState { reading, processes: self.processes(index)? }));
            (index, state)
        };
        Ok(indexes.into_iter().map(read_one).collect())
    }

    /// What drivers and daemons told unasked since the last call: faults, and metrics that stopped or came back.
    fn notices(&mut self) -> Vec<DeviceNotice> {
        Vec::new()
    }

    /// Starts the MPS control daemon of one device, as root. One that runs is told the limits of these settings, and
    /// their users are let in; with the same settings again nothing is done.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where there is no MPS, [`DeviceError::Refused`] if not root, and
    /// [`DeviceError::Busy`] if a daemon runs with other settings, is in [`MpsState::Fault`], or died and clients of it
    /// still run.
    fn start_mps(&mut self, index: u32, settings: &MpsSettings) -> Result<(), DeviceError>;

    /// Stops the MPS control daemon of one device; nothing to do is success. Running clients are never ended by it.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while it has clients; else as [`Backend::start_mps`].
    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError>;

    /// The MPS control daemon of one device, if it runs: it outlives the agent.
    ///
    /// # Errors
    /// As [`Backend::read`].
    fn mps(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError>;

    /// Ends one MPS client in the clean way (`terminate_client`), before it is killed: a killed client can take the
    /// server and its neighbours with it.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if this is no client of that device; else as [`Backend::stop_mps`].
    fn terminate_mps_client(&mut self, index: u32, pid: u32) -> Result<(), DeviceError>;

    /// Gives `tenant` compute units that nobody else may use, on a device whose MPS daemon runs with
    /// [`MpsSettings::partitions`]: `cap` of them, rounded down to what the daemon gives out at a time; where fewer are free,
    /// all that are. Returns the name that its clients must give (`CUDA_MPS_SM_PARTITION`). The same tenant again keeps what
    /// it has.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where there are none, [`DeviceError::Busy`] if none is free; else as
    /// [`Backend::stop_mps`].
    fn add_mps_partition(&mut self, index: u32, tenant: &str, cap: Fraction) -> Result<String, DeviceError> {
        let reason = format!("no static SM partition of {cap:?} for {tenant} can be made here");
        Err(DeviceError::Unsupported { index, reason })
    }

    /// Takes the partitions of all tenants but these back; nothing to do is success.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while one has clients; else as [`Backend::stop_mps`].
    fn keep_mps_partitions(&mut self, _: u32, _: &BTreeSet<String>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The CCS mode in force, 1, 2 or 4; `None` while the device is idle, when the next process chooses it, and where
    /// there is no CCS.
    ///
    /// # Errors
    /// As [`Backend::read`].
    fn ccs_mode(&mut self, index: u32) -> Result<Option<u8>, DeviceError>;

    /// Sets the CCS mode where that takes root and not the job's environment (xe kernel driver). A driver whose
    /// processes set it themselves (i915) checks the mode and does nothing.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if the mode is not 1, 2 or 4, [`DeviceError::Busy`] while anybody runs in another one,
    /// [`DeviceError::NotReady`] while a call of ours that hangs is in the way, [`DeviceError::Unsupported`] where there is no
    /// CCS.
    fn set_ccs_mode(&mut self, index: u32, mode: u8) -> Result<(), DeviceError>;
}
