//! Connections of the Unix socket: so many of one user at once. His next one waits, accepted and unread, until one of his is
//! over; where too many of his wait already, the next one is closed.

use pillion_doors::{Cause, Held, TurnedAway};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected as _, UdsConnectInfo};

/// How many connections of one user are served at once, and how many more may wait.
const SERVED_MAX: usize = 16;
const WAITING_MAX: usize = 64;
/// The same for root, as whom hooks and operators come.
const SERVED_OF_ROOT_MAX: usize = 128;
/// A connection of the socket, with its place.
pub(crate) type Waited = Held<UnixStream, UdsConnectInfo, OwnedSemaphorePermit>;

/// The connections that may be served, and what accepts them until nobody takes them any more.
pub(crate) fn incoming(
    listener: UnixListener,
    turned_away: Arc<TurnedAway>,
) -> (ReceiverStream<io::Result<Waited>>, impl Future<Output = ()> + Send + 'static) {
    let (served, receiver) = mpsc::channel(16);
    (ReceiverStream::new(receiver), accept(listener, served, turned_away))
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

async fn accept(
    listener: UnixListener,
    served: mpsc::Sender<io::Result<Waited>>,
    turned_away: Arc<TurnedAway>,
) {
    let places = Places::default();
    // Dropped with this function, and with it whoever still waits.
    let mut waiting = JoinSet::new();
    let meet = |stream: UnixStream| {
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let places = places.of(uid);
        // Those who are served and those who wait each hold it once; so do the list and this line.
        if Arc::strong_count(&places) > served_max(uid) + WAITING_MAX + 1 {
            let who = uid.map_or_else(|| "a user".to_owned(), |uid| format!("uid {uid}"));
            turned_away.note(Cause::Line, &who);
            return None;
        }
        Some(serve(stream, places, served.clone()))
    };
    tokio::select! {
        () = served.closed() => {}
        () = pillion_doors::take(&listener, &mut waiting, meet) => {}
    }
}

async fn serve(stream: UnixStream, places: Arc<Semaphore>, served: mpsc::Sender<io::Result<Waited>>) {
    let Ok(place) = places.acquire_owned().await else { return };
    let info = stream.connect_info();
    let _ = served.send(Ok(Held::new(stream, info, place))).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio_stream::StreamExt as _;

    #[tokio::test]
    async fn the_next_connection_of_a_user_waits_until_one_of_his_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (mut served, accepting) = incoming(listener, Arc::default());
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
