//! What a site may say of its Intel devices.

use super::metrics::Bursts;
use std::path::PathBuf;
use std::time::Duration;

/// What a site may say of its Intel devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The Level Zero loader; where the system finds it if absent.
    pub library: Option<String>,
    /// When the metric streamer runs; never if absent.
    pub bursts: Option<Bursts>,
    /// The greatest rate of one tile's last-level cache, which no driver tells; without it there is no
    /// `cache_bandwidth_fraction`.
    pub cache_bytes_per_second_max: Option<f64>,
    /// Where sysfs is.
    pub sysfs_root: PathBuf,
    /// Where procfs is.
    pub proc_root: PathBuf,
    /// How long one call may take. A driver that is late is asked again only once it has answered.
    pub deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            library: None,
            bursts: None,
            cache_bytes_per_second_max: None,
            sysfs_root: PathBuf::from("/sys"),
            proc_root: PathBuf::from("/proc"),
            deadline: Duration::from_secs(2),
        }
    }
}
