//! What grows: docs/sizing.md says of each table who deletes from it, and what a row of those that grow takes. Both are held
//! against a database here.

mod copied;

use crate::support::fresh_store;
use pillion_core::UnixTime;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SIZING: &str = include_str!("../../../../docs/sizing.md");
/// So many rows of a table, of jobs as they come.
const ROWS: &str = "generate_series(10000, 14999) as n";
/// By how much a row may take another size than is written: pages are never quite full, and PostgreSQL differs by its release.
const DIFFERENCE_FRACTION_MAX: f64 = 0.15;

/// Rows of tables, as their writers make them: those of which a line tells all. Of the others `copied` takes one.
const FILLED: [(&str, &str); 6] = [
    (
        "event",
        "insert into event (happened_at, kind, job_id, node, detail)
        select now(), 'undone', n, 'n0001', 'the release of start ' || n || ' was undone: Slurm did not start it within 60 s' from ",
    ),
    (
        "explanation",
        r#"insert into explanation (job_id, revision, recorded_at, reason, explanation)
        select n, n, now(), 'no-device-free', ('{"job_id": "' || n || '", "reason": "no-device-free", "candidates": [],
            "text": "no GPU is free, and on none is a neighbour with whom it would keep max-slowdown=1.20", "detail": null}')::jsonb from "#,
    ),
    (
        "job_launch",
        "insert into job_launch (job_id, restart_count, step_id, launched_at, node, decision_id, gres_types)
        select n, 0, 4294967291, now(), 'n0001', n, '{g0}' from ",
    ),
    (
        "job_start",
        "insert into job_start (job_id, restart_count, node, started_at, ended_at)
        select n, 0, 'n0001', now(), now() from ",
    ),
    (
        "observation",
        "insert into observation (starts, group_id, device_model, mechanism, power_watts, fits, recorded_at, combination)
        select array[n || '.0', n + 5000 || '.0'], n, 'h200', 'mps', 412.5 + n, true, now(), observation_combination('h200', 'mps', null, array[n::text], array[0.4]) from ",
    ),
    (
        "observed_tenant",
        "insert into observed_tenant (observation_id, position, workload, cap_fraction, speed_fraction, speed_fraction_deviation, is_self_reported)
        select observation_id, position, 'carol/resnet50-train', null, 0.5 + 1.0 / observation_id, 0.01 + 1.0 / observation_id, false
        from observation, (values (0), (1)) as places (position) -- ",
    ),
];

/// The cells of each row of the tables below a heading, up to the next heading.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let (_, after) = SIZING.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = after.split("\n## ").next().expect("some");
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The names in a cell.
fn names(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Tables by who deletes from them, as it is written.
fn written() -> BTreeMap<String, &'static str> {
    let mut written = BTreeMap::new();
    let mut last = "";
    for row in rows("Retention, table by table") {
        let kept = row.last().expect("a cell");
        if !kept.starts_with("the same") {
            let settings = ["database.samples_kept_days", "database.history_kept_days"];
            last = settings.into_iter().find(|name| kept.contains(&format!("`{name}`"))).unwrap_or_default();
        }
        for name in names(&row[0]) {
            assert_eq!(written.insert(name.clone(), last), None, "{name} stands there twice");
        }
    }
    written
}

/// The tables from which a call deletes, whether it finds a row there or not.
async fn deleted_from(store: &PgStore, what: &str) -> BTreeSet<String> {
    sqlx::raw_sql("truncate deleted").execute(store.pool()).await.expect("forgotten");
    let before = UnixTime::from_epoch(1_000);
    match what {
        "database.samples_kept_days" => store.prune_samples(before).await,
        _ => store.prune_history(before).await,
    }
    .expect("pruned");
    let tables: Vec<String> =
        sqlx::query_scalar("select name from deleted").fetch_all(store.pool()).await.expect("read");
    tables.into_iter().collect()
}

async fn tables(store: &PgStore) -> BTreeSet<String> {
    let names = "select tablename::text from pg_tables where schemaname = 'public' and tablename <> '_sqlx_migrations'";
    let tables: Vec<String> = sqlx::query_scalar(names).fetch_all(store.pool()).await.expect("tables");
    tables.into_iter().collect()
}

#[tokio::test]
async fn every_table_is_in_the_documents_with_who_deletes_from_it() {
    let Some(store) = fresh_store().await else { return };
    let written = written();
    assert_eq!(written.keys().cloned().collect::<BTreeSet<_>>(), tables(&store).await, "docs/sizing.md");
    sqlx::raw_sql(
        "create table deleted (name text);
        create function note() returns trigger language plpgsql as
            'begin insert into deleted values (tg_table_name); return null; end'",
    )
    .execute(store.pool())
    .await
    .expect("a place for it");
    for table in written.keys() {
        let trigger =
            format!("create trigger note after delete on {table} for each statement execute function note()");
        sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(store.pool()).await.expect("watched");
    }
    for setting in ["database.samples_kept_days", "database.history_kept_days"] {
        let promised: BTreeSet<String> =
            written.iter().filter(|(_, by)| **by == setting).map(|(name, _)| name.clone()).collect();
        assert!(!promised.is_empty(), "docs/sizing.md names no table for {setting}");
        assert_eq!(deleted_from(&store, setting).await, promised, "{setting}");
    }
}

#[tokio::test]
async fn rows_take_what_the_documents_say() {
    let Some(store) = fresh_store().await else { return };
    let stated: BTreeMap<String, f64> = rows("What grows")
        .iter()
        .filter_map(|row| Some((names(&row[0]).next()?, row.get(2)?.replace(',', "").parse().ok()?)))
        .collect();
    copied::fill(&store).await;
    for (table, insert) in FILLED {
        let insert = format!("{insert}{ROWS}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(store.pool()).await.expect(table);
    }
    let mut wrong = Vec::new();
    for table in copied::COPIED.into_iter().chain(FILLED).map(|(table, _)| table) {
        let size = format!("select pg_total_relation_size('{table}')::float8 / count(*) from {table}");
        let bytes: f64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(size)).fetch_one(store.pool()).await.expect(table);
        println!("{table}: {bytes:.0} bytes a row");
        let stated = stated.get(table).unwrap_or_else(|| panic!("docs/sizing.md says nothing of {table}"));
        if (bytes / stated - 1.0).abs() > DIFFERENCE_FRACTION_MAX {
            wrong.push(format!("a row of {table} takes {bytes:.0} bytes, and {stated} are written"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let of = |table: &str| stated.get(table).copied().expect(table);
    let once = ["pairing_member", "run_account", "job_run", "job", "job_launch", "job_start"].map(of);
    // Two jobs a decision, and two reasons to wait.
    let bytes = once.iter().sum::<f64>() + of("pairing_decision") / 2.0 + 2.0 * of("explanation");
    let said = format!("| of history, a managed job | **{:.1} kB**", bytes / 1e3);
    assert!(SIZING.contains(&said), "docs/sizing.md does not say: {said}");
}
