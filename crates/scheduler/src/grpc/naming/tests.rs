//! Names in answers and in requests, over the store in memory.

use super::*;
use pillion_core::name::NameSource;
use pillion_core::{UnixTime, UserId, WorkloadName};
use pillion_memory_store::MemoryStore;
use pillion_store::Naming as Kept;
use pillion_store::prelude::*;

const ALICE: Caller = Caller { uid: Some(UserId(1000)), is_operator: false };
const NOBODY: Caller = Caller { uid: None, is_operator: false };
const OPERATOR: Caller = Caller { uid: None, is_operator: true };

const BERT: &str = "alice/aa710d1a65607725";
const FIRST: &str = "alice/1111111111111111";
const SECOND: &str = "alice/2222222222222222";
const BOBS: &str = "bob/aa710d1a65607725";

async fn store() -> MemoryStore {
    let store = MemoryStore::new();
    let rows =
        [(BERT, 1000, "bert"), (FIRST, 1000, "train.sh"), (SECOND, 1000, "train.sh"), (BOBS, 1001, "bert")];
    let naming = |(key, uid, name): (&str, u32, &str)| Kept {
        workload: WorkloadKey::new(key),
        uid: UserId(uid),
        name: WorkloadName::safe(name).unwrap(),
        source: NameSource::Job,
    };
    store.name_workloads(&rows.map(naming), UnixTime::from_epoch(1)).await.unwrap();
    store
}

#[tokio::test]
async fn names_stand_beside_keys_and_nothing_beside_what_is_hidden() {
    let member = |workload: Option<&str>| api::Member {
        workload: workload.map(str::to_owned),
        ..api::Member::default()
    };
    let members = [Some(BERT), Some(FIRST), Some("alice/w"), None, Some(BOBS)].map(member).to_vec();
    let decisions = vec![api::Decision { members, ..api::Decision::default() }];
    let answer = named(&store().await, api::PairsResponse { decisions }).await.unwrap();
    let names: Vec<Option<&str>> =
        answer.decisions[0].members.iter().map(|member| member.workload_name.as_deref()).collect();
    let known = ["alice/bert", "alice/train.sh~1111", "alice/w"].map(Some);
    assert_eq!(names, [&known[..], &[None, Some("bob/bert")]].concat());
}

#[tokio::test]
async fn texts_with_keys_in_them_are_told_with_their_names() {
    let keys = [WorkloadKey::new(BERT), WorkloadKey::new("")];
    let answer =
        api::DryRunResponse { workload_names: places(keys.iter()), ..api::DryRunResponse::default() };
    let answer = named(&store().await, answer).await.unwrap();
    assert_eq!(answer.workload_names, [(BERT.to_owned(), "alice/bert".to_owned())].into());
}

#[tokio::test]
async fn who_asks_by_name_means_what_he_may_see() {
    let store = store().await;
    for (caller, asked, meant) in [
        (ALICE, "bert", BERT),
        (ALICE, "alice/bert", BERT),
        (ALICE, "train.sh~22", SECOND),
        (ALICE, BERT, BERT),
        (ALICE, "bob/bert", "bob/bert"),
        (NOBODY, "bert", "bert"),
        (OPERATOR, "bob/bert", BOBS),
        (OPERATOR, "unknown", "unknown"),
        (OPERATOR, "", ""),
    ] {
        let found = resolved(&store, caller, asked.to_owned()).await.unwrap();
        assert_eq!(found, meant, "{caller:?} {asked}");
    }
}

#[tokio::test]
async fn a_name_of_several_is_answered_with_the_candidates() {
    let store = store().await;
    for (caller, asked, sentence) in [
        (
            ALICE,
            "train.sh",
            "'train.sh' is the name of 2 workloads; say which: alice/train.sh~1111, alice/train.sh~2222",
        ),
        (OPERATOR, "bert", "'bert' is the name of 2 workloads; say which: alice/bert, bob/bert"),
    ] {
        let refused = resolved(&store, caller, asked.to_owned()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (tonic::Code::InvalidArgument, sentence));
    }
}
