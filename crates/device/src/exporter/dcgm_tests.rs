use super::super::text::samples;
use super::*;
use pillion_core::Fraction;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource};

const FIRST: &str = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52";
const SECOND: &str = "GPU-b073f628-caec-ea37-d0c5-9a85536a2454";
const OLD: &str = include_str!("../../tests/data/dcgm-exporter-3.3.txt");
const PAUSED: &str = include_str!("../../tests/data/dcgm-exporter-3.3-paused.txt");
const BLANK: &str = include_str!("../../tests/data/dcgm-exporter-2.4-blank.txt");
const RENAMED: &str = include_str!("../../tests/data/dcgm-exporter-4.8.txt");
const BASE_UNITS: &str = include_str!("../../tests/data/dcgm-exporter-4.9.txt");

fn readings(text: &str) -> BTreeMap<String, Reading> {
    let page = page(&samples(text).unwrap()).unwrap();
    let read = |seen: super::super::page::Seen| seen.reading(&BTreeMap::new(), MetricSource::DcgmExporter);
    page.into_iter().map(|(uuid, seen)| (uuid.to_string(), read(seen))).collect()
}

/// The reading of a page with this one value.
fn one(name: &str, value: &str) -> Reading {
    readings(&format!("{name}{{gpu=\"0\",UUID=\"{FIRST}\"}} {value}\n")).remove(FIRST).unwrap()
}

fn close(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found - wanted).abs() <= 1e-9 * wanted.abs())
}

#[track_caller]
fn fraction(names: [&str; 2], metric: Metric) {
    for name in names {
        let reading = one(name, "0.375");
        assert_eq!(reading.metrics.get(metric), Some(0.375), "{name}");
        assert_eq!(reading.metrics.known().count(), 1, "{name}");
    }
}

#[track_caller]
fn amount(name: &str, value: &str, metric: Metric, wanted: f64) {
    let reading = one(name, value);
    assert!(close(reading.metrics.get(metric), wanted), "{name}: {reading:?}");
    assert_eq!(reading.metrics.known().count(), 1, "{name}");
}

#[test]
fn sm_active_is_a_ratio_under_both_names() {
    fraction(["DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"], Metric::SmActiveFraction);
}

#[test]
fn sm_occupancy_is_a_ratio_under_both_names() {
    fraction(["DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"], Metric::SmOccupancyFraction);
}

#[test]
fn fp32_active_is_a_ratio_under_both_names() {
    fraction(["DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO"], Metric::Fp32ActiveFraction);
}

#[test]
fn tensor_active_is_a_ratio_under_both_names() {
    let names = ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"];
    fraction(names, Metric::TensorActiveFraction);
}

#[test]
fn dram_active_is_memory_bandwidth_under_both_names() {
    let names = ["DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"];
    fraction(names, Metric::MemoryBandwidthFraction);
}

#[test]
fn pcie_bytes_are_rates_and_each_has_its_direction() {
    amount("DCGM_FI_PROF_PCIE_TX_BYTES", "12345678", Metric::PcieTxBytesPerSecond, 12_345_678.0);
    amount("DCGM_FI_PROF_PCIE_RX_BYTES", "87654321", Metric::PcieRxBytesPerSecond, 87_654_321.0);
}

#[test]
fn nvlink_bytes_are_rates_and_each_has_its_direction() {
    amount("DCGM_FI_PROF_NVLINK_TX_BYTES", "12345678", Metric::NvlinkTxBytesPerSecond, 12_345_678.0);
    amount("DCGM_FI_PROF_NVLINK_RX_BYTES", "87654321", Metric::NvlinkRxBytesPerSecond, 87_654_321.0);
}

#[test]
fn gpu_util_is_percent_and_its_ratio_is_a_ratio() {
    let busy = |name, value| one(name, value).metrics.get(Metric::GpuBusyFraction);
    assert!(close(busy("DCGM_FI_DEV_GPU_UTIL", "87"), 0.87));
    assert!(close(busy("DCGM_FI_DEV_GPU_UTIL", "1"), 0.01));
    assert_eq!(busy("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.87"), Some(0.87));
    assert_eq!(busy("DCGM_FI_DEV_GPU_UTIL_RATIO", "87"), None, "DCGM 4.6's percent under this name");
}

#[test]
fn memory_util_is_percent_and_its_ratio_is_a_ratio() {
    let busy = |name, value| one(name, value).metrics.get(Metric::MemoryBusyFraction);
    assert!(close(busy("DCGM_FI_DEV_MEM_COPY_UTIL", "41"), 0.41));
    assert_eq!(busy("DCGM_FI_DEV_MEMORY_UTIL_RATIO", "0.41"), Some(0.41));
}

#[test]
fn energy_is_in_millijoules_under_the_old_name_and_in_joules_under_the_new() {
    amount("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "318045512304", Metric::EnergyJoules, 318_045_512.304);
    amount("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "318045512", Metric::EnergyJoules, 318_045_512.0);
}

#[test]
fn power_is_in_watts_under_both_names() {
    amount("DCGM_FI_DEV_POWER_USAGE", "243.117000", Metric::PowerWatts, 243.117);
    amount("DCGM_FI_DEV_BOARD_POWER_WATTS", "243.117000", Metric::PowerWatts, 243.117);
}

#[test]
fn memory_used_is_in_mebibytes_under_the_old_name_and_in_bytes_under_the_new() {
    assert_eq!(
        one("DCGM_FI_DEV_FB_USED", "12138").metrics.bytes(Metric::MemoryBytesUsed),
        Some(12_138 << 20)
    );
    assert_eq!(
        one("DCGM_FI_DEV_FB_USED_BYTES", "42949672961").metrics.bytes(Metric::MemoryBytesUsed),
        Some(42_949_672_961)
    );
}

#[test]
fn the_clock_is_in_megahertz_under_the_old_name_and_in_hertz_under_the_new() {
    amount("DCGM_FI_DEV_SM_CLOCK", "1530", Metric::SmClockHertz, 1.53e9);
    amount("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1530000000", Metric::SmClockHertz, 1.53e9);
}

#[test]
fn a_page_of_old_names_gives_every_device_its_own_values() {
    let found = readings(OLD);
    assert_eq!(found.keys().collect::<Vec<_>>(), [FIRST, SECOND]);
    let (busy, idle) = (&found[FIRST], &found[SECOND]);
    assert_eq!(busy.metrics.get(Metric::SmActiveFraction), Some(0.713_204));
    assert_eq!(busy.metrics.get(Metric::MemoryBandwidthFraction), Some(0.442_019));
    assert_eq!(
        busy.metrics.get(Metric::PcieRxBytesPerSecond),
        Some(734_003_200.0),
        "a rate, whatever TYPE says"
    );
    assert_eq!(
        idle.metrics.fraction(Metric::SmActiveFraction),
        Some(Fraction::ZERO),
        "nothing is a value too"
    );
    assert_eq!(idle.metrics.get(Metric::PowerWatts), Some(38.54));
    assert_eq!((busy.metrics.known().count(), idle.metrics.known().count()), (15, 15));
    assert!(busy.metrics.sources().values().all(|source| *source == MetricSource::DcgmExporter));
}

#[test]
fn paused_profiling_leaves_what_is_not_profiled() {
    let busy = readings(PAUSED).remove(FIRST).unwrap();
    assert_eq!(
        (busy.metrics.fraction(Metric::SmActiveFraction), busy.metrics.get(Metric::PcieTxBytesPerSecond)),
        (None, None)
    );
    assert!(close(busy.metrics.get(Metric::GpuBusyFraction), 0.97));
}

#[test]
fn a_blank_value_is_none() {
    let reading = readings(BLANK).remove(FIRST).unwrap();
    assert_eq!(reading.metrics.get(Metric::PowerWatts), Some(25.0));
    assert_eq!(reading.metrics.get(Metric::SmClockHertz), Some(139e6));
    assert_eq!(reading.metrics.known().count(), 2, "{reading:?}");
    for blank in
        ["9223372036854775792", "9223372036854775793", "9223372036854775795", "140737488355331", "+Inf"]
    {
        assert_eq!(one("DCGM_FI_DEV_POWER_USAGE", blank), Reading::default(), "{blank}");
    }
}

#[test]
fn a_page_of_new_names_leaves_mig_instances_and_single_links_out() {
    let found = readings(RENAMED);
    assert_eq!(found.keys().collect::<Vec<_>>(), [FIRST, SECOND]);
    assert_eq!(found[FIRST].metrics.get(Metric::SmActiveFraction), Some(0.913));
    assert_eq!(found[FIRST].metrics.get(Metric::PowerWatts), Some(391.25));
    assert_eq!(
        found[FIRST].metrics.get(Metric::NvlinkTxBytesPerSecond),
        None,
        "one of its links is not all of them"
    );
    assert_eq!(
        found[SECOND].metrics.fraction(Metric::SmActiveFraction),
        None,
        "its instances have it, the device has not"
    );
    assert_eq!(found[SECOND].metrics.bytes(Metric::MemoryBytesUsed), Some(20_480 << 20));
}

#[test]
fn a_page_in_base_units_is_read_with_its_new_labels() {
    let reading = readings(BASE_UNITS).remove(FIRST).unwrap();
    assert_eq!(reading.metrics.get(Metric::EnergyJoules), Some(5_123_456.0));
    assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed), Some(42_949_672_961));
    assert_eq!(reading.metrics.get(Metric::GpuBusyFraction), Some(0.88));
    assert_eq!(reading.metrics.get(Metric::SmClockHertz), Some(1.275e9));
    assert_eq!(reading.metrics.known().count(), 11, "{reading:?}");
}

#[test]
fn of_two_names_for_one_value_the_finer_counts_wherever_it_stands() {
    let old = format!("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID=\"{FIRST}\"}} 1500\n");
    let new = format!("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{{UUID=\"{FIRST}\"}} 1\n");
    for text in [format!("{old}{new}"), format!("{new}{old}")] {
        assert_eq!(readings(&text)[FIRST].metrics.get(Metric::EnergyJoules), Some(1.5), "{text}");
    }
}

#[test]
fn a_page_of_another_exporter_is_none_of_ours() {
    assert_eq!(page(&samples("node_load1 0.4\n").unwrap()), None);
    let only_others = "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",UUID=\"GPU-1\"} 0\n";
    assert_eq!(page(&samples(only_others).unwrap()), Some(Page::new()));
}
