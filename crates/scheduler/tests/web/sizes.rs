//! What rows take in Postgres, indexes included: figures of docs/sizing.md.

use crate::site::{Site, Size};
use crate::support::fresh_store;
use pillion_core::device::{Reading, TenantUse};
use pillion_core::metric::{Metric, MetricSource, Metrics};
use pillion_core::report::{DeviceSample, DeviceSamples, Report, ReportBody};
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_store::Reports as _;
use pillion_store::postgres::PgStore;

const MONTH: Size = Size { nodes: 100, jobs: 100_000 };
const DEVICES: u32 = 4;
const SECONDS: u32 = 5_000;
/// Below so many rows a table says nothing of a row.
const ROWS_MIN: i64 = 1_000;

/// One look at a GPU on which two jobs work, with all that NVML and GPM tell of it.
fn sample(device: u32, second: u32) -> DeviceSample {
    let fraction = |of: u32| f64::from((second * 31 + device * 17 + of * 7) % 997) / 997.0;
    let counters = Metrics::from([
        (Metric::SmActiveFraction, fraction(1)),
        (Metric::SmOccupancyFraction, fraction(2)),
        (Metric::Fp32ActiveFraction, fraction(3)),
        (Metric::TensorActiveFraction, fraction(4)),
        (Metric::MemoryBandwidthFraction, fraction(5)),
        (Metric::PcieTxBytesPerSecond, fraction(6) * 1e9),
        (Metric::PcieRxBytesPerSecond, fraction(7) * 1e9),
        (Metric::NvlinkTxBytesPerSecond, 0.0),
        (Metric::NvlinkRxBytesPerSecond, 0.0),
    ]);
    let mut reading = Reading::from(counters.from_source(MetricSource::NvmlGpm));
    for (metric, value) in [
        (Metric::EnergyJoules, 350.25 * f64::from(second)),
        (Metric::PowerWatts, 300.0 + 50.0 * fraction(8)),
        (Metric::GpuBusyFraction, fraction(9)),
        (Metric::MemoryBusyFraction, fraction(10)),
        (Metric::SmClockHertz, 1.98e9),
        (Metric::Throttles, 0.0),
    ] {
        reading.metrics.set(metric, value);
    }
    reading.metrics.set_bytes(Metric::MemoryBytesUsed, 35 << 30);
    reading.metrics.tag_untagged(MetricSource::Nvml);
    let tenant = |job: u32| TenantUse {
        job_id: SlurmJobId::plain(job),
        restart_count: 0,
        memory_bytes: Some(u64::from(job) << 20),
        process_count: 1,
        progress: Some(2.5 * f64::from(second)),
    };
    let gres_type = GresType::new(format!("g{device}"));
    DeviceSample { gres_type, reading, tenants: vec![tenant(14_711), tenant(14_712)] }
}

/// Samples of so many seconds, as an agent sends them.
async fn fill(store: &PgStore, seconds: u32) {
    let node = NodeName::new("n0001");
    for second in 1..=seconds {
        let recorded_at = UnixTime::from_epoch(1_795_000_000 + u64::from(second));
        let samples = (0..DEVICES).map(|device| sample(device, second)).collect();
        let body = ReportBody::Samples(DeviceSamples { recorded_at, samples });
        let report = Report { sequence: u64::from(second), body };
        assert!(store.ingest(&node, "j", &report).await.expect("stored"));
    }
}

/// What is written of a device's samples a day, from a row and from the default of the period.
#[tokio::test]
async fn a_days_samples_take_what_the_documents_say() {
    const SIZING: &str = include_str!("../../../../docs/sizing.md");
    let Some(store) = fresh_store().await else { return };
    fill(&store, 500).await;
    let bytes: f64 = sqlx::query_scalar(
        "select pg_total_relation_size('device_sample')::float8 / count(*) from device_sample",
    )
    .fetch_one(store.pool())
    .await
    .expect("a size");
    let rows = 86_400 / pillion_config::Scheduler::default().database.sample_period_seconds;
    let (_, stated) = SIZING.split_once("a GPU that works all day | ").expect("docs/sizing.md has the row");
    let (product, stated) = stated.split_once(" = **").expect("rows x bytes = **MB**");
    let [stated_rows, stated_bytes] = product.split_once(" x ").map(<[&str; 2]>::from).expect("a product");
    let number = |text: &str| text.replace(',', "").parse::<f64>().expect("a number");
    assert_eq!(stated_rows.replace(',', ""), rows.to_string());
    let difference_fraction = (bytes / number(stated_bytes) - 1.0).abs();
    assert!(difference_fraction < 0.1, "a row takes {bytes:.0} bytes, and {stated_bytes} are written");
    let megabytes = number(stated_rows) * number(stated_bytes) / 1e6;
    let stated = number(stated.split_once(" MB").expect("MB").0);
    assert!((megabytes - stated).abs() < 0.06, "{megabytes:.2} MB a day, and {stated} are written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure of docs/sizing.md: tests/bench database"]
async fn what_rows_take() {
    let Some(site) = Site::start(MONTH).await else { return };
    fill(&site.store, SECONDS).await;
    let mut connection = site.store.pool().acquire().await.expect("a connection").detach();
    // Each by itself: several at once are a transaction, in which nothing can be vacuumed.
    for statement in ["set statement_timeout = 0", "vacuum analyze"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.expect(statement);
    }
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(
        "select relname::text, n_live_tup, pg_total_relation_size(relid) from pg_stat_user_tables
        where n_live_tup >= $1 order by relname",
    )
    .bind(ROWS_MIN)
    .fetch_all(site.store.pool())
    .await
    .expect("sizes");
    assert!(rows.len() > 5, "only {rows:?}");
    println!("| table | rows | bytes a row, indexes included |\n|---|---:|---:|");
    for (table, count, bytes) in rows {
        println!("| `{table}` | {count} | {} |", bytes / count);
    }
}
