//! How a node is set up beside its devices, as its agent sees it when it connects: told to the scheduler for `pillion doctor`,
//! which alone knows what Slurm there should be.

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// What is wrong with a node's set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetupFaultKind {
    /// Something that a newer agent knows.
    Other,
    /// plugstack.conf loads no plugin of ours, or is not there.
    NoPlugin,
    /// plugstack.conf loads ours as `required`.
    PluginRequired,
    /// Everybody may write into a directory of ours.
    DirectoryOpen,
    /// Users cannot enter a directory in which theirs lies.
    DirectoryClosed,
    /// Devices are to be shared by MPS, and its control program is not there.
    NoMps,
    /// Devices are to be shared by MPS, and nvidia-persistenced does not run.
    NoPersistence,
    /// MPS daemons run in the agent's control group, or will.
    MpsUnscoped,
    /// Devices are to be cut by MIG, and the driver makes their files anew, open to everybody.
    MigFilesRemade,
    /// A device that could be cut by MIG is not: MIG is off there, or is to change at a reset.
    MigOff,
    /// Programs of the system have a device open that is to be cut by MIG.
    MigHeld,
    /// Devices that are to be cut by MIG hang on `NVSwitches`, and no fabric manager runs.
    FabricDown,
    /// A file of the CCS mode may not be written.
    ModeFixed,
    /// A hook that slurm.conf names cannot be run.
    HookMissing,
    /// There is no device to share: no library of a vendor, no driver, or none that it shows.
    NoDevices,
    /// Jobs' progress files lie on no file system of their own.
    ProgressUnbounded,
}

spelt_as_serialized!(SetupFaultKind => "set-up fault");

/// One thing that is wrong with a node's set-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupFault {
    /// What kind of fault it is.
    pub kind: SetupFaultKind,
    /// One sentence, with the place.
    pub detail: String,
}

/// A SPANK plugin of ours that the node's plugstack.conf loads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedPlugin {
    /// The plugin's file, as plugstack.conf names it.
    pub path: String,
    /// For which Slurm it was built, as `24.11`; `None`: it could not be told.
    pub built_for: Option<String>,
    /// Why it could not be told.
    pub error: Option<String>,
}

/// How a node is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSetup {
    /// What is wrong.
    pub faults: Vec<SetupFault>,
    /// The plugins of ours; those whose file is not known where to look for are left out.
    pub plugins: Vec<LoadedPlugin>,
}
