//! Devices and what is read from them, in our units. Absent is `None`, never 0.

use crate::ids::{DeviceUuid, GresType, SlurmJobId};
use crate::units::Fraction;
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A way to share a device. What one tenant is told in that way: [`crate::share::Sharing`]. Whoever asks what a mechanism can do
/// asks by name below, where the compiler wants an answer for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// NVIDIA's Multi-Process Service: concurrent kernels, a cap and a memory limit a client.
    Mps,
    /// Intel's compute command streamers: 1, 2 or 4 equal parts a card.
    Ccs,
    /// Plain time slicing.
    #[default]
    #[serde(rename = "none")]
    TimeSliced,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mps, Self::Ccs, Self::TimeSliced];
    /// As written everywhere: `mps`, `ccs`, `none`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Ccs => "ccs",
            Self::TimeSliced => "none",
        }
    }
    /// Whether something is set up on the device for it, and taken down when nobody shares any more.
    pub const fn is_set_up(self) -> bool {
        match self {
            Self::Mps | Self::Ccs => true,
            Self::TimeSliced => false,
        }
    }
    /// Whether each tenant can be held to a part of the compute units and of the memory.
    pub const fn can_cap(self) -> bool {
        match self {
            Self::Mps => true,
            Self::Ccs | Self::TimeSliced => false,
        }
    }
    /// Whether a card is in one mode for all of its tenants.
    pub const fn has_modes(self) -> bool {
        match self {
            Self::Ccs => true,
            Self::Mps | Self::TimeSliced => false,
        }
    }
    /// Whether tenants are clients of one daemon a device, by which the end of one can end the others.
    pub const fn has_daemon(self) -> bool {
        match self {
            Self::Mps => true,
            Self::Ccs | Self::TimeSliced => false,
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
        let named = Self::ALL.into_iter().find(|mechanism| mechanism.as_str() == text);
        named.ok_or_else(|| UnknownMechanism(text.to_owned()))
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
    /// What MIG has cut it into, as its agent found it when it started; `None`: into nothing, as far as anybody knows.
    #[serde(default)]
    pub instances: Option<Vec<MigInstance>>,
}

/// A MIG instance of a device. It is Slurm's to give: Pillion neither makes instances nor shares them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// The vendor's name for it.
    pub uuid: DeviceUuid,
    /// The GPU instance that it is in, by the driver's number: which part of the memory.
    pub gpu_instance_id: u32,
    /// The compute instance within that.
    pub compute_instance_id: u32,
    /// Its size as Slurm's `AutoDetect=nvml` writes it into the type of a GRES: `3g.40gb`.
    pub profile: String,
    /// Where its GPU instance lies; `None`: the driver tells root alone.
    pub placement: Option<MigPlacement>,
    /// Its compute units.
    pub sm_count: u32,
    /// Its memory.
    pub memory_bytes: u64,
}

/// The part of a device's memory slices that a GPU instance has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigPlacement {
    /// Its first slice, from 0.
    pub start: u32,
    /// How many.
    pub size: u32,
}

/// A value of a [`Reading`], written as its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is described at its field")]
pub enum Metric {
    EnergyJoules,
    PowerWatts,
    SmActiveFraction,
    SmOccupancyFraction,
    StallFraction,
    Fp32ActiveFraction,
    TensorActiveFraction,
    GpuBusyFraction,
    MemoryBusyFraction,
    MemoryBandwidthFraction,
    CacheBandwidthFraction,
    PcieTxBytesPerSecond,
    PcieRxBytesPerSecond,
    NvlinkTxBytesPerSecond,
    NvlinkRxBytesPerSecond,
    MemoryBytesUsed,
    SmClockHertz,
    Throttles,
}

/// Where a value was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricSource {
    /// A simulated device.
    Simulated,
    /// NVML's plain queries.
    Nvml,
    /// NVML's GPU performance monitoring, Hopper and later.
    NvmlGpm,
    /// dcgm-exporter's endpoint.
    DcgmExporter,
    /// Level Zero's system management.
    Sysman,
    /// Level Zero's metric streamer (ComputeBasic).
    MetricStreamer,
    /// XPU Manager's endpoint.
    XpuManager,
}

/// How far a value can be trusted as a measure of what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// A proxy: the share of time in which anything ran at all, or a short sample that stands for the whole interval.
    Coarse,
    /// Counted over the whole interval, or exact at its end.
    Fine,
}

impl MetricSource {
    /// How good this source is for `metric`. Coarse are the busy fractions of any source, whose value does not tell one
    /// small kernel from a full device, and NVML's own PCIe rates, which are samples of 20 ms (nvml.h,
    /// `nvmlDeviceGetPcieThroughput`).
    pub const fn quality(self, metric: Metric) -> Quality {
        match (self, metric) {
            (_, Metric::GpuBusyFraction | Metric::MemoryBusyFraction)
            | (Self::Nvml, Metric::PcieTxBytesPerSecond | Metric::PcieRxBytesPerSecond) => Quality::Coarse,
            _ => Quality::Fine,
        }
    }
}

/// Why a device runs slower than it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The board's power limit.
    PowerLimit,
    /// Temperature, by software or hardware.
    Heat,
    /// An external brake: the power supply's or the chassis's.
    PowerBrake,
    /// Held by another: a clock that an administrator set, or a group of devices that keeps step.
    Setting,
}

spelt_as_serialized!(Metric => "metric", MetricSource => "source of metrics", Quality => "quality", Throttle => "throttle");

/// Something that a device's driver told unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNotice {
    /// The device.
    pub index: u32,
    /// What happened.
    pub kind: NoticeKind,
    /// In the driver's words, for a person.
    pub detail: String,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// An error that NVIDIA's driver numbers (Xid).
    Xid {
        /// Its number.
        code: u64,
        /// The process that it names.
        pid: Option<u32>,
    },
    /// A metric that this device gave stopped coming.
    MetricLost(Metric),
    /// It comes again.
    MetricBack(Metric),
    /// The MPS server reports a fault: no new client until all clients have left.
    MpsFault,
    /// The MPS server is well again.
    MpsClear,
    /// The MPS control daemon or its server died; its clients are suspect.
    MpsDied,
    /// The device is cut up by MIG.
    Divided,
    /// It could be shared by more than turns, and what that takes is not there.
    NoMechanism,
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
    /// Tensor pipes active.
    pub tensor_active_fraction: Option<Fraction>,
    /// Any kernel running at all (`utilization.gpu`).
    pub gpu_busy_fraction: Option<Fraction>,
    /// Device memory being read or written at all (`utilization.memory`).
    pub memory_busy_fraction: Option<Fraction>,
    /// Device memory bandwidth of the greatest possible.
    pub memory_bandwidth_fraction: Option<Fraction>,
    /// Last-level cache bandwidth of the greatest possible.
    pub cache_bandwidth_fraction: Option<Fraction>,
    /// Bytes a second to the host.
    pub pcie_tx_bytes_per_second: Option<f64>,
    /// Bytes a second from the host.
    pub pcie_rx_bytes_per_second: Option<f64>,
    /// Bytes a second to other devices over NVLink.
    pub nvlink_tx_bytes_per_second: Option<f64>,
    /// Bytes a second from other devices over NVLink.
    pub nvlink_rx_bytes_per_second: Option<f64>,
    /// Device memory in use by anybody.
    pub memory_bytes_used: Option<u64>,
    /// The compute units' clock now.
    pub sm_clock_hertz: Option<f64>,
    /// What holds the clock down now; empty if nothing does.
    pub throttles: Option<BTreeSet<Throttle>>,
    /// Where each value that is there was read.
    #[serde(default)]
    pub sources: BTreeMap<Metric, MetricSource>,
}

impl Reading {
    /// The values that are there.
    pub fn known(&self) -> impl Iterator<Item = Metric> {
        let Self {
            energy_joules,
            power_watts,
            sm_active_fraction,
            sm_occupancy_fraction,
            stall_fraction,
            fp32_active_fraction,
            tensor_active_fraction,
            gpu_busy_fraction,
            memory_busy_fraction,
            memory_bandwidth_fraction,
            cache_bandwidth_fraction,
            pcie_tx_bytes_per_second,
            pcie_rx_bytes_per_second,
            nvlink_tx_bytes_per_second,
            nvlink_rx_bytes_per_second,
            memory_bytes_used,
            sm_clock_hertz,
            throttles,
            sources: _,
        } = self;
        [
            (Metric::EnergyJoules, energy_joules.is_some()),
            (Metric::PowerWatts, power_watts.is_some()),
            (Metric::SmActiveFraction, sm_active_fraction.is_some()),
            (Metric::SmOccupancyFraction, sm_occupancy_fraction.is_some()),
            (Metric::StallFraction, stall_fraction.is_some()),
            (Metric::Fp32ActiveFraction, fp32_active_fraction.is_some()),
            (Metric::TensorActiveFraction, tensor_active_fraction.is_some()),
            (Metric::GpuBusyFraction, gpu_busy_fraction.is_some()),
            (Metric::MemoryBusyFraction, memory_busy_fraction.is_some()),
            (Metric::MemoryBandwidthFraction, memory_bandwidth_fraction.is_some()),
            (Metric::CacheBandwidthFraction, cache_bandwidth_fraction.is_some()),
            (Metric::PcieTxBytesPerSecond, pcie_tx_bytes_per_second.is_some()),
            (Metric::PcieRxBytesPerSecond, pcie_rx_bytes_per_second.is_some()),
            (Metric::NvlinkTxBytesPerSecond, nvlink_tx_bytes_per_second.is_some()),
            (Metric::NvlinkRxBytesPerSecond, nvlink_rx_bytes_per_second.is_some()),
            (Metric::MemoryBytesUsed, memory_bytes_used.is_some()),
            (Metric::SmClockHertz, sm_clock_hertz.is_some()),
            (Metric::Throttles, throttles.is_some()),
        ]
        .into_iter()
        .filter_map(|(metric, is_known)| is_known.then_some(metric))
    }

    /// Says of every value that is there and names no source yet that it is from `source`: a reading is built source by
    /// source, the best first.
    pub fn tag_untagged(&mut self, source: MetricSource) {
        let known: Vec<Metric> = self.known().collect();
        for metric in known {
            self.sources.entry(metric).or_insert(source);
        }
    }
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
    /// Memory of all its processes; absent where that of any of them cannot be read.
    pub memory_bytes: Option<u64>,
    /// How many processes of it were on the device.
    pub process_count: u32,
    /// The job's progress counter, where it writes one.
    pub progress: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_json_and_read_back() {
        assert_eq!(Metric::SmActiveFraction.to_string(), "sm_active_fraction");
        assert_eq!("nvml-gpm".parse(), Ok(MetricSource::NvmlGpm));
        assert_eq!("power_brake".parse(), Ok(Throttle::PowerBrake));
        let error = "warp_drive".parse::<Metric>().unwrap_err();
        assert_eq!(error.to_string(), "'warp_drive' is not a metric");
    }
}
