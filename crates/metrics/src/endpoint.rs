//! `GET /metrics` over plain HTTP/1, and nothing else. The agent runs as root beside users' jobs, so it costs little and
//! cannot be made to cost more: so many connections at a time, each of one request and short, and a new page once a second at
//! most. Who holds many of them shuts out himself and nobody else ([`pillion_doors`]). Where its address cannot be had the daemon goes on without.

use crate::page::Page;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pillion_doors::Doors;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How many may be served at a time; beyond that, who holds the most of them makes room.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may last, and how long its request may take to come.
const CONNECTION_DURATION_MAX: Duration = Duration::from_secs(5);
const REQUEST_DURATION_MAX: Duration = Duration::from_secs(1);
/// What a request may hold.
const REQUEST_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 32;
/// For how long a page is given again before a new one is made.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// The pause before the address is tried again.
const BIND_PAUSE: Duration = Duration::from_secs(10);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page and when it was made.
type Made = (Instant, Arc<Page>);

struct Pages<F> {
    make: F,
    made: Mutex<Option<Made>>,
}

impl<F: Fn() -> Page> Pages<F> {
    fn page(&self) -> Arc<Page> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, page)) = made.as_ref().filter(|(at, _)| at.elapsed() < PAGE_AGE_MAX) {
            debug!(age = ?at.elapsed(), "the page of a moment ago");
            return Arc::clone(page);
        }
        let page = Arc::new((self.make)());
        *made = Some((Instant::now(), Arc::clone(&page)));
        page
    }
}

/// Gives out what `make` makes until `stop`. An address that cannot be had is told once, and tried again now and then.
pub async fn serve<F>(address: SocketAddr, make: F, stop: CancellationToken)
where
    F: Fn() -> Page + Send + Sync + 'static,
{
    tokio::select! {
        () = stop.cancelled() => {}
        () = listen(address, Arc::new(Pages { make, made: Mutex::default() })) => {}
    }
}

async fn listen<F: Fn() -> Page + Send + Sync + 'static>(address: SocketAddr, pages: Arc<Pages<F>>) {
    let listener = bind(address).await;
    info!(%address, "metrics at http://{address}/metrics");
    let doors = Arc::new(Doors::new(CONNECTIONS_MAX));
    // Dropped with this function, and with it whoever is still served.
    let mut connections = JoinSet::new();
    pillion_doors::take(&listener, &mut connections, |stream| {
        let ends = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let (place, pages) = (Arc::clone(&doors).enter(ends), Arc::clone(&pages));
        Some(async move {
            tokio::select! {
                () = place.evicted() => {}
                () = converse(stream, pages) => {}
            }
        })
    })
    .await;
}

async fn bind(address: SocketAddr) -> TcpListener {
    let mut has_warned = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) if !has_warned => {
                has_warned = true;
                warn!(
                    "cannot listen on {address} for metrics ({error}); going on without them, and trying again"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(BIND_PAUSE).await;
    }
}

async fn converse<F: Fn() -> Page + Send + Sync + 'static>(stream: TcpStream, pages: Arc<Pages<F>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), request.headers(), &pages);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DURATION_MAX)
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_DURATION_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection for metrics broke"),
        Err(_) => debug!("a connection for metrics took too long"),
    }
}

fn answer<F: Fn() -> Page>(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    pages: &Pages<F>,
) -> Response<Full<Bytes>> {
    if path != "/metrics" {
        return refusal(StatusCode::NOT_FOUND, "there is /metrics only\n");
    }
    if method != Method::GET {
        let mut refusal = refusal(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        refusal.headers_mut().insert(ALLOW, http::HeaderValue::from_static("GET"));
        return refusal;
    }
    let wants_open = headers
        .get_all(ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("application/openmetrics-text")));
    let page = pages.page();
    let (kind, text) =
        if wants_open { (OPEN_METRICS, page.open_metrics()) } else { (PLAIN_TEXT, page.plain_text()) };
    with_kind(Response::new(Full::from(text)), kind)
}

fn refusal(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    let mut refusal = with_kind(Response::new(Full::from(words)), "text/plain; charset=utf-8");
    *refusal.status_mut() = status;
    refusal
}

fn with_kind(mut response: Response<Full<Bytes>>, kind: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
