//! What a device's counters add up to, and what two samples of them say.

use super::contention::Use;
use super::hardware::Vendor;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource, Metrics};
use serde::{Deserialize, Serialize};

/// Integrals over time since the device came up; kept by a reader, they mark its last sample. Shares of the device are
/// in seconds of the whole device.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Since the device came up.
    pub seconds: f64,
    /// What the energy meter shows.
    pub energy_joules: f64,
    /// Any kernel running.
    pub busy: f64,
    /// Compute units issuing.
    pub issue: f64,
    /// Compute units with threads resident that all wait.
    pub stall: f64,
    /// Memory bandwidth used, of the greatest possible.
    pub memory: f64,
    /// Cache bandwidth used, of the greatest possible.
    pub cache: f64,
    /// Resident threads, of the most possible.
    pub occupancy: f64,
    /// FP32 pipes active.
    pub fp32: f64,
    /// Bytes from the host.
    pub pcie_rx_bytes: f64,
    /// Bytes to the host.
    pub pcie_tx_bytes: f64,
}

/// A device's counters and what it shows at this moment: for those who play a vendor's library on top of this device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// What has added up since the device came up.
    pub totals: Totals,
    /// The power that it draws at this moment.
    pub power_watts: f64,
    /// Memory in use by anybody.
    pub memory_bytes_used: u64,
}

/// What a device does just now, in all that its counters know.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Activity {
    pub(super) used: Use,
    pub(super) occupancy: f64,
    pub(super) fp32: f64,
    pub(super) pcie_rx_bytes_per_second: f64,
    pub(super) pcie_tx_bytes_per_second: f64,
}

impl Activity {
    /// One of the device's instances does this beside others, and is `of_units` of its units.
    pub(super) fn add_part(&mut self, part: &Self, of_units: f64) {
        let (used, of) = (&mut self.used, &part.used);
        used.power_watts += of.power_watts;
        used.busy = 1.0 - (1.0 - used.busy) * (1.0 - of.busy);
        used.issue += of.issue * of_units;
        used.stall += of.stall * of_units;
        used.memory += of.memory * of_units;
        used.cache += of.cache * of_units;
        used.issue_power += of.issue_power * of_units;
        used.clock = used.clock.min(of.clock);
        self.occupancy += part.occupancy * of_units;
        self.fp32 += part.fp32 * of_units;
        self.pcie_rx_bytes_per_second += part.pcie_rx_bytes_per_second;
        self.pcie_tx_bytes_per_second += part.pcie_tx_bytes_per_second;
    }
}

impl Totals {
    /// Adds `seconds` of `activity`; `meter` is the energy meter's own error, 1 for none.
    pub(super) fn add(&mut self, activity: &Activity, seconds: f64, meter: f64) {
        let Activity { used, occupancy, fp32, pcie_rx_bytes_per_second, pcie_tx_bytes_per_second } = activity;
        self.seconds += seconds;
        self.energy_joules += used.power_watts * meter * seconds;
        self.busy += used.busy * seconds;
        self.issue += used.issue * seconds;
        self.stall += used.stall * seconds;
        self.memory += used.memory * seconds;
        self.cache += used.cache * seconds;
        self.occupancy += occupancy * seconds;
        self.fp32 += fp32 * seconds;
        self.pcie_rx_bytes += pcie_rx_bytes_per_second * seconds;
        self.pcie_tx_bytes += pcie_tx_bytes_per_second * seconds;
    }

    /// Means since an earlier sample; `None` if no time has passed.
    fn since(&self, before: &Self) -> Option<Self> {
        let seconds = self.seconds - before.seconds;
        let rate = |now: f64, then: f64| (now - then) / seconds;
        (seconds > 1e-6).then(|| Self {
            seconds,
            energy_joules: rate(self.energy_joules, before.energy_joules),
            busy: rate(self.busy, before.busy),
            issue: rate(self.issue, before.issue),
            stall: rate(self.stall, before.stall),
            memory: rate(self.memory, before.memory),
            cache: rate(self.cache, before.cache),
            occupancy: rate(self.occupancy, before.occupancy),
            fp32: rate(self.fp32, before.fp32),
            pcie_rx_bytes: rate(self.pcie_rx_bytes, before.pcie_rx_bytes),
            pcie_tx_bytes: rate(self.pcie_tx_bytes, before.pcie_tx_bytes),
        })
    }
}

/// What NVML tells of a device with MIG on: no utilization is the device's any more.
pub(super) fn reading_of_cut(now: &Totals, activity: &Activity, memory_bytes_used: u64) -> Reading {
    let mut metrics = Metrics::from([
        (Metric::EnergyJoules, now.energy_joules),
        (Metric::PowerWatts, activity.used.power_watts),
    ]);
    metrics.set_bytes(Metric::MemoryBytesUsed, memory_bytes_used);
    metrics.from_source(MetricSource::Simulated).into()
}

/// The reading of one device: what its vendor's counters have, and nothing else. `noise` multiplies each rate.
pub(super) fn reading(
    vendor: Vendor,
    now: &Totals,
    before: Option<&Totals>,
    activity: &Activity,
    memory_bytes_used: u64,
    mut noise: impl FnMut() -> f64,
) -> Reading {
    let mut instant = Totals::default();
    instant.add(activity, 1.0, 1.0);
    let mean = before.and_then(|before| now.since(before)).unwrap_or(instant);
    let nvidia = vendor == Vendor::Nvidia;
    // An SM counts as active with threads resident, waiting or not; an XVE only when it issues.
    let active = if nvidia { mean.issue + mean.stall } else { mean.issue };
    let mut metrics = Metrics::from([
        (Metric::EnergyJoules, now.energy_joules),
        (Metric::PowerWatts, activity.used.power_watts),
        (Metric::PcieTxBytesPerSecond, mean.pcie_tx_bytes),
        (Metric::PcieRxBytesPerSecond, mean.pcie_rx_bytes),
    ]);
    metrics.set_bytes(Metric::MemoryBytesUsed, memory_bytes_used);
    for (metric, is_given, value) in [
        (Metric::SmActiveFraction, true, active),
        (Metric::SmOccupancyFraction, true, mean.occupancy),
        (Metric::StallFraction, !nvidia, mean.stall),
        (Metric::Fp32ActiveFraction, nvidia, mean.fp32),
        (Metric::GpuBusyFraction, true, mean.busy),
        (Metric::MemoryBandwidthFraction, true, mean.memory),
        (Metric::CacheBandwidthFraction, !nvidia, mean.cache),
    ] {
        if is_given {
            metrics.set(metric, value * noise());
        }
    }
    metrics.from_source(MetricSource::Simulated).into()
}
