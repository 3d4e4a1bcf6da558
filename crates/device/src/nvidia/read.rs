//! The values that NVML has on every GPU: memory, energy, power, clocks, coarse utilisation.

use super::convert;
use super::trouble::Trouble;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use pillion_core::device::Reading;
use pillion_core::metric::Metric;
use std::collections::BTreeMap;

/// Asks value by value: one that is refused or not there leaves the others alone.
#[derive(Debug, Default)]
pub(super) struct Asking {
    refused: Option<Trouble>,
    /// What we may not read, and in whose words.
    refused_metrics: BTreeMap<Metric, String>,
    absent: Option<Trouble>,
}

impl Asking {
    /// An answer, if there is one, which tells these metrics.
    ///
    /// # Errors
    /// What concerns more than this value.
    pub(super) fn value<T>(
        &mut self,
        metrics: &[Metric],
        answer: Result<T, NvmlError>,
    ) -> Result<Option<T>, Trouble> {
        match answer.map_err(Trouble::from) {
            Ok(value) => Ok(Some(value)),
            Err(trouble) if trouble.is_of_one_value() => {
                let kept = match &trouble {
                    Trouble::Refused(reason) => {
                        self.refuse(metrics, reason);
                        &mut self.refused
                    }
                    _ => &mut self.absent,
                };
                kept.get_or_insert(trouble);
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// We may not read these.
    pub(super) fn refuse(&mut self, metrics: &[Metric], reason: &str) {
        self.refused_metrics.extend(metrics.iter().map(|metric| (*metric, reason.to_owned())));
    }

    /// What we may not read.
    pub(super) fn refused_metrics(self) -> BTreeMap<Metric, String> {
        self.refused_metrics
    }

    /// Why a device that told nothing told nothing. Without a permission in the way it does not answer at all: its
    /// handle is stale, as after a reset.
    pub(super) fn why_nothing(self) -> Trouble {
        match (self.refused, self.absent) {
            (Some(refused), _) => refused,
            (None, Some(Trouble::Absent(reason))) => Trouble::Gone(format!("it answers nothing: {reason}")),
            (None, Some(other)) => other,
            (None, None) => Trouble::Gone("it answers nothing".to_owned()),
        }
    }
}

/// Adds to `reading` what NVML tells of any device. `with_pcie`: NVML's own PCIe rates too; each takes it 20 ms (nvml.h,
/// `nvmlDeviceGetPcieThroughput`).
///
/// # Errors
/// What concerns the whole device.
pub(super) fn read(
    device: &Device<'_>,
    with_pcie: bool,
    asking: &mut Asking,
    reading: &mut Reading,
) -> Result<(), Trouble> {
    // Without what the driver reserves, which no process can have.
    if let Some(memory) = asking.value(&[Metric::MemoryBytesUsed], device.memory_info())? {
        reading.metrics.set_bytes(Metric::MemoryBytesUsed, memory.used);
    }
    let energy = asking.value(&[Metric::EnergyJoules], device.total_energy_consumption())?;
    reading.metrics.set_known(Metric::EnergyJoules, energy.map(convert::joules));
    reading.metrics.set_known(Metric::PowerWatts, power(device, asking)?);
    if let Some(utilization) =
        asking.value(&[Metric::GpuBusyFraction, Metric::MemoryBusyFraction], device.utilization_rates())?
    {
        let (gpu, memory) = (f64::from(utilization.gpu), f64::from(utilization.memory));
        reading.metrics.set_known(Metric::GpuBusyFraction, convert::percent(gpu));
        reading.metrics.set_known(Metric::MemoryBusyFraction, convert::percent(memory));
    }
    let clock = asking.value(&[Metric::SmClockHertz], device.clock_info(Clock::SM))?;
    reading.metrics.set_known(Metric::SmClockHertz, clock.map(convert::hertz));
    if let Some(reasons) = asking.value(&[Metric::Throttles], device.current_throttle_reasons())? {
        reading.set_throttles(convert::throttles(reasons));
    }
    if with_pcie {
        for (metric, counter) in [
            (Metric::PcieTxBytesPerSecond, PcieUtilCounter::Send),
            (Metric::PcieRxBytesPerSecond, PcieUtilCounter::Receive),
        ] {
            let rate = asking.value(&[metric], device.pcie_throughput(counter))?;
            reading.metrics.set_known(metric, rate.map(convert::kilobytes_per_second));
        }
    }
    Ok(())
}

/// Power now where the driver tells it apart from its mean over a second (`nvmlDeviceGetPowerUsage` is that mean on
/// Hopper and later).
fn power(device: &Device<'_>, asking: &mut Asking) -> Result<Option<f64>, Trouble> {
    let fields = asking.value(&[], device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)]))?;
    let field = fields.and_then(|fields| fields.into_iter().next());
    let instant = field.and_then(Result::ok).and_then(|sample| sample.value.ok());
    match instant.as_ref().and_then(convert::field_watts) {
        Some(watts) => Ok(Some(watts)),
        None => Ok(asking.value(&[Metric::PowerWatts], device.power_usage())?.map(convert::watts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_hides_no_other() {
        let mut asking = Asking::default();
        assert_eq!(asking.value::<u32>(&[Metric::PowerWatts], Err(NvmlError::NotSupported)), Ok(None));
        assert_eq!(asking.value(&[], Ok(5)), Ok(Some(5)));
        assert!(matches!(
            asking.value::<u32>(&[Metric::PowerWatts], Err(NvmlError::GpuLost)),
            Err(Trouble::Gone(_))
        ));
    }

    #[test]
    fn a_permission_is_named_before_anything_else_that_lacks() {
        let mut asking = Asking::default();
        assert_eq!(asking.value::<u32>(&[Metric::PowerWatts], Err(NvmlError::NotSupported)), Ok(None));
        assert_eq!(asking.value::<u32>(&[Metric::PowerWatts], Err(NvmlError::NoPermission)), Ok(None));
        assert_eq!(asking.refused_metrics.keys().collect::<Vec<_>>(), [&Metric::PowerWatts]);
        assert!(matches!(asking.why_nothing(), Trouble::Refused(_)));
    }

    #[test]
    fn a_device_that_answers_nothing_is_gone() {
        let mut asking = Asking::default();
        assert_eq!(asking.value::<u32>(&[Metric::PowerWatts], Err(NvmlError::InvalidArg)), Ok(None));
        assert!(matches!(asking.why_nothing(), Trouble::Gone(reason) if reason.contains("argument")));
        assert!(matches!(Asking::default().why_nothing(), Trouble::Gone(_)));
    }
}
