//! What Pillion reads of each page while a program runs, against what the device model did.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use exporter_double::{Endpoint, Kind, Settings};
use pillion_core::device::{NoticeKind, Reading};
use pillion_core::metric::{Metric, MetricSource};
use pillion_core::{Fraction, SystemClock};
use pillion_device::Backend as _;
use pillion_device::exporter::{Exporter, ExporterKind, ExporterSettings, Supplemented};
use pillion_device::intel::{Intel, Settings as IntelSettings};
use pillion_device::simulated::{
    AttachRequest, JobConnection, Machine, MachineConfig, Simulated, Totals, serve,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The exporter's own, here.
const PERIOD: Duration = Duration::from_millis(60);
/// Pages print few digits.
const TOLERANCE: f64 = 0.005;

/// Two simulated devices, with one program at work on the first.
struct Node {
    directory: tempfile::TempDir,
    driver: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    job: Option<JobConnection>,
}

impl Node {
    fn start(model: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::new(&MachineConfig::plain("n1", model, 2)).unwrap();
        let socket = directory.path().join("driver.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        let at = socket.clone();
        let driver = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(machine, &at, async move { drop(stopped.await) })).unwrap();
        });
        until("the driver", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let request = AttachRequest {
            workload: "resnet50-infer".to_owned(),
            seconds: Some(1e8),
            environment: [("SLURM_JOB_GPUS".to_owned(), "0".to_owned())].into(),
            ..AttachRequest::default()
        };
        let job = JobConnection::open(&socket, request).unwrap();
        Self { directory, driver: Some((stop, driver)), job: Some(job) }
    }

    fn devices(&self) -> Simulated {
        Simulated::new(self.directory.path().join("driver.sock"))
    }

    fn lock(&self) -> PathBuf {
        self.directory.path().join("profiler")
    }

    fn endpoint(&self, kind: Kind) -> Endpoint {
        let devices = self.directory.path().join("driver.sock");
        let settings = Settings { kind, devices, period: PERIOD, profiling_lock: Some(self.lock()) };
        Endpoint::start(SocketAddr::from(([127, 0, 0, 1], 0)), settings).unwrap()
    }

    /// What the device does every second.
    fn played(&self) -> Totals {
        let mut devices = self.devices();
        let before = devices.counters(0).unwrap().totals;
        std::thread::sleep(PERIOD);
        let after = devices.counters(0).unwrap().totals;
        let rate = |of: fn(&Totals) -> f64| (of(&after) - of(&before)) / (after.seconds - before.seconds);
        Totals {
            energy_joules: rate(|it| it.energy_joules),
            busy: rate(|it| it.busy),
            issue: rate(|it| it.issue),
            stall: rate(|it| it.stall),
            memory: rate(|it| it.memory),
            occupancy: rate(|it| it.occupancy),
            fp32: rate(|it| it.fp32),
            pcie_rx_bytes: rate(|it| it.pcie_rx_bytes),
            ..after
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.job.take());
        if let Some((stop, driver)) = self.driver.take() {
            let _ = stop.send(());
            let _ = driver.join();
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come: {what}");
}

#[expect(clippy::disallowed_methods, reason = "an exporter is asked by the clock")]
fn now() -> Instant {
    Instant::now()
}

fn settings(kind: ExporterKind, endpoint: &Endpoint) -> ExporterSettings {
    ExporterSettings { period: Duration::ZERO, ..ExporterSettings::new(kind, endpoint.url()) }
}

fn near(what: &str, read: Option<f64>, done: f64) {
    let read = read.unwrap_or_else(|| panic!("{what} was not read"));
    assert!((read - done).abs() <= TOLERANCE * done.abs().max(1.0), "{what}: {read} was read, not {done}");
}

fn part(of: Option<Fraction>) -> Option<f64> {
    of.map(Fraction::value)
}

#[test]
fn both_generations_of_dcgm_exporter_tell_what_the_device_does() {
    let node = Node::start("v100");
    let uuid = node.devices().devices().unwrap().remove(0).uuid;
    for kind in [Kind::Dcgm33, Kind::Dcgm49] {
        let endpoint = node.endpoint(kind);
        let mut exporter = Exporter::new(settings(ExporterKind::Dcgm, &endpoint));
        let mut reading = Reading::default();
        let played = node.played();
        until("a second collection", || {
            reading = exporter.read_all(now()).unwrap().remove(&uuid).unwrap();
            reading.metrics.get(Metric::SmActiveFraction).is_some()
        });
        near("busy", part(reading.metrics.fraction(Metric::GpuBusyFraction)), played.busy);
        near("active", part(reading.metrics.fraction(Metric::SmActiveFraction)), played.issue + played.stall);
        near("occupancy", part(reading.metrics.fraction(Metric::SmOccupancyFraction)), played.occupancy);
        near("memory", part(reading.metrics.fraction(Metric::MemoryBandwidthFraction)), played.memory);
        near("fp32", part(reading.metrics.fraction(Metric::Fp32ActiveFraction)), played.fp32);
        near("power", reading.metrics.get(Metric::PowerWatts), played.energy_joules);
        near("pcie", reading.metrics.get(Metric::PcieRxBytesPerSecond), played.pcie_rx_bytes);
        let after = node.devices().counters(0).unwrap();
        let energy_joules = reading.metrics.get(Metric::EnergyJoules).unwrap();
        assert!(
            (energy_joules - after.totals.energy_joules).abs() < played.energy_joules,
            "{energy_joules} J"
        );
        let used = after.memory_bytes_used >> 20;
        assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed).unwrap() >> 20, used);
        assert!(reading.metrics.sources().values().all(|source| *source == MetricSource::DcgmExporter));
    }
}

#[test]
fn another_profiler_takes_the_profiling_fields_and_gives_them_back() {
    let node = Node::start("v100");
    let uuid = node.devices().devices().unwrap().remove(0).uuid;
    let endpoint = node.endpoint(Kind::Dcgm33);
    let mut exporter = Exporter::new(settings(ExporterKind::Dcgm, &endpoint));
    let mut active = || {
        let reading = exporter.read_all(now()).unwrap().remove(&uuid).unwrap();
        assert!(reading.metrics.get(Metric::PowerWatts).is_some(), "that takes no counters");
        let lost = exporter.notices();
        (reading.metrics.get(Metric::SmActiveFraction).is_some(), lost)
    };
    until("profiling", || active().0);
    std::fs::write(node.lock(), "").unwrap();
    let mut told = Vec::new();
    until("no profiling", || {
        let (is_there, notices) = active();
        told = notices;
        !is_there
    });
    assert!(told.iter().any(|it| it.kind == NoticeKind::MetricLost(Metric::SmActiveFraction)), "{told:?}");
    std::fs::remove_file(node.lock()).unwrap();
    until("profiling again", || active().0);
}

#[test]
fn both_versions_of_xpu_manager_stand_in_for_level_zero() {
    let node = Node::start("max-1550");
    for kind in [Kind::Xpum12, Kind::Xpum20] {
        let endpoint = node.endpoint(kind);
        let library = Some("/nowhere/libze_loader.so.1".to_owned());
        let intel = Intel::new(IntelSettings { library, ..IntelSettings::default() }, Arc::new(SystemClock));
        let exporter = Exporter::new(settings(ExporterKind::XpuManager, &endpoint));
        let mut backend = Supplemented::new(Box::new(intel), exporter);
        let devices = backend.devices().unwrap();
        let seen: Vec<_> = devices.iter().map(|it| (it.index, it.model.as_str(), it.memory_bytes)).collect();
        assert_eq!(seen, [(0, "max-1550", 64 << 30), (1, "max-1550", 64 << 30)]);
        let played = node.played();
        let mut reading = Reading::default();
        until("a second collection", || {
            reading = backend.read(0).unwrap();
            reading.metrics.get(Metric::GpuBusyFraction).is_some()
        });
        near("busy", part(reading.metrics.fraction(Metric::GpuBusyFraction)), played.busy);
        near("memory", part(reading.metrics.fraction(Metric::MemoryBandwidthFraction)), played.memory);
        near("power", reading.metrics.get(Metric::PowerWatts), played.energy_joules);
        let after = node.devices().counters(0).unwrap();
        assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed), Some(after.memory_bytes_used));
        let energy_joules = reading.metrics.get(Metric::EnergyJoules).unwrap();
        assert!(
            (energy_joules - after.totals.energy_joules).abs() < played.energy_joules,
            "{energy_joules} J"
        );
        if kind == Kind::Xpum12 {
            near("active", part(reading.metrics.fraction(Metric::SmActiveFraction)), played.issue);
            near("stall", part(reading.metrics.fraction(Metric::StallFraction)), played.stall);
        } else {
            assert_eq!(
                (
                    reading.metrics.fraction(Metric::SmActiveFraction),
                    reading.metrics.fraction(Metric::StallFraction)
                ),
                (None, None)
            );
        }
        let idle = backend.read(1).unwrap();
        assert!(
            part(idle.metrics.fraction(Metric::GpuBusyFraction)).unwrap() < 0.01
                && idle.metrics.get(Metric::PowerWatts) < reading.metrics.get(Metric::PowerWatts)
        );
    }
}
