//! The case about who has lost the right to share for a while.

use crate::fixtures::{LESSON, account, at, ended_job, gres, node, plain, start, summary, summary_report};
use pillion_core::UserId;
use pillion_store::{Atonement, CreditLoss, Event, RunAccount, Store, Sums};
use std::sync::Arc;

pub(crate) async fn credit_is_lost_once_a_start_and_atoned_by_runs_alone(store: Arc<dyn Store>) {
    let loss = |id: u32, uid: u32, seconds: u32| CreditLoss {
        uid: UserId(uid),
        lost_at: at(seconds),
        start: start(id),
        node: node(),
        reason: "it did more\0".to_owned(),
    };
    let told = |id: u32| Event {
        at: at(100),
        kind: "profile-exceeded".into(),
        job_id: Some(plain(id)),
        node: Some(node()),
        detail: "it did more".to_owned(),
    };
    assert_eq!(store.atonements(10.0, 5).await.expect("read"), []);
    assert!(store.lose_credit(&loss(1, 1000, 50), &told(1)).await.expect("kept"));
    assert!(!store.lose_credit(&loss(1, 1000, 60), &told(1)).await.expect("known"), "a start costs once");
    assert!(store.lose_credit(&loss(2, 2000, 50), &told(2)).await.expect("kept"));
    assert_eq!(store.events(plain(1)).await.expect("read").len(), 1);
    let runs_alone = |one: u32, other: u32| {
        [(1000, one), (2000, other)].map(|(uid, runs_alone)| Atonement { uid: UserId(uid), runs_alone })
    };
    assert_eq!(store.atonements(10.0, 5).await.expect("read"), runs_alone(0, 0));
    // Of alice: alone, alone but short, and shared.
    for (id, gpu_seconds, shared_run_count) in [(11, 60.0, 0), (12, 9.0, 0), (13, 60.0, 1)] {
        store.record_jobs(&[ended_job(id)], at(80)).await.expect("recorded");
        store.ingest(&node(), "j", &summary_report(u64::from(id), summary(id))).await.expect("stored");
        let sums = Sums { gpu_seconds, shared_run_count, ..Sums::default() };
        let run = RunAccount { sums, ..account(id) };
        store.profile_run(start(id), &gres(), &run, &LESSON, None).await.expect("kept");
    }
    assert_eq!(store.atonements(10.0, 5).await.expect("read"), runs_alone(1, 0));
    assert_eq!(store.atonements(0.0, 1).await.expect("read"), runs_alone(1, 0), "counted up to so many");
    assert!(store.lose_credit(&loss(3, 1000, 500), &told(3)).await.expect("kept"));
    assert_eq!(store.atonements(10.0, 5).await.expect("read"), runs_alone(0, 0), "it begins anew");
}
