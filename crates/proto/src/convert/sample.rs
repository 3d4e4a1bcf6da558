//! `DeviceSamples`, `DeviceSample` and `TenantUse`.

use super::field::{self, InvalidField};
use super::metric;
use crate::v1 as wire;
use pillion_core::device::{Reading, TenantUse};
use pillion_core::report::DeviceSample;
use pillion_core::{Fraction, GresType, JobStart};

/// A tenant that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid tenant '{job_id}'")]
pub struct InvalidTenant {
    /// Which, as it was written.
    pub job_id: String,
    /// What is wrong with it.
    pub source: InvalidField,
}

/// A sample that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidSample {
    /// A field of the device.
    #[error("invalid sample of device '{gres_type}'")]
    Device {
        /// Which, as it was written.
        gres_type: String,
        /// What is wrong with it.
        source: InvalidField,
    },
    /// One of its tenants.
    #[error("invalid sample")]
    Tenant(#[from] InvalidTenant),
}

impl TryFrom<wire::TenantUse> for TenantUse {
    type Error = InvalidTenant;
    fn try_from(wire: wire::TenantUse) -> Result<Self, InvalidTenant> {
        let wire::TenantUse { job_id, restart_count, memory_bytes, process_count, progress } = wire;
        let progress = field::progress(progress);
        match field::start(&job_id, restart_count) {
            Ok(JobStart { job_id, restart_count }) => {
                Ok(Self { job_id, restart_count, memory_bytes, process_count, progress })
            }
            Err(source) => Err(InvalidTenant { job_id: field::shown(&job_id), source }),
        }
    }
}

impl From<TenantUse> for wire::TenantUse {
    fn from(tenant: TenantUse) -> Self {
        let TenantUse { job_id, restart_count, memory_bytes, process_count, progress } = tenant;
        Self { job_id: job_id.to_string(), restart_count, memory_bytes, process_count, progress }
    }
}

impl TryFrom<wire::DeviceSample> for DeviceSample {
    type Error = InvalidSample;
    fn try_from(wire: wire::DeviceSample) -> Result<Self, InvalidSample> {
        let gres_type = wire.gres_type.clone();
        checked_sample(wire)
            .map_err(|source| InvalidSample::Device { gres_type: field::shown(&gres_type), source })
            .and_then(|(gres_type, reading, tenants)| {
                let tenants = tenants.into_iter().map(TenantUse::try_from).collect::<Result<_, _>>()?;
                Ok(Self { gres_type, reading, tenants })
            })
    }
}

fn checked_sample(
    wire: wire::DeviceSample,
) -> Result<(GresType, Reading, Vec<wire::TenantUse>), InvalidField> {
    let wire::DeviceSample {
        gres_type,
        energy_joules,
        power_watts,
        sm_active_fraction,
        sm_occupancy_fraction,
        stall_fraction,
        fp32_active_fraction,
        gpu_busy_fraction,
        memory_bandwidth_fraction,
        cache_bandwidth_fraction,
        pcie_tx_bytes_per_second,
        pcie_rx_bytes_per_second,
        memory_bytes_used,
        tenants,
        tensor_active_fraction,
        memory_busy_fraction,
        nvlink_tx_bytes_per_second,
        nvlink_rx_bytes_per_second,
        sm_clock_hertz,
        throttles,
        sources,
    } = wire;
    let reading = Reading {
        energy_joules: field::known_quantity("energy_joules", energy_joules)?,
        power_watts: field::known_quantity("power_watts", power_watts)?,
        sm_active_fraction: field::fraction("sm_active_fraction", sm_active_fraction)?,
        sm_occupancy_fraction: field::fraction("sm_occupancy_fraction", sm_occupancy_fraction)?,
        stall_fraction: field::fraction("stall_fraction", stall_fraction)?,
        fp32_active_fraction: field::fraction("fp32_active_fraction", fp32_active_fraction)?,
        gpu_busy_fraction: field::fraction("gpu_busy_fraction", gpu_busy_fraction)?,
        memory_bandwidth_fraction: field::fraction("memory_bandwidth_fraction", memory_bandwidth_fraction)?,
        cache_bandwidth_fraction: field::fraction("cache_bandwidth_fraction", cache_bandwidth_fraction)?,
        pcie_tx_bytes_per_second: field::known_quantity(
            "pcie_tx_bytes_per_second",
            pcie_tx_bytes_per_second,
        )?,
        pcie_rx_bytes_per_second: field::known_quantity(
            "pcie_rx_bytes_per_second",
            pcie_rx_bytes_per_second,
        )?,
        memory_bytes_used,
        tensor_active_fraction: field::fraction("tensor_active_fraction", tensor_active_fraction)?,
        memory_busy_fraction: field::fraction("memory_busy_fraction", memory_busy_fraction)?,
        nvlink_tx_bytes_per_second: field::known_quantity(
            "nvlink_tx_bytes_per_second",
            nvlink_tx_bytes_per_second,
        )?,
        nvlink_rx_bytes_per_second: field::known_quantity(
            "nvlink_rx_bytes_per_second",
            nvlink_rx_bytes_per_second,
        )?,
        sm_clock_hertz: field::known_quantity("sm_clock_hertz", sm_clock_hertz)?,
        throttles: throttles.and_then(metric::known_throttles),
        sources: metric::known_sources(sources),
    };
    let tenants = field::few("tenants", tenants, field::TENANTS_MAX)?;
    Ok((GresType(field::name("gres_type", gres_type)?), reading, tenants))
}

impl From<DeviceSample> for wire::DeviceSample {
    fn from(sample: DeviceSample) -> Self {
        let DeviceSample { gres_type, reading, tenants } = sample;
        let Reading {
            energy_joules,
            power_watts,
            sm_active_fraction,
            sm_occupancy_fraction,
            stall_fraction,
            fp32_active_fraction,
            gpu_busy_fraction,
            memory_bandwidth_fraction,
            cache_bandwidth_fraction,
            pcie_tx_bytes_per_second,
            pcie_rx_bytes_per_second,
            memory_bytes_used,
            tensor_active_fraction,
            memory_busy_fraction,
            nvlink_tx_bytes_per_second,
            nvlink_rx_bytes_per_second,
            sm_clock_hertz,
            throttles,
            sources,
        } = reading;
        Self {
            gres_type: gres_type.0,
            energy_joules,
            power_watts,
            sm_active_fraction: sm_active_fraction.map(Fraction::value),
            sm_occupancy_fraction: sm_occupancy_fraction.map(Fraction::value),
            stall_fraction: stall_fraction.map(Fraction::value),
            fp32_active_fraction: fp32_active_fraction.map(Fraction::value),
            gpu_busy_fraction: gpu_busy_fraction.map(Fraction::value),
            memory_bandwidth_fraction: memory_bandwidth_fraction.map(Fraction::value),
            cache_bandwidth_fraction: cache_bandwidth_fraction.map(Fraction::value),
            pcie_tx_bytes_per_second,
            pcie_rx_bytes_per_second,
            memory_bytes_used,
            tenants: tenants.into_iter().map(wire::TenantUse::from).collect(),
            tensor_active_fraction: tensor_active_fraction.map(Fraction::value),
            memory_busy_fraction: memory_busy_fraction.map(Fraction::value),
            nvlink_tx_bytes_per_second,
            nvlink_rx_bytes_per_second,
            sm_clock_hertz,
            throttles: throttles.as_ref().map(metric::throttle_numbers),
            sources: metric::grouped_sources(&sources),
        }
    }
}
