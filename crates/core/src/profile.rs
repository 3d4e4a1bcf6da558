//! What is remembered of a workload alone on one device model.

use crate::device::{Metric, MetricSource};
use crate::ids::WorkloadKey;
use crate::units::{CapStep, Fraction};
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How one workload uses one device model alone: means over its solo runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadProfile {
    /// The workload.
    pub workload: WorkloadKey,
    /// The device model, as in `DeviceDescription::model`.
    pub device_model: String,
    /// What its kind is called, where that is known: workloads of one family differ in size only.
    #[serde(default)]
    pub family: Option<String>,
    /// How many solo runs were measured.
    pub run_count: u32,
    /// Mean solo duration.
    pub duration_seconds: Option<f64>,
    /// Standard deviation of the solo duration over its mean; `None` with fewer than two runs.
    pub duration_variation_fraction: Option<f64>,
    /// Mean progress a second, where the job wrote a progress counter.
    pub throughput_per_second: Option<f64>,
    /// The same alone under a cap of 0.1, 0.2, .. 0.9, where it was measured; runs a second where
    /// `throughput_per_second` is absent.
    #[serde(default)]
    pub throughput_per_second_at_cap: [Option<f64>; 9],
    /// Compute units active.
    pub sm_active_fraction: Option<Fraction>,
    /// Resident warps of the most possible.
    pub sm_occupancy_fraction: Option<Fraction>,
    /// Compute units waiting on memory.
    pub stall_fraction: Option<Fraction>,
    /// FP32 pipes active.
    pub fp32_active_fraction: Option<Fraction>,
    /// Tensor pipes active.
    #[serde(default)]
    pub tensor_active_fraction: Option<Fraction>,
    /// Any kernel running.
    pub gpu_busy_fraction: Option<Fraction>,
    /// Device memory being read or written at all.
    #[serde(default)]
    pub memory_busy_fraction: Option<Fraction>,
    /// Memory bandwidth of the greatest possible.
    pub memory_bandwidth_fraction: Option<Fraction>,
    /// Last-level cache bandwidth of the greatest possible.
    pub cache_bandwidth_fraction: Option<Fraction>,
    /// Bytes a second to the host.
    pub pcie_tx_bytes_per_second: Option<f64>,
    /// Bytes a second from the host.
    pub pcie_rx_bytes_per_second: Option<f64>,
    /// Bytes a second to other devices over NVLink.
    #[serde(default)]
    pub nvlink_tx_bytes_per_second: Option<f64>,
    /// Bytes a second from other devices over NVLink.
    #[serde(default)]
    pub nvlink_rx_bytes_per_second: Option<f64>,
    /// The part of the time in which power or heat held the clock down.
    #[serde(default)]
    pub throttled_fraction: Option<Fraction>,
    /// The most device memory seen in any run.
    pub memory_bytes_peak: Option<u64>,
    /// The most processes on the device at once in any run.
    pub process_count_peak: u32,
    /// Mean power of the device, idle part included.
    pub power_watts_mean: Option<f64>,
    /// Mean energy of a run.
    pub energy_joules: Option<f64>,
    /// The source of each metric that was averaged.
    #[serde(default)]
    pub sources: BTreeMap<Metric, MetricSource>,
}

/// What one run taught of its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LessonKind {
    /// How the workload runs alone.
    Alone,
    /// How fast it is alone under a cap.
    Capped,
    /// It shared its device: whatever it taught is an outcome.
    Shared,
    /// Nothing.
    Nothing,
}

spelt_as_serialized!(LessonKind => "kind of lesson");

impl WorkloadProfile {
    /// Progress alone a second: by the job's own counter, else runs a second.
    pub fn rate_per_second(&self) -> Option<f64> {
        let of_duration = || self.duration_seconds.filter(|seconds| *seconds > 0.0).map(f64::recip);
        self.throughput_per_second.or_else(of_duration).filter(|rate| *rate > 0.0)
    }

    /// Speed alone under each cap that was measured, over the speed alone without one; the narrowest first.
    pub fn speed_fractions_at_cap(&self) -> impl Iterator<Item = (CapStep, f64)> {
        let whole = self.rate_per_second();
        CapStep::caps()
            .zip(self.throughput_per_second_at_cap)
            .filter_map(move |(cap, rate)| Some((cap, rate? / whole?)))
    }
    /// A profile that knows nothing but its names.
    pub fn empty(workload: WorkloadKey, device_model: impl Into<String>) -> Self {
        Self {
            workload,
            device_model: device_model.into(),
            family: None,
            run_count: 0,
            duration_seconds: None,
            duration_variation_fraction: None,
            throughput_per_second: None,
            throughput_per_second_at_cap: [None; 9],
            sm_active_fraction: None,
            sm_occupancy_fraction: None,
            stall_fraction: None,
            fp32_active_fraction: None,
            tensor_active_fraction: None,
            gpu_busy_fraction: None,
            memory_busy_fraction: None,
            memory_bandwidth_fraction: None,
            cache_bandwidth_fraction: None,
            pcie_tx_bytes_per_second: None,
            pcie_rx_bytes_per_second: None,
            nvlink_tx_bytes_per_second: None,
            nvlink_rx_bytes_per_second: None,
            throttled_fraction: None,
            memory_bytes_peak: None,
            process_count_peak: 0,
            power_watts_mean: None,
            energy_joules: None,
            sources: BTreeMap::new(),
        }
    }
}
