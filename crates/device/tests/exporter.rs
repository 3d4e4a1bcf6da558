//! An exporter's endpoint that serves, stalls, breaks off and fails, and what is made of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use pillion_core::DeviceUuid;
use pillion_core::clock::SystemClock;
use pillion_core::device::{DeviceDescription, DeviceProcess, Mechanism, NoticeKind, Reading};
use pillion_core::metric::{Metric, MetricSource};
use pillion_device::exporter::{Exporter, ExporterKind, ExporterSettings, Supplemented};
use pillion_device::intel::{Intel, Settings as IntelSettings};
use pillion_device::{Backend, DeviceError};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DCGM: &str = include_str!("data/dcgm-exporter-3.3.txt");
const PAUSED: &str = include_str!("data/dcgm-exporter-3.3-paused.txt");
const XPUM_V1: &str = include_str!("data/xpum-1.2.txt");
const XPUM: &str = include_str!("data/xpumd-2.0.txt");
const DEADLINE: Duration = Duration::from_millis(300);
/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

/// What the endpoint does with the next question.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// The whole page.
    Serve(&'static str),
    /// Half the page, with the length of all of it.
    BreakOff(&'static str),
    /// Half the page and the end of the connection, without a word on its length.
    FallSilent(&'static str),
    /// A status and no page.
    Fail(&'static str),
    /// Nothing, until the other side gives up.
    Stall,
    /// One byte at a time, as long as the other side listens.
    Drip,
    /// A page without end.
    Flood,
}

#[derive(Debug)]
struct Endpoint {
    address: SocketAddr,
    state: Arc<Mutex<(Manner, u32, bool)>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new((manner, 0, false)));
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, _, is_over) = *shared.lock().unwrap();
                if is_over {
                    return;
                }
                shared.lock().unwrap().1 += 1;
                // The other side may hang up whenever it likes.
                let _ = answer(stream.unwrap(), manner);
            }
        });
        Self { address, state, thread: Some(thread) }
    }

    fn turn(&self, manner: Manner) {
        self.state.lock().unwrap().0 = manner;
    }

    fn asked_count(&self) -> u32 {
        self.state.lock().unwrap().1
    }

    fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    fn exporter(&self, kind: ExporterKind) -> Exporter {
        Exporter::new(ExporterSettings { deadline: DEADLINE, ..ExporterSettings::new(kind, self.url()) })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.state.lock().unwrap().2 = true;
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

fn answer(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let mut question = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    question.read_line(&mut first)?;
    let mut line = String::new();
    while question.read_line(&mut line)? > 2 {
        line.clear();
    }
    if first != "GET /metrics HTTP/1.1\r\n" {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    }
    let head = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    match manner {
        Manner::Serve(page) => write!(stream, "{}{page}", head(page.len())),
        Manner::BreakOff(page) => write!(stream, "{}{}", head(page.len()), &page[..page.len() / 2]),
        Manner::FallSilent(page) => {
            stream.write_all(endless)?;
            stream.write_all(&page.as_bytes()[..page.len() / 2])
        }
        Manner::Fail(status) => write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
        Manner::Stall => stream.read_to_end(&mut Vec::new()).map(|_| ()),
        Manner::Drip => {
            stream.write_all(endless)?;
            loop {
                stream.write_all(b"#")?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Manner::Flood => {
            stream.write_all(endless)?;
            loop {
                stream.write_all(&[b'#'; 4096])?;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline is measured by the clock")]
fn now() -> Instant {
    Instant::now()
}

fn first_gpu() -> DeviceUuid {
    DeviceUuid::new("GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52")
}

/// Asks once, and gives the error with the time that it took.
fn failure(exporter: &mut Exporter) -> (DeviceError, Duration) {
    let began = now();
    let error = exporter.read_all(began).unwrap_err();
    (error, began.elapsed())
}

#[test]
fn a_page_becomes_a_reading_of_each_device() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let found = endpoint.exporter(ExporterKind::Dcgm).read_all(now()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[&first_gpu()].metrics.get(Metric::PowerWatts), Some(243.117));
    let endpoint = Endpoint::start(Manner::Serve(XPUM));
    let found = endpoint.exporter(ExporterKind::XpuManager).read_all(now()).unwrap();
    assert_eq!(found.len(), 3, "a card and two tiles");
}

#[test]
fn a_page_of_the_wrong_exporter_is_refused() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let (error, _) = failure(&mut endpoint.exporter(ExporterKind::XpuManager));
    let wanted = format!("no metrics from {}: nothing in its answer is of XPU Manager", endpoint.url());
    assert_eq!(error.to_string(), wanted);
    assert!(error.is_transient() && !error.is_gone());
}

#[test]
fn an_endpoint_that_stalls_or_drips_is_given_up_at_the_deadline() {
    for manner in [Manner::Stall, Manner::Drip] {
        let endpoint = Endpoint::start(manner);
        let (error, took) = failure(&mut endpoint.exporter(ExporterKind::Dcgm));
        assert!(error.to_string().ends_with("it did not answer whole within 300ms"), "{manner:?}: {error}");
        assert!((DEADLINE..DEADLINE + SLACK).contains(&took), "{manner:?}: {took:?}");
    }
}

#[test]
fn half_a_page_is_no_page() {
    let endpoint = Endpoint::start(Manner::BreakOff(DCGM));
    let (error, took) = failure(&mut endpoint.exporter(ExporterKind::Dcgm));
    assert!(error.to_string().contains(&endpoint.url()), "{error}");
    assert!(took < SLACK);
    endpoint.turn(Manner::FallSilent(DCGM));
    let (error, _) = failure(&mut endpoint.exporter(ExporterKind::Dcgm));
    assert!(error.to_string().contains("its answer was cut off in line"), "{error}");
}

#[test]
fn a_page_without_end_is_given_up_at_its_greatest_length() {
    let endpoint = Endpoint::start(Manner::Flood);
    let settings = ExporterSettings::new(ExporterKind::Dcgm, endpoint.url());
    let mut exporter =
        Exporter::new(ExporterSettings { deadline: SLACK, body_bytes_max: 100_000, ..settings });
    let (error, took) = failure(&mut exporter);
    assert!(error.to_string().ends_with("its answer is longer than 100000 bytes"), "{error}");
    assert!(took < SLACK);
}

#[test]
fn a_status_other_than_ok_is_told() {
    for status in ["500 Internal Server Error", "302 Found", "204 No Content"] {
        let endpoint = Endpoint::start(Manner::Fail(status));
        let (error, _) = failure(&mut endpoint.exporter(ExporterKind::Dcgm));
        assert!(error.to_string().ends_with(&format!("it answered with status {status}")), "{error}");
    }
}

#[test]
fn an_endpoint_that_nobody_serves_is_told() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}/metrics");
    let (error, took) = failure(&mut Exporter::new(ExporterSettings::new(ExporterKind::Dcgm, url.as_str())));
    assert!(error.to_string().contains(&url) && error.to_string().contains("refused"), "{error}");
    assert!(took < SLACK);
}

#[test]
fn it_is_asked_once_a_period_and_after_a_failure_less_often() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let mut exporter = endpoint.exporter(ExporterKind::Dcgm);
    let t0 = now();
    for tenth in 0..10 {
        assert_eq!(exporter.read_all(t0 + tenth * SECOND / 10).unwrap().len(), 2);
    }
    assert_eq!(endpoint.asked_count(), 1);
    endpoint.turn(Manner::Fail("500 Internal Server Error"));
    exporter.read_all(t0 + SECOND).unwrap_err();
    for second in 2..11 {
        assert_eq!(exporter.read_all(t0 + second * SECOND).unwrap().len(), 2, "what it said holds on");
    }
    assert_eq!(endpoint.asked_count(), 2);
    endpoint.turn(Manner::Serve(PAUSED));
    exporter.read_all(t0 + 11 * SECOND).unwrap();
    assert_eq!(endpoint.asked_count(), 3);
}

#[test]
fn what_was_said_before_a_long_failure_is_given_up() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let mut exporter = endpoint.exporter(ExporterKind::Dcgm);
    let t0 = now();
    exporter.read_all(t0).unwrap();
    endpoint.turn(Manner::Fail("500 Internal Server Error"));
    exporter.read_all(t0 + 89 * SECOND).unwrap_err();
    assert!(exporter.read_all(t0 + 91 * SECOND).unwrap().is_empty());
    let lost = exporter.notices();
    assert_eq!(lost.len(), 30, "15 metrics of each device");
    assert!(lost.iter().all(|notice| matches!(notice.kind, NoticeKind::MetricLost(_))));
}

#[test]
fn paused_profiling_is_told_when_it_begins_and_when_it_ends() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let mut exporter = endpoint.exporter(ExporterKind::Dcgm);
    let t0 = now();
    exporter.read_all(t0).unwrap();
    assert_eq!(exporter.notices(), []);
    endpoint.turn(Manner::Serve(PAUSED));
    let reading = exporter.read_all(t0 + SECOND).unwrap().remove(&first_gpu()).unwrap();
    assert_eq!(
        (reading.metrics.fraction(Metric::SmActiveFraction), reading.metrics.get(Metric::PowerWatts)),
        (None, Some(242.905))
    );
    let lost = exporter.notices();
    assert_eq!(lost.len(), 18, "9 profiled metrics of each device");
    assert!(lost.iter().any(|notice| notice.device == first_gpu()
        && notice.kind == NoticeKind::MetricLost(Metric::SmActiveFraction)));
    endpoint.turn(Manner::Serve(DCGM));
    exporter.read_all(t0 + 2 * SECOND).unwrap();
    let back = exporter.notices();
    assert_eq!(back.len(), 18);
    assert!(back.iter().all(|notice| matches!(notice.kind, NoticeKind::MetricBack(_))));
}

/// A device before Hopper: its library gives the memory only.
struct Plain;

impl Backend for Plain {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        Ok(vec![DeviceDescription {
            uuid: first_gpu(),
            model: "v100".to_owned(),
            memory_bytes: 16 << 30,
            mechanism: Mechanism::TimeSliced,
            ..pillion_test_kit::device(3)
        }])
    }
    fn read(&mut self, _: u32) -> Result<Reading, DeviceError> {
        let mut reading = Reading::from([(Metric::MemoryBytesUsed, 77.0)]);
        reading.metrics.tag_untagged(MetricSource::Nvml);
        Ok(reading)
    }
    fn processes(&mut self, _: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        Ok(Vec::new())
    }
}

#[test]
fn an_exporter_completes_what_the_library_gives_and_costs_nothing_when_it_fails() {
    let endpoint = Endpoint::start(Manner::Serve(DCGM));
    let settings = ExporterSettings {
        deadline: DEADLINE,
        period: Duration::ZERO,
        ..ExporterSettings::new(ExporterKind::Dcgm, endpoint.url())
    };
    let mut backend = Supplemented::new(Box::new(Plain), Exporter::new(settings));
    backend.devices().unwrap();
    let mut read = || backend.read_all().unwrap().remove(0).1.unwrap().reading;
    let whole = read();
    assert_eq!(whole.metrics.bytes(Metric::MemoryBytesUsed), Some(77), "the library goes first");
    assert_eq!(whole.metrics.source(Metric::MemoryBytesUsed), Some(MetricSource::Nvml));
    assert!(whole.metrics.get(Metric::SmActiveFraction).is_some());
    assert_eq!(whole.metrics.source(Metric::SmActiveFraction), Some(MetricSource::DcgmExporter));
    endpoint.turn(Manner::Fail("500 Internal Server Error"));
    assert_eq!(read().metrics.bytes(Metric::MemoryBytesUsed), Some(77));
}

/// A node without Level Zero.
fn without_level_zero(endpoint: &Endpoint) -> Supplemented {
    let library = Some("/nowhere/libze_loader.so.1".to_owned());
    let intel = Intel::new(IntelSettings { library, ..IntelSettings::default() }, Arc::new(SystemClock));
    let settings = ExporterSettings {
        deadline: DEADLINE,
        period: Duration::ZERO,
        ..ExporterSettings::new(ExporterKind::XpuManager, endpoint.url())
    };
    Supplemented::new(Box::new(intel), Exporter::new(settings))
}

#[test]
fn without_level_zero_xpu_manager_names_the_devices_and_reads_them() {
    for (page, energy_joules, active) in
        [(XPUM_V1, Some(5_000_000.5), Some(0.5)), (XPUM, Some(400_000.25), None)]
    {
        let endpoint = Endpoint::start(Manner::Serve(page));
        let mut backend = without_level_zero(&endpoint);
        let devices = backend.devices().unwrap();
        let named: Vec<_> =
            devices.iter().map(|it| (it.index, it.uuid.as_str(), it.model.as_str())).collect();
        let card = "00000000-0000-0029-0000-002f0bd58086";
        let uuids = [0, 1].map(|tile| format!("{card}.{tile}"));
        assert_eq!(named, [(0, uuids[0].as_str(), "max-1550"), (1, uuids[1].as_str(), "max-1550")]);
        assert!(
            devices.iter().all(|it| it.memory_bytes == 64 << 30 && it.mechanism == Mechanism::TimeSliced)
        );
        let notices = backend.notices();
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices.iter().all(|notice| notice.kind == NoticeKind::NoMechanism), "{notices:?}");
        assert!(notices[0].detail.contains("/nowhere/libze_loader.so.1 cannot be loaded"), "{notices:?}");

        let reading = backend.read(0).unwrap();
        assert_eq!(reading.metrics.get(Metric::EnergyJoules), energy_joules);
        assert_eq!(reading.metrics.get(Metric::SmActiveFraction), active, "absent is none");
        assert_eq!(reading.metrics.bytes(Metric::MemoryBytesUsed), Some(20 << 30));
        assert!(
            reading.metrics.get(Metric::MemoryBandwidthFraction).is_some()
                && reading.metrics.get(Metric::GpuBusyFraction).is_some()
        );
        assert!(
            reading.metrics.sources().values().all(|source| *source == MetricSource::XpuManager),
            "{reading:?}"
        );
        assert_eq!(reading.metrics.sources().len(), reading.metrics.known().count());
    }
}

#[test]
fn without_level_zero_what_xpu_manager_does_not_tell_cannot_be_read() {
    let endpoint = Endpoint::start(Manner::Fail("503 Service Unavailable"));
    let mut backend = without_level_zero(&endpoint);
    let error = backend.devices().unwrap_err().to_string();
    assert!(error.contains("libze_loader.so.1") && error.contains("503 Service Unavailable"), "{error}");
    let endpoint = Endpoint::start(Manner::Serve(XPUM));
    let mut backend = without_level_zero(&endpoint);
    assert_eq!(backend.devices().unwrap().len(), 2);
    assert!(backend.read_all().unwrap().iter().all(|(_, state)| state.is_ok()));
    endpoint.turn(Manner::Fail("503 Service Unavailable"));
    for (index, state) in backend.read_all().unwrap() {
        let error = state.unwrap_err();
        assert!(error.is_transient() && !error.is_gone(), "device {index}: {error}");
    }
}
