//! NVIDIA's Multi-Instance GPU: a device is cut into instances whose tenants meet nobody. What is said here of instances is what
//! the driver has; whose they are, and whether anybody may be given one, is another's business.

use crate::DeviceError;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::{DeviceUuid, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How a device is divided just now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Whether there can be instances.
    pub mode: MigMode,
    /// All that there are, whoever made them, by their memory slices; empty with MIG off.
    pub instances: Vec<Instance>,
}

/// Whether a device can have instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigMode {
    /// It has none, and is one CUDA device.
    Off,
    /// It has none or some; without any it is no CUDA device at all.
    On,
    /// It was told to change, and does so when it is reset, which is an administrator's to do.
    Pending,
}

/// One GPU instance, with what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its size, and where it lies.
    pub slot: Slot,
    /// The driver's number of it. It is another's when this one is gone.
    pub gpu_instance_id: u32,
    /// Its compute instances: one in a whole instance of ours, none in a half-made one.
    pub compute: Vec<ComputeInstance>,
    /// Who runs in it, in the agent's pid namespace.
    pub pids: Vec<u32>,
}

/// A compute instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// The driver's number of it within its GPU instance.
    pub id: u32,
    /// The name by which CUDA finds it: `MIG-..`.
    pub uuid: DeviceUuid,
}

/// A program that has files of a device, or of its instances, open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// In the agent's pid namespace.
    pub pid: u32,
    /// Whose it is.
    pub uid: UserId,
    /// Its name, as the kernel has it.
    pub program: String,
    /// One of the files: `/dev/nvidia0`, `/dev/nvidia-caps/nvidia-cap21`.
    pub file: String,
    /// The driver's numbers of the GPU instances whose files it has open, ascending.
    pub gpu_instance_ids: BTreeSet<u32>,
}

/// Who may come into an instance, beside root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Nobody.
    Root,
    /// One user.
    User(UserId),
    /// Whoever Slurm starts there, as drivers make an instance's files by themselves.
    Everybody,
}

impl Access {
    /// The owner and the mode of the files that lead there.
    pub(crate) const fn owner_and_mode(self) -> (u32, u32) {
        match self {
            Self::Root => (0, CLOSED),
            Self::User(UserId(uid)) => (uid, CLOSED),
            Self::Everybody => (0, 0o444),
        }
    }
}

/// A file's mode: to be read by its owner.
pub(crate) const CLOSED: u32 = 0o400;

/// Cuts a node's devices, and makes them whole again. No call waits for anybody: what is refused is said at once.
pub trait MigControl {
    /// What the device can be cut into, as its driver says, whatever our table has.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where it cannot be cut; else as `Backend::read`.
    fn geometry(&mut self, index: u32) -> Result<Geometry, DeviceError>;

    /// Whether MIG is turned on and off there by a reset alone, which is an administrator's to do.
    ///
    /// # Errors
    /// As `Backend::read`.
    fn needs_reset(&mut self, index: u32) -> Result<bool, DeviceError>;

    /// How it is divided now.
    ///
    /// # Errors
    /// As [`MigControl::geometry`].
    fn layout(&mut self, index: u32) -> Result<Layout, DeviceError>;

    /// Makes an instance at its place, with one compute instance that has all of it. Where the second cannot be made, the first
    /// is taken back; if that is refused too, `layout` shows it without a compute instance.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] where others lie there, [`DeviceError::Refused`] if not root, for a size or place that there is
    /// not, and with MIG off; else as [`MigControl::geometry`].
    fn make(&mut self, index: u32, slot: Slot) -> Result<Instance, DeviceError>;

    /// Takes an instance away: its compute instances first, then itself. One that is not there is success. Nobody new comes in
    /// meanwhile, and the files that it leaves behind are root's only; where it stays, the way into it is whose it was.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while the driver says that somebody uses it, as it does for tenths of a second after a process has
    /// ended; its compute instance may be gone then. Else as [`MigControl::make`].
    fn destroy(&mut self, index: u32, gpu_instance_id: u32) -> Result<(), DeviceError>;

    /// Turns MIG on or off, where the device does so without being reset. As it is already is success.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while anybody has the device open or there are instances, [`DeviceError::Unsupported`] where it would
    /// have to be reset (Ampere): then nothing was asked of the driver.
    fn set_mode(&mut self, index: u32, is_on: bool) -> Result<(), DeviceError>;

    /// Leaves the way to each of these instances to somebody: the capability files of its GPU instance and of its compute instance
    /// are his, whosever they were. Doing it again repairs what was changed meanwhile. Instances are as `layout` has just shown
    /// them: the driver is asked once for all, and one that is another by now is left as it is.
    ///
    /// # Errors
    /// Of the first that cannot be given; those before it are. [`DeviceError::Refused`] if not root, if it is another by now, and,
    /// but for [`Access::Everybody`], if the driver makes those files anew by itself; [`DeviceError::Unsupported`] where it has none.
    fn give(&mut self, index: u32, ways: &[(Instance, Access)]) -> Result<(), DeviceError>;

    /// Which programs have the device's files or those of its instances open, this one left out: who may be meant where the
    /// driver says that somebody uses it. Never fails for a process that ends meanwhile.
    ///
    /// # Errors
    /// As [`MigControl::geometry`].
    fn holders(&mut self, index: u32) -> Result<Vec<Holder>, DeviceError>;
}
