//! What devices tell in numbers: each metric with its word, its unit and every text that people see of it, and [`Metrics`],
//! the values that are known. Whoever carries or shows a value goes by its metric and names none.

use crate::units::{Fraction, OutOfRange};
use std::collections::BTreeMap;
use std::fmt;

mod json;
mod source;
pub(crate) use json::{Form, MEANS, PROFILE};
pub use source::{MetricSource, Quality, Throttle};

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
    fn checked(self, value: f64) -> Result<f64, OutOfRange> {
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

/// A value, in the unit of its metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// How much it is, in the metric's unit.
    pub value: f64,
    /// Where it was read; `None`: nobody says.
    pub source: Option<MetricSource>,
}

/// What is known of metrics. What is not known is absent, never 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics([Option<Measured>; Metric::ALL.len()]);

impl Metrics {
    /// The value and its source.
    pub const fn measured(&self, metric: Metric) -> Option<Measured> {
        self.0[metric as usize]
    }
    /// The value, in the unit of its metric.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.measured(metric).map(|measured| measured.value)
    }
    /// The value as a fraction, 0..=1.
    pub fn fraction(&self, metric: Metric) -> Option<Fraction> {
        self.get(metric).map(Fraction::clamped)
    }
    /// The value in whole bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and it was whole"
    )]
    pub fn bytes(&self, metric: Metric) -> Option<u64> {
        self.get(metric).map(|value| value.round() as u64)
    }
    /// Where the value was read.
    pub fn source(&self, metric: Metric) -> Option<MetricSource> {
        self.measured(metric)?.source
    }

    /// Puts a value there whose source nobody says yet. A fraction is kept within 0..=1.
    pub fn set(&mut self, metric: Metric, value: impl Into<f64>) {
        self.put(metric, Measured { value: value.into(), source: None });
    }
    /// The same where there is one; else what is there stays.
    pub fn set_known(&mut self, metric: Metric, value: Option<impl Into<f64>>) {
        if let Some(value) = value {
            self.set(metric, value);
        }
    }
    /// Puts a number of bytes there.
    #[expect(clippy::cast_precision_loss, reason = "devices have far less than 2^53 bytes")]
    pub fn set_bytes(&mut self, metric: Metric, bytes: u64) {
        self.set(metric, bytes as f64);
    }
    /// Puts a value there, with its source.
    pub fn put(&mut self, metric: Metric, Measured { value, source }: Measured) {
        let value = match metric.unit() {
            Unit::Fraction => Fraction::clamped(value).value(),
            Unit::Joules | Unit::Watts | Unit::Bytes | Unit::BytesPerSecond | Unit::Hertz => value,
        };
        self.0[metric as usize] = Some(Measured { value, source });
    }
    /// From now on it is not known.
    pub fn remove(&mut self, metric: Metric) {
        self.0[metric as usize] = None;
    }

    /// The values that are there.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, Measured)> {
        Metric::ALL.into_iter().filter_map(|metric| Some((metric, self.measured(metric)?)))
    }
    /// Whose values are there.
    pub fn known(&self) -> impl Iterator<Item = Metric> {
        self.iter().map(|(metric, _)| metric)
    }
    /// The sources of the values that are there, as far as anybody says.
    pub fn sources(&self) -> BTreeMap<Metric, MetricSource> {
        self.iter().filter_map(|(metric, measured)| Some((metric, measured.source?))).collect()
    }

    /// Says of every value that names no source yet that it is from `source`: a reading is built source by source, the best
    /// first.
    pub fn tag_untagged(&mut self, source: MetricSource) {
        for measured in self.0.iter_mut().flatten() {
            measured.source.get_or_insert(source);
        }
    }
    /// All of them from `source` that name none.
    #[must_use]
    pub fn from_source(mut self, source: MetricSource) -> Self {
        self.tag_untagged(source);
        self
    }
    /// Takes each value, with its source, that the other has and this has not. What is there stays.
    pub fn fill(&mut self, from: &Self) {
        for (own, other) in self.0.iter_mut().zip(&from.0) {
            *own = own.or(*other);
        }
    }
}

impl FromIterator<(Metric, f64)> for Metrics {
    fn from_iter<T: IntoIterator<Item = (Metric, f64)>>(values: T) -> Self {
        let mut metrics = Self::default();
        for (metric, value) in values {
            metrics.set(metric, value);
        }
        metrics
    }
}

impl<const COUNT: usize> From<[(Metric, f64); COUNT]> for Metrics {
    fn from(values: [(Metric, f64); COUNT]) -> Self {
        values.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
