//! What a site may say of its NVIDIA devices.

use super::mig::MigFiles;
use super::search::SearchPauses;
use pillion_core::device::Mechanism;
use std::path::PathBuf;
use std::time::Duration;

/// How a node's NVIDIA devices are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvidiaSettings {
    /// The library; the driver's own `libnvidia-ml.so.1` if absent.
    pub library: Option<PathBuf>,
    /// The kernel's log ([`KERNEL_LOG`](crate::kernel_log::KERNEL_LOG)): it names the processes that raised Xids. Absent: they are
    /// not asked for.
    pub kernel_log: Option<PathBuf>,
    /// How devices without MIG are shared: [`Mechanism::Mps`], or [`Mechanism::TimeSliced`] without daemons.
    pub mechanism: Mechanism,
    /// How long one call about a device may take. A device that is late is asked again only once it has answered.
    pub deadline: Duration,
    /// How long a device that is gone is left alone before it is looked for again.
    pub search_pauses: SearchPauses,
    /// What becomes of them by MIG.
    pub mig: MigSettings,
}

/// What is told of devices that can be cut, and where their files are. What is asked for is done whatever stands here: what was
/// cut has to be made whole when nothing is cut any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigSettings {
    /// Whether devices are told to be cut for tenants, with what into. MIG that is on still counts as somebody's: whose instances are
    /// whose, this backend cannot know.
    pub cuts: bool,
    /// Whether those with MIG off are too, where it is turned on without a reset.
    pub toggles: bool,
    /// Where the files of devices and capabilities lie.
    pub files: MigFiles,
}

impl Default for NvidiaSettings {
    fn default() -> Self {
        // Eight devices without GPM take 0.3 s for their PCIe rates.
        let deadline = Duration::from_secs(2);
        Self {
            library: None,
            kernel_log: None,
            mechanism: Mechanism::Mps,
            deadline,
            search_pauses: SearchPauses::default(),
            mig: MigSettings::default(),
        }
    }
}
