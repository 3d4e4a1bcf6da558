//! `--prometheus URL`: what a site's Prometheus has kept of how GPUs were used. It is asked to read and nothing else, one question
//! after the other, each within a time and a length; what is asked and how answers are joined is `pillion-replay`'s.

use super::style;
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use indicatif::ProgressBar;
use pillion_replay::Accounting;
use pillion_replay::read::{Joined, NoAnswer, Question, Telemetry, stretches};
use serde::Serialize;
use std::time::Duration;

/// For one question.
const DEADLINE: Duration = Duration::from_secs(30);
/// No answer is longer.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Seconds between two points: jobs that are shorter may be missed.
const STEP_SECONDS: u64 = 300;
/// So many stretches of time are asked about at most; of a longer time the points lie further apart.
const STRETCHES_MAX: u64 = 128;

/// What is asked of it.
struct Prometheus {
    url: String,
    agent: ureq::Agent,
}

/// How these jobs used their GPUs, and what is missing of that, in words and counted.
///
/// # Errors
/// [`CliError::Usage`] for an address that is none; [`CliError::Data`] in one sentence for everything that answers otherwise than
/// Prometheus does.
pub(super) fn telemetry(
    url: &str,
    accounting: &Accounting,
) -> Result<(Telemetry, Vec<(String, u64)>), CliError> {
    let prometheus = Prometheus::new(url)?;
    let (since, until) = accounting.span();
    let step = step_seconds(since, until);
    let asked: Vec<(u64, u64)> = stretches(since, until, step).collect();
    let bar = ProgressBar::new(asked.len() as u64 * Question::ALL.len() as u64)
        .with_style(style("{pos}/{len} questions to Prometheus {wide_bar} {eta} left"));
    let mut joined = Joined::new(accounting);
    for stretch in asked {
        joined.begin();
        for question in Question::ALL {
            let answer = prometheus.ask(question, stretch, step)?;
            joined.take(question, &answer).map_err(|error| prometheus.refused(&error))?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let missing = missing(&joined);
    let telemetry = joined.into_telemetry();
    if telemetry.is_empty() {
        return Err(CliError::Data(format!(
            "{}: nothing in it tells how one of these jobs used a GPU between {since} and {until} (seconds since 1970): it needs \
             nvidia_gpu_jobId of jobstats' exporter, or dcgm-exporter with the label hpc_job",
            prometheus.url
        )));
    }
    Ok((telemetry, missing))
}

fn step_seconds(since: u64, until: u64) -> u64 {
    let enough = until.saturating_sub(since) / (STRETCHES_MAX * pillion_replay::read::POINTS_MAX);
    STEP_SECONDS.max((enough + 1).next_multiple_of(60))
}

/// What Prometheus does not have, or not for everybody.
fn missing(joined: &Joined<'_>) -> Vec<(String, u64)> {
    let mut missing: Vec<(String, u64)> = Vec::new();
    for question in Question::ALL.into_iter().filter(|question| joined.count(*question) == 0) {
        missing.push((
            format!("values of Prometheus, which has no {} ({})", question.text(), question.query()),
            0,
        ));
    }
    for (count, cause) in [
        (joined.unheld, "values of Prometheus of GPUs that no job is known to have held then"),
        (joined.elsewhere, "values of Prometheus of jobs that did not run there and then"),
        (joined.parts, "series of Prometheus of parts of GPUs (MIG)"),
        (joined.dropped, "values of Prometheus that are out of their range, or of no node and GPU"),
        (joined.partial, "answers of Prometheus that it says are of a part of its data"),
    ] {
        if count > 0 {
            missing.push((cause.to_owned(), count));
        }
    }
    missing
}

impl Prometheus {
    fn new(url: &str) -> Result<Self, CliError> {
        let is_plain = url.starts_with("http://") && url.chars().all(|letter| letter.is_ascii_graphic());
        if !is_plain {
            return Err(CliError::Usage(
                "--prometheus: an address that begins with http:// is expected, as http://prometheus:9090; of one behind TLS forward a \
                 port"
                    .to_owned(),
            ));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(DEADLINE))
            .http_status_as_error(false)
            .max_redirects(0)
            // It is asked itself, whatever the environment says of proxies.
            .proxy(None)
            .build();
        Ok(Self { url: url.trim_end_matches('/').to_owned(), agent: config.into() })
    }

    /// The answer, whatever it is.
    fn ask(&self, question: Question, (from, to): (u64, u64), step: u64) -> Result<Vec<u8>, CliError> {
        let request = self
            .agent
            .get(format!("{}/api/v1/query_range", self.url))
            .query("query", question.query())
            .query("start", from.to_string())
            .query("end", to.to_string())
            .query("step", step.to_string());
        let mut answer = request.call().map_err(|error| self.silent(&error))?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX);
        let body = body.read_to_vec().map_err(|error| self.silent(&error))?;
        // What it refuses it says why, in JSON; whoever has nothing there says it in other words.
        if matches!(status, 200 | 400 | 422 | 503) {
            return Ok(body);
        }
        Err(CliError::Data(format!("{}: what answers there is no Prometheus: it says {status}", self.url)))
    }

    fn refused(&self, error: &NoAnswer) -> CliError {
        CliError::Data(format!("{}: {error}", self.url))
    }

    fn silent(&self, error: &ureq::Error) -> CliError {
        let why = match error {
            ureq::Error::Timeout(_) => format!("it did not answer whole within {} s", DEADLINE.as_secs()),
            ureq::Error::BodyExceedsLimit(_) => {
                format!("its answer is longer than {} MiB", BODY_BYTES_MAX >> 20)
            }
            ureq::Error::HostNotFound => "there is no host of that name".to_owned(),
            other => format!("it cannot be reached: {other}"),
        };
        CliError::Data(format!("{}: {why}", self.url))
    }
}

#[derive(Serialize)]
struct Printed {
    queries: Vec<PrintedQuery>,
}

#[derive(Serialize)]
struct PrintedQuery {
    asks: &'static str,
    query: &'static str,
}

/// What would be asked.
pub(super) fn queries() -> Answer {
    let mut table = Table::new(&["ASKS", "QUERY"]);
    for question in Question::ALL {
        table.push(vec![question.text().to_owned(), question.query().to_owned()]);
    }
    let queries =
        Question::ALL.map(|question| PrintedQuery { asks: question.text(), query: question.query() });
    let json = json::render(&Printed { queries: queries.into() });
    Answer { blocks: vec![Block::Table(table.clone(), 0)], parsable: table, json }
}
