//! Faults on request.

use crate::fixtures::{commit, job, pair, plain};
use pillion_core::Revision;
use pillion_memory_store::{FailWhen, MemoryStore};
use pillion_store::StoreError;
use pillion_store::prelude::*;

#[tokio::test]
async fn a_fault_before_leaves_nothing_and_a_fault_after_leaves_all() {
    let store = MemoryStore::new();
    store.fail_next(1, FailWhen::Before);
    let error = store.record_jobs(&[job(1)], crate::fixtures::at(0)).await.expect_err("told to fail");
    assert!(matches!(error, StoreError::Database { action: "recording jobs", .. }) && error.is_transient());
    assert_eq!(store.job(plain(1)).await.expect("healthy again"), None);

    store.fail_next(1, FailWhen::After);
    store.record_jobs(&[job(1)], crate::fixtures::at(0)).await.expect_err("told to fail");
    assert_eq!(store.job(plain(1)).await.expect("healthy again"), Some(job(1)));
}

#[tokio::test]
async fn faults_come_in_the_order_they_were_asked_for_and_can_be_taken_back() {
    let store = MemoryStore::new();
    store.fail_next(2, FailWhen::Before);
    store.fail_next(1, FailWhen::After);
    for _ in 0..3 {
        store.revision().await.expect_err("told to fail");
    }
    assert_eq!(commit(&store, &[pair(1, 2)]).await.len(), 1);
    store.fail_next(9, FailWhen::Before);
    store.heal();
    store.revision().await.expect("healed");
}

#[tokio::test]
async fn a_call_that_fails_by_itself_fails_with_its_own_error() {
    let store = MemoryStore::new();
    store.fail_next(1, FailWhen::After);
    let error = store.commit_plan(Revision(9), &[], crate::fixtures::at(0)).await.expect_err("stale");
    assert!(matches!(error, StoreError::StaleView { .. }), "{error}");
}
