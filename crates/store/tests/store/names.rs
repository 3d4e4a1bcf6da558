//! The cases about names of workloads.

use crate::fixtures::at;
use pillion_core::name::{KnownName, NameSource};
use pillion_core::{UserId, WorkloadKey, WorkloadName};
use pillion_store::{Naming, Store};
use std::sync::Arc;

fn name(text: &str) -> WorkloadName {
    WorkloadName::safe(text).expect("a name")
}

fn naming(workload: &str, uid: u32, text: &str, source: NameSource) -> Naming {
    Naming { workload: WorkloadKey::new(workload), uid: UserId(uid), name: name(text), source }
}

pub(crate) async fn a_workload_has_one_name_and_that_of_its_profile_is_better(store: Arc<dyn Store>) {
    use NameSource::{Job, Profile};
    let keep = async |namings: &[Naming]| store.name_workloads(namings, at(1)).await.expect("kept");
    keep(&[]).await;
    keep(&[naming("alice/1", 1, "first", Job), naming("alice/1", 1, "second", Job)]).await;
    keep(&[naming("alice/2", 1, "run-17", Job), naming("alice/2", 1, "学習-bert", Profile)]).await;
    keep(&[naming("alice/2", 1, "run-18", Job), naming("alice/2", 1, "other", Profile)]).await;
    let keys = ["alice/1", "alice/2", "alice/3"].map(WorkloadKey::new);
    let known = store.workload_names(&keys).await.expect("read");
    let known: Vec<_> = known.iter().map(|(key, known)| (key.as_str(), known.name.as_str())).collect();
    assert_eq!(known, [("alice/1", "first"), ("alice/2", "学習-bert")]);
    assert!(store.workload_names(&[]).await.expect("read").is_empty());
}

pub(crate) async fn workloads_of_one_name_are_told_by_whose_they_are(store: Arc<dyn Store>) {
    let rows = [("alice/b", 1, "x"), ("alice/A", 1, "x"), ("bob/c", 2, "x"), ("bob/d", 2, "y")];
    let rows = rows.map(|(key, uid, text)| naming(key, uid, text, NameSource::Job));
    store.name_workloads(&rows, at(1)).await.expect("kept");
    let called = async |text: &str, uid: Option<u32>| -> Vec<String> {
        let keys = store.workloads_called(&name(text), uid.map(UserId)).await.expect("read");
        keys.into_iter().map(|key| key.to_string()).collect()
    };
    assert_eq!(called("x", None).await, ["alice/A", "alice/b", "bob/c"]);
    assert_eq!(called("x", Some(1)).await, ["alice/A", "alice/b"]);
    assert_eq!(called("y", Some(1)).await, [""; 0]);
    let keys = ["alice/b", "bob/c"].map(WorkloadKey::new);
    let known = store.workload_names(&keys).await.expect("read");
    let expected = |is_shared| KnownName { name: name("x"), is_shared };
    let [alices, bobs] = keys;
    assert_eq!(known, [(alices, expected(true)), (bobs, expected(false))].into());
}
