//! docs/metrics.md is made of the families, and their names keep the rules.

use crate::families;
use pillion_metrics::{Kind, table};
use pillion_tests::daemons::checkout;
use std::collections::BTreeSet;

const HEAD: &str = "# Metrics\n\nWhat `pillion-scheduler` and `pillion-agent` tell at `/metrics`, where `[metrics] listen_address` and \
`[agent.metrics]\nlisten_address` are set; dashboards and alert rules for it: [deploy/grafana](../deploy/grafana/README.md).\n\n\
* Counters begin anew with their daemon. What is not known has no line, and is never 0.\n\
* No label is of a job, a user or a workload.\n\
* A scrape asks neither Slurm nor Postgres nor a driver: values are those that the daemon has. A page is made once a second at most.\n\
* The format is OpenMetrics where that is asked for, else Prometheus' text format.\n\n\
This file is made from the programs' own words (`PILLION_BLESS=1 cargo test -p pillion-tests --test monitoring`).\n";

const TAIL: &str = "## What is no metric

Submissions that `pillion.lua` refuses or leaves alone: it runs under slurmctld's locks, where it may run no program and write nothing but a line of the log, and the
scheduler never hears of a job that was not managed. Each has one line in `slurmctld.log`, whose wording stays: `grep -c 'pillion: submission refused'`
(`why=shards`, `option`, `pool`, or the sentence that the user was told), `'pillion: submission left alone'` (`why=` the sentence that the user was told) and `'pillion: change refused'` (`why=shards`,
`pool`, `plain`, `released`, `halves` or `failed`); `uid=` says whose it was. `'pillion: update fenced'` counts updates of Pillion's own that were refused because the job was
not as they presupposed (`why=` what it was instead).
";

fn document() -> String {
    let scheduler = table(pillion_scheduler::metrics::ALL);
    let agent = table(&pillion_agent::metrics::all());
    format!("{HEAD}\n## The scheduler\n\n{scheduler}\n## The agent of a node\n\n{agent}\n{TAIL}")
}

/// With `PILLION_BLESS=1` it is written anew.
#[test]
fn docs_metrics_is_current() {
    let path = checkout().join("docs/metrics.md");
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == document(),
        "docs/metrics.md is old; PILLION_BLESS=1 cargo test -p pillion-tests --test monitoring writes it anew"
    );
}

#[test]
fn names_say_what_they_are() {
    for of in families().values() {
        let name = of.name;
        assert!(name.starts_with("pillion_"), "{name}");
        assert_eq!(name.ends_with("_total"), of.kind == Kind::Counter, "{name}");
        let word = match of.unit {
            "seconds" | "bytes" | "joules" | "watts" | "hertz" => of.unit,
            "fraction of 1" if !name.ends_with("_error_mean") => "fraction",
            _ => continue,
        };
        assert!(name.contains(&format!("_{word}")), "{name} is in {word}");
    }
}

#[test]
fn labels_are_few_and_tell_of_nobody() {
    let allowed = BTreeSet::from([
        "access",
        "answer",
        "call",
        "cause",
        "fault",
        "gres_type",
        "kind",
        "measured",
        "mechanism",
        "mode",
        "model",
        "node",
        "objective",
        "outcome",
        "profile",
        "reason",
        "result",
        "sharing",
        "task",
        "state",
        "table",
        "version",
    ]);
    for of in families().values() {
        let strange: Vec<_> = of.labels.iter().filter(|label| !allowed.contains(*label)).collect();
        assert!(strange.is_empty() && of.labels.len() <= 4, "{}: {strange:?}", of.name);
    }
}

#[test]
fn what_both_daemons_tell_means_the_same() {
    for of in pillion_scheduler::metrics::ALL.iter().copied().chain(pillion_agent::metrics::all()) {
        assert_eq!(of, families()[of.name]);
    }
}
