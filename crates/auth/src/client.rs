//! The end of an agent or of the command line: a connection to a scheduler that has proven that it is one.

use crate::claim::{Answer, Claim, Claimant, Method};
use crate::error::{AuthError, Denial};
use crate::limits::HANDSHAKE_DURATION_MAX;
use crate::prover::Prover;
use crate::{frame, tls};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The way to one scheduler.
pub struct Door {
    host: String,
    port: u16,
    claimant: Claimant,
    prover: Arc<Prover>,
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Door {
    /// To the scheduler at this host and port, as this claimant.
    pub fn new(host: impl Into<String>, port: u16, claimant: Claimant, prover: Arc<Prover>) -> Self {
        Self { host: host.into(), port, claimant, prover }
    }

    /// A connection on which both ends are known.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn enter(&self) -> Result<TlsStream<TcpStream>, AuthError> {
        let passed = tokio::time::timeout(HANDSHAKE_DURATION_MAX, self.pass()).await;
        passed.unwrap_or_else(|_| {
            Err(AuthError::Unreachable(format!("no answer within {} s", HANDSHAKE_DURATION_MAX.as_secs())))
        })
    }

    async fn pass(&self) -> Result<TlsStream<TcpStream>, AuthError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| AuthError::Unreachable(error.to_string()))?;
        let peer = stream.peer_addr().map_err(|error| AuthError::Unreachable(error.to_string()))?;
        self.prove(stream, peer).await
    }

    /// Makes both ends known to each other on a connection to this address.
    pub(crate) async fn prove(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, AuthError> {
        let _ = stream.set_nodelay(true);
        let is_here = peer.ip().to_canonical().is_loopback();
        let with_site = self.prover.method() == Method::Mtls && self.claimant != Claimant::User;
        let connector = TlsConnector::from(Arc::new(tls::client(self.prover.auth(), with_site)?));
        let name = tls::server_name(&self.host, with_site)?;
        let stream = connector.connect(name, stream).await;
        let mut stream = stream.map_err(|error| AuthError::Unreachable(error.to_string()))?;
        let exporter = tls::exporter(stream.get_ref().1)?;
        let claimant = self.claimant.clone();
        let claim = self.prover.ask(move |prover| prover.claim(&claimant, &exporter)).await?;
        if claim.method == Method::None && !is_here {
            return Err(AuthError::Unavailable("auth.method = \"none\" is for one machine only".to_owned()));
        }
        frame::send(&mut stream, &claim.to_text()).await?;
        self.hear(&mut stream, claim, exporter).await?;
        Ok(stream)
    }

    async fn hear(
        &self,
        stream: &mut TlsStream<TcpStream>,
        claim: Claim,
        exporter: crate::Exporter,
    ) -> Result<(), AuthError> {
        match Answer::parse(&frame::receive(stream).await?)? {
            Answer::Welcome(proof) => {
                let checked =
                    self.prover.ask(move |prover| prover.check_answer(&claim, &exporter, &proof)).await;
                checked.map_err(|error| match error {
                    AuthError::Denied(denial) => {
                        let why = format!("who answers there does not prove to be the scheduler: {denial}");
                        AuthError::Denied(Denial::Remote(why))
                    }
                    other => other,
                })
            }
            Answer::Unavailable(why) => Err(AuthError::Unavailable(why)),
            Answer::Denied(why) => Err(AuthError::Denied(Denial::Remote(why))),
        }
    }

    /// A channel that connects, and connects again when it has broken, through this door.
    ///
    /// # Errors
    /// [`AuthError`] of the first connection.
    pub async fn channel(self: &Arc<Self>, endpoint: Endpoint) -> Result<Channel, AuthError> {
        let door = Arc::clone(self);
        let connector = tower::service_fn(move |_: Uri| {
            let door = Arc::clone(&door);
            async move { door.enter().await.map(TokioIo::new) }
        });
        endpoint.connect_with_connector(connector).await.map_err(|error| reason(&error))
    }

    /// The address that gRPC asks for; the connector decides where it goes.
    pub fn endpoint() -> Endpoint {
        Endpoint::from_static("http://pillion.invalid")
    }
}

/// Why a channel did not come about: our own reason where it is one.
fn reason(error: &tonic::transport::Error) -> AuthError {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        if let Some(own) = cause.downcast_ref::<AuthError>() {
            return own.clone();
        }
        text = cause.to_string();
        source = cause.source();
    }
    AuthError::Unreachable(text)
}
