use super::*;
use crate::testing::{at, member, new_decision};
use pillion_core::decision::MemberState::{Ended, Planned, Released, Running};
use pillion_core::report::{Report, ReportBody};
use pillion_core::{GresType, NodeName, SlurmJobId, UserId, WorkloadKey};
use pillion_memory_store::MemoryStore;
use pillion_pairing::Role;
use pillion_store::prelude::*;
use pillion_store::{MemberStep, NewDecision, NewMember};

const OPERATOR: Caller = Caller { uid: None, is_operator: true };
const ALICE: Caller = Caller { uid: Some(UserId(1000)), is_operator: false };
/// Bob's job, and how often its number may stand in an answer to Alice.
const PARTNER: u32 = 987_654;

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn record(id: u32, user: &str, uid: u32) -> JobRecord {
    JobRecord {
        uid: UserId(uid),
        user: user.into(),
        account: "ml".into(),
        workload: WorkloadKey::new(format!("{user}/w")),
        ..crate::testing::record(start(id))
    }
}

/// Alice's job 1 ran beside Bob's for 800 of 1000 seconds and was measured at 70 % of its speed.
async fn shared_run() -> MemoryStore {
    let store = MemoryStore::new();
    let members = [(1, "alice", 1000, Role::Host), (PARTNER, "bob", 1001, Role::Joiner)];
    for (id, user, uid, _) in members {
        store.record_jobs(&[record(id, user, uid)], at(90)).await.unwrap();
    }
    let planned = |(id, user, uid, role): (u32, &str, u32, Role)| NewMember {
        start: start(id),
        uid: UserId(uid),
        workload: WorkloadKey::new(format!("{user}/w")),
        role,
        ..member(Planned).plan
    };
    let decision = NewDecision {
        gres_types: GresType::new("g1").into(),
        device_model: "h200".into(),
        ..new_decision(members.map(planned).into())
    };
    let parent = store.revision().await.unwrap();
    let decision_id = store.commit_plan(parent, &[decision], at(900)).await.unwrap()[0];
    for (from, to) in [(Planned, Released), (Released, Running), (Running, Ended)] {
        let step = MemberStep { decision_id, start: start(1), from, to, at: at(1000) };
        assert!(store.step_member(&step).await.unwrap());
    }
    store.record_outcome(decision_id, start(1), Some(0.7), Some(5000.0)).await.unwrap();
    let summary = JobSummary {
        started_at: at(1000),
        ended_at: at(2000),
        shared_seconds: 800.0,
        shared_device_seconds: None,
        neighbours: vec![start(PARTNER)],
        ..crate::testing::summary(start(1))
    };
    let report = Report { sequence: 1, body: ReportBody::JobSummary(Box::new(summary)) };
    assert!(store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap());
    store
}

#[tokio::test]
async fn nobody_is_told_of_the_partner_not_even_operators() {
    let store = shared_run().await;
    for caller in [ALICE, OPERATOR] {
        let answer = status(&store, record(1, "alice", 1000), None, caller, at(3000)).await.unwrap();
        assert_eq!((answer.neighbour_count, answer.decision.as_ref().unwrap().members.len()), (1, 1));
        let text = format!("{answer:?}");
        assert!(text.contains("alice/w") && !text.contains("bob"), "{text}");
        assert!(!text.contains(&PARTNER.to_string()), "{text}");
    }
}

#[tokio::test]
async fn the_neighbour_is_the_cause_and_the_advice_says_what_to_write() {
    let store = shared_run().await;
    let answer = status(&store, record(1, "alice", 1000), None, ALICE, at(3000)).await.unwrap();
    let [cause] = answer.slow_causes.as_slice() else { panic!("{:?}", answer.slow_causes) };
    assert_eq!(cause.kind, "neighbour");
    assert_eq!(
        cause.evidence,
        "beside its neighbour it went at 70 % of its speed alone, for 80 % of its time"
    );
    assert!(answer.advice.as_ref().unwrap().contains("--colocate=no"), "{:?}", answer.advice);
    assert_eq!(answer.ending.as_deref(), Some("completed"));
}

#[tokio::test]
async fn a_job_that_never_met_pillion_has_no_share_and_no_cause() {
    let waiting =
        JobRecord { started_at: None, ended_at: None, ending: None, node: None, ..record(5, "alice", 1000) };
    let answer = status(&MemoryStore::new(), waiting, None, ALICE, at(3000)).await.unwrap();
    assert_eq!((answer.decision, answer.run, answer.slow_causes), (None, None, vec![]));
    assert_eq!((answer.advice, answer.ending), (None, None));
}
