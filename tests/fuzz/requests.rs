//! What users, operators and scripts ask: encoded requests of every kind, through the service itself. Whatever is asked is
//! answered, soon, or refused in one plain line.

use crate::fuzz;
use crate::values::bytes_like;
use pillion_api as api;
use pillion_api::operator_service_server::OperatorService as _;
use pillion_core::{ManualClock, UnixTime, UserId};
use pillion_fake_slurm::{FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::grpc::auth::Caller;
use pillion_scheduler::grpc::operator::OperatorServer;
use pillion_scheduler::watch::Watch;
use pillion_store::postgres::PgStore;
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tonic::{Request, Status};

/// Much beside what an answer of an empty site takes, and little beside what nobody would wait for.
const SOON: Duration = Duration::from_secs(5);
/// By the clock of the site, which nobody waits for.
const EVER: Duration = Duration::from_mins(1);

/// A scheduler that has seen its pool, and whose pages find no database.
struct Site {
    runtime: Runtime,
    server: OperatorServer,
}

impl Site {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let now = UnixTime::from_epoch(1_795_000_000);
        let (nodes, pool) = (vec![FakeNode::pool("n1", 2)], vec![FakePartition::new("shared", &["n1"])]);
        let context = Arc::new(Context::new(
            Arc::new(ManualClock::new(now)),
            Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, pool, now)),
            Arc::new(MemoryStore::new()),
            Arc::new(Agents::default()),
            Settings::default(),
        ));
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let server = runtime.block_on(async {
            Watch::new(Arc::clone(&context)).tick().await.unwrap();
            let pages = Arc::new(PgStore::behind_socket(Path::new("/nowhere")));
            OperatorServer::new(context, engine, pages, String::new())
        });
        Self { runtime, server }
    }

    /// Asks as nobody, as a user and as an operator; a refusal is one line that may be shown.
    #[expect(clippy::disallowed_methods, reason = "how long it takes is real time")]
    fn ask<Q, A>(&self, bytes: &[u8], call: &impl AsyncFn(&OperatorServer, Request<Q>) -> Result<A, Status>)
    where
        Q: Message + Default + Clone,
    {
        let Ok(question) = Q::decode(bytes) else { return };
        for (uid, is_operator) in [(None, false), (Some(UserId(1000)), false), (Some(UserId(0)), true)] {
            let mut request = Request::new(question.clone());
            request.extensions_mut().insert(Caller { uid, is_operator });
            let answered = async { tokio::time::timeout(EVER, call(&self.server, request)).await };
            let begun = Instant::now();
            let answer = self.runtime.block_on(answered).expect("an answer");
            assert!(begun.elapsed() < SOON, "it took {} s", begun.elapsed().as_secs());
            if let Err(status) = answer {
                let said = status.message();
                assert!(!said.is_empty() && said.len() < 4_096, "{} bytes", said.len());
                assert!(!said.contains(['\n', '\r', '\u{1b}']), "{said:?}");
            }
        }
    }
}

/// Hostlists that are short and make much.
fn lists() -> Vec<String> {
    vec![
        "n[1-3,7]".to_owned(),
        "n[1-65536]".to_owned() + &"a".repeat(100_000),
        "[".to_owned() + &"0".repeat(100_000) + "1-65536]",
        "n[1-4294967295]".to_owned(),
        "[1-200][1-200],n1".repeat(50),
    ]
}

fn encoded(examples: impl IntoIterator<Item = impl Message>) -> Vec<Vec<u8>> {
    examples.into_iter().map(|example| example.encode_to_vec()).collect()
}

#[test]
fn pages() {
    let cluster = lists().into_iter().map(|nodes| api::ClusterRequest {
        nodes,
        state: "shared".to_owned(),
        mechanism: "mps".to_owned(),
        offset: u32::MAX,
        limit: 500,
    });
    let pairs = lists().into_iter().map(|nodes| api::PairsRequest {
        since_seconds: -1.0,
        until_seconds: f64::INFINITY,
        user: "alice".to_owned(),
        limit: 10,
        nodes,
        workload: "alice/bert".to_owned(),
        ..api::PairsRequest::default()
    });
    let top =
        [api::TopRequest { device_offset: u32::MAX, device_limit: 5, job_offset: u32::MAX, job_limit: 0 }];
    let heatmap =
        [api::HeatmapRequest { since_seconds: 1e300, until_seconds: -0.0, workload: "a/b".to_owned() }];
    let (cluster, pairs) = (encoded(cluster), encoded(pairs));
    let (top, heatmap) = (encoded(top), encoded(heatmap));
    let site = Site::new();
    let values = (
        bytes_like(cluster),
        bytes_like(pairs),
        bytes_like(top),
        bytes_like(heatmap),
        bytes_like(vec![vec![8, 7]]),
    );
    fuzz("requests of pages", &values, |(cluster, pairs, top, heatmap, decided)| {
        site.ask(&cluster, &async |server, request| server.cluster(request).await);
        site.ask(&pairs, &async |server, request| server.pairs(request).await);
        site.ask(&top, &async |server, request| server.top(request).await);
        site.ask(&heatmap, &async |server, request| server.heatmap(request).await);
        site.ask(&decided, &async |server, request| server.decided(request).await);
    });
}

#[test]
fn questions_about_jobs() {
    let text = |text: &str| text.to_owned();
    let job = ["33_2", "4294967295", "7+1", ""].map(|id| api::ExplainRequest { job_id: text(id) });
    let user = ["alice", "a\nb"].map(|user| api::QueueRequest { user: text(user) });
    let account = lists().into_iter().map(|nodes| api::AccountRequest {
        since_seconds: 1.795e9,
        until_seconds: f64::NAN,
        user: text("alice"),
        nodes: vec![nodes, text("n1")],
        group_by: text("day"),
        utc_offset_seconds: i32::MIN,
        ..api::AccountRequest::default()
    });
    let events = lists().into_iter().map(|nodes| api::EventsRequest {
        since_seconds: 0.0,
        until_seconds: 1e308,
        nodes: vec![nodes],
        job_ids: vec![text("33_2"), text("x")],
        kinds: vec![text("overused")],
        limit: u32::MAX,
    });
    let profiles = [api::ProfilesRequest { workload: text("alice/bert"), user: text("alice") }];
    let (job, user, profiles) = (encoded(job), encoded(user), encoded(profiles));
    let idle = [f64::NAN, 0.05].map(|part| api::IdleRequest {
        for_seconds: part,
        busy_below_fraction: part,
        user: text("alice"),
    });
    let rightsize = [0, u32::MAX].map(|run_count_min| api::RightsizeRequest {
        run_count_min,
        user: text("alice"),
        workload: text("alice/bert"),
    });
    let (account, events, idle) = (encoded(account), encoded(events), encoded(idle));
    let rightsize = encoded(rightsize);
    let site = Site::new();
    let values = (
        (bytes_like(job), bytes_like(user), bytes_like(idle), bytes_like(rightsize)),
        (bytes_like(account), bytes_like(events), bytes_like(profiles)),
    );
    fuzz("questions about jobs", &values, |((job, user, idle, rightsize), (account, events, profiles))| {
        site.ask(&rightsize, &async |server, request| server.rightsize(request).await);
        site.ask(&idle, &async |server, request| server.idle(request).await);
        site.ask(&job, &async |server, request| server.explain(request).await);
        site.ask(&job, &async |server, request| server.job(request).await);
        site.ask(&user, &async |server, request| server.queue(request).await);
        site.ask(&account, &async |server, request| server.account(request).await);
        site.ask(&events, &async |server, request| server.events(request).await);
        site.ask(&profiles, &async |server, request| server.profiles(request).await);
        site.ask(&profiles, &async |server, request| server.models(request).await);
    });
}

#[test]
fn orders() {
    let place = |node: &str, gres_type: Option<&str>| api::Place {
        node: node.to_owned(),
        gres_type: gres_type.map(str::to_owned),
    };
    let places = vec![place("n1", None), place("n1", Some("g0")), place("n\u{1b}[2J", Some(""))];
    let many = vec![place("n1", Some("g1")); 2_000];
    let reason = || "fan\nnoise".repeat(100);
    let drain = [places, many].map(|places| api::DrainRequest { places, reason: reason() });
    let evict = [api::EvictRequest { job_id: "33_2".to_owned(), reason: reason() }];
    let (drain, evict) = (encoded(drain), encoded(evict));
    let site = Site::new();
    fuzz("orders", &(bytes_like(drain), bytes_like(evict)), |(drain, evict)| {
        site.ask(&drain, &async |server, request| server.drain(request).await);
        site.ask(&drain, &async |server, request| server.undrain(request).await);
        site.ask(&evict, &async |server, request| server.evict(request).await);
        site.ask(&evict, &async |server, request| server.poke(request).await);
    });
}

#[test]
fn scaling() {
    let names = ["", "a/b", "alice/4x-1f0c", "x-", "bert~1f", "\u{1b}[2J\n"];
    let scale = names.map(|name| api::ScaleRequest { workload: name.to_owned() });
    let site = Site::new();
    fuzz("requests of how workloads scale", &bytes_like(encoded(scale)), |scale| {
        site.ask(&scale, &async |server, request| server.scale(request).await);
    });
}
