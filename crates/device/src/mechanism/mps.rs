//! NVIDIA's Multi-Process Service: one control daemon a device, an instance of one (MIG), or a set of devices, whose clients run side by
//! side. Who runs the daemons is another matter (`crate::mps`).

use crate::DeviceError;
use pillion_core::{DeviceUuid, Fraction, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What one MPS control daemon serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MpsPlace {
    /// The device, or the first of a set.
    pub index: u32,
    /// The instance of it (MIG) that is all that the daemon's clients see, by the name of its compute instance; absent: the device is
    /// whole.
    pub instance: Option<DeviceUuid>,
    /// The other devices of a set, in the order in which its clients see them. A client reaches one daemon, so whoever uses several
    /// devices beside others needs one that serves all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<u32>,
}

impl MpsPlace {
    /// A device that is not cut.
    pub const fn device(index: u32) -> Self {
        Self { index, instance: None, beside: Vec::new() }
    }

    /// Devices that one daemon serves together, none of them cut: the first, and the others in the order in which clients see them.
    pub const fn set(index: u32, beside: Vec<u32>) -> Self {
        Self { index, instance: None, beside }
    }

    /// An instance of a device.
    pub const fn instance(index: u32, instance: DeviceUuid) -> Self {
        Self { index, instance: Some(instance), beside: Vec::new() }
    }

    /// All its devices, the first one first.
    pub fn indexes(&self) -> impl Iterator<Item = u32> + Clone {
        std::iter::once(self.index).chain(self.beside.iter().copied())
    }

    /// Whether daemons of both would serve one device where one of them serves a set: each would hold clients there to its own
    /// limits, and neither could close it to all but its own server.
    pub fn collides_with(&self, other: &Self) -> bool {
        let has_set = !self.beside.is_empty() || !other.beside.is_empty();
        has_set && self != other && self.indexes().any(|index| other.indexes().any(|theirs| theirs == index))
    }
}

/// How one MPS control daemon is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MpsSettings {
    /// `CUDA_MPS_PIPE_DIRECTORY` of the daemon and of all its clients; one directory a place.
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
    /// The same for the memory of each client process, of each device; `None`: nothing is said of it.
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

/// Runs the MPS control daemons of a node's devices, of their instances, and of sets of them.
pub trait MpsControl {
    /// Starts the control daemon of one place, as root. One that runs is told the limits of these settings, and their users
    /// are let in; with the same settings again nothing is done.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where MPS cannot do what is asked, [`DeviceError::Refused`] if not root, and
    /// [`DeviceError::Busy`] if a daemon runs with other settings, is in [`MpsState::Fault`], or died and clients of it
    /// still run, or if one of another place serves one of these devices; in an instance also [`DeviceError::Refused`] if the
    /// device has none of that name.
    fn prepare(&mut self, place: &MpsPlace, settings: &MpsSettings) -> Result<(), DeviceError>;

    /// Stops the control daemon of one place; nothing to do is success. Running clients are never ended by it.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while it has clients; else as [`MpsControl::prepare`].
    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError>;

    /// The control daemon of one place, if it runs: it outlives the agent.
    ///
    /// # Errors
    /// As `Backend::read`.
    fn status(&mut self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError>;

    /// Ends one client in the clean way (`terminate_client`), before it is killed: a killed client can take the server and
    /// its neighbours with it.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if this is no client of that place; else as [`MpsControl::release`].
    fn terminate_client(&mut self, place: &MpsPlace, pid: u32) -> Result<(), DeviceError>;

    /// Gives `tenant` compute units that nobody else may use, on a device whose daemon runs with
    /// [`MpsSettings::partitions`]: `cap` of them, rounded down to what the daemon gives out at a time; where fewer are free,
    /// all that are. Returns the name that its clients must give (`CUDA_MPS_SM_PARTITION`). The same tenant again keeps what
    /// it has.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where there are none, [`DeviceError::Busy`] if none is free; else as
    /// [`MpsControl::release`].
    fn add_partition(
        &mut self,
        place: &MpsPlace,
        tenant: &str,
        cap: Fraction,
    ) -> Result<String, DeviceError> {
        let index = place.index;
        let reason = format!("no static SM partition of {cap:?} for {tenant} can be made here");
        Err(DeviceError::Unsupported { index, reason })
    }

    /// Takes the partitions of all tenants but these back; nothing to do is success.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while one has clients; else as [`MpsControl::release`].
    fn keep_partitions(&mut self, _: &MpsPlace, _: &BTreeSet<String>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The instances of a device that have a control daemon, or of which something of one is left.
    ///
    /// # Errors
    /// As `Backend::read`.
    fn instances(&mut self, index: u32) -> Result<Vec<DeviceUuid>, DeviceError>;

    /// The sets of devices that have a control daemon, or of which something of one is left.
    ///
    /// # Errors
    /// As `Backend::read`.
    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError>;
}
