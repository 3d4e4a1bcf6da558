//! The scheduler's end: takes connections, and gives those of whom it knows who they are to gRPC. Nothing of gRPC is read from
//! anybody else.

use crate::claim::{Answer, Claim, Claimant, Method};
use crate::error::AuthError;
use crate::identity::Identity;
use crate::limits::{CONNECTIONS_PER_ADDRESS_MAX, HANDSHAKE_DURATION_MAX, HANDSHAKES_MAX};
use crate::prover::Prover;
use crate::refusals::Refusals;
use crate::{frame, tls};
use pillion_doors::{Cause, Doors, Held, Permit, Permits, Place, TurnedAway};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How many that were let in may wait for gRPC.
const WELCOMED_LENGTH: usize = 64;

/// The other end of a connection; in the extensions of each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// From where it came.
    pub address: SocketAddr,
    /// Who it is.
    pub identity: Identity,
}

/// A connection of somebody who was let in, with its permits.
pub type Welcomed = Held<TlsStream<TcpStream>, Peer, HeldPermits>;

/// One among those of its address, and one among those of its user or node.
type HeldPermits = (Permit<IpAddr>, Permit<Identity>);

/// Lets in who proves who he is.
pub struct Gate {
    tls: TlsAcceptor,
    prover: Arc<Prover>,
    refusals: Arc<Refusals>,
    turned_away: Arc<TurnedAway>,
    /// Of those who have not said yet who they are.
    doors: Arc<Doors>,
    by_address: Arc<Permits<IpAddr>>,
    by_identity: Arc<Permits<Identity>>,
}

impl Gate {
    /// A gate, with a certificate made now or the site's.
    ///
    /// # Errors
    /// [`AuthError::Unavailable`] where TLS cannot be set up.
    pub fn new(
        prover: Arc<Prover>,
        refusals: Arc<Refusals>,
        turned_away: Arc<TurnedAway>,
    ) -> Result<Self, AuthError> {
        let tls = TlsAcceptor::from(Arc::new(tls::server(prover.auth())?));
        let doors = Arc::new(Doors::new(HANDSHAKES_MAX));
        let (by_address, by_identity) = (Arc::default(), Arc::default());
        Ok(Self { tls, prover, refusals, turned_away, doors, by_address, by_identity })
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
            let meet = |stream: TcpStream| {
                let (peer, local) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
                let place = Arc::clone(&self.doors).enter((peer, local));
                Some(Arc::clone(&self).meet(stream, peer, place, welcomed.clone()))
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = pillion_doors::take(&listener, &mut tasks, meet) => {}
            }
        });
        ReceiverStream::new(stream)
    }

    async fn meet(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        place: Place,
        welcomed: mpsc::Sender<io::Result<Welcomed>>,
    ) {
        let entered = tokio::select! {
            () = place.evicted() => {
                self.turned_away.note(Cause::Unproven, &address.ip().to_canonical());
                return;
            }
            entered = tokio::time::timeout(HANDSHAKE_DURATION_MAX, self.welcome(stream, address)) => entered,
        };
        drop(place);
        match entered {
            Ok(Ok(one)) => drop(welcomed.send(Ok(one)).await),
            Ok(Err(error)) => debug!(%address, %error, "a connection did not come about"),
            Err(_) => debug!(%address, "somebody took too long to say who he is"),
        }
    }

    /// Permits of somebody who has proven who he is.
    fn permits(&self, address: IpAddr, identity: &Identity) -> Result<HeldPermits, AuthError> {
        let of_identity = identity.connections_max();
        let by_identity = self.by_identity.acquire(identity.clone(), of_identity);
        let by_identity = by_identity.ok_or_else(|| self.too_many(Cause::Identity, identity, of_identity))?;
        let by_address = self.by_address.acquire(address, CONNECTIONS_PER_ADDRESS_MAX);
        let by_address =
            by_address.ok_or_else(|| self.too_many(Cause::Address, &address, CONNECTIONS_PER_ADDRESS_MAX))?;
        Ok((by_address, by_identity))
    }

    /// Why somebody gets no further connection, which is counted.
    fn too_many(&self, cause: Cause, who: &dyn std::fmt::Display, most: usize) -> AuthError {
        self.turned_away.note(cause, who);
        AuthError::Unavailable(format!("{who} has {most} connections already; close one, or try again later"))
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
            Err(AuthError::Unavailable("auth.method = \"none\" is for one machine only".to_owned()))
        } else {
            let asking = self.prover.ask(move |prover| {
                let judged = prover.judge(&asked, &exporter, certificate.as_ref())?;
                Ok((prover.answer(&asked, &judged, &exporter)?, judged.identity))
            });
            asking.await
        };
        let permitted = judged.and_then(|(proof, identity)| {
            self.permits(ip, &identity).map(|permits| (proof, identity, permits))
        });
        match permitted {
            Ok((proof, identity, permits)) => {
                frame::send(&mut stream, &Answer::Welcome(proof).to_text()).await?;
                // An agent is in when its node is found to be one of the pool, too.
                if claimant == Claimant::User {
                    self.refusals.forget(ip, &claimant);
                }
                Ok(Held::new(stream, Peer { address, identity }, permits))
            }
            Err(error) => {
                let noted = self.refusals.note(ip, &claimant, error.report(), self.prover.clock().now());
                if let Some(untold_count) = noted {
                    warn!(%address, who = %claimant, why = error.report(), untold_count, "not let in");
                }
                frame::send(&mut stream, &Answer::refusal(&error).to_text()).await?;
                let _ = stream.shutdown().await;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
