//! Where values were read and how good that is, and what holds a clock down.

use super::catalogue::Metric;
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// Where a value was read. A new one stands last: its place is its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricSource {
    /// A simulated device.
    Simulated,
    /// NVML's plain queries.
    Nvml,
    /// NVML's GPU performance monitoring, Hopper and later.
    NvmlGpm,
    /// The endpoint of NVIDIA's dcgm-exporter.
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
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Simulated,
        Self::Nvml,
        Self::NvmlGpm,
        Self::DcgmExporter,
        Self::Sysman,
        Self::MetricStreamer,
        Self::XpuManager,
    ];

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
    /// Its number on the wire, from 1.
    pub const fn number(self) -> i32 {
        self as i32 + 1
    }
    /// The one of this number; `None`: a newer one, or none.
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.number() == number)
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

spelt_as_serialized!(MetricSource => "source of metrics", Quality => "quality", Throttle => "throttle");
