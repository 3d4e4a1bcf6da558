//! Accepts connections and serves them: so many at once and none for ever. Where all places are taken, who holds the most of
//! them makes room for whoever comes, so that nobody who only holds them keeps others out.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pillion_doors::Doors;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

/// How much of the listener one may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How many connections are served at once.
    pub(super) connections: usize,
    /// How long the head of a request may take to come; between two requests of a connection too.
    pub(super) head_duration: Duration,
    /// How long a connection may last, for those who take its answers slowly.
    pub(super) connection_duration: Duration,
    /// How long those who are still served at the end may keep it.
    pub(super) farewell: Duration,
}

/// Both ends of a connection, in the extensions of each of its requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

/// Serves until `stop` is cancelled, and then those who are there to the end of their answer.
pub(super) async fn listen(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    let doors = Arc::new(Doors::new(bounds.connections));
    let mut connections = JoinSet::new();
    let meet = |stream: TcpStream| {
        let ends = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let (router, stop) = (router.clone(), stop.clone());
        let place = Arc::clone(&doors).enter(ends);
        Some(async move {
            tokio::select! {
                () = place.evicted() => debug!("a connection for the page made room for another"),
                () = converse(stream, router, bounds, stop) => {}
            }
        })
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = pillion_doors::take(&listener, &mut connections, meet) => {}
    }
    let last = async { while connections.join_next().await.is_some() {} };
    let is_over = tokio::time::timeout(bounds.farewell, last).await.is_ok();
    debug!(is_over, "the page is served no more");
}

async fn converse(stream: TcpStream, router: Router, bounds: Bounds, stop: CancellationToken) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Ends { peer, local });
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_duration)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match tokio::time::timeout(bounds.connection_duration, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection for the page broke"),
        Err(_) => debug!("a connection for the page lasted too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    const BOUNDS: Bounds = Bounds {
        connections: 2,
        head_duration: Duration::from_secs(2),
        connection_duration: Duration::from_secs(20),
        farewell: Duration::from_secs(20),
    };

    /// A page that says "page", and what stops it.
    async fn site() -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router = Router::new().fallback(async |request: axum::extract::Request| {
            let ends = request.extensions().get::<Ends>().copied();
            if ends.is_some_and(|ends| ends.peer.ip().is_loopback()) { "page" } else { "whose?" }
        });
        let serving = tokio::spawn(listen(listener, router, BOUNDS, stop.clone()));
        (address, stop, serving)
    }

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn who_only_holds_connections_keeps_nobody_out() {
        let (address, ..) = site().await;
        let begun = Instant::now();
        let mut held = Vec::new();
        for _ in 0..2 * BOUNDS.connections {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HT").await.unwrap();
            held.push(stream);
        }
        let answer = ask(&mut TcpStream::connect(address).await.unwrap()).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("page"), "{answer}");
        assert!(begun.elapsed() < BOUNDS.head_duration, "it waited for those who said nothing");
        let mut rest = Vec::new();
        for stream in &mut held {
            // Closed, by an end or a reset.
            let _ = stream.read_to_end(&mut rest).await;
        }
        assert!(!String::from_utf8_lossy(&rest).contains("page"), "whoever said nothing was told something");
    }

    #[tokio::test]
    async fn between_two_requests_a_connection_is_held_no_longer_than_a_head_may_take() {
        let (address, ..) = site().await;
        let begun = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        // Ends when the server lets go: nothing asks it to.
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
        assert!(
            begun.elapsed() < BOUNDS.connection_duration,
            "the head's time is not watched between requests"
        );
    }

    #[tokio::test]
    async fn it_ends_when_it_is_told_to_and_nobody_is_served() {
        let (address, stop, serving) = site().await;
        let answer = ask(&mut TcpStream::connect(address).await.unwrap()).await;
        assert!(answer.ends_with("page"), "{answer}");
        stop.cancel();
        serving.await.unwrap();
    }
}
