//! What Pillion tells Prometheus, and what Grafana and the alert rules make of it: documents and names agree, dashboards are
//! whole, alerts fire when they should, and a real Prometheus has data for every query. Needs Debian's `prometheus`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod dashboards;
mod documents;
mod prometheus;
mod rules;

use pillion_metrics::{Description, Kind};
use std::collections::BTreeMap;

/// All families by name, those of both daemons.
fn families() -> BTreeMap<&'static str, &'static Description> {
    let both = pillion_scheduler::metrics::ALL.iter().copied().chain(pillion_agent::metrics::all());
    both.map(|of| (of.name, of)).collect()
}

/// The names of metrics in an expression, without what a histogram's series add.
fn names_in(expression: &str) -> Vec<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = expression.split(|char| !is_part(char)).filter(|word| word.starts_with("pillion_"));
    let families = families();
    let base = |word: &str| {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix));
        let of = stem.filter(|stem| families.get(stem).is_some_and(|of| of.kind == Kind::Histogram));
        of.unwrap_or(word).to_owned()
    };
    words.map(base).collect()
}
