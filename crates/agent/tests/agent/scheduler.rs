//! A scheduler that believes what it is told, and can go away.

use pillion_auth::{Gate, Prover};
use pillion_config::{Auth, AuthMethod};
use pillion_core::health::DeviceCondition;
use pillion_core::report::{
    AgentHello, EndOrder, EndOutcome, EndResult, FromAgent, ReportBody, ShareResult, ToAgent,
};
use pillion_core::share::Share;
use pillion_core::{DecisionId, JobStart, SystemClock};
use pillion_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use pillion_proto::v1::{AgentMessage, SchedulerMessage};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `holds`, and fails by name if it never does.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain for {what}");
}

#[derive(Default)]
struct Heard {
    hellos: Vec<AgentHello>,
    hellos_taken: usize,
    /// Everything, also what came twice: journal, sequence, body.
    received: Vec<(String, u64, ReportBody)>,
    results: Vec<ShareResult>,
    ends: Vec<EndResult>,
    /// As they were told last.
    conditions: Vec<DeviceCondition>,
    is_deaf: bool,
    outgoing: Option<mpsc::Sender<Result<SchedulerMessage, Status>>>,
}

#[derive(Clone, Default)]
struct Service(Arc<Mutex<Heard>>);

#[tonic::async_trait]
impl AgentService for Service {
    type AttachStream = ReceiverStream<Result<SchedulerMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut incoming = request.into_inner();
        let (outgoing, messages) = mpsc::channel(64);
        let heard = Arc::clone(&self.0);
        heard.lock().unwrap().outgoing = Some(outgoing.clone());
        tokio::spawn(async move {
            let mut journal = String::new();
            while let Ok(Some(message)) = incoming.message().await {
                let acknowledged = {
                    let mut heard = heard.lock().unwrap();
                    match FromAgent::try_from(message).expect("the agent makes sense") {
                        FromAgent::Hello(hello) => {
                            journal.clone_from(&hello.journal_id);
                            heard.conditions.clone_from(&hello.conditions);
                            heard.hellos.push(hello);
                            None
                        }
                        FromAgent::ShareResult(result) => {
                            heard.results.push(result);
                            None
                        }
                        FromAgent::EndResult(result) => {
                            heard.ends.push(result);
                            None
                        }
                        FromAgent::Conditions(conditions) => {
                            heard.conditions = conditions;
                            None
                        }
                        FromAgent::Report(report) => {
                            heard.received.push((journal.clone(), report.sequence, report.body));
                            Some(report.sequence).filter(|_| !heard.is_deaf)
                        }
                    }
                };
                if let Some(sequence) = acknowledged {
                    let _ = outgoing.send(Ok(ToAgent::Ack(sequence).into())).await;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// The scheduler, in a runtime of its own: when it goes, its connections go with it.
pub(crate) struct FakeScheduler {
    service: Service,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl FakeScheduler {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut scheduler = Self { service: Service::default(), address, runtime: None };
        scheduler.serve(listener);
        scheduler
    }

    fn serve(&mut self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = self.service.clone();
        runtime.spawn(async move {
            let auth = Auth { method: Some(AuthMethod::None), ..Auth::default() };
            let prover = Arc::new(Prover::new(&auth, Arc::new(SystemClock)));
            let gate = Arc::new(Gate::new(prover, Arc::default(), Arc::default()).unwrap());
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = gate.serve(listener, CancellationToken::new());
            let service = AgentServiceServer::new(service);
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// Goes away, connections and all.
    pub(crate) fn stop(&mut self) {
        self.heard(|heard| heard.outgoing = None);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Comes back at the same address.
    pub(crate) async fn start_again(&mut self) {
        self.heard(|heard| heard.is_deaf = false);
        let mut listener = None;
        eventually("the address to be free", || {
            listener = TcpListener::bind(self.address).ok();
            listener.is_some()
        })
        .await;
        self.serve(listener.expect("just bound"));
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    fn heard<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.service.0.lock().unwrap())
    }

    pub(crate) fn stop_acknowledging(&self) {
        self.heard(|heard| heard.is_deaf = true);
    }

    /// The next introduction.
    pub(crate) async fn hello(&self) -> AgentHello {
        eventually("an agent to attach", || self.heard(|heard| heard.hellos.len() > heard.hellos_taken))
            .await;
        self.heard(|heard| {
            heard.hellos_taken += 1;
            heard.hellos[heard.hellos_taken - 1].clone()
        })
    }

    async fn send(&self, message: ToAgent) {
        let outgoing = self.heard(|heard| heard.outgoing.clone()).expect("an agent is attached");
        outgoing.send(Ok(message.into())).await.expect("an agent is attached");
    }

    pub(crate) async fn prepare(&self, share: Share) {
        self.send(ToAgent::Prepare(share)).await;
    }

    pub(crate) async fn revoke(&self, decision_id: DecisionId, start: JobStart) {
        self.send(ToAgent::Revoke { decision_id, start }).await;
    }

    /// The last answer for a start.
    pub(crate) async fn result(&self, start: JobStart) -> ShareResult {
        let last = || self.heard(|heard| heard.results.iter().rfind(|it| it.start == start).cloned());
        eventually("an answer to a share", || last().is_some()).await;
        last().unwrap()
    }

    pub(crate) async fn end(&self, start: JobStart, order: EndOrder) {
        self.send(ToAgent::End { start, order }).await;
    }

    /// What became of orders to end this start, in order.
    pub(crate) fn ends(&self, start: JobStart) -> Vec<EndOutcome> {
        self.heard(|heard| {
            let of_start = heard.ends.iter().filter(|it| it.start == start);
            of_start.map(|it| it.outcome.clone()).collect()
        })
    }

    pub(crate) fn is_revoked(&self, start: JobStart) -> bool {
        self.heard(|heard| heard.results.iter().any(|it| it.start == start && it.revoked))
    }

    /// Waits until the devices are told to be so.
    pub(crate) async fn conditions(&self, what: &str, are_so: impl Fn(&[DeviceCondition]) -> bool) {
        eventually(what, || self.heard(|heard| are_so(&heard.conditions))).await;
    }

    pub(crate) fn forget_conditions(&self) {
        self.heard(|heard| heard.conditions.clear());
    }

    /// The first report that `finds` something.
    pub(crate) async fn report<T>(&self, finds: impl Fn(&ReportBody) -> Option<T>) -> T {
        let found = || self.heard(|heard| heard.received.iter().find_map(|(_, _, body)| finds(body)));
        eventually("a report", || found().is_some()).await;
        found().unwrap()
    }

    /// Everything that came, also twice.
    pub(crate) fn received(&self) -> Vec<(String, u64, ReportBody)> {
        self.heard(|heard| heard.received.clone())
    }

    /// Each report once, as the store keeps them.
    pub(crate) fn bodies(&self) -> Vec<ReportBody> {
        let once: BTreeMap<_, _> = self
            .received()
            .into_iter()
            .map(|(journal, sequence, body)| ((journal, sequence), body))
            .collect();
        once.into_values().collect()
    }
}

impl Drop for FakeScheduler {
    fn drop(&mut self) {
        self.stop();
    }
}
