//! The agents' service: one stream a node. Each message goes to `ingest` before the next one is read, so a slow database slows
//! the stream and the agent keeps its reports on disk (back-pressure).

use super::{admit, status};
use crate::agents::{Agents, StreamId};
use crate::context::Context;
use crate::ingest::Ingest;
use pillion_auth::Peer;
use pillion_core::report as error_report;
use pillion_core::report::{AgentHello, FromAgent, ToAgent};
use pillion_proto::v1::agent_service_server::AgentService;
use pillion_proto::v1::{AgentMessage, SchedulerMessage};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

/// How many answers may wait for the wire.
const ANSWERS_LENGTH: usize = 64;

/// The service.
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
        let hello = first_message(&mut incoming).await?;
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
        self.ingest.revoke_stale(&hello).await.map_err(|error| status::from_tick(&error))?;
        let conditions = self.ingest.record_conditions(&hello.node, &hello.conditions).await;
        conditions.map_err(|error| status::from_tick(&error))?;
        info!(node = %hello.node, version = hello.agent_version, devices = hello.devices.len(), "agent attached");
        let (answers, outgoing) = mpsc::channel(ANSWERS_LENGTH);
        // Tells the agent at once what arrived before its last stream broke.
        let _ = answers.send(Ok(ToAgent::Ack(last).into())).await;
        let session = Session { ingest: Arc::clone(&self.ingest), context, stream, hello, answers };
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = session.run(incoming, inbox) => {}
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
            let sent = match answer {
                Ok(None) => continue,
                Ok(Some(order)) => self.answers.send(Ok(order.into())).await,
                Err(status) => {
                    warn!(node = %self.hello.node, error = status.message(), "agent's stream ended");
                    let _ = self.answers.send(Err(status)).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn received(&self, message: AgentMessage) -> Result<Option<ToAgent>, Status> {
        self.agents().heard(&self.stream, self.context.now());
        let sequence = sequence_of(&message);
        let message = match (FromAgent::try_from(message), sequence) {
            (Ok(message), _) => message,
            // It would come again for ever: told to the log, and acknowledged.
            (Err(error), Some(sequence)) => {
                let error = pillion_core::error::report(&error);
                warn!(node = %self.hello.node, sequence, error, "a report that cannot be read is skipped");
                return Ok(Some(ToAgent::Ack(sequence)));
            }
            (Err(error), None) => return Err(Status::invalid_argument(pillion_core::error::report(&error))),
        };
        match message {
            FromAgent::Hello(_) => Err(Status::invalid_argument("Hello may come once a stream")),
            FromAgent::Report(report) => {
                let (node, journal) = (&self.hello.node, &self.hello.journal_id);
                let ack = self.ingest.report(node, journal, &report).await;
                ack.map(Some).map_err(|error| status::from_tick(&error))
            }
            FromAgent::Conditions(conditions) => {
                let done = self.ingest.conditions(&self.stream, &conditions).await;
                done.map(|()| None).map_err(|error| status::from_tick(&error))
            }
            FromAgent::ShareResult(result) => {
                let done = self.ingest.share_result(&self.hello.node, &result).await;
                done.map(|()| None).map_err(|error| status::from_tick(&error))
            }
        }
    }
}

const fn sequence_of(message: &AgentMessage) -> Option<u64> {
    match &message.body {
        Some(pillion_proto::v1::agent_message::Body::Report(report)) => Some(report.sequence),
        _ => None,
    }
}
