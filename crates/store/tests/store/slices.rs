//! The case about what runs in instances taught.

use crate::fixtures::{LESSON, account, at, ended_job, gres, node, start, summary, summary_report};
use pillion_core::WorkloadKey;
use pillion_pairing::mig::{SliceBook, SliceRecord};
use pillion_store::{RunAccount, SliceLesson, Store};
use std::sync::Arc;

pub(crate) async fn what_runs_in_instances_taught_adds_up(store: Arc<dyn Store>) {
    let lesson = |profile: &str, has_completed, ran_out_of_memory, speed_fraction| SliceLesson {
        device_model: "h100".to_owned(),
        profile: profile.parse().expect("a size"),
        memory_bytes: (profile != "7g.80gb").then_some(10 << 30),
        has_completed,
        ran_out_of_memory,
        speed_fraction,
    };
    let profiled = async |id: u32, slice: Option<SliceLesson>| {
        store.record_jobs(&[ended_job(id)], at(80)).await.expect("recorded");
        store.ingest(&node(), "j", &summary_report(u64::from(id), summary(id))).await.expect("stored");
        let run = RunAccount { workload: WorkloadKey::new("alice/w"), slice, ..account(id) };
        // A run counts once, however often it is told.
        for _ in 0..2 {
            store.profile_run(start(id), &gres(), &run, &LESSON, None).await.expect("kept");
        }
    };
    profiled(1, None).await;
    assert_eq!(store.slices().await.expect("read"), []);
    profiled(2, Some(lesson("1g.10gb", false, true, None))).await;
    profiled(3, Some(lesson("2g.20gb", true, false, Some(0.5)))).await;
    profiled(4, Some(lesson("2g.20gb", true, false, None))).await;
    profiled(5, Some(lesson("2g.20gb", true, false, Some(0.75)))).await;
    profiled(6, Some(lesson("7g.80gb", true, false, Some(1.0)))).await;
    let records = store.slices().await.expect("read");
    let told = |record: &SliceRecord| {
        let SliceRecord { completed_count, out_of_memory_count, speed_count, speed_fraction, .. } = record;
        (record.profile.to_string(), *completed_count, *out_of_memory_count, *speed_count, *speed_fraction)
    };
    let expected = [
        ("1g.10gb".to_owned(), 0, 1, 0, None),
        ("2g.20gb".to_owned(), 3, 0, 2, Some(0.625)),
        ("7g.80gb".to_owned(), 1, 0, 1, Some(1.0)),
    ];
    assert_eq!(records.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!((records[0].memory_bytes, records[2].memory_bytes), (Some(10 << 30), None));
    let book = SliceBook::from(records);
    let known = book.get(&WorkloadKey::new("alice/w"), "h100").expect("it ran there");
    assert_eq!(known.fit.ran_out_bytes_max, Some(10 << 30), "for good");
}
