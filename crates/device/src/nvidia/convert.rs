//! NVML's units in ours, each in one place. Pure.
//!
//! NVML speaks of millijoules, milliwatts, megahertz and whole percents; its GPU performance monitoring (GPM) of percents
//! with a fraction and of MiB/s. What is no number, or negative, is not known.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use pillion_core::Fraction;
use pillion_core::metric::{Metric, Throttle, Unit};
use std::collections::BTreeSet;

/// The number that NVML gives for an Xid that it does not know (nvml.h, `nvmlEventTypeXidCriticalError`).
const XID_UNKNOWN: u64 = 999;

/// What is asked of GPM, and what it is of ours. NVML's transmit is the GPU's: to the host, or to other GPUs (nvml.h,
/// `nvmlGpmMetricId_t`).
pub(super) const GPM: [(GpmMetricId, Metric); 9] = [
    (GpmMetricId::SmUtil, Metric::SmActiveFraction),
    (GpmMetricId::SmOccupancy, Metric::SmOccupancyFraction),
    (GpmMetricId::AnyTensorUtil, Metric::TensorActiveFraction),
    (GpmMetricId::DramBwUtil, Metric::MemoryBandwidthFraction),
    (GpmMetricId::Fp32Util, Metric::Fp32ActiveFraction),
    (GpmMetricId::PcieTxPerSec, Metric::PcieTxBytesPerSecond),
    (GpmMetricId::PcieRxPerSec, Metric::PcieRxBytesPerSecond),
    (GpmMetricId::NvlinkTotalTxPerSec, Metric::NvlinkTxBytesPerSecond),
    (GpmMetricId::NvlinkTotalRxPerSec, Metric::NvlinkRxBytesPerSecond),
];

fn amount(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// A percentage. Above 100, where meters end by rounding, is all.
pub(super) fn percent(value: f64) -> Option<Fraction> {
    amount(value).map(|value| Fraction::clamped(value / 100.0))
}

/// A rate in MiB/s, in bytes a second.
pub(super) fn mebibytes_per_second(value: f64) -> Option<f64> {
    amount(value).map(|value| value * 1_048_576.0)
}

/// A rate in KB/s, in bytes a second. nvml.h does not say which kilo; exporters take 1000.
pub(super) fn kilobytes_per_second(value: u32) -> f64 {
    f64::from(value) * 1e3
}

/// Millijoules, in joules.
#[expect(clippy::cast_precision_loss, reason = "2^53 mJ are three hundred years at a kilowatt")]
pub(super) fn joules(millijoules: u64) -> f64 {
    millijoules as f64 / 1e3
}

/// Milliwatts, in watts.
pub(super) fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// A power field's value, which is in milliwatts whatever its type, in watts.
#[expect(clippy::cast_precision_loss, reason = "a board draws far below 2^53 mW")]
pub(super) fn field_watts(value: &SampleValue) -> Option<f64> {
    let milliwatts = match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    };
    amount(milliwatts).map(|milliwatts| milliwatts / 1e3)
}

/// Megahertz, in hertz.
pub(super) fn hertz(megahertz: u32) -> f64 {
    f64::from(megahertz) * 1e6
}

/// Why the clock is held down. An idle device is not held. A hardware slowdown names its cause beside itself on any GPU
/// that can share; alone it is the fast protection against too much power (nvml.h, `nvmlClocksEventReasonHwSlowdown`).
pub(super) fn throttles(reasons: ThrottleReasons) -> BTreeSet<Throttle> {
    let causes = ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    let is_overdrawn = reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !reasons.intersects(causes);
    let named = [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerLimit),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Heat),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::Heat),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::Setting),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, Throttle::Setting),
        (ThrottleReasons::SYNC_BOOST, Throttle::Setting),
    ];
    named
        .into_iter()
        .filter_map(|(reason, throttle)| reasons.contains(reason).then_some(throttle))
        .chain(is_overdrawn.then_some(Throttle::PowerLimit))
        .collect()
}

/// A process's memory, where the driver tells it.
pub(super) fn process_bytes(memory: &UsedGpuMemory) -> Option<u64> {
    match *memory {
        UsedGpuMemory::Unavailable => None,
        UsedGpuMemory::Used(bytes) => Some(bytes),
    }
}

/// An Xid's number.
pub(super) fn xid_code(error: &XidError) -> u64 {
    match *error {
        XidError::Value(code) => code,
        XidError::Unknown => XID_UNKNOWN,
    }
}

/// A value of GPM in the unit of its metric: fractions are told in percents, rates in MiB/s.
pub(super) fn gpm_value(metric: Metric, value: f64) -> Option<f64> {
    match metric.unit() {
        Unit::Fraction => percent(value).map(Fraction::value),
        Unit::BytesPerSecond => mebibytes_per_second(value),
        Unit::Joules | Unit::Watts | Unit::Bytes | Unit::Hertz => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(value: f64) -> Fraction {
        Fraction::try_new(value).unwrap()
    }

    #[test]
    fn energy_is_in_millijoules() {
        assert_eq!(joules(123_456).to_bits(), 123.456_f64.to_bits());
    }

    #[test]
    fn power_is_in_milliwatts_in_a_field_of_any_type_too() {
        assert_eq!(watts(71_250).to_bits(), 71.25_f64.to_bits());
        let values = [
            SampleValue::U32(71_250),
            SampleValue::U64(71_250),
            SampleValue::I64(71_250),
            SampleValue::F64(71_250.0),
        ];
        for value in values {
            assert_eq!(field_watts(&value), Some(71.25), "{value:?}");
        }
        assert_eq!(field_watts(&SampleValue::I64(-1)), None);
        assert_eq!(field_watts(&SampleValue::F64(f64::NAN)), None);
    }

    #[test]
    fn utilisation_is_in_percent() {
        assert_eq!(percent(0.0), Some(fraction(0.0)));
        assert_eq!(percent(37.5), Some(fraction(0.375)));
        assert_eq!(percent(100.4), Some(fraction(1.0)));
        assert_eq!(percent(-1.0), None);
        assert_eq!(percent(f64::NAN), None);
        assert_eq!(percent(f64::INFINITY), None);
    }

    #[test]
    fn the_clock_is_in_megahertz() {
        assert_eq!(hertz(1_980).to_bits(), 1.98e9_f64.to_bits());
    }

    #[test]
    fn nvmls_own_pcie_rate_is_in_kilobytes() {
        assert_eq!(kilobytes_per_second(2_500).to_bits(), 2.5e6_f64.to_bits());
    }

    #[test]
    fn fractions_of_gpm_are_in_percent_and_rates_in_mebibytes() {
        for (_, metric) in GPM {
            let expected = if metric.unit() == Unit::Fraction { 0.425 } else { 44_564_480.0 };
            assert_eq!(gpm_value(metric, 42.5), Some(expected), "{metric}");
            assert_eq!(gpm_value(metric, f64::NAN), None, "{metric}");
        }
        assert_eq!(gpm_value(Metric::PowerWatts, 1.0), None);
    }

    #[test]
    fn each_metric_of_gpm_is_asked_once_and_is_one_of_ours() {
        let own: BTreeSet<Metric> = GPM.map(|(_, metric)| metric).into();
        assert_eq!(own.len(), GPM.len());
        assert!(!own.contains(&Metric::GpuBusyFraction), "it never stands in for what GPM counts");
    }

    #[test]
    fn each_reason_to_slow_down_is_one_of_ours() {
        let one = |reason| throttles(reason).into_iter().collect::<Vec<_>>();
        assert_eq!(one(ThrottleReasons::NONE), []);
        assert_eq!(one(ThrottleReasons::GPU_IDLE), []);
        assert_eq!(one(ThrottleReasons::SW_POWER_CAP), [Throttle::PowerLimit]);
        assert_eq!(one(ThrottleReasons::SW_THERMAL_SLOWDOWN), [Throttle::Heat]);
        assert_eq!(one(ThrottleReasons::HW_THERMAL_SLOWDOWN), [Throttle::Heat]);
        assert_eq!(one(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN), [Throttle::PowerBrake]);
        assert_eq!(one(ThrottleReasons::APPLICATIONS_CLOCKS_SETTING), [Throttle::Setting]);
        assert_eq!(one(ThrottleReasons::DISPLAY_CLOCK_SETTING), [Throttle::Setting]);
        assert_eq!(one(ThrottleReasons::SYNC_BOOST), [Throttle::Setting]);
    }

    #[test]
    fn a_hardware_slowdown_is_its_cause_or_else_the_power() {
        let slow = ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(throttles(slow), BTreeSet::from([Throttle::PowerLimit]));
        let heat = slow | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(throttles(heat), BTreeSet::from([Throttle::Heat]));
        let brake = slow | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN | ThrottleReasons::SYNC_BOOST;
        assert_eq!(throttles(brake), BTreeSet::from([Throttle::PowerBrake, Throttle::Setting]));
    }

    #[test]
    fn memory_of_a_process_that_is_not_told_is_not_known() {
        assert_eq!(process_bytes(&UsedGpuMemory::Used(7)), Some(7));
        assert_eq!(process_bytes(&UsedGpuMemory::from(u64::MAX)), None);
    }

    #[test]
    fn an_xid_keeps_its_number() {
        assert_eq!(xid_code(&XidError::Value(31)), 31);
        assert_eq!(xid_code(&XidError::Unknown), 999);
    }
}
