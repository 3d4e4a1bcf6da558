//! Every query of every dashboard of `deploy/grafana`, asked of a Prometheus, with what it gives: what panels would show.

use super::REACHED;
use crate::error::{HarnessError, Result};
use crate::monitoring::{Dashboard, Query, Server, UNTOLD_BY_SIMULATED, dashboards};
use crate::wait::{Look, wait_for};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Scrapes of each daemon that rates need, and how long they may take.
const SCRAPES_MIN: u32 = 3;
const PATIENCE: Duration = Duration::from_mins(1);

/// Prints them, once the Prometheus has something to tell.
///
/// # Errors
/// Where it does not answer, does not scrape the demo, or a query gives nothing that should.
pub fn show(prometheus: SocketAddr) -> Result<()> {
    let server = Server(prometheus);
    // All of what is reached but the page.
    let targets = REACHED.len() - 1;
    let scraped = format!("count(sum_over_time(up[1m]) >= {SCRAPES_MIN}) == {targets}");
    wait_for("scrapes of the demo's daemons", PATIENCE, || {
        Ok(match server.query(&scraped) {
            Ok(found) if !found.is_empty() => Look::Ready(()),
            Ok(_) => Look::NotYet("daemons that were not scraped often enough yet".to_owned()),
            Err(error) => Look::NotYet(pillion_core::report(&error)),
        })
    })?;
    let mut empty = Vec::new();
    for query in dashboards()?.iter().flat_map(Dashboard::queries) {
        let samples = server.query(&query.expression)?;
        println!("{}", line(&query, &samples));
        if samples.is_empty() && !query.expression.contains(UNTOLD_BY_SIMULATED) {
            empty.push(query.place);
        }
    }
    if empty.is_empty() {
        return Ok(());
    }
    Err(HarnessError::Refused(format!("no data for {}", empty.join("; "))))
}

/// One query: where it stands, how many series it gives, the first of them.
fn line(query: &Query, samples: &[Value]) -> String {
    let mut line = format!("{:<56}", query.place);
    let Some(first) = samples.first() else {
        return line + "no data: simulated devices do not tell it";
    };
    let labels = first["metric"].as_object().into_iter().flatten();
    let labels = labels.filter(|(name, _)| !["__name__", "instance", "job"].contains(&name.as_str()));
    let labels: Vec<&str> = labels.filter_map(|(_, value)| value.as_str()).collect();
    let value = first["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
    let value = value.map_or_else(|| "?".to_owned(), |value| format!("{value:.3}"));
    let _ = write!(line, "{value:>12}  {}", labels.join(" "));
    if samples.len() > 1 {
        let _ = write!(line, "{}and {} more", if labels.is_empty() { "" } else { ", " }, samples.len() - 1);
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_where_and_what() {
        let query = Query { place: "overview.json, Jobs by state".to_owned(), expression: String::new() };
        let sample = |state: &str| json!({"metric": {"__name__": "m", "state": state}, "value": [1.0, "2"]});
        let said = line(&query, &[sample("waiting"), sample("running")]);
        assert_eq!(
            said.split_whitespace().collect::<Vec<_>>().join(" "),
            "overview.json, Jobs by state 2.000 waiting, and 1 more"
        );
        assert!(line(&query, &[]).contains("no data"));
        assert!(line(&query, &[json!({"metric": {}, "value": [1.0, "NaN"]})]).ends_with("NaN"));
    }
}
