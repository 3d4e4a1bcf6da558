//! What is made of the summaries of a start on several devices.

use super::*;
use crate::testing::{at, record, summary};
use pillion_core::metric::{Metric, Metrics};
use pillion_core::report::{Report, ReportBody};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId};
use pillion_memory_store::MemoryStore;
use pillion_store::JobRecord;
use pillion_store::prelude::*;

const GIB: u64 = 1 << 30;

fn start() -> JobStart {
    JobStart { job_id: SlurmJobId::plain(7), restart_count: 0 }
}

/// What was measured of one of its devices.
fn told(device: &str, active: f64, gib: Option<u64>) -> JobSummary {
    JobSummary {
        gres_type: GresType::new(device),
        started_at: at(1000),
        ended_at: at(2000),
        memory_bytes_peak: gib.map(|gib| gib * GIB),
        process_memory_bytes_peak: gib.map(|gib| gib * GIB),
        process_count_peak: 1,
        solo_means: Some(ActivityMeans(Metrics::from([(Metric::SmActiveFraction, active)]))),
        ..summary(start())
    }
}

fn run(told: &JobSummary) -> MeasuredRun {
    MeasuredRun {
        summary: told.clone(),
        node: NodeName::new("n1"),
        device_model: "h100".into(),
        device_memory_bytes: 80 * GIB,
        job: JobRecord { gres: "shard:g1:100,shard:g2:100".into(), ..record(start()) },
        requeue: None,
        decision: None,
    }
}

async fn store_with(all: &[JobSummary]) -> MemoryStore {
    let store = MemoryStore::new();
    for (sequence, one) in (1..).zip(all) {
        let body = ReportBody::JobSummary(Box::new(one.clone()));
        store.ingest(&NodeName::new("n1"), "j", &Report { sequence, body }).await.unwrap();
    }
    store
}

/// The run of the first as it teaches, where it does.
async fn first(all: &[JobSummary], seconds_after: u64) -> Result<JobSummary, String> {
    let store = store_with(all).await;
    let run = run(&all[0]);
    match heard(&store, &run, at(2000 + seconds_after)).await.unwrap() {
        Some(Ok(run)) => Ok(run.summary.clone()),
        Some(Err(why)) => Err(why.to_owned()),
        None => Err("not yet".to_owned()),
    }
}

#[tokio::test]
async fn the_first_tells_with_the_most_that_any_did() {
    let all = [told("g1", 0.2, Some(10)), told("g2", 0.7, Some(30)), told("g9", 1.0, Some(70))];
    let taught = first(&all, 1).await.unwrap();
    let peaks = [taught.memory_bytes_peak, taught.process_memory_bytes_peak];
    assert_eq!(peaks, [Some(30 * GIB); 2], "another device is not of it");
    assert_eq!(taught.solo_means.unwrap().0.get(Metric::SmActiveFraction), Some(0.7));
    // The other way round it is the first's own.
    let all = [told("g1", 0.7, Some(30)), told("g2", 0.2, Some(10))];
    let taught = first(&all, 1).await.unwrap();
    assert_eq!((taught.memory_bytes_peak, taught.started_at), (Some(30 * GIB), at(1000)));
    assert_eq!(taught.solo_means.unwrap().0.get(Metric::SmActiveFraction), Some(0.7));
}

#[tokio::test]
async fn what_nobody_could_read_of_one_is_not_known_of_all() {
    let unread = [told("g1", 0.2, Some(10)), told("g2", 0.2, None)];
    let taught = first(&unread, 1).await.unwrap();
    assert_eq!([taught.memory_bytes_peak, taught.process_memory_bytes_peak], [None; 2]);
    let unused = JobSummary { process_count_peak: 0, ..told("g2", 0.0, None) };
    let taught = first(&[told("g1", 0.2, Some(10)), unused], 1).await.unwrap();
    assert_eq!(taught.memory_bytes_peak, Some(10 * GIB), "nobody was there");
}

#[tokio::test]
async fn it_waits_for_the_others_and_not_for_ever() {
    let alone = [told("g1", 0.2, Some(10))];
    assert_eq!(first(&alone, 1).await, Err("not yet".to_owned()));
    assert_eq!(first(&alone, 61).await, Err("one of its GPUs was not heard of".to_owned()));
    // Of the others nothing is waited for, nor where there is one device.
    let store = store_with(&[]).await;
    let second = run(&told("g2", 0.2, Some(10)));
    let itself = |heard: Option<Heard<'_>>| matches!(heard, Some(Ok(Cow::Borrowed(_))));
    assert!(itself(heard(&store, &second, at(2001)).await.unwrap()));
    let mut narrow = run(&told("g1", 0.2, Some(10)));
    narrow.job.gres = "shard:g1:100".into();
    assert!(itself(heard(&store, &narrow, at(2001)).await.unwrap()));
}
