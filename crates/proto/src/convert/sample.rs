//! `DeviceSamples`, `DeviceSample` and `TenantUse`.

use super::field::{self, InvalidField};
use super::metric;
use crate::v1 as wire;
use pillion_core::device::{Reading, TenantUse};
use pillion_core::metric::Metric;
use pillion_core::report::DeviceSample;
use pillion_core::text::quoted;
use pillion_core::{GresType, JobStart};

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
            Err(source) => Err(InvalidTenant { job_id: quoted(&job_id), source }),
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
    fn try_from(mut wire: wire::DeviceSample) -> Result<Self, InvalidSample> {
        let (gres_type, tenants) = (std::mem::take(&mut wire.gres_type), std::mem::take(&mut wire.tenants));
        let of_device = |source| InvalidSample::Device { gres_type: quoted(&gres_type), source };
        let reading = checked_reading(wire).map_err(of_device)?;
        let tenants = field::few("tenants", tenants, field::TENANTS_MAX).map_err(of_device)?;
        let gres_type = GresType::new(field::name("gres_type", gres_type.clone()).map_err(of_device)?);
        let tenants = tenants.into_iter().map(TenantUse::try_from).collect::<Result<_, _>>()?;
        Ok(Self { gres_type, reading, tenants })
    }
}

fn checked_reading(wire: wire::DeviceSample) -> Result<Reading, InvalidField> {
    let throttles = wire.throttles.and_then(metric::known_throttles);
    #[expect(clippy::cast_precision_loss, reason = "devices have far less than 2^53 bytes")]
    let memory_bytes_used = wire.memory_bytes_used.map(|bytes| bytes as f64);
    let earlier = metric::earlier_fields!(wire).into_iter().chain([
        (Metric::EnergyJoules, wire.energy_joules),
        (Metric::MemoryBytesUsed, memory_bytes_used),
        (Metric::SmClockHertz, wire.sm_clock_hertz),
        // Its value is that of the throttles, below.
        (Metric::Throttles, throttles.as_ref().map(|_| 0.0)),
    ]);
    let mut metrics = metric::checked_metrics(wire.metrics)?;
    metric::add_earlier(&mut metrics, earlier, wire.sources)?;
    let mut reading = Reading::from(metrics);
    match throttles {
        Some(throttles) => reading.set_throttles(throttles),
        None => reading.metrics.remove(Metric::Throttles),
    }
    Ok(reading)
}

impl From<DeviceSample> for wire::DeviceSample {
    fn from(sample: DeviceSample) -> Self {
        let DeviceSample { gres_type, reading, tenants } = sample;
        Self {
            gres_type: gres_type.0.into(),
            tenants: tenants.into_iter().map(wire::TenantUse::from).collect(),
            throttles: reading.throttles().map(metric::throttle_numbers),
            metrics: metric::metric_values(&reading.metrics),
            ..Self::default()
        }
    }
}
