use super::super::text::samples;
use super::*;
use pillion_core::Fraction;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource};

const CARD: &str = "00000000-0000-0029-0000-002f0bd58086";
const V1: &str = include_str!("../../tests/data/xpum-1.2.txt");
const V2: &str = include_str!("../../tests/data/xpumd-2.0.txt");

fn seen(text: &str) -> BTreeMap<String, Seen> {
    page(&samples(text).unwrap()).unwrap().into_iter().map(|(uuid, seen)| (uuid.to_string(), seen)).collect()
}

fn readings(text: &str) -> BTreeMap<String, Reading> {
    let read = |seen: Seen| seen.reading(&BTreeMap::new(), MetricSource::XpuManager);
    seen(text).into_iter().map(|(uuid, seen)| (uuid, read(seen))).collect()
}

fn v1(name: &str, labels: &str, value: &str) -> Reading {
    readings(&format!("{name}{{{labels}uuid=\"{CARD}\"}} {value}\n")).remove(CARD).unwrap_or_default()
}

fn v2(name: &str, labels: &str, value: &str) -> Reading {
    let page = format!("hw_gpu_info{{}} 1\n{name}{{{labels}hw_id=\"{CARD}\"}} {value}\n");
    readings(&page).remove(CARD).unwrap_or_default()
}

fn part(fraction: Option<Fraction>) -> Option<f64> {
    fraction.map(Fraction::value)
}

#[test]
fn busy_is_the_engines_ratio_in_v1() {
    assert_eq!(
        part(v1("xpum_engine_ratio", "", "0.75").metrics.fraction(Metric::GpuBusyFraction)),
        Some(0.75)
    );
    let group = |group| {
        v1("xpum_engine_group_ratio", &format!("type=\"{group}\","), "0.5")
            .metrics
            .fraction(Metric::GpuBusyFraction)
    };
    assert_eq!((part(group("compute")), part(group("copy"))), (Some(0.5), None));
}

#[test]
fn busy_is_the_ratio_of_all_engines_in_v2() {
    let task = |task| {
        v2("hw_gpu_utilization_ratio", &format!("hw_gpu_task=\"{task}\","), "0.5")
            .metrics
            .fraction(Metric::GpuBusyFraction)
    };
    assert_eq!((part(task("all")), part(task("compute-all"))), (Some(0.5), Some(0.5)));
    assert_eq!((task("copy-all"), task("compute-single")), (None, None));
}

#[test]
fn xve_active_and_stall_are_ratios_in_v1() {
    assert_eq!(
        part(v1("xpum_eu_active_ratio", "", "0.5").metrics.fraction(Metric::SmActiveFraction)),
        Some(0.5)
    );
    assert_eq!(
        part(v1("xpum_eu_stall_ratio", "", "0.25").metrics.fraction(Metric::StallFraction)),
        Some(0.25)
    );
}

#[test]
fn memory_bandwidth_is_a_ratio_in_both() {
    assert_eq!(
        part(v1("xpum_memory_bandwidth_ratio", "", "0.35").metrics.fraction(Metric::MemoryBandwidthFraction)),
        Some(0.35)
    );
    let name = "hw_memory_bandwidth_utilization_ratio";
    let at = |place| {
        v2(name, &format!("hw_memory_location=\"{place}\","), "0.35")
            .metrics
            .fraction(Metric::MemoryBandwidthFraction)
    };
    assert_eq!((part(at("device")), at("system")), (Some(0.35), None));
}

#[test]
fn memory_used_is_in_bytes_in_both() {
    assert_eq!(
        v1("xpum_memory_used_bytes", "", "2.147483648e+10").metrics.bytes(Metric::MemoryBytesUsed),
        Some(20 << 30)
    );
    let at = |place| v2("hw_memory_usage_bytes", &format!("hw_memory_location=\"{place}\","), "1024");
    assert_eq!(at("device").metrics.bytes(Metric::MemoryBytesUsed), Some(1024));
    assert_eq!(at("system").metrics.bytes(Metric::MemoryBytesUsed), None);
}

#[test]
fn power_is_in_watts_in_both() {
    assert_eq!(v1("xpum_power_watts", "", "420.5").metrics.get(Metric::PowerWatts), Some(420.5));
    let at = |place| {
        v2("hw_power_watts", &format!("hw_sensor_location=\"{place}\","), "420.5")
            .metrics
            .get(Metric::PowerWatts)
    };
    assert_eq!(
        (at("card"), at("package"), at("gpu"), at("memory")),
        (Some(420.5), Some(420.5), Some(420.5), None)
    );
}

#[test]
fn energy_is_in_joules_in_both_with_or_without_the_ending_of_a_counter() {
    for name in ["xpum_energy_joules", "xpum_energy_joules_total"] {
        assert_eq!(
            v1(name, "", "9876543.21").metrics.get(Metric::EnergyJoules),
            Some(9_876_543.21),
            "{name}"
        );
    }
    let card = "hw_sensor_location=\"card\",";
    assert_eq!(
        v2("hw_energy_joules_total", card, "9876543.21").metrics.get(Metric::EnergyJoules),
        Some(9_876_543.21)
    );
}

#[test]
fn the_clock_is_the_actual_one_of_the_compute_part() {
    let asked = |kind| {
        v1("xpum_frequency_mhz", &format!("location=\"gpu\",type=\"{kind}\","), "1600")
            .metrics
            .get(Metric::SmClockHertz)
    };
    assert_eq!((asked("actual"), asked("request")), (Some(1.6e9), None));
    let mean = |domain, of| {
        let labels = format!("aggregation=\"{of}\",hw_frequency_domain=\"{domain}\",");
        v2("hw_frequency_hertz", &labels, "1.6e9").metrics.get(Metric::SmClockHertz)
    };
    assert_eq!((mean("gpu", "avg"), mean("gpu", "max"), mean("memory", "avg")), (Some(1.6e9), None, None));
}

#[test]
fn pcie_bytes_are_totals_whose_rate_is_wanted_and_reading_is_from_the_host() {
    let totals = [(Metric::PcieTxBytesPerSecond, 3e6), (Metric::PcieRxBytesPerSecond, 7e6)];
    assert_eq!(seen(V1)[CARD].totals, totals.into());
    let totals = [(Metric::PcieTxBytesPerSecond, 2e6), (Metric::PcieRxBytesPerSecond, 6e6)];
    assert_eq!(seen(V2)[CARD].totals, totals.into());
    assert_eq!(readings(V1)[CARD].metrics.get(Metric::PcieRxBytesPerSecond), None, "a total is no rate");
}

#[test]
fn a_page_of_v1_has_the_card_and_its_tiles() {
    let found = readings(V1);
    let (card, tile) = (&found[CARD], &found[&format!("{CARD}.1")]);
    assert_eq!(found.len(), 3);
    assert_eq!(part(card.metrics.fraction(Metric::GpuBusyFraction)), Some(0.75), "what the card says itself");
    assert_eq!(part(card.metrics.fraction(Metric::SmActiveFraction)), Some(0.4), "the mean of its tiles");
    assert_eq!(
        part(card.metrics.fraction(Metric::StallFraction)).map(|f| (f * 1e6).round()),
        Some(300_000.0)
    );
    assert_eq!(card.metrics.bytes(Metric::MemoryBytesUsed), Some(30 << 30), "the sum of its tiles");
    assert_eq!(card.metrics.get(Metric::SmClockHertz), Some(1.5e9));
    assert_eq!(
        (card.metrics.get(Metric::PowerWatts), card.metrics.get(Metric::EnergyJoules)),
        (Some(420.5), Some(9_876_543.21))
    );
    assert_eq!(
        (part(tile.metrics.fraction(Metric::GpuBusyFraction)), tile.metrics.get(Metric::PowerWatts)),
        (Some(0.6), Some(180.25))
    );
    assert_eq!(
        (
            part(tile.metrics.fraction(Metric::MemoryBandwidthFraction)),
            tile.metrics.bytes(Metric::MemoryBytesUsed)
        ),
        (Some(0.25), Some(10 << 30))
    );
}

#[test]
fn a_page_of_v2_has_the_card_and_its_tiles() {
    let found = readings(V2);
    let (card, tile) = (&found[CARD], &found[&format!("{CARD}.0")]);
    assert_eq!(found.len(), 3);
    assert_eq!(
        part(card.metrics.fraction(Metric::GpuBusyFraction)),
        Some(0.75),
        "the mean over all engines of its tiles"
    );
    assert_eq!(
        (card.metrics.get(Metric::PowerWatts), card.metrics.get(Metric::EnergyJoules)),
        (Some(512.5), Some(1_000_100.0)),
        "the card's sensor"
    );
    assert_eq!(
        (tile.metrics.get(Metric::PowerWatts), tile.metrics.get(Metric::EnergyJoules)),
        (Some(250.125), Some(400_000.25)),
        "the package's"
    );
    assert_eq!(card.metrics.bytes(Metric::MemoryBytesUsed), Some(30 << 30));
    assert_eq!(card.metrics.get(Metric::SmClockHertz), Some(1.4e9));
    assert_eq!(
        part(card.metrics.fraction(Metric::MemoryBandwidthFraction)).map(|f| (f * 1e6).round()),
        Some(300_000.0)
    );
    assert_eq!(
        (card.metrics.fraction(Metric::SmActiveFraction), card.metrics.fraction(Metric::StallFraction)),
        (None, None),
        "v2 has no XVE metrics"
    );
}

#[test]
fn every_way_to_write_a_uuid_is_one_name() {
    for uuid in [CARD, "00000000000000290000002f0bd58086", "00000000-0000-0029-0000-002F0BD58086"] {
        assert_eq!(dashed(uuid).as_str(), CARD);
    }
    assert_eq!(dashed("gpu-1").as_str(), "gpu-1");
}

#[test]
fn a_page_of_another_exporter_is_none_of_ours() {
    assert_eq!(page(&samples("node_load1 0.4\n").unwrap()), None);
    assert_eq!(page(&samples("xpum_resets_total{uuid=\"1\"} 0\n").unwrap()), Some(Page::new()));
}
