//! The case about what Slurm said of starts.

use crate::fixtures::{at, ended_job, job, node, start};
use pillion_core::{JobStart, NodeName};
use pillion_store::{JobRecord, SlurmStart, Store};
use std::sync::Arc;

pub(crate) async fn a_start_is_as_slurm_told_of_it(store: Arc<dyn Store>) {
    store.record_jobs(&[job(1)], at(1)).await.expect("recorded");
    assert_eq!(store.slurm_start(start(1)).await.expect("read"), None, "it waits");
    let runs = JobRecord { ended_at: None, ending: None, exit: None, ..ended_job(1) };
    store.record_jobs(&[runs], at(20)).await.expect("recorded");
    let told = SlurmStart { node: node(), started_at: at(10), ended_at: None };
    assert_eq!(store.slurm_start(start(1)).await.expect("read"), Some(told.clone()));
    store.record_jobs(&[ended_job(1)], at(80)).await.expect("recorded");
    let over = SlurmStart { ended_at: Some(at(70)), ..told };
    assert_eq!(store.slurm_start(start(1)).await.expect("read"), Some(over.clone()));
    // Of a scheduler that led before, and comes late with what it saw.
    let runs = JobRecord { ended_at: None, ending: None, exit: None, ..ended_job(1) };
    store.record_jobs(std::slice::from_ref(&runs), at(79)).await.expect("recorded");
    assert_eq!(store.slurm_start(start(1)).await.expect("read"), Some(over.clone()));
    assert_eq!(store.job(runs.id).await.expect("read"), Some(ended_job(1)), "it runs again");
    let again = JobStart { restart_count: 1, ..start(1) };
    store.record_jobs(&[JobRecord { restart_count: 1, ..job(1) }], at(90)).await.expect("recorded");
    assert_eq!(store.slurm_start(again).await.expect("read"), None, "it waits again");
    let elsewhere = JobRecord { restart_count: 1, node: Some(NodeName::new("n2")), ..ended_job(1) };
    store.record_jobs(&[elsewhere], at(100)).await.expect("recorded");
    assert_eq!(
        store.slurm_start(start(1)).await.expect("read"),
        Some(over),
        "the start before stays as it was"
    );
    assert_eq!(
        store.slurm_start(again).await.expect("read").map(|told| told.node),
        Some(NodeName::new("n2"))
    );
    assert!(store.prune_history(at(1000)).await.expect("pruned") >= 3, "the job and both starts");
    assert_eq!(store.slurm_start(start(1)).await.expect("read"), None);
}
