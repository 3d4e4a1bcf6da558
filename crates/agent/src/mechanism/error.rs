//! Why a share cannot be set up: an answer to the scheduler.

use pillion_core::device::Mechanism;
use pillion_core::mig::MigProfile;
use pillion_core::{GresType, GresTypes, JobStart, Shards};
use pillion_device::DeviceError;
use std::path::PathBuf;

/// Why a share cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum MechanismError {
    /// The device is shared in another way.
    #[error("device {gres_type} can be shared by {can}, not by {asked}")]
    NotThere {
        gres_type: GresType,
        /// How it can be.
        can: Mechanism,
        /// How it should be.
        asked: Mechanism,
    },
    /// A tenant is there who runs another way.
    #[error("start {tenant} holds device {gres_type} by {held}; {asked} is possible when it has ended")]
    HeldOtherwise {
        gres_type: GresType,
        /// Who is there.
        tenant: JobStart,
        /// How it runs.
        held: Mechanism,
        /// How the newcomer should.
        asked: Mechanism,
    },
    /// A tenant is there who shares it together with other devices, or without those that the newcomer has besides.
    #[error(
        "start {tenant} shares device {gres_type} as one of {held}, and who joins there has just these; {asked} is possible when it has ended"
    )]
    OtherSet {
        gres_type: GresType,
        /// Who is there.
        tenant: JobStart,
        /// The devices that it shares as one.
        held: GresTypes,
        /// Those of the newcomer.
        asked: GresTypes,
    },
    /// Another user is there.
    #[error("device {0} serves another user, and mps.multi_user is off on this node")]
    OtherUser(GresType),
    /// Another user is there, and the device's MPS cannot do what the site wants.
    #[error("device {0} serves another user, and the MPS of its driver serves one at a time")]
    OneUserOnly(GresType),
    /// Another user is in that very instance.
    #[error("the instance of device {0} is another user's, and users never share one")]
    OtherUserInside(GresType),
    /// A tenant is there who runs in another mode.
    #[error(
        "device {gres_type} is in ccs mode {held} while anybody runs; mode {asked} is possible when it is free"
    )]
    OtherMode { gres_type: GresType, held: u8, asked: u8 },
    /// An instance cannot be had.
    #[error("device {gres_type} cannot be cut so: {why}")]
    NotCut { gres_type: GresType, why: String },
    /// It is cut, and one comes who needs it whole.
    #[error("device {gres_type} cannot be made whole: {why}")]
    Uncut { gres_type: GresType, why: String },
    /// What Slurm booked is another part of the device than the instance is.
    #[error("an instance of {profile} is {needed} shards of its device, and {booked} are booked")]
    OtherShards { profile: MigProfile, needed: Shards, booked: Shards },
    /// Those who share an instance have more booked together than it is.
    #[error(
        "an instance of {profile} is {most} shards of its device, and its tenants have {booked} booked together"
    )]
    SharedBeyond {
        profile: MigProfile,
        most: Shards,
        /// All of them together.
        booked: u32,
    },
    /// What is ours cannot be written down, so nothing was done.
    #[error("the record of instances cannot be written")]
    Unwritten(#[source] std::io::Error),
    /// A cap that leaves nothing.
    #[error("a cap of 0 leaves the tenant no compute unit")]
    NoCompute,
    /// A limit that leaves nothing.
    #[error("a memory limit of {0} bytes is below one MiB")]
    NoMemory(u64),
    /// The directory of the daemon.
    #[error("cannot make {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("the mechanism could not be set up")]
    Device(#[from] DeviceError),
}
