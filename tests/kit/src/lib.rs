//! The domain's larger values as tests need them: each whole, in a few words. A test writes down what it is about, and takes
//! the rest from here: `DeviceDescription { memory_bytes: 1, ..device(0) }`. Whoever adds a field adds it here, and no test
//! that is about something else changes. Values of a crate's own are built in that crate (`scheduler/src/testing.rs`).

use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::report::{AgentHello, JobSummary, Launch, PROTOCOL_VERSION, ProgressPart};
use pillion_core::{DeviceUuid, GresType, JobStart, NodeName, UnixTime};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

/// The moment at which tests happen, in seconds since the epoch.
pub const NOW: u64 = 1_000_000;
const GIB: u64 = 1 << 30;

/// A moment.
pub fn at(epoch: u64) -> UnixTime {
    UnixTime::from_epoch(epoch)
}

/// An H200 that is shared by MPS, `g0`, `g1` and so on.
pub fn device(index: u32) -> DeviceDescription {
    DeviceDescription {
        index,
        uuid: DeviceUuid::new(format!("GPU-{index}")),
        model: "h200".to_owned(),
        memory_bytes: 141 * GIB,
        gres_type: GresType::new(format!("g{index}")),
        mechanism: Mechanism::Mps,
        instances: None,
        geometry: None,
        links: BTreeMap::new(),
    }
}

/// A tile of a Max 1550, which is shared by CCS modes.
pub fn tile(index: u32) -> DeviceDescription {
    DeviceDescription {
        model: "max-1550".to_owned(),
        memory_bytes: 64 * GIB,
        mechanism: Mechanism::Ccs,
        ..device(index)
    }
}

/// What the agent of a node says first that has no device and nothing to tell.
pub fn hello(node: &str) -> AgentHello {
    AgentHello {
        protocol_version: PROTOCOL_VERSION,
        node: NodeName::new(node),
        agent_version: "0".to_owned(),
        journal_id: "j".to_owned(),
        devices: Vec::new(),
        sent_at: at(NOW),
        decision_ids: Vec::new(),
        conditions: Vec::new(),
        setup: None,
        observes: false,
    }
}

/// A run on `g1` of no length that was measured and tells nothing.
pub fn summary(start: JobStart) -> JobSummary {
    JobSummary {
        start,
        gres_type: GresType::new("g1"),
        started_at: at(NOW),
        ended_at: at(NOW),
        shared_seconds: 0.0,
        shared_device_seconds: None,
        memory_bytes_peak: Some(5),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        energy_joules: None,
        solo: ProgressPart::default(),
        shared: ProgressPart::default(),
        solo_means: None,
        solo_sample_count: 0,
        neighbours: Vec::new(),
        signs: None,
    }
}

/// A task of step 0 that began on `g1` and was told nothing.
pub fn launch(start: JobStart) -> Launch {
    Launch {
        at: at(NOW),
        start,
        step_id: 0,
        decision_id: None,
        gres_types: vec![GresType::new("g1")],
        profile_name: None,
    }
}

/// Says that a test does nothing because its data are not on this machine. They may not be copied, so this is no failure anywhere.
pub fn without_data(path: &Path) {
    not_on_this_machine(&format!("{} is not there", path.display()));
}

/// Set by `tests/run`, which has everything that a test may need: there a test that cannot run has failed.
const COMPLETE: &str = "PILLION_TESTS_COMPLETE";

/// Says that a test cannot run on this machine, in words that follow its name, or some part of it: past the capture of what tests
/// print, for it would pass in silence. The test returns after it.
///
/// # Panics
/// Where `PILLION_TESTS_COMPLETE` is set.
pub fn skipped(why: &str) {
    assert!(std::env::var_os(COMPLETE).is_none(), "{why}; with {COMPLETE} every test must run");
    not_on_this_machine(why);
}

/// The same of what nobody can install on it (its kernel's own): never fails, and is said past the capture.
pub fn not_on_this_machine(why: &str) {
    let thread = std::thread::current();
    let text = format!("SKIPPED {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(text.as_bytes());
}
