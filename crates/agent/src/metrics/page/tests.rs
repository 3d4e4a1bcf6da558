//! The page of a node with a device that tells all, one that tells little, and one that cannot be read.

use super::*;
use crate::metrics::Figures;
use pillion_core::device::DeviceProcess;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::metric::{Metric, Throttle};
use pillion_core::mig::Slot;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, GresType, JobStart, Shards, SlurmJobId, UserId};
use pillion_device::DeviceState;
use std::collections::BTreeMap;
use std::time::Duration;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/metrics/page/golden.txt");
const NOW: u64 = 1_700_000_000;

fn devices() -> Vec<DeviceDescription> {
    let device = |(index, model, mechanism): (u32, &str, Mechanism)| DeviceDescription {
        model: model.to_owned(),
        mechanism,
        ..pillion_test_kit::device(index)
    };
    let (mps, ccs) = (Mechanism::Mps, Mechanism::Ccs);
    let cut = Geometry::of_model("h100").cloned();
    let cut = DeviceDescription { geometry: cut, ..device((3, "h100", mps)) };
    [(0, "h200", mps), (1, "max-1550", ccs), (2, "h200", mps)].into_iter().map(device).chain([cut]).collect()
}

fn walled(job: u32, slot: &str) -> Share {
    let slot: Slot = slot.parse().unwrap();
    let sharing = Sharing::Mig { profile: slot.profile, start: slot.start };
    Share { sharing, ..share(job, "g3") }
}

fn share(job: u32, gres_type: &str) -> Share {
    Share {
        decision_id: DecisionId(1),
        start: JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 },
        uid: UserId(4711),
        gres_types: GresType::new(gres_type).into(),
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::try_new(40).unwrap(),
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    }
}

const GIB: f64 = 1_073_741_824.0;

fn full_reading() -> Reading {
    // Whatever else there is, too.
    let mut reading = Reading::from(Metric::ALL.map(|metric| (metric, 0.5)));
    for (metric, value) in [
        (Metric::EnergyJoules, 12_345.5),
        (Metric::PowerWatts, 350.0),
        (Metric::SmActiveFraction, 0.75),
        (Metric::GpuBusyFraction, 1.0),
        (Metric::MemoryBandwidthFraction, 0.25),
        (Metric::PcieTxBytesPerSecond, 1e6),
        (Metric::PcieRxBytesPerSecond, 2e6),
        (Metric::SmClockHertz, 1.98e9),
        (Metric::MemoryBytesUsed, 7.0 * GIB),
    ] {
        reading.metrics.set(metric, value);
    }
    reading.set_throttles([Throttle::PowerLimit].into());
    reading
}

fn seen() -> Seen {
    let figures = Figures::default();
    let (full, little, dead) = (GresType::new("g0"), GresType::new("g1"), GresType::new("g2"));
    figures.sampled(UnixTime::from_epoch(NOW - 1), Duration::from_millis(20));
    let process = |pid| DeviceProcess { pid, memory_bytes: None };
    let state = DeviceState { reading: full_reading(), processes: vec![process(1), process(2)] };
    figures.read(&full, Some(&state));
    let reading = Reading::from([(Metric::MemoryBytesUsed, 0.0)]);
    figures.read(&little, Some(&DeviceState { reading, processes: Vec::new() }));
    figures.read(&dead, None);
    figures.tenants(&BTreeMap::from([(full, 2)]));
    let fault = |kind| DeviceFault { kind, detail: "of job 4711".into(), since: UnixTime::from_epoch(NOW) };
    let faults = vec![fault(FaultKind::Gone), fault(FaultKind::MpsDied)];
    figures.conditions(&[DeviceCondition {
        gres_type: dead,
        faults,
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    }]);
    figures.set_up(Mechanism::Mps, true);
    figures.set_up(Mechanism::Ccs, false);
    figures.task(true);
    figures.uplink_failed();
    figures.seen()
}

fn golden_page() -> Page {
    page(&Snapshot {
        node: &NodeName::new("n1"),
        devices: &devices(),
        shares: &[
            share(4711, "g0"),
            share(4712, "g0"),
            share(4713, "g2"),
            walled(4714, "3g.40gb@4"),
            walled(4715, "1g.10gb@0"),
            walled(4716, "1g.10gb@1"),
        ],
        is_connected: true,
        seen: seen(),
        journal: JournalFigures {
            kept_bytes: 1000,
            bytes_max: 64 << 20,
            waiting_count: Some(3),
            dropped_count: 0,
            lost_count: 0,
        },
    })
}

/// With `PILLION_BLESS=1` it is written anew.
#[test]
fn the_page_is_as_it_was() {
    let text = golden_page().open_metrics();
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(GOLDEN).unwrap(), "PILLION_BLESS=1 writes {GOLDEN} anew");
}

#[test]
fn every_family_is_on_the_page_of_a_node_that_has_everything() {
    let text = golden_page().plain_text();
    for of in super::super::all() {
        assert!(text.contains(&format!("# HELP {} ", of.name)), "{} is nowhere", of.name);
    }
}

#[test]
fn instances_are_counted_by_size_on_devices_that_are_cut() {
    let text = golden_page().plain_text();
    for (profile, count) in [("1g.10gb", 2), ("2g.20gb", 0), ("3g.40gb", 1), ("7g.80gb", 0)] {
        let line = format!(
            "pillion_device_instances{{node=\"n1\",gres_type=\"g3\",profile=\"{profile}\"}} {count}.0\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(
        text.contains("pillion_device_shares{node=\"n1\",gres_type=\"g3\",mechanism=\"mig\"} 3.0\n"),
        "{text}"
    );
    assert!(!text.contains("device_instances{node=\"n1\",gres_type=\"g0\""), "it is not cut");
}

#[test]
fn what_is_absent_has_no_line_and_jobs_are_not_told_of() {
    let text = golden_page().plain_text();
    assert!(text.contains("pillion_device_power_watts{node=\"n1\",gres_type=\"g0\"} 350.0\n"), "{text}");
    assert!(!text.contains("power_watts{node=\"n1\",gres_type=\"g1\"}"), "it does not tell its power");
    assert!(text.contains("memory_bytes_used{node=\"n1\",gres_type=\"g1\"} 0.0\n"), "0 bytes are a value");
    assert!(!text.contains("processes{node=\"n1\",gres_type=\"g2\"}"), "it could not be read");
    assert!(text.contains("mps_up{node=\"n1\",gres_type=\"g2\"} 0.0\n") && !text.contains("4711"), "{text}");
}
