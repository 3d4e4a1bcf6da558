//! The case about what runs used beyond their profiles.

use crate::fixtures::{LESSON, account, at, ended_job, gres, node, start, summary, summary_report};
use pillion_core::{UserId, WorkloadKey};
use pillion_store::{Charge, RunAccount, Store};
use std::sync::Arc;

pub(crate) async fn what_was_used_beyond_profiles_is_the_mean_of_the_last_runs(store: Arc<dyn Store>) {
    let profiled = async |id: u32, uid: u32, workload: &str, beyond: Option<f64>| {
        store.record_jobs(&[ended_job(id)], at(80)).await.expect("recorded");
        store.ingest(&node(), "j", &summary_report(u64::from(id), summary(id))).await.expect("stored");
        let run = RunAccount {
            uid: UserId(uid),
            workload: WorkloadKey::new(workload),
            use_beyond_fraction: beyond,
            ..account(id)
        };
        // A run counts once, however often it is told.
        for _ in 0..2 {
            store.profile_run(start(id), &gres(), &run, &LESSON, None).await.expect("kept");
        }
    };
    let charge = |uid: u32, workload: Option<&str>, beyond_fraction: f64| Charge {
        uid: UserId(uid),
        workload: workload.map(WorkloadKey::new),
        beyond_fraction,
    };
    profiled(1, 1000, "alice/honest", Some(0.0)).await;
    profiled(2, 1000, "alice/honest", None).await;
    assert_eq!(store.charges().await.expect("read"), [], "nobody used more than he is known for");
    profiled(3, 2000, "bob/light", Some(0.5)).await;
    profiled(4, 2000, "bob/honest", Some(0.0)).await;
    profiled(5, 2000, "bob/light", Some(0.25)).await;
    let known = [
        charge(2000, None, 0.25),
        charge(2000, Some("bob/honest"), 0.0),
        charge(2000, Some("bob/light"), 0.375),
    ];
    assert_eq!(store.charges().await.expect("read"), known);
    // Of what is long ago less and less remains.
    for id in 10..50 {
        profiled(id, 2000, "bob/light", Some(0.0)).await;
    }
    let charges = store.charges().await.expect("read");
    assert!(charges.iter().all(|charge| charge.beyond_fraction < 0.01), "{charges:?}");
}
