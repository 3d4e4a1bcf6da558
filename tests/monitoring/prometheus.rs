//! A real Prometheus over the pages of the daemons' own tests, on which every family has a value: it reads them, every query
//! of every dashboard gives data, and every alert rule can be evaluated. The same over real daemons: `tests/e2e/metrics.rs`.

use pillion_metrics::Kind;
use pillion_tests::daemons::checkout;
use pillion_tests::monitoring::Prometheus;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

/// A page.
pub(crate) struct PageOfTests {
    pub(crate) name: &'static str,
    /// As OpenMetrics.
    pub(crate) open: String,
    /// As plain text.
    pub(crate) plain: String,
}

/// The pages on which everything is.
pub(crate) fn pages() -> [PageOfTests; 2] {
    ["scheduler", "agent"].map(|name| {
        let path = checkout().join(format!("crates/{name}/src/metrics/page/golden.txt"));
        let open = std::fs::read_to_string(path).unwrap();
        let plain = plain(&open);
        PageOfTests { name, open, plain }
    })
}

/// OpenMetrics as the older text format: a counter's name is whole in its HELP and TYPE.
fn plain(open: &str) -> String {
    let mut text = open.replace("# EOF\n", "");
    for of in crate::families().values().filter(|of| of.kind == Kind::Counter) {
        for word in ["HELP", "TYPE"] {
            text = text.replace(&format!("# {word} {} ", of.family()), &format!("# {word} {} ", of.name));
        }
    }
    text
}

/// Serves a page for as long as the test lasts.
fn serve(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all((head + &page).as_bytes());
        }
    });
    address
}

#[test]
fn prometheus_has_data_for_every_panel_and_can_evaluate_every_alert() {
    let folder = tempfile::tempdir().unwrap();
    let [scheduler, agent] = pages();
    let targets = [("pillion-scheduler", serve(scheduler.open)), ("pillion-agent", serve(agent.open))];
    let prometheus = Prometheus::start(folder.path(), &targets).unwrap();
    let wrong = prometheus.check_dashboards_and_rules().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // As the queries do, the page must give each family its own type.
    let kinds = prometheus.query("count by (__name__) ({__name__=~\"pillion_.+\"})").unwrap();
    assert!(kinds.len() >= crate::families().len(), "{} of {}", kinds.len(), crate::families().len());
}
