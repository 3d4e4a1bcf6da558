//! What is remembered of a workload alone on one device model.

use crate::ids::WorkloadKey;
use crate::metric::{Form, Metric, Metrics, PROFILE};
use crate::units::CapStep;
use crate::word::spelt_as_serialized;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How one workload uses one device model alone: means over its solo runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WorkloadProfile {
    /// The workload that it is of.
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
    /// How it uses the device: the means of all metrics that have one.
    #[serde(flatten, deserialize_with = "metrics")]
    pub metrics: Metrics,
    /// The most device memory seen in any run.
    pub memory_bytes_peak: Option<u64>,
    /// The least memory limit under which a run has completed: a peak that was seen without one may be what its framework took
    /// because it was there.
    #[serde(default)]
    pub memory_bytes_completed: Option<u64>,
    /// The most device memory with which a run certainly ran out of it: it needs more.
    #[serde(default)]
    pub memory_bytes_ran_out: Option<u64>,
    /// The most processes on the device at once in any run.
    pub process_count_peak: u32,
    /// The most device memory that any one process held in any run; absent where no run tells it.
    #[serde(default)]
    pub process_memory_bytes_peak: Option<u64>,
    /// Mean energy of a run.
    pub energy_joules: Option<f64>,
}

fn metrics<'de, D: Deserializer<'de>>(from: D) -> Result<Metrics, D::Error> {
    PROFILE.read(from)
}

/// In the order of old: scripts may go by it.
impl Serialize for WorkloadProfile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("workload", &self.workload)?;
        map.serialize_entry("device_model", &self.device_model)?;
        map.serialize_entry("family", &self.family)?;
        map.serialize_entry("run_count", &self.run_count)?;
        map.serialize_entry("duration_seconds", &self.duration_seconds)?;
        map.serialize_entry("duration_variation_fraction", &self.duration_variation_fraction)?;
        map.serialize_entry("throughput_per_second", &self.throughput_per_second)?;
        map.serialize_entry("throughput_per_second_at_cap", &self.throughput_per_second_at_cap)?;
        PROFILE.write_values(&self.metrics, |metric| metric != Metric::PowerWatts, &mut map)?;
        map.serialize_entry("memory_bytes_peak", &self.memory_bytes_peak)?;
        for (name, bytes) in [
            ("memory_bytes_completed", self.memory_bytes_completed),
            ("memory_bytes_ran_out", self.memory_bytes_ran_out),
        ] {
            if bytes.is_some() {
                map.serialize_entry(name, &bytes)?;
            }
        }
        map.serialize_entry("process_count_peak", &self.process_count_peak)?;
        if let Some(bytes) = self.process_memory_bytes_peak {
            map.serialize_entry("process_memory_bytes_peak", &bytes)?;
        }
        PROFILE.write_values(&self.metrics, |metric| metric == Metric::PowerWatts, &mut map)?;
        map.serialize_entry("energy_joules", &self.energy_joules)?;
        Form::write_sources(&self.metrics, &mut map)?;
        map.end()
    }
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
    /// It taught nothing at all.
    Nothing,
}

spelt_as_serialized!(LessonKind => "kind of lesson");

impl WorkloadProfile {
    /// Progress alone a second: by the job's own counter, else runs a second.
    pub fn rate_per_second(&self) -> Option<f64> {
        self.throughput_per_second
            .or_else(|| self.duration_seconds.filter(|seconds| *seconds > 0.0).map(f64::recip))
            .filter(|rate| *rate > 0.0)
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
            metrics: Metrics::default(),
            memory_bytes_peak: None,
            memory_bytes_completed: None,
            memory_bytes_ran_out: None,
            process_count_peak: 0,
            process_memory_bytes_peak: None,
            energy_joules: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::MetricSource;
    use serde_json::json;

    #[test]
    fn a_profile_of_an_earlier_release_is_read_and_stands_as_it_did() {
        // As a release wrote it that had a field for each metric.
        let earlier = r#"{"workload":"alice/4f1c","device_model":"h100","run_count":3,"duration_seconds":600.5,
            "duration_variation_fraction":0.02,"throughput_per_second":null,"sm_active_fraction":0.55,
            "sm_occupancy_fraction":0.25,"stall_fraction":null,"fp32_active_fraction":null,"gpu_busy_fraction":0.5,
            "memory_bandwidth_fraction":0.25,"cache_bandwidth_fraction":null,"pcie_tx_bytes_per_second":1e6,
            "pcie_rx_bytes_per_second":null,"throttled_fraction":0.125,"memory_bytes_peak":8589934592,
            "process_count_peak":1,"power_watts_mean":350.5,"energy_joules":210120.0,
            "sources":{"power_watts":"nvml","throttles":"nvml"}}"#;
        let profile: WorkloadProfile = serde_json::from_str(earlier).unwrap();
        assert_eq!(profile.metrics.get(Metric::PowerWatts), Some(350.5));
        assert_eq!(profile.metrics.get(Metric::Throttles), Some(0.125));
        assert_eq!(profile.metrics.source(Metric::Throttles), Some(MetricSource::Nvml));
        assert_eq!((profile.run_count, profile.energy_joules), (3, Some(210_120.0)));
        let written = serde_json::to_string(&profile).unwrap();
        let [peak, power, sources] =
            ["memory_bytes_peak", "power_watts_mean", "\"sources\""].map(|name| written.find(name).unwrap());
        assert!(peak < power && power < sources && written.contains("\"stall_fraction\":null"), "{written}");
        assert_eq!(serde_json::from_str::<WorkloadProfile>(&written).unwrap(), profile);
        assert!(serde_json::from_value::<WorkloadProfile>(json!({"workload": "a/b"})).is_err(), "it is none");
        let limited =
            WorkloadProfile { memory_bytes_ran_out: Some(7), memory_bytes_completed: Some(9), ..profile };
        let written = serde_json::to_string(&limited).unwrap();
        assert_eq!(serde_json::from_str::<WorkloadProfile>(&written).unwrap(), limited);
    }
}
