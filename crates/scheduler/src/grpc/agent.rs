//! The agents' service: one stream a node. Reports go to `ingest` one after the other, beside all else that comes and goes on
//! the stream; few of them wait, so a slow database slows the stream and the agent keeps its reports on disk (back-pressure).

use super::{admit, status};
use crate::agents::{Agents, StreamId};
use crate::context::Context;
use crate::ingest::Ingest;
use crate::tick_error::TickError;
use pillion_auth::Peer;
use pillion_core::report as error_report;
use pillion_core::report::{AgentHello, FromAgent, Report, ToAgent};
use pillion_proto::v1::agent_service_server::AgentService;
use pillion_proto::v1::{AgentMessage, SchedulerMessage};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

/// How many answers may wait for the wire.
const ANSWERS_LENGTH: usize = 64;
/// How many reports of a stream may wait to be stored; the next one waits on the wire.
const REPORTS_LENGTH: usize = 16;
/// How long a stream may say nothing before its Hello.
const HELLO_DURATION_MAX: Duration = Duration::from_secs(10);
/// When a report is held against Slurm again that nobody could say anything of.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub struct AgentServer {
    context: Arc<Context>,
    ingest: Arc<Ingest>,
    stop: CancellationToken,
}

impl AgentServer {
    /// A service that ends its streams when `stop` is cancelled.
    pub fn new(context: Arc<Context>, stop: CancellationToken) -> Self {
        Self { ingest: Arc::new(Ingest::new(Arc::clone(&context))), context, stop }
    }
}

#[tonic::async_trait]
impl AgentService for AgentServer {
    type AttachStream = ReceiverStream<Result<SchedulerMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let mut incoming = request.into_inner();
        let hello = tokio::time::timeout(HELLO_DURATION_MAX, first_message(&mut incoming)).await;
        let hello = hello.map_err(|_| Status::deadline_exceeded("no Hello came"))??;
        let context = Arc::clone(&self.context);
        tokio::select! {
            () = self.stop.cancelled() => return Err(Status::unavailable("the scheduler stops")),
            admitted = admit::admit(&context, peer.as_ref(), &hello) => admitted?,
        }
        tokio::select! {
            () = self.stop.cancelled() => return Err(Status::unavailable("the scheduler stops")),
            vacated = admit::vacated(&context, &hello) => vacated?,
        }
        let now = context.now();
        context
            .store
            .record_devices(&hello.node, &hello.devices, now)
            .await
            .map_err(|error| status::from_store(&error))?;
        let last = context.store.last_sequence(&hello.node, &hello.journal_id).await;
        let last = last.map_err(|error| status::from_store(&error))?;
        let (stream, inbox) = context.agents.connect_vacant(&hello, now).ok_or_else(admit::taken)?;
        context.endings.agent_came(&hello.node);
        context.board_mut().amiss.setup_backoff.forget(&hello.node);
        self.ingest.revoke_stale(&hello).await.map_err(|error| status::from_tick(&error))?;
        let conditions = self.ingest.record_conditions(&hello.node, &hello.conditions).await;
        conditions.map_err(|error| status::from_tick(&error))?;
        info!(node = %hello.node, version = hello.agent_version, devices = hello.devices.len(), "agent attached");
        let (answers, outgoing) = mpsc::channel(ANSWERS_LENGTH);
        // Tells the agent at once what arrived before its last stream broke.
        let _ = answers.send(Ok(ToAgent::Ack(last).into())).await;
        let (reports, queue) = mpsc::channel(REPORTS_LENGTH);
        let session = Session { ingest: Arc::clone(&self.ingest), context, stream, hello, answers, reports };
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = session.run(incoming, inbox) => {}
                () = session.keep(queue) => {}
                () = another_leads(&session.context) => {
                    let _ = session.answers.send(Err(admit::another_leads())).await;
                }
            }
            session.agents().disconnect(&session.stream);
            info!(node = %session.hello.node, "agent detached");
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

/// Returns when another scheduler is known to lead.
async fn another_leads(context: &Context) {
    // The sender lives as long as the context.
    let _ = context.following().wait_for(|following| *following).await;
}

async fn first_message(incoming: &mut Streaming<AgentMessage>) -> Result<AgentHello, Status> {
    let message =
        incoming.message().await?.ok_or_else(|| Status::invalid_argument("the stream ended before Hello"))?;
    match FromAgent::try_from(message) {
        Ok(FromAgent::Hello(hello)) if hello.protocol_version == error_report::PROTOCOL_VERSION => Ok(hello),
        Ok(FromAgent::Hello(hello)) => Err(Status::failed_precondition(format!(
            "agent speaks protocol {}, this scheduler speaks {}",
            hello.protocol_version,
            error_report::PROTOCOL_VERSION
        ))),
        Ok(_) => Err(Status::invalid_argument("the first message must be Hello")),
        Err(error) => Err(Status::invalid_argument(pillion_core::error::report(&error))),
    }
}

struct Session {
    ingest: Arc<Ingest>,
    context: Arc<Context>,
    stream: StreamId,
    hello: AgentHello,
    answers: mpsc::Sender<Result<SchedulerMessage, Status>>,
    reports: mpsc::Sender<Arrived>,
}

/// Something that an agent reports once, in the order of its journal: each is acknowledged with all before it.
enum Arrived {
    Report(Box<Report>),
    /// It would come again for ever, and is skipped.
    Unreadable(u64),
}

impl Session {
    fn agents(&self) -> &Agents {
        &self.context.agents
    }

    async fn run(&self, mut incoming: Streaming<AgentMessage>, mut inbox: mpsc::Receiver<ToAgent>) {
        loop {
            let answer = tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => Ok(Some(order)),
                    // A newer stream of this node took over.
                    None => return,
                },
                message = incoming.message() => match message {
                    Ok(Some(message)) => self.received(message).await,
                    Ok(None) | Err(_) => return,
                },
            };
            let is_open = match answer {
                Ok(None) => true,
                Ok(Some(order)) => self.answers.send(Ok(order.into())).await.is_ok(),
                Err(status) => self.fail(status).await,
            };
            if !is_open {
                return;
            }
        }
    }

    /// Stores what arrived, one after the other, beside everything else that the stream is for: some of it waits until Slurm
    /// was scanned again.
    async fn keep(&self, mut queue: mpsc::Receiver<Arrived>) {
        while let Some(arrived) = queue.recv().await {
            let is_open = match self.stored(&arrived).await {
                Ok(sequence) => self.answers.send(Ok(sequence.into())).await.is_ok(),
                Err(error) => self.fail(status::from_tick(&error)).await,
            };
            if !is_open {
                return;
            }
        }
    }

    async fn stored(&self, arrived: &Arrived) -> Result<ToAgent, TickError> {
        let report = match arrived {
            Arrived::Report(report) => report,
            Arrived::Unreadable(sequence) => return Ok(ToAgent::Ack(*sequence)),
        };
        loop {
            let (node, journal) = (&self.hello.node, &self.hello.journal_id);
            if let Some(ack) = self.ingest.report(node, journal, report).await? {
                return Ok(ack);
            }
            self.context.nudges.watch.notify_one();
            tokio::time::sleep(TRIED_AGAIN_AFTER).await;
        }
    }

    /// Ends the stream: the agent comes again. `false`, for whoever asks whether it is open.
    async fn fail(&self, status: Status) -> bool {
        warn!(node = %self.hello.node, error = status.message(), "agent's stream ended");
        let _ = self.answers.send(Err(status)).await;
        false
    }

    async fn received(&self, message: AgentMessage) -> Result<Option<ToAgent>, Status> {
        self.agents().heard(&self.stream, self.context.now());
        let sequence = sequence_of(&message);
        let message = match (FromAgent::try_from(message), sequence) {
            (Ok(message), _) => message,
            // It would come again for ever: logged, and acknowledged.
            (Err(error), Some(sequence)) => {
                let why = pillion_core::error::report(&error);
                let answered = self.ingest.unreadable(&self.hello.node, sequence, &why).await;
                answered.map_err(|error| status::from_tick(&error))?;
                return self.arrived(Arrived::Unreadable(sequence)).await;
            }
            (Err(error), None) => return Err(Status::invalid_argument(pillion_core::error::report(&error))),
        };
        match message {
            FromAgent::Hello(_) => Err(Status::invalid_argument("Hello may come once a stream")),
            FromAgent::Report(report) => self.arrived(Arrived::Report(Box::new(report))).await,
            FromAgent::Conditions(conditions) => {
                let done = self.ingest.conditions(&self.stream, &conditions).await;
                done.map(|()| None).map_err(|error| status::from_tick(&error))
            }
            FromAgent::EndResult(result) => {
                let done = self.context.endings.result(&self.context, &self.hello.node, &result).await;
                done.map(|()| None).map_err(|error| status::from_tick(&error))
            }
            FromAgent::ShareResult(result) => {
                let done = self.ingest.share_result(&self.hello.node, &result).await;
                done.map(|()| None).map_err(|error| status::from_tick(&error))
            }
        }
    }
}

impl Session {
    /// Waits for a place in the queue: a slow database slows the stream, and the agent keeps its reports on disk.
    async fn arrived(&self, arrived: Arrived) -> Result<Option<ToAgent>, Status> {
        let sent = self.reports.send(arrived).await;
        sent.map(|()| None).map_err(|_| Status::aborted("the stream is ending"))
    }
}

const fn sequence_of(message: &AgentMessage) -> Option<u64> {
    match &message.body {
        Some(pillion_proto::v1::agent_message::Body::Report(report)) => Some(report.sequence),
        _ => None,
    }
}
