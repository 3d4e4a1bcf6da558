//! How large what comes over the wire may be, and how long a connection may say nothing: who reads it all before he looks at it
//! can be filled by anybody.

use pillion_api::operator_service_server::{OperatorService, OperatorServiceServer};
use pillion_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Server;

/// Explanations and whole views are larger than tonic's default of 4 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What people ask is short.
const QUESTION_BYTES_MAX: usize = 256 << 10;
/// What an agent reports at once is of one node.
const AGENT_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How many calls a connection may have under way.
pub(crate) const STREAMS_OF_CONNECTION_MAX: u32 = 16;
/// How often the other end is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A server, over TCP or the Unix socket, with the limits of each of its connections.
pub(crate) fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .max_concurrent_streams(Some(STREAMS_OF_CONNECTION_MAX))
}

/// The operators' and users' service, with its limits.
pub(crate) fn operators<T: OperatorService>(server: Arc<T>) -> OperatorServiceServer<T> {
    OperatorServiceServer::from_arc(server)
        .max_encoding_message_size(ANSWER_BYTES_MAX)
        .max_decoding_message_size(QUESTION_BYTES_MAX)
}

/// The agents' service, with its limits.
pub(crate) fn agents<T: AgentService>(server: T) -> AgentServiceServer<T> {
    AgentServiceServer::new(server).max_decoding_message_size(AGENT_MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::engine::Engine;
    use crate::grpc::agent::AgentServer;
    use crate::grpc::auth::Caller;
    use crate::grpc::operator::OperatorServer;
    use crate::testing::{self, scan};
    use pillion_api::operator_service_client::OperatorServiceClient;
    use pillion_api::{PokeRequest, QueueRequest};
    use pillion_auth::{Identity, Peer};
    use pillion_core::NodeName;
    use pillion_core::UserId;
    use pillion_proto::v1::agent_service_client::AgentServiceClient;
    use pillion_proto::v1::{AgentMessage, Device, Hello, agent_message};
    use pillion_slurm::NodeAvailability;
    use pillion_store::postgres::PgStore;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, UnixListener, UnixStream};
    use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
    use tokio_util::sync::CancellationToken;
    use tonic::Code;
    use tonic::metadata::MetadataValue;
    use tonic::service::interceptor::InterceptedService;

    /// Both services, and the agents that they know of. Slurm has the node n1 in the pool.
    async fn served() -> (SocketAddr, Arc<Context>) {
        let context = testing::context();
        let mut seen = scan(None, NodeAvailability::Up);
        seen.nodes.iter_mut().for_each(|node| node.address = "127.0.0.1".to_owned());
        context.board_mut().scan = Some(Arc::new(seen));
        let operator = testing::operator(&context);
        let agent = AgentServer::new(Arc::clone(&context), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::builder()
            .add_service(InterceptedService::new(agents(agent), proven))
            .add_service(operators(Arc::new(operator)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        (address, context)
    }

    /// Whoever comes has proven to be the node that it says.
    #[expect(clippy::unnecessary_wraps, reason = "an interceptor's own type")]
    fn proven(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        let node = request.metadata().get("node").and_then(|node| node.to_str().ok()).unwrap_or("n1");
        let identity = Identity::Agent(NodeName::new(node));
        request.extensions_mut().insert(Peer { address: ([127, 0, 0, 1], 40_000).into(), identity });
        Ok(request)
    }

    fn hello(node: &str, device_count: usize, detail: usize) -> AgentMessage {
        let device = Device {
            uuid: "GPU-1".into(),
            model: "m".repeat(detail),
            gres_type: "g0".into(),
            mechanism: "mps".into(),
            ..Device::default()
        };
        let hello = Hello {
            protocol_version: pillion_core::report::PROTOCOL_VERSION,
            node: node.into(),
            journal_id: "j".into(),
            devices: vec![device; device_count],
            ..Hello::default()
        };
        AgentMessage { body: Some(agent_message::Body::Hello(hello)) }
    }

    async fn attach(address: SocketAddr, message: AgentMessage) -> Result<(), Code> {
        attach_as("n1", address, message).await
    }

    async fn attach_as(node: &'static str, address: SocketAddr, message: AgentMessage) -> Result<(), Code> {
        let mut client = AgentServiceClient::connect(format!("http://{address}")).await.unwrap();
        let mut request = tonic::Request::new(tokio_stream::iter([message]));
        request.metadata_mut().insert("node", MetadataValue::from_static(node));
        let attached = client.attach(request).await;
        attached.map(drop).map_err(|status| status.code())
    }

    /// As it was tried: six Hellos of 60 MiB made the scheduler 2 GB large, and its answers unreadable.
    #[tokio::test]
    async fn a_hello_without_measure_is_refused_and_nothing_is_kept_of_it() {
        let (address, context) = served().await;
        let huge = attach(address, hello("n1", 60, 1 << 20)).await;
        assert!(matches!(huge, Err(Code::OutOfRange | Code::ResourceExhausted)), "{huge:?}");
        assert_eq!(
            attach(address, hello("n1", 65, 1)).await,
            Err(Code::InvalidArgument),
            "no node has so many"
        );
        assert_eq!(attach(address, hello("n1\nforged", 1, 1)).await, Err(Code::InvalidArgument));
        let invented = attach_as("invented", address, hello("invented", 1, 1)).await;
        assert_eq!(invented, Err(Code::PermissionDenied));
        assert!(context.agents.all().is_empty());
        assert_eq!(attach(address, hello("n1", 1, 1)).await, Ok(()));
        assert_eq!(context.agents.all().len(), 1);
    }

    /// As it was tried: eight requests of 57 MB by a user made it 1.4 GB large.
    #[tokio::test]
    async fn a_question_without_measure_is_refused() {
        let (address, _) = served().await;
        let mut client = OperatorServiceClient::connect(format!("http://{address}")).await.unwrap();
        for (bytes, is_read) in [(57_000_000, false), (300 << 10, false), (200 << 10, true)] {
            let asked = client.queue(QueueRequest { user: "x".repeat(bytes) }).await;
            let code = asked.err().map(|status| status.code());
            let is_too_long = matches!(code, Some(Code::OutOfRange | Code::ResourceExhausted));
            assert_eq!(is_too_long, !is_read, "{bytes} bytes: {code:?}");
        }
        assert!(client.queue(QueueRequest { user: "alice".into() }).await.is_ok());
    }

    /// As it was tried: a user poked without end, and the queue was read eight times as often.
    #[tokio::test]
    async fn a_poke_of_a_user_changes_nothing() {
        let (_, context) = served().await;
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let server = OperatorServer::new(
            Arc::clone(&context),
            engine,
            Arc::new(PgStore::behind_socket(std::path::Path::new("/nowhere"))),
            String::new(),
        );
        for (is_operator, wakes) in [(false, false), (true, true)] {
            let mut poke = tonic::Request::new(PokeRequest {});
            poke.extensions_mut().insert(Caller { uid: Some(UserId(4243)), is_operator });
            server.poke(poke).await.unwrap();
            let woken =
                tokio::time::timeout(Duration::from_millis(50), context.nudges.watch.notified()).await;
            assert_eq!(woken.is_ok(), wakes);
        }
    }

    /// What a client of HTTP/2 says first, with settings that are empty.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_and_says_nothing_is_cut_off_on_the_socket_too() {
        let operator = testing::operator(&testing::context());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let connections = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
        let serving = server().add_service(operators(Arc::new(operator))).serve_with_incoming(connections);
        tokio::spawn(serving);
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        tokio::time::sleep(4 * KEEP_ALIVE).await;
        let mut said = Vec::new();
        let over = tokio::time::timeout(3 * KEEP_ALIVE, client.read_to_end(&mut said)).await;
        assert!(over.is_ok(), "it is still open after {said:?}");
    }
}
