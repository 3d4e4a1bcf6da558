//! The suite over Postgres, and what only a server can do: go away and come back, and hold rows that we cannot read.

use crate::conformance::{CASES, PAGES};
use crate::fixtures::{at, commit, gres, job, node, pair, plain};
use crate::support::{Workplace, fresh_store, owner, start};
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, MetricSource, Metrics, Throttle};
use pillion_core::report::{DeviceSample, DeviceSamples, Report, ReportBody};
use pillion_core::{NodeName, Revision, UnixTime, WorkloadKey};
use pillion_store::postgres::{ConnectError, Leadership, MIGRATOR, PgStore};
use pillion_store::prelude::*;
use pillion_store::{JobRecord, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_what_the_suite_promises() {
    for (name, case) in CASES {
        let Some(store) = fresh_store().await else { return };
        println!("case {name}");
        case(Arc::new(store)).await;
    }
    for (name, case) in PAGES {
        let Some(store) = fresh_store().await else { return };
        println!("case {name}");
        case(Arc::new(store)).await;
    }
}

#[tokio::test]
async fn while_the_server_is_away_calls_fail_soon_and_then_work_again() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("postgres");
    let server = start(&directory, owner).await;
    let store = PgStore::connect(server.url()).await.expect("a store");
    store.record_jobs(&[job(1)], at(0)).await.expect("stored");
    server.stop().await;

    let call = tokio::time::timeout(Duration::from_secs(5), store.revision()).await;
    let error = call.expect("fails soon").expect_err("the server is away");
    assert!(error.is_transient(), "{error}");

    let server = start(&directory, owner).await;
    assert_eq!(store.job(plain(1)).await.expect("back").map(|job| job.id), Some(plain(1)));
    server.stop().await;
}

#[tokio::test]
async fn connecting_waits_for_the_server_and_gives_up_with_a_reason() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let directory = workplace.path.join("postgres");
    let server = start(&directory, owner).await;
    let url = server.url().to_owned();
    server.stop().await;

    let error = PgStore::connect_within(&url, Duration::from_millis(600)).await.expect_err("nobody is there");
    assert!(matches!(error, ConnectError::NotResponding { .. }), "{error}");

    let waiting = tokio::spawn({
        let url = url.clone();
        async move { PgStore::connect_within(&url, Duration::from_secs(30)).await.map(drop) }
    });
    let server = start(&directory, owner).await;
    waiting.await.expect("no panic").expect("the server came");

    let wrong = url.replace("/postgres?", "/nowhere?");
    let error = PgStore::connect_within(&wrong, Duration::from_secs(30)).await.expect_err("no such database");
    assert!(matches!(error, ConnectError::Refused(_)), "{error}");
    let error = PgStore::connect_within("nonsense", Duration::ZERO).await.expect_err("no URL");
    assert!(error.to_string().starts_with("database.url is not a Postgres URL"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_passed_over_and_counted() {
    let Some(store) = fresh_store().await else { return };
    let [lost, kept] = commit(&store, &[pair(1, 2), pair(3, 4)]).await[..] else { panic!("two") };
    sqlx::query("update pairing_member set explanation = '{}' where job_id = '2'")
        .execute(store.pool())
        .await
        .expect("a row made unreadable");
    let active = store.active_decisions().await.expect("explanations are not read for them");
    assert_eq!(active.iter().map(|one| one.id).collect::<Vec<_>>(), [lost, kept]);
    assert_eq!(store.decision(lost).await.expect("read"), None);
    assert!(store.decision(kept).await.expect("read").is_some());
    assert!(store.figures().unreadable["pairing_member"] > 0);
    sqlx::query("update pairing_member set estimate = '{}' where job_id = '1'")
        .execute(store.pool())
        .await
        .expect("a row made unreadable");
    let active = store.active_decisions().await.expect("the others");
    assert_eq!(active.iter().map(|one| one.id).collect::<Vec<_>>(), [kept]);
}

#[tokio::test]
async fn a_sample_is_kept_value_by_value() {
    let Some(store) = fresh_store().await else { return };
    let own = |metric: Metric| (metric, 0.01 * f64::from(metric.number()));
    let metrics: Metrics = Metric::ALL.into_iter().map(own).collect();
    let mut reading = Reading::from(metrics.from_source(MetricSource::NvmlGpm));
    reading.metrics.set_bytes(Metric::MemoryBytesUsed, 7);
    reading.set_throttles([Throttle::Heat, Throttle::PowerLimit].into());
    for (sequence, reading) in [(1, reading), (2, Reading::default())] {
        let expected = serde_json::to_value(&reading).expect("JSON");
        let sample = DeviceSample { gres_type: gres(), reading, tenants: vec![] };
        let body = ReportBody::Samples(DeviceSamples { recorded_at: at(sequence), samples: vec![sample] });
        let report = Report { sequence: sequence.into(), body };
        store.ingest(&node(), "j", &report).await.expect("stored");
        let stored: serde_json::Value = sqlx::query_scalar(
            "select jsonb_build_object('metrics', metrics, 'throttles', throttles) from device_sample
            order by recorded_at desc limit 1",
        )
        .fetch_one(store.pool())
        .await
        .expect("a row");
        assert_eq!(stored, expected);
    }
}

#[tokio::test]
async fn a_value_that_no_metric_has_is_refused_by_the_database() {
    let Some(store) = fresh_store().await else { return };
    for metrics in [
        r#"{"sm_active_fraction": 1.5, "sources": {}}"#,
        r#"{"stall_fraction": -0.1, "sources": {}}"#,
        r#"{"power_watts": "many", "sources": {}}"#,
        r#"{"power_watts": 5, "sources": []}"#,
        "[]",
    ] {
        for (table, columns, values) in [
            ("device_sample", "recorded_at, node, gres_type, tenants", "now(), 'n1', 'g0', '[]'"),
            (
                "workload_profile",
                "workload, device_model, run_count, duration_deviation_squares, process_count_peak, updated_at",
                "'a/b', 'h100', 1, 0, 1, now()",
            ),
        ] {
            let statement =
                format!("insert into {table} ({columns}, metrics) values ({values}, '{metrics}')");
            let error =
                sqlx::query(sqlx::AssertSqlSafe(statement)).execute(store.pool()).await.expect_err(metrics);
            assert!(error.to_string().contains(&format!("{table}_metrics_check")), "{metrics}: {error}");
        }
    }
}

/// As the release before wrote them: a column for each metric.
#[tokio::test]
async fn rows_of_before_are_read() {
    let Some(store) = fresh_store().await else { return };
    sqlx::raw_sql(
        "insert into workload_profile (workload, device_model, run_count, duration_deviation_squares, process_count_peak,
            updated_at, sm_active_fraction, tensor_active_fraction, pcie_tx_bytes_per_second, throttled_fraction,
            power_watts_mean, sources)
        values ('alice/w', 'h100', 3, 0, 1, to_timestamp(100), 0.25, 0.5, 1e9, 0.125, 350.5,
            '{\"power_watts\": \"nvml\", \"throttles\": \"nvml\", \"sm_active_fraction\": \"nvml-gpm\"}');
        insert into device_sample (recorded_at, node, gres_type, tenants, power_watts)
        values (to_timestamp(100), 'n1', 'g1', '[]', 300);
        insert into device_sample (recorded_at, node, gres_type, tenants, metrics)
        values (to_timestamp(101), 'n1', 'g1', '[]', '{\"power_watts\": 200, \"sources\": {}}')",
    )
    .execute(store.pool())
    .await
    .expect("rows of before");
    let key = WorkloadKey::new("alice/w");
    let stored = store.profile(&key, "h100").await.expect("read").expect("it is there");
    let value = |metric| stored.profile.metrics.measured(metric).map(|it| (it.value, it.source));
    assert_eq!(value(Metric::SmActiveFraction), Some((0.25, Some(MetricSource::NvmlGpm))));
    assert_eq!(value(Metric::PowerWatts), Some((350.5, Some(MetricSource::Nvml))));
    assert_eq!(value(Metric::Throttles), Some((0.125, Some(MetricSource::Nvml))));
    assert_eq!(value(Metric::PcieTxBytesPerSecond), Some((1e9, None)));
    assert_eq!(
        (value(Metric::TensorActiveFraction), value(Metric::StallFraction)),
        (Some((0.5, None)), None)
    );
    let mean = store
        .power_watts_mean(&NodeName::new("n1"), &gres(), UnixTime::from_epoch(99), UnixTime::from_epoch(102))
        .await
        .expect("read");
    assert_eq!(mean, Some(250.0), "of rows of both kinds");
}

/// A release that is gone back to would pass over what it cannot read, and decide without it (docs/upgrade.md).
#[tokio::test]
async fn a_schema_of_a_later_release_is_refused_and_left_as_it_is() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let server = start(&workplace.path.join("postgres"), owner).await;
    let store = PgStore::connect(server.url()).await.expect("a store");
    // The last of ours is there to be applied again, were it tried.
    sqlx::raw_sql(
        "alter table job add column of_a_later_release text not null default 'x';
        delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations);
        insert into _sqlx_migrations (version, description, success, checksum, execution_time)
        values (99991231235959, 'of a later release', true, '\\x00', 1)",
    )
    .execute(store.pool())
    .await
    .expect("a later release");
    let migrations = "select version, installed_on::text, success from _sqlx_migrations order by version";
    let there = sqlx::query_as::<_, (i64, String, bool)>(migrations);
    let before = there.fetch_all(store.pool()).await.expect("read");

    let error = PgStore::connect(server.url()).await.expect_err("refused");
    let sentence = pillion_core::report(&error);
    assert!(matches!(error, ConnectError::NewerSchema { found: 99_991_231_235_959, .. }), "{sentence}");
    assert!(error.needs_somebody() && sentence.lines().count() == 1, "{sentence}");
    let known = MIGRATOR.iter().map(|migration| migration.version).max().expect("there are some");
    for part in ["migration 99991231235959", &format!("up to {known};"), "restore the copy"] {
        assert!(sentence.contains(part), "no {part}: {sentence}");
    }
    let there = sqlx::query_as::<_, (i64, String, bool)>(migrations);
    assert_eq!(there.fetch_all(store.pool()).await.expect("read"), before, "nothing was applied");
    store.record_jobs(&[job(2)], at(1)).await.expect("who was connected before goes on");
    server.stop().await;
}

#[tokio::test]
async fn a_value_that_the_database_refuses_is_not_tried_again() {
    let Some(store) = fresh_store().await else { return };
    let mut broken = pair(1, 2);
    broken.members[1].slowdown_ratio_max = 0.5;
    let error = store.commit_plan(Revision(0), &[broken], at(1)).await.expect_err("no promise");
    assert!(
        matches!(error, StoreError::Refused { action: "committing a plan", .. }) && !error.is_transient()
    );
    let chain = pillion_core::report(&error);
    assert!(chain.contains("pairing_member_slowdown_ratio_max_check"), "{chain}");
    assert_eq!(store.revision().await.expect("revision"), Revision(0));
}

#[tokio::test]
async fn one_scheduler_leads_until_its_connection_ends() {
    let Some(store) = fresh_store().await else { return };
    let mut leader = store.try_lead().await.expect("asked").expect("nobody leads");
    assert!(leader.is_held().await);
    assert!(store.try_lead().await.expect("asked").is_none(), "two lead");
    sqlx::query("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted")
        .execute(store.pool())
        .await
        .expect("the leader's connection ended");
    assert!(!leader.is_held().await, "the lock went with its connection");
    assert!(store.try_lead().await.expect("asked").is_some());
}

/// Frozen, or on a host that lost its power: the connection stands, and nobody says anything.
#[tokio::test]
async fn a_leader_that_says_nothing_any_more_is_followed() {
    let Some(store) = fresh_store().await else { return };
    let begun = Instant::now();
    let mut silent = store.try_lead().await.expect("asked").expect("nobody leads");
    let second = loop {
        if let Some(second) = store.try_lead().await.expect("asked") {
            break second;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "it leads for ever");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(begun.elapsed() > Leadership::HELD_FOR, "two lead");
    assert!(!silent.is_held().await);
    drop(second);
}

/// Of a scheduler that was frozen between two statements: whoever leads next is to decide.
#[tokio::test]
async fn a_transaction_that_stands_still_keeps_nobody_else_for_long() {
    let Some(store) = fresh_store().await else { return };
    let mut frozen = store.pool().begin().await.expect("begun");
    sqlx::query("update plan_head set revision = revision").execute(&mut *frozen).await.expect("locked");
    store.record_jobs(&[job(1), job(2)], at(0)).await.expect("recorded");
    let begun = Instant::now();
    loop {
        let revision = store.revision().await.expect("asked");
        if store.commit_plan(revision, &[pair(1, 2)], at(0)).await.is_ok() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "nothing is decided for ever");
    }
    frozen.commit().await.expect_err("its connection was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_transactions_are_run_again_and_counted() {
    let Some(store) = fresh_store().await else { return };
    let store = Arc::new(store);
    // All write the same row.
    let writers = (1..=12).map(|restart_count| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.record_jobs(&[JobRecord { restart_count, ..job(1) }], at(0)).await })
    });
    let writers: Vec<_> = writers.collect();
    for writer in writers {
        let result: Result<(), StoreError> = writer.await.expect("no panic");
        result.expect("retried until it went through");
    }
    let counts = store.transaction_counts()["recording jobs"];
    assert_eq!((counts.committed, counts.failed), (12, 0));
}
