//! The endpoint over real sockets of this machine.

use super::*;
use crate::Description;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

static PAGES: Description = Description::counter("pillion_pages_total", "pages", &[], "Pages made");

/// An endpoint on a port that was free, and how many pages it has made.
async fn endpoint() -> (SocketAddr, Arc<AtomicU64>, CancellationToken) {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (made, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let count = Arc::clone(&made);
    let page_of_now = move || {
        let mut page = Page::new();
        page.count(&PAGES, &[], count.fetch_add(1, Ordering::SeqCst) + 1);
        page
    };
    tokio::spawn(serve(address, page_of_now, stop.clone()));
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    (address, made, stop)
}

/// What comes back, whole: the endpoint closes.
async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn whoever_asks_for_metrics_gets_the_page_in_his_format() {
    let (address, made, _stop) = endpoint().await;
    let plain = ask(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(plain.starts_with("HTTP/1.1 200 OK") && plain.contains("version=0.0.4"), "{plain}");
    assert!(plain.ends_with("# TYPE pillion_pages_total counter\npillion_pages_total 1.0\n"), "{plain}");
    let accept = "Accept: text/plain;q=0.5, application/openmetrics-text; version=1.0.0";
    let open = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{accept}\r\n\r\n")).await;
    assert!(open.contains("version=1.0.0") && open.ends_with("pillion_pages_total 1.0\n# EOF\n"), "{open}");
    assert_eq!(made.load(Ordering::SeqCst), 1, "the second page within a second is the first again");
}

#[tokio::test]
async fn there_is_nothing_else() {
    let (address, made, _stop) = endpoint().await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /metrics/../etc HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    let endless = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(2 * REQUEST_BYTES_MAX));
    assert!(!ask(address, &endless).await.contains(" 200 "));
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn those_who_say_nothing_hold_nobody_up() {
    let (address, _, _stop) = endpoint().await;
    // Eight of them blinded Prometheus once.
    for count in [8, CONNECTIONS_MAX, CONNECTIONS_MAX] {
        let mut slow = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /met").await.unwrap();
            slow.push(stream);
        }
        let begun = Instant::now();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.contains(" 200 ") && begun.elapsed() < REQUEST_DURATION_MAX, "{count}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_in_use_is_waited_for_and_stopping_ends_the_wait() {
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (holder.local_addr().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(serve(address, Page::new, stop.clone()));
    tokio::time::sleep(3 * BIND_PAUSE).await;
    assert!(!serving.is_finished(), "it goes on trying");
    drop(holder);
    tokio::time::sleep(2 * BIND_PAUSE).await;
    assert!(TcpStream::connect(address).await.is_ok(), "it listens as soon as it can");
    stop.cancel();
    serving.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
