//! A scheduler with a history and agents that report, and its page on a port of its own.

use crate::support::fresh_store;
use pillion_core::device::{DeviceDescription, Mechanism, Reading};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::mark::Mark;
use pillion_core::metric::{Metric, MetricSource};
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples};
use pillion_core::{Clock as _, DeviceUuid, GresType, NodeName, SlurmJobId, SystemClock, UnixTime, UserId};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::grpc::auth::Operators;
use pillion_scheduler::grpc::operator::OperatorServer;
use pillion_scheduler::scan::{Scan, record_of};
use pillion_scheduler::web;
use pillion_slurm::{Job, JobState, ReasonKind};
use pillion_store::postgres::PgStore;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How large a site is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: u32,
    pub(crate) jobs: u32,
}

/// A page that is served until this is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<PgStore>,
    stop: CancellationToken,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// From the question to the first byte of the answer.
    pub(crate) waited: Duration,
}

impl Site {
    /// `None`: there is nobody to run a Postgres as (see `support::owner`).
    pub(crate) async fn start(size: Size) -> Option<Self> {
        let store = Arc::new(fresh_store().await?);
        let now = SystemClock.now();
        let sql = include_str!("history.sql")
            .replace(":nodes", &size.nodes.to_string())
            .replace(":jobs", &size.jobs.to_string())
            .replace(":now", &now.epoch().to_string());
        let mut connection = store.pool().acquire().await.expect("a connection").detach();
        sqlx::raw_sql("set statement_timeout = 0").execute(&mut connection).await.expect("time");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.expect("a history");
        let agents = Arc::new(Agents::default());
        (1..=size.nodes).for_each(|number| report(&agents, number, now));
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), now);
        let context = Context::new(
            Arc::new(SystemClock),
            Arc::new(slurm),
            Arc::clone(&store) as Arc<dyn pillion_store::Store>,
            agents,
            Settings::default(),
        );
        let waiting: Vec<Arc<Job>> = (1..=6).map(|number| waiting(number, now).into()).collect();
        let records: Vec<_> = waiting.iter().filter_map(|job| record_of(job, None)).collect();
        context.store.record_jobs(&records, now).await.expect("recorded");
        context.board_mut().scan = Some(Arc::new(Scan::new(now, waiting, Vec::new(), &[], 0)));
        let context = Arc::new(context);
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let service = Arc::new(OperatorServer::new(context, engine, Arc::clone(&store), "a test".to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        tokio::spawn(web::serve(listener, service, Operators::default(), false, stop.clone()));
        Some(Self { address, store, stop })
    }

    /// Asks for a page.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await
    }

    /// Sends a question as it stands.
    pub(crate) async fn ask(&self, question: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let begun = tokio::time::Instant::now();
        stream.write_all(question.as_bytes()).await.expect("it reads");
        let mut bytes = vec![stream.read_u8().await.expect("it answers")];
        let waited = begun.elapsed();
        stream.read_to_end(&mut bytes).await.expect("it ends");
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned(), waited }
    }
}

/// An agent with eight devices that says what they do; one device in all is broken, one node away.
fn report(agents: &Agents, number: u32, now: UnixTime) {
    let node = NodeName::new(format!("n{number:04}"));
    let (model, mechanism) =
        if number.is_multiple_of(4) { ("max-1550", Mechanism::Ccs) } else { ("h200", Mechanism::Mps) };
    let device = |index: u32| DeviceDescription {
        uuid: DeviceUuid::new(format!("GPU-{number}-{index}")),
        model: model.to_owned(),
        mechanism,
        ..pillion_test_kit::device(index)
    };
    let broken = DeviceCondition {
        gres_type: GresType::new("g4"),
        faults: vec![DeviceFault {
            kind: FaultKind::MpsFault,
            detail: "Xid 31 of pid 4711".to_owned(),
            since: now,
        }],
        sources: [(Metric::PowerWatts, MetricSource::Nvml)].into(),
        instances_empty: Vec::new(),
    };
    let hello = AgentHello {
        node: node.clone(),
        devices: (0..8).map(device).collect(),
        sent_at: now,
        conditions: if number == 3 { vec![broken] } else { Vec::new() },
        ..pillion_test_kit::hello("n1")
    };
    let (stream, _inbox) = agents.connect(&hello, now);
    let sample = |index: u32| {
        let (busy, held) =
            (f64::from((number * 7 + index * 13) % 10) / 10.0, !(number + index * 3).is_multiple_of(7));
        let share = if held { 0.35 + busy * 0.6 } else { 0.0 };
        let gibibytes = if held { 20 + u64::from((number * 11 + index * 17) % 80) } else { 0 };
        let mut reading = Reading::from([
            (Metric::PowerWatts, if held { 210.0 + 430.0 * share } else { 74.0 }),
            (Metric::SmActiveFraction, share),
        ]);
        reading.metrics.set_bytes(Metric::MemoryBytesUsed, gibibytes << 30);
        DeviceSample { gres_type: GresType::new(format!("g{index}")), reading, tenants: Vec::new() }
    };
    agents.set_readings(&node, &DeviceSamples { recorded_at: now, samples: (0..8).map(sample).collect() });
    if number == 6 {
        agents.disconnect(&stream);
    }
}

fn waiting(number: u32, now: UnixTime) -> Job {
    let user = ["chen", "dalia", "goran"][usize::try_from(number).expect("small") % 3];
    Job {
        id: SlurmJobId::plain(9_000_000 + number),
        restart_count: 0,
        inner_id: 9_000_000 + number,
        state: JobState::Pending,
        reason: ReasonKind::BeginTime,
        uid: UserId(2003 + number % 3),
        user: user.into(),
        account: "nlp".into(),
        partition: "shared".into(),
        qos: "".into(),
        priority: 100 - u64::from(number),
        submitted_at: now - Duration::from_secs(60 * u64::from(number)),
        eligible_at: Some(now + Duration::from_mins(9)),
        started_at: None,
        ended_at: None,
        time_limit_seconds: Some(7200),
        gres: "shard:100".into(),
        nodes: Vec::new(),
        required_nodes: Vec::new(),
        excluded_nodes: Vec::new(),
        features: "".into(),
        cpus: 8,
        memory_mib: 0,
        reservation: "".into(),
        has_dependency: false,
        array_throttle: None,
        exit: None,
        mark: Ok(Some(Mark { workload_digest: format!("{number:016x}").into(), ..Mark::default() })),
    }
}
