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
    /// How devices are shared where MIG is off: [`Mechanism::Mps`], or [`Mechanism::TimeSliced`] without daemons.
    pub mechanism: Mechanism,
    /// How long one call about a device may take. A device that is late is asked again only once it has answered.
    pub deadline: Duration,
    /// How long a device that is gone is left alone before it is looked for again.
    pub search_pauses: SearchPauses,
    /// Where the files of devices and of their instances lie.
    pub mig_files: MigFiles,
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
            mig_files: MigFiles::default(),
        }
    }
}
