//! The servers as they are put together: whose turn it is, on the real socket and the real port.

use super::limits::STREAMS_OF_CONNECTION_MAX;
use super::*;
use crate::testing::{NOW, at};
use hyper_util::rt::TokioIo;
use pillion_api::operator_service_client::OperatorServiceClient;
use pillion_api::{PairsRequest, PolicyRequest};
use pillion_auth::{Claimant, Door};
use pillion_config::{Auth, AuthMethod};
use pillion_core::ManualClock;
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{Channel, Uri};

type Client = OperatorServiceClient<Channel>;

/// Long beside what an answer takes, and short beside how long a database that says nothing is waited for.
const SOON: Duration = Duration::from_secs(10);

/// A scheduler's servers, without a method of proving who one is. Its database takes connections and says nothing, so that
/// whoever asks something of it waits.
struct Site {
    config: Scheduler,
    context: Arc<Context>,
    stop: CancellationToken,
    _database: UnixListener,
    _folder: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Site {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let auth = Auth { method: Some(AuthMethod::None), ..Auth::default() };
        let mut config = Scheduler { auth, ..Scheduler::default() };
        config.listen.socket = folder.path().join("scheduler.sock");
        // Free a moment ago.
        config.listen.tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW));
        let context = Arc::new(Context::new(
            Arc::new(ManualClock::new(at(NOW))),
            Arc::new(slurm),
            Arc::new(MemoryStore::new()),
            Arc::new(Agents::default()),
            Settings::default(),
        ));
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let stop = CancellationToken::new();
        let store = Arc::new(PgStore::behind_socket(folder.path()));
        let mut tasks = JoinSet::new();
        spawn_servers(&mut tasks, &config, &context, &engine, (&store, String::new()), &stop).await.unwrap();
        tokio::spawn(async move { while tasks.join_next().await.is_some() {} });
        Self { config, context, stop, _database: database, _folder: folder }
    }

    /// As who we are, by the kernel's word: an operator, for the scheduler runs as the same user.
    async fn on_the_socket(&self) -> Client {
        let path = self.config.listen.socket.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        Client::new(Door::endpoint().connect_with_connector(connector).await.unwrap())
    }

    /// As nobody.
    async fn over_tcp(&self) -> Client {
        let tcp = self.config.listen.tcp;
        let prover = Arc::new(Prover::new(&self.config.auth, Arc::clone(&self.context.clock)));
        let door = Door::new(tcp.ip().to_string(), tcp.port(), Claimant::User, prover);
        Client::new(Arc::new(door).channel(Door::endpoint()).await.unwrap())
    }
}

/// A question that needs the database.
async fn wait_for_an_answer(mut client: Client) -> Option<Code> {
    client.pairs(PairsRequest::default()).await.err().map(|status| status.code())
}

/// One that needs nothing.
async fn is_served(client: &mut Client) -> bool {
    timeout(SOON, client.policy(PolicyRequest {})).await.is_ok_and(|answer| answer.is_ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_callers_line_on_the_socket_has_an_end_and_is_nobody_elses() {
    let site = Site::start().await;
    let mut calls = JoinSet::new();
    // 24 calls of an operator under way, 64 that wait.
    for _ in 0..7 {
        let client = site.on_the_socket().await;
        for _ in 0..STREAMS_OF_CONNECTION_MAX {
            calls.spawn(wait_for_an_answer(client.clone()));
        }
    }
    let first =
        timeout(SOON, calls.join_next()).await.expect("who comes beyond the end of his line is told so");
    assert_eq!(first.unwrap().unwrap(), Some(Code::ResourceExhausted));
    let mut other = site.over_tcp().await;
    assert!(is_served(&mut other).await, "another caller has a line of his own");
    let mut own = site.on_the_socket().await;
    let answer = timeout(SOON, own.policy(PolicyRequest {})).await.expect("an answer");
    assert_eq!(answer.unwrap_err().code(), Code::ResourceExhausted, "by whom he is, not by connection");
    calls.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_only_stand_open_keep_the_next_of_the_same_user_waiting() {
    let site = Site::start().await;
    let most = if rustix::process::geteuid().is_root() { 128 } else { 16 };
    let mut open = Vec::new();
    for _ in 0..most {
        open.push(UnixStream::connect(&site.config.listen.socket).await.unwrap());
    }
    // They are taken in a moment, in any order: until then a later one may be served.
    let next = timeout(SOON, async {
        loop {
            let mut next = site.on_the_socket().await;
            let early = timeout(Duration::from_millis(500), next.policy(PolicyRequest {})).await;
            if early.is_err() {
                return next;
            }
        }
    });
    let mut next = next.await.expect("his places are taken");
    assert!(is_served(&mut site.over_tcp().await).await, "and nobody else's");
    open.clear();
    assert!(is_served(&mut next).await);
}
