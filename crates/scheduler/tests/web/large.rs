//! A site of 8,000 GPUs and 100,000 jobs: every page is found by index, and its first byte comes soon.

use crate::site::{Answer, Site, Size};
use pillion_core::{DecisionId, UnixTime};
use pillion_store::DecisionFilter;
use std::time::Duration;

const LARGE: Size = Size { nodes: 1_000, jobs: 100_000 };

/// Every kind of page, with the filters that reach furthest.
const PAGES: [&str; 19] = [
    "/",
    "/?from=500",
    "/?state=closed",
    "/?node=n[0001-0050]",
    "/gains",
    "/gains?by=workload&since=now-7days",
    "/gains?by=node&since=now-30days",
    "/gains?by=user&since=now-365days&account=nlp",
    "/heatmap",
    "/heatmap?workload=chen/bert-base-b8",
    "/pairs",
    "/pairs?workload=chen/bert-base-b8&with=dalia/resnet50-b2",
    "/pairs?node=n0007&before=40000",
    "/decisions/4711",
    "/jobs/4711",
    "/workloads/goran/lattice-qcd",
    "/nodes/n0008",
    "/queue",
    "/idle",
];

/// How often each page is asked for, one after the other: the machine has other work too.
const ROUNDS: usize = 5;

/// Not a target: beyond this something is read that should not be. Programs without optimisation on a busy machine are slow.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Tables that grow with every job, from `pg_stat_user_tables`: how often each was read from end to end.
async fn scans(site: &Site) -> Vec<(String, i64)> {
    // What a connection did is told by it when it is idle for a second, or goes.
    let names = "('job', 'pairing_decision', 'pairing_member', 'job_run', 'device_sample', 'explanation', 'event', 'observation', 'run_account', 'account_hour')";
    let query = format!(
        "select relname::text, seq_scan from pg_stat_user_tables where relname in {names} order by 1"
    );
    sqlx::query_as(sqlx::AssertSqlSafe(query)).fetch_all(site.store.pool()).await.expect("statistics")
}

/// However many memberships the busiest workload has had since, its first pairing is found.
async fn find_the_oldest(site: &Site) {
    let (workload, count, oldest): (String, i64, i64) = sqlx::query_as(
        "select workload, count(*), min(decision_id) from pairing_member where role <> 'alone' group by 1 order by 2 desc limit 1",
    )
    .fetch_one(site.store.pool())
    .await
    .expect("a workload");
    assert!(count > 5_000, "{workload} has {count} only: what lies beyond one step is not asked for");
    let first = DecisionId(u64::try_from(oldest).expect("an id"));
    let until: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("select created_at from pairing_decision where decision_id = $1")
            .bind(oldest)
            .fetch_one(site.store.pool())
            .await
            .expect("it is there");
    let until = UnixTime::from_epoch(u64::try_from(until.timestamp()).expect("after 1970") + 1);
    let filter = DecisionFilter { workload: Some(workload), until: Some(until), ..DecisionFilter::default() };
    let found = site.store.decisions(&filter).await.expect("an answer");
    assert!(found.iter().any(|decision| decision.id == first), "{} others were found", found.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_large_site_read_no_big_table_from_end_to_end() {
    let Some(site) = Site::start(LARGE).await else { return };
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let before = scans(&site).await;
    let mut answers: Vec<Vec<Answer>> = PAGES.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (page, answers) in PAGES.iter().zip(&mut answers) {
            let answer = site.get(page).await;
            assert_eq!(answer.status, 200, "{page}: {}", answer.body);
            assert!(answer.waited < WAIT_MAX, "{page} took {:?}", answer.waited);
            answers.push(answer);
        }
    }
    println!("| page | first byte, median of {ROUNDS} | slowest | size |\n|---|---:|---:|---:|");
    for (page, mut answers) in PAGES.iter().zip(answers) {
        answers.sort_by_key(|answer| answer.waited);
        let (median, slowest) = (&answers[ROUNDS / 2], &answers[ROUNDS - 1]);
        let (usual, most) = (median.waited.as_millis(), slowest.waited.as_millis());
        println!("| {page} | {usual} ms | {most} ms | {} KiB |", median.body.len() / 1024);
    }
    // Connections tell what they did within a second of being idle.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(scans(&site).await, before, "a page reads a big table from end to end");
    assert_eq!(before.len(), 10, "a table has another name now: {before:?}");
    find_the_oldest(&site).await;
}
