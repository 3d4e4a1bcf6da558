//! The scheduler's end: takes connections, and gives those of whom it knows who they are to gRPC. Nothing of gRPC is read from
//! anybody else.

use crate::claim::{Answer, Claim, Claimant, Method};
use crate::error::AuthError;
use crate::limits::{HANDSHAKE_DURATION_MAX, HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX};
use crate::prover::Prover;
use crate::refusals::Refusals;
use crate::{frame, tls};
use pillion_core::{NodeName, UserId};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

/// How many that were let in may wait for gRPC.
const WELCOMED_LENGTH: usize = 64;
/// After a connection could not be taken (no file number was left), the next is looked for so much later.
const BREATH: Duration = Duration::from_millis(100);

/// Who somebody was proven to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The agent of this node.
    Agent(NodeName),
    /// This user.
    User(UserId),
    /// Whoever runs something on this machine (`auth.method = "none"`).
    Nobody,
}

/// The other end of a connection; in the extensions of each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// From where it came.
    pub address: SocketAddr,
    /// Who it is.
    pub identity: Identity,
}

/// Lets in who proves who he is.
pub struct Gate {
    tls: TlsAcceptor,
    prover: Arc<Prover>,
    refusals: Arc<Refusals>,
    places: Arc<Semaphore>,
    by_address: Mutex<BTreeMap<IpAddr, usize>>,
}

impl Gate {
    /// A gate, with a certificate made now or the site's.
    ///
    /// # Errors
    /// [`AuthError::Away`] where TLS cannot be set up.
    pub fn new(prover: Arc<Prover>, refusals: Arc<Refusals>) -> Result<Self, AuthError> {
        let tls = TlsAcceptor::from(Arc::new(tls::server(prover.auth())?));
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        Ok(Self { tls, prover, refusals, places, by_address: Mutex::default() })
    }

    /// Takes connections until `stop`.
    pub fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> ReceiverStream<io::Result<Welcomed>> {
        let (welcomed, stream) = mpsc::channel(WELCOMED_LENGTH);
        tokio::spawn(async move {
            // Dropped at the end, and with it all that is under way.
            let mut tasks = JoinSet::new();
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.accept(&listener, &mut tasks, &welcomed) => {}
            }
        });
        ReceiverStream::new(stream)
    }

    async fn accept(
        self: &Arc<Self>,
        listener: &TcpListener,
        tasks: &mut JoinSet<()>,
        welcomed: &mpsc::Sender<io::Result<Welcomed>>,
    ) {
        while let Ok(place) = Arc::clone(&self.places).acquire_owned().await {
            while tasks.try_join_next().is_some() {}
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!(%error, "a connection could not be taken");
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
            };
            let Some(turn) = self.turn(address.ip().to_canonical()) else { continue };
            let (gate, welcomed) = (Arc::clone(self), welcomed.clone());
            tasks.spawn(async move {
                let entered =
                    tokio::time::timeout(HANDSHAKE_DURATION_MAX, gate.welcome(stream, address)).await;
                drop((place, turn));
                match entered {
                    Ok(Ok(one)) => drop(welcomed.send(Ok(one)).await),
                    Ok(Err(error)) => debug!(%address, %error, "a connection did not come about"),
                    Err(_) => debug!(%address, "somebody took too long to say who he is"),
                }
            });
        }
    }

    /// A place among those of its address; `None`: it has enough of them.
    fn turn(self: &Arc<Self>, address: IpAddr) -> Option<Turn> {
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Turn { gate: Arc::clone(self), address })
    }

    async fn welcome(&self, stream: TcpStream, address: SocketAddr) -> Result<Welcomed, AuthError> {
        let _ = stream.set_nodelay(true);
        let stream = self.tls.accept(stream).await;
        let mut stream =
            stream.map_err(|error| AuthError::Unreachable(format!("no TLS of ours was spoken: {error}")))?;
        let connection = stream.get_ref().1;
        let exporter = tls::exporter(connection)?;
        let certificate =
            connection.peer_certificates().and_then(|chain| chain.first()).map(|it| it.clone().into_owned());
        let claim = Claim::parse(&frame::receive(&mut stream).await?)?;
        let (claimant, asked) = (claim.claimant.clone(), claim);
        let ip = address.ip().to_canonical();
        let judged = if asked.method == Method::None && !ip.is_loopback() {
            // The configuration is refused before; this is the last door.
            Err(AuthError::Away("auth.method = \"none\" is for one machine only".to_owned()))
        } else {
            let judge = move |prover: &Prover| {
                let judged = prover.judge(&asked, &exporter, certificate.as_ref())?;
                Ok((prover.answer(&asked, &judged, &exporter)?, judged.identity))
            };
            self.prover.ask(judge).await
        };
        match judged {
            Ok((proof, identity)) => {
                frame::send(&mut stream, &Answer::Welcome(proof).to_text()).await?;
                // An agent is in when its node is found to be one of the pool, too.
                if claimant == Claimant::User {
                    self.refusals.forget(ip, &claimant);
                }
                Ok(Welcomed { stream, peer: Peer { address, identity } })
            }
            Err(error) => {
                if self.refusals.note(ip, &claimant, error.told(), self.prover.clock().now()) {
                    warn!(%address, who = %claimant, why = error.told(), "not let in");
                }
                frame::send(&mut stream, &Answer::refusal(&error).to_text()).await?;
                let _ = stream.shutdown().await;
                Err(error)
            }
        }
    }
}

/// One of the places of an address; given back with this.
struct Turn {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.gate.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// A connection of somebody who was let in.
pub struct Welcomed {
    stream: TlsStream<TcpStream>,
    peer: Peer,
}

impl Connected for Welcomed {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Welcomed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Welcomed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
