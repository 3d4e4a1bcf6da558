//! A Prometheus of a test's own, and what `deploy/grafana` asks of it.

use crate::daemons::checkout;
use crate::error::{HarnessError, Result, io_error};
use crate::process::{Daemon, Program};
use crate::testbed::BIN_DIR;
use crate::wait::{Look, wait_for, wait_until};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long it may take to be ready, and a scrape to come.
const DEADLINE: Duration = Duration::from_secs(30);
/// What simulated devices do not tell: what is absent has no line.
pub const UNTOLD_BY_SIMULATED: &str = "pillion_device_sm_clock_hertz";
/// How often it scrapes.
const SCRAPE_INTERVAL: &str = "500ms";

/// The folder with dashboards and alert rules.
pub fn folder() -> PathBuf {
    checkout().join("deploy/grafana")
}

/// A dashboard, by its file's name.
#[derive(Debug)]
pub struct Dashboard {
    /// `overview.json`.
    pub file: String,
    /// What Grafana imports.
    pub json: Value,
}

/// What a panel asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Dashboard and panel, for messages.
    pub place: String,
    /// As Prometheus takes it: Grafana's variables are filled in.
    pub expression: String,
}

/// All dashboards.
///
/// # Errors
/// Where one cannot be read or is no JSON.
pub fn dashboards() -> Result<Vec<Dashboard>> {
    let folder = folder();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(io_error("read", &folder))? {
        let path = entry.map_err(io_error("read", &folder))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).map_err(io_error("read", &path))?;
            let json = serde_json::from_str(&text).map_err(|error| refused(&path.display(), &error))?;
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Dashboard { file, json });
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

fn refused(what: &impl std::fmt::Display, why: &impl std::fmt::Display) -> HarnessError {
    HarnessError::Refused(format!("{what}: {why}"))
}

impl Dashboard {
    /// Its panels but for rows.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        self.json["panels"].as_array().into_iter().flatten().filter(|panel| panel["type"] != "row")
    }

    /// What its panels ask.
    pub fn queries(&self) -> Vec<Query> {
        let of_panel = |panel: &Value| {
            let place = format!("{}, {}", self.file, panel["title"].as_str().unwrap_or_default());
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            let query = move |target: &Value| Query {
                place: place.clone(),
                expression: filled(target["expr"].as_str().unwrap_or_default()),
            };
            targets.iter().map(query).collect::<Vec<_>>()
        };
        self.panels().flat_map(of_panel).collect()
    }
}

/// With what Grafana would put in for its variables.
fn filled(expression: &str) -> String {
    expression.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$node", ".*")
}

/// What came with `GET` from a server that speaks HTTP.
///
/// # Errors
/// Where it does not answer, or not with 200.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let there = format!("http://{address}{path}");
    let failed = |error: std::io::Error| refused(&there, &error);
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).map_err(failed)?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    // Of version 1.0, so that the answer ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "200" { Ok(body.to_owned()) } else { Err(refused(&there, &format!("{status}: {body}"))) }
}

/// A port that nobody listens on now.
///
/// # Errors
/// Where there is none.
pub fn free_address() -> Result<SocketAddr> {
    let failed = |error: std::io::Error| refused(&"a free port", &error);
    TcpListener::bind("127.0.0.1:0").map_err(failed)?.local_addr().map_err(failed)
}

/// What Prometheus reads: whom it scrapes how often, each under its job's name, and the alert rules.
pub fn configuration(interval: &str, targets: &[(String, SocketAddr)]) -> String {
    let rules = folder().join("alerts.yml");
    let mut text = format!(
        "global: {{ scrape_interval: {interval}, evaluation_interval: 1s }}\nrule_files: [\"{}\"]\nscrape_configs:\n",
        rules.display()
    );
    for (job, address) in targets {
        let _ = writeln!(text, "  - job_name: {job}\n    static_configs: [{{ targets: [\"{address}\"] }}]");
    }
    text
}

/// A running Prometheus with the alert rules; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    daemon: Daemon,
    server: Server,
}

impl std::ops::Deref for Prometheus {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// A Prometheus that answers at an address.
#[derive(Debug, Clone, Copy)]
pub struct Server(pub SocketAddr);

impl Prometheus {
    /// Starts one that scrapes `targets`, each under its job's name, and waits until it has done so thrice.
    ///
    /// # Errors
    /// Where it is not installed, does not get ready, or cannot scrape.
    pub fn start(folder: &Path, targets: &[(&str, SocketAddr)]) -> Result<Self> {
        let named: Vec<_> = targets.iter().map(|(job, address)| ((*job).to_owned(), *address)).collect();
        std::fs::create_dir_all(folder).map_err(io_error("make", folder))?;
        let path = folder.join("prometheus.yml");
        std::fs::write(&path, configuration(SCRAPE_INTERVAL, &named)).map_err(io_error("write", &path))?;
        let address = free_address()?;
        let daemon = program("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .daemon("prometheus", &folder.join("prometheus.log"))?;
        let mut prometheus = Self { daemon, server: Server(address) };
        wait_for("answer of Prometheus", DEADLINE, || {
            prometheus.daemon.check_running()?;
            Ok(get(address, "/-/ready").map_or_else(|error| Look::NotYet(error.to_string()), Look::Ready))
        })?;
        for (job, _) in targets {
            let scraped = format!("min(sum_over_time(up{{job=\"{job}\"}}[1m])) >= 3");
            wait_until(&format!("three scrapes of {job}"), DEADLINE, || {
                Ok(!prometheus.query(&scraped)?.is_empty())
            })?;
        }
        Ok(prometheus)
    }
}

impl Server {
    /// What an expression gives now: its samples.
    ///
    /// # Errors
    /// What Prometheus finds wrong with it.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let found = self.api(&format!("/api/v1/query?query={}", escaped(expression)))?;
        match &found["data"]["result"] {
            Value::Array(samples) => Ok(samples.clone()),
            other => Err(refused(&expression, other)),
        }
    }

    /// The alert rules as Prometheus evaluates them.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn rules(&self) -> Result<Vec<Value>> {
        let found = self.api("/api/v1/rules?type=alert")?;
        let groups = found["data"]["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    fn api(&self, path: &str) -> Result<Value> {
        let text = get(self.0, path)?;
        serde_json::from_str(&text).map_err(|error| refused(&path, &error))
    }

    /// Runs every query of every dashboard and looks at every alert rule. Returns what is wrong: queries that fail or give
    /// nothing, rules that cannot be evaluated or lack what people need.
    ///
    /// # Errors
    /// Where Prometheus does not answer.
    pub fn check_dashboards_and_rules(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for query in dashboards()?.iter().flat_map(Dashboard::queries) {
            match self.query(&query.expression) {
                Ok(samples) if !samples.is_empty() => {}
                Ok(_) => wrong.push(format!("{}: no data: {}", query.place, query.expression)),
                Err(error) => wrong.push(format!("{}: {error}", query.place)),
            }
        }
        wait_until("every alert rule was evaluated", DEADLINE, || {
            let rules = self.rules()?;
            Ok(!rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown"))
        })?;
        for rule in self.rules()? {
            let is_told = ["summary", "description"]
                .into_iter()
                .all(|name| rule["annotations"][name].as_str().is_some_and(|text| text.len() > 20));
            let severity = &rule["labels"]["severity"];
            if rule["health"] != "ok" || !is_told || (severity != "critical" && severity != "warning") {
                wrong.push(format!("alert rule {rule}"));
            }
        }
        Ok(wrong)
    }
}

/// A program of Debian's package, in the system or, inside a testbed, beside ours.
pub fn program(name: &str) -> Program {
    let beside = Path::new(BIN_DIR).join(name);
    if beside.exists() { Program::new(beside) } else { Program::new(format!("/usr/bin/{name}")) }
}

/// As a query string has it.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
