//! Devices and what is read from them, in our units. Absent is `None`, never 0.

use crate::ids::{DeviceUuid, GresType, SlurmJobId};
use crate::units::Fraction;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How tenants of one device are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// NVIDIA's Multi-Process Service: concurrent kernels, a cap and a memory limit a client.
    Mps,
    /// Intel's compute command streamers: 1, 2 or 4 equal parts a card.
    Ccs,
    /// Plain time slicing.
    #[default]
    None,
}

impl Mechanism {
    /// As written everywhere: `mps`, `ccs`, `none`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Ccs => "ccs",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no mechanism.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a mechanism; allowed are mps, ccs and none")]
pub struct UnknownMechanism(pub String);

impl std::str::FromStr for Mechanism {
    type Err = UnknownMechanism;
    fn from_str(text: &str) -> Result<Self, UnknownMechanism> {
        [Self::Mps, Self::Ccs, Self::None]
            .into_iter()
            .find(|mechanism| mechanism.as_str() == text)
            .ok_or_else(|| UnknownMechanism(text.to_owned()))
    }
}

/// One device of a node, as its agent announces it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Slurm's global index on the node (`SLURM_JOB_GPUS`).
    pub index: u32,
    /// The vendor's name for it.
    pub uuid: DeviceUuid,
    /// The model, in lower case: `v100`, `a100-40`, `h100`, `h200`, `max-1550`. Profiles are kept by it.
    pub model: String,
    /// Device memory.
    pub memory_bytes: u64,
    /// The GRES type that Slurm books it under: `g1`.
    pub gres_type: GresType,
    /// How it can be shared.
    pub mechanism: Mechanism,
}

/// What one device did since the sample before, or now. Rates are means over the interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Energy since the device came up; differenced by the reader.
    pub energy_joules: Option<f64>,
    /// Power now.
    pub power_watts: Option<f64>,
    /// Compute units with at least one resident group of threads (SM or XVE active).
    pub sm_active_fraction: Option<Fraction>,
    /// Resident warps (or threads) of the most possible.
    pub sm_occupancy_fraction: Option<Fraction>,
    /// Compute units waiting on memory (XVE stall).
    pub stall_fraction: Option<Fraction>,
    /// FP32 pipes active.
    pub fp32_active_fraction: Option<Fraction>,
    /// Any kernel running at all (`utilization.gpu`).
    pub gpu_busy_fraction: Option<Fraction>,
    /// Device memory bandwidth of the greatest possible.
    pub memory_bandwidth_fraction: Option<Fraction>,
    /// Last-level cache bandwidth of the greatest possible.
    pub cache_bandwidth_fraction: Option<Fraction>,
    /// Bytes a second to the host.
    pub pcie_tx_bytes_per_second: Option<f64>,
    /// Bytes a second from the host.
    pub pcie_rx_bytes_per_second: Option<f64>,
    /// Device memory in use by anybody.
    pub memory_bytes_used: Option<u64>,
}

/// A process on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// In the agent's pid namespace.
    pub pid: u32,
    /// Device memory that it holds, where the device says so.
    pub memory_bytes: Option<u64>,
}

/// What one job had on one device at the time of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantUse {
    /// The job.
    pub job_id: SlurmJobId,
    /// Its restart count.
    pub restart_count: u32,
    /// Memory of all its processes.
    pub memory_bytes: u64,
    /// How many processes of it were on the device.
    pub process_count: u32,
    /// The job's progress counter, where it writes one.
    pub progress: Option<f64>,
}
