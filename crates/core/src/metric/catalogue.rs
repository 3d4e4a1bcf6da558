//! Each metric with its word, its unit and every text that people see of it.

use crate::units::{Fraction, OutOfRange};
use std::fmt;

/// What is measured of a device. A new one stands last: its place is its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Energy since the device came up; differenced by the reader.
    EnergyJoules,
    /// Power now, idle part included.
    PowerWatts,
    /// Compute units with at least one resident group of threads (SM or XVE active).
    SmActiveFraction,
    /// Resident warps (or threads) of the most possible.
    SmOccupancyFraction,
    /// Compute units waiting on memory (XVE stall).
    StallFraction,
    /// FP32 pipes active.
    Fp32ActiveFraction,
    /// Tensor pipes active.
    TensorActiveFraction,
    /// Any kernel running at all (`utilization.gpu`).
    GpuBusyFraction,
    /// Device memory being read or written at all (`utilization.memory`).
    MemoryBusyFraction,
    /// Device memory bandwidth of the greatest possible.
    MemoryBandwidthFraction,
    /// Last-level cache bandwidth of the greatest possible.
    CacheBandwidthFraction,
    /// Bytes a second to the host.
    PcieTxBytesPerSecond,
    /// Bytes a second from the host.
    PcieRxBytesPerSecond,
    /// Bytes a second to other devices over NVLink.
    NvlinkTxBytesPerSecond,
    /// Bytes a second from other devices over NVLink.
    NvlinkRxBytesPerSecond,
    /// Device memory in use by anybody.
    MemoryBytesUsed,
    /// The compute units' clock now.
    SmClockHertz,
    /// The part of the time in which power or heat held the clock down; at one moment 0 or 1. What does so stands beside it
    /// ([`crate::device::Reading::throttles`]).
    Throttles,
}

/// What a metric counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A part of a whole, 0..=1.
    Fraction,
    /// Energy, counted up over time.
    Joules,
    /// Power, of a moment or as a mean.
    Watts,
    /// Memory: whole ones.
    Bytes,
    /// Bytes moved in a second.
    BytesPerSecond,
    /// The rate of a clock.
    Hertz,
}

impl Unit {
    /// For a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Fraction => "fraction of 1",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::Hertz => "hertz",
        }
    }

    /// Whether the parts of a device together have the sum, and not the mean: parts of one size.
    pub const fn adds_up(self) -> bool {
        match self {
            Self::Joules | Self::Watts | Self::Bytes | Self::BytesPerSecond => true,
            Self::Fraction | Self::Hertz => false,
        }
    }
}

/// How Prometheus has a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Its name there.
    pub name: &'static str,
    /// One sentence without its full stop.
    pub meaning: &'static str,
}

/// What a bar of a profile is called that shows a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Beside a bar of letters, where room is scarce; absent: it is not drawn there.
    pub short: Option<&'static str>,
    /// On a page.
    pub title: &'static str,
}

/// All that is to be said of a metric.
#[derive(Clone, Copy)]
struct About {
    word: &'static str,
    unit: Unit,
    /// What its mean over a run is called; absent: it has none.
    mean: Option<&'static str>,
    family: Option<Family>,
    bar: Option<Bar>,
}

impl About {
    /// Whose mean over a run says how the run uses its device.
    const fn averaged(word: &'static str, unit: Unit) -> Self {
        Self { mean: Some(word), ..Self::momentary(word, unit) }
    }
    const fn momentary(word: &'static str, unit: Unit) -> Self {
        Self { word, unit, mean: None, family: None, bar: None }
    }
    const fn family(self, name: &'static str, meaning: &'static str) -> Self {
        Self { family: Some(Family { name, meaning }), ..self }
    }
    const fn bar(self, short: &'static str, title: &'static str) -> Self {
        Self { bar: Some(Bar { short: Some(short), title }), ..self }
    }
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::EnergyJoules,
        Self::PowerWatts,
        Self::SmActiveFraction,
        Self::SmOccupancyFraction,
        Self::StallFraction,
        Self::Fp32ActiveFraction,
        Self::TensorActiveFraction,
        Self::GpuBusyFraction,
        Self::MemoryBusyFraction,
        Self::MemoryBandwidthFraction,
        Self::CacheBandwidthFraction,
        Self::PcieTxBytesPerSecond,
        Self::PcieRxBytesPerSecond,
        Self::NvlinkTxBytesPerSecond,
        Self::NvlinkRxBytesPerSecond,
        Self::MemoryBytesUsed,
        Self::SmClockHertz,
        Self::Throttles,
    ];

    const fn about(self) -> About {
        use Unit::{Bytes, BytesPerSecond, Fraction, Hertz, Joules, Watts};
        match self {
            // A meter is differenced, memory has a peak, and the clock of a moment tells less than what holds it down.
            Self::EnergyJoules => About::momentary("energy_joules", Joules)
                .family("pillion_device_energy_joules_total", "Energy since the device came up"),
            Self::PowerWatts => About::averaged("power_watts", Watts)
                .family("pillion_device_power_watts", "Power now"),
            Self::SmActiveFraction => About::averaged("sm_active_fraction", Fraction)
                .family("pillion_device_sm_active_fraction", "Compute units with work on them (SM or XVE active)")
                .bar("SM or XVE active", "Compute units active"),
            Self::SmOccupancyFraction => About::averaged("sm_occupancy_fraction", Fraction)
                .family("pillion_device_sm_occupancy_fraction", "Resident warps or threads of the most possible")
                .bar("occupancy", "Occupancy"),
            Self::StallFraction => About::averaged("stall_fraction", Fraction)
                .family("pillion_device_stall_fraction", "Compute units that wait for memory")
                .bar("stalled on memory", "Waiting on memory"),
            Self::Fp32ActiveFraction => {
                About::averaged("fp32_active_fraction", Fraction).bar("FP32 active", "FP32 pipes")
            }
            Self::TensorActiveFraction => {
                About::averaged("tensor_active_fraction", Fraction).bar("tensor active", "Tensor pipes")
            }
            Self::GpuBusyFraction => About {
                bar: Some(Bar { short: None, title: "Any kernel running" }),
                ..About::averaged("gpu_busy_fraction", Fraction).family(
                    "pillion_device_gpu_busy_fraction",
                    "Time in which anything ran at all, as nvidia-smi shows it: 1 says nothing of how full the device is",
                )
            },
            Self::MemoryBusyFraction => About::averaged("memory_busy_fraction", Fraction).family(
                "pillion_device_memory_busy_fraction",
                "Time in which the device memory was read or written at all",
            ),
            Self::MemoryBandwidthFraction => About::averaged("memory_bandwidth_fraction", Fraction)
                .family("pillion_device_memory_bandwidth_fraction", "Memory bandwidth of the greatest possible")
                .bar("memory bandwidth", "Memory bandwidth"),
            Self::CacheBandwidthFraction => About::averaged("cache_bandwidth_fraction", Fraction)
                .bar("cache bandwidth", "Cache bandwidth"),
            Self::PcieTxBytesPerSecond => About::averaged("pcie_tx_bytes_per_second", BytesPerSecond)
                .family("pillion_device_pcie_tx_bytes_per_second", "Bytes to the host"),
            Self::PcieRxBytesPerSecond => About::averaged("pcie_rx_bytes_per_second", BytesPerSecond)
                .family("pillion_device_pcie_rx_bytes_per_second", "Bytes from the host"),
            Self::NvlinkTxBytesPerSecond => About::averaged("nvlink_tx_bytes_per_second", BytesPerSecond),
            Self::NvlinkRxBytesPerSecond => About::averaged("nvlink_rx_bytes_per_second", BytesPerSecond),
            Self::MemoryBytesUsed => About::momentary("memory_bytes_used", Bytes)
                .family("pillion_device_memory_bytes_used", "Memory of the device in use by anybody"),
            Self::SmClockHertz => About::momentary("sm_clock_hertz", Hertz)
                .family("pillion_device_sm_clock_hertz", "Clock of the compute units now"),
            Self::Throttles => About { mean: Some("throttled_fraction"), ..About::averaged("throttles", Fraction) }
                .bar("held down by power or heat", "Held down by power or heat"),
        }
    }

    /// As written everywhere.
    pub const fn word(self) -> &'static str {
        self.about().word
    }
    /// What it counts in.
    pub const fn unit(self) -> Unit {
        self.about().unit
    }
    /// What its mean over a run is called; absent: runs have no mean of it.
    pub const fn mean_word(self) -> Option<&'static str> {
        self.about().mean
    }
    /// How Prometheus has it, if it does: a counter where its name says so.
    pub const fn family(self) -> Option<Family> {
        self.about().family
    }
    /// How a profile shows it, if it does.
    pub const fn bar(self) -> Option<Bar> {
        self.about().bar
    }
    /// Its number on the wire, from 1.
    pub const fn number(self) -> i32 {
        self as i32 + 1
    }
    /// The one of this number; `None`: a newer one, or none.
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.number() == number)
    }

    /// # Errors
    /// [`OutOfRange`] for a fraction that is none.
    pub(super) fn checked(self, value: f64) -> Result<f64, OutOfRange> {
        match self.unit() {
            Unit::Fraction => Fraction::try_new(value).map(Fraction::value),
            Unit::Joules | Unit::Watts | Unit::Bytes | Unit::BytesPerSecond | Unit::Hertz => Ok(value),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
