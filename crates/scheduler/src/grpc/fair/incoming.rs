//! Connections of the Unix socket: so many of one user at once. His next one waits, accepted and unread, until one of his is
//! over; where too many of his wait already, the next one is closed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, UdsConnectInfo};
use tracing::debug;

/// How many connections of one user are served at once, and how many more may wait.
const SERVED_MAX: usize = 16;
const WAITING_MAX: usize = 64;
/// The same for root, as whom hooks and operators come.
const SERVED_OF_ROOT_MAX: usize = 128;
/// The pause after a connection that could not be accepted: most often the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection with its place.
pub(crate) struct Held {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

/// The connections that may be served, and what accepts them until nobody takes them any more.
pub(crate) fn incoming(
    listener: UnixListener,
) -> (ReceiverStream<io::Result<Held>>, impl Future<Output = ()> + Send + 'static) {
    let (served, receiver) = mpsc::channel(16);
    (ReceiverStream::new(receiver), accept(listener, served))
}

/// The places of each user that has connections.
#[derive(Default)]
struct Places(Mutex<BTreeMap<Option<u32>, Arc<Semaphore>>>);

impl Places {
    /// The places of a user; forgotten with his last connection.
    fn of(&self, uid: Option<u32>) -> Arc<Semaphore> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(users.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(served_max(uid)))))
    }
}

const fn served_max(uid: Option<u32>) -> usize {
    match uid {
        Some(0) => SERVED_OF_ROOT_MAX,
        _ => SERVED_MAX,
    }
}

async fn accept(listener: UnixListener, served: mpsc::Sender<io::Result<Held>>) {
    let places = Places::default();
    // Dropped with this function, and with it whoever still waits.
    let mut waiting = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = served.closed() => return,
            accepted = listener.accept() => accepted,
        };
        while waiting.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                let places = places.of(uid);
                // Those who are served and those who wait each hold it once; so do the list and this line.
                if Arc::strong_count(&places) > served_max(uid) + WAITING_MAX + 1 {
                    debug!(?uid, "a connection is closed: too many of its user wait");
                    continue;
                }
                waiting.spawn(serve(stream, places, served.clone()));
            }
            Err(error) => {
                debug!(%error, "a connection of the socket could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, places: Arc<Semaphore>, served: mpsc::Sender<io::Result<Held>>) {
    let Ok(place) = places.acquire_owned().await else { return };
    let _ = served.send(Ok(Held { stream, _place: place })).await;
}

impl Connected for Held {
    type ConnectInfo = UdsConnectInfo;
    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt as _;

    #[tokio::test]
    async fn the_next_connection_of_a_user_waits_until_one_of_his_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (mut served, accepting) = incoming(listener);
        let accepting = tokio::spawn(accepting);
        let most = if rustix::process::geteuid().is_root() { SERVED_OF_ROOT_MAX } else { SERVED_MAX };
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for _ in 0..most {
            clients.push(UnixStream::connect(&path).await.unwrap());
            held.push(served.next().await.unwrap().unwrap());
        }
        clients.push(UnixStream::connect(&path).await.unwrap());
        let beyond = tokio::time::timeout(Duration::from_millis(200), served.next()).await;
        assert!(beyond.is_err(), "it waits");
        held.pop();
        assert!(served.next().await.unwrap().is_ok(), "now it is served");
        drop(served);
        drop(held);
        tokio::time::timeout(Duration::from_secs(5), accepting).await.expect("it ends").unwrap();
    }
}
