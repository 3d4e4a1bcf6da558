//! One test a field, and one for what each error becomes.

use super::*;
use pillion_core::metric::{Metric, MetricSource, Throttle};

const NO: Failure = Failure { call: "zesX", result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE };

fn energy(energy: u64, timestamp: u64) -> zes_power_energy_counter_t {
    zes_power_energy_counter_t { energy, timestamp }
}

fn memory(free: u64, size: u64) -> ModuleMemory {
    zes_mem_state_t { free, size, ..zes_mem_state_t::new() }.into()
}

fn traffic(read: u64, written: u64, timestamp: u64) -> zes_mem_bandwidth_t {
    zes_mem_bandwidth_t { readCounter: read, writeCounter: written, maxBandwidth: 1_000_000, timestamp }
}

fn active(active_time: u64, timestamp: u64) -> zes_engine_stats_t {
    zes_engine_stats_t { activeTime: active_time, timestamp }
}

fn clock(actual: f64, reasons: u32) -> Frequency {
    zes_freq_state_t { actual, throttleReasons: reasons, ..zes_freq_state_t::new() }.into()
}

/// A sample at which every query failed.
fn blind() -> Sample {
    Sample { energy: Err(NO), memory: Err(NO), bandwidth: Err(NO), activity: Err(NO), frequency: Err(NO) }
}

fn value(fraction: Option<Fraction>) -> Option<f64> {
    fraction.map(Fraction::value)
}

#[test]
fn energy_is_in_joules() {
    let sample = Sample { energy: Ok(energy(2_500_000, 1)), ..blind() };
    let reading = reading(None, &sample);
    assert_eq!(reading.metrics.get(Metric::EnergyJoules), Some(2.5));
    assert_eq!(reading.metrics.get(Metric::PowerWatts), None, "one sample is no interval");
}

#[test]
fn power_is_energy_over_the_counters_own_time() {
    let (before, now) = (energy(1_000_000, 5_000_000), energy(201_000_000, 5_500_000));
    assert_eq!(power_watts(&before, &now), Some(400.0));
    assert_eq!(power_watts(&now, &before), None, "a counter that went back");
    assert_eq!(power_watts(&now, &now), None, "no time has passed");
    let samples = [before, now].map(|counter| Sample { energy: Ok(counter), ..blind() });
    assert_eq!(reading(Some(&samples[0]), &samples[1]).metrics.get(Metric::PowerWatts), Some(400.0));
}

#[test]
fn memory_used_is_what_is_not_free_in_all_modules() {
    assert_eq!(memory_bytes_used(&[memory(10, 64), memory(60, 64)]), Some(58));
    assert_eq!(memory_bytes_used(&[memory(65, 64)]), None, "more free than there is");
    assert_eq!(memory_bytes(&[memory(10, 64), memory(60, 64)]), 128);
    let sample = Sample { memory: Ok(vec![memory(10, 64)]), ..blind() };
    assert_eq!(reading(None, &sample).metrics.bytes(Metric::MemoryBytesUsed), Some(54));
}

#[test]
fn bandwidth_is_reads_and_writes_of_the_most_possible() {
    // 300 000 bytes in half a second, of 1 000 000 bytes a second.
    let (before, now) = (traffic(100, 100, 0), traffic(200_100, 100_100, 500_000));
    assert!((value(bandwidth(&[before], &[now])).unwrap() - 0.6).abs() < 1e-12);
    let idle = (traffic(0, 0, 0), traffic(0, 0, 500_000));
    assert!((value(bandwidth(&[before, idle.0], &[now, idle.1])).unwrap() - 0.3).abs() < 1e-12);
    let unknown = zes_mem_bandwidth_t { maxBandwidth: 0, ..now };
    assert_eq!(bandwidth(&[before], &[unknown]), None, "the most is not known");
    assert_eq!(bandwidth(&[now], &[before]), None, "went back");
    assert_eq!(bandwidth(&[before], &[now, idle.1]), None, "a module came");
    let samples = [before, now].map(|counter| Sample { bandwidth: Ok(vec![counter]), ..blind() });
    let read = reading(Some(&samples[0]), &samples[1]);
    assert!((value(read.metrics.fraction(Metric::MemoryBandwidthFraction)).unwrap() - 0.6).abs() < 1e-12);
}

#[test]
fn busy_is_the_busiest_groups_active_time() {
    let before = [active(10, 1_000), active(10, 1_000)];
    let now = [active(260, 2_000), active(510, 2_000)];
    assert_eq!(value(busy(&before, &now)), Some(0.5));
    assert_eq!(value(busy(&before, &[active(5_000, 2_000), now[1]])), Some(1.0), "never more than all");
    assert_eq!(busy(&now, &before), None, "went back");
    assert_eq!(busy(&[], &[]), None, "no group");
    let samples = [before, now].map(|counters| Sample { activity: Ok(counters.to_vec()), ..blind() });
    assert_eq!(
        value(reading(Some(&samples[0]), &samples[1]).metrics.fraction(Metric::GpuBusyFraction)),
        Some(0.5)
    );
}

#[test]
fn the_clock_is_in_hertz_and_negative_is_unknown() {
    assert_eq!(hertz(1600.0), Some(1.6e9));
    assert_eq!(hertz(0.0), Some(0.0), "asleep");
    assert_eq!(hertz(-1.0), None);
    assert_eq!(hertz(f64::NAN), None);
    let sample = Sample { frequency: Ok(clock(900.0, 0)), ..blind() };
    assert_eq!(reading(None, &sample).metrics.get(Metric::SmClockHertz), Some(9e8));
}

#[test]
fn each_reason_to_throttle_has_its_word() {
    for (bit, throttle) in [
        (0, Throttle::PowerLimit),
        (1, Throttle::PowerLimit),
        (2, Throttle::PowerLimit),
        (3, Throttle::Heat),
        (4, Throttle::PowerBrake),
        (5, Throttle::Setting),
        (6, Throttle::Setting),
    ] {
        assert_eq!(throttles(1 << bit), BTreeSet::from([throttle]), "bit {bit}");
    }
    assert_eq!(throttles(1 << 7), BTreeSet::new(), "a reason of later");
    let sample = Sample { frequency: Ok(clock(900.0, 0b1001)), ..blind() };
    let expected = BTreeSet::from([Throttle::PowerLimit, Throttle::Heat]);
    assert_eq!(reading(None, &sample).throttles(), Some(&expected));
}

#[test]
fn what_failed_is_absent_and_what_is_there_names_its_source() {
    assert_eq!(reading(Some(&blind()), &blind()), Reading::default());
    assert_eq!(blind().failures().len(), QUERY_COUNT);
    let sample = Sample { energy: Ok(energy(1, 1)), ..blind() };
    let read = reading(None, &sample);
    assert!(read.metrics.sources().values().all(|source| *source == MetricSource::Sysman));
    assert_eq!(read.metrics.sources().len(), 1);
}

#[test]
fn models_are_named_by_number_and_else_by_name() {
    assert_eq!(model("Intel(R) Data Center GPU Max 1550", 0x0bd5), "max-1550");
    assert_eq!(model("Intel(R) Graphics [0x0bda]", 0x0bda), "max-1100");
    assert_eq!(model("Intel(R) Data Center GPU Flex 170", 0x56c0), "flex-170");
    assert_eq!(model("Intel(R) Arc(TM) A770 Graphics", 0x56a0), "arc-a770");
    assert_eq!(model("Intel(R) Graphics", 0x1234), "intel-1234");
}

#[test]
fn a_tile_is_named_after_its_card() {
    let mut bytes = [0_u8; 16];
    bytes[0] = 0x86;
    bytes[15] = 0x01;
    assert_eq!(uuid(&bytes, 0, 1).as_str(), "01000000-0000-0000-0000-000000000086");
    assert_eq!(uuid(&bytes, 1, 2).as_str(), "01000000-0000-0000-0000-000000000086.1");
}

#[test]
fn an_address_is_written_as_linux_does() {
    let address = zes_pci_address_t { domain: 0, bus: 0x18, device: 0, function: 0 };
    assert_eq!(pci_address(address), "0000:18:00.0");
}

#[test]
fn a_c_string_ends_at_its_zero_or_with_its_room() {
    let room = [b'a', b'b', 0, b'c'].map(|byte| c_char::try_from(byte).unwrap());
    assert_eq!(text(&room), "ab");
    assert_eq!(text(&room[..2]), "ab");
}

#[test]
fn each_failure_becomes_the_error_that_the_agent_knows() {
    let error = |result| device_error(3, Failure { call: "zesX", result });
    assert!(matches!(error(ZE_RESULT_ERROR_DEVICE_LOST), DeviceError::Gone { index: 3, .. }));
    assert!(matches!(error(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET), DeviceError::Gone { .. }));
    for result in [ZE_RESULT_NOT_READY, ZE_RESULT_ERROR_NOT_AVAILABLE] {
        let error = error(result);
        assert!(matches!(error, DeviceError::NotReady { index: 3, .. }) && error.is_transient(), "{error}");
    }
    assert!(matches!(error(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE), DeviceError::Unsupported { .. }));
    let forbidden = error(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
    assert!(matches!(forbidden, DeviceError::Refused { .. }));
    assert!(forbidden.to_string().contains("run the agent as root"), "{forbidden}");
    assert_eq!(
        error(ZE_RESULT_ERROR_UNKNOWN).to_string(),
        "cannot understand the driver's answer: zesX answered 0x7ffffffe"
    );
}
