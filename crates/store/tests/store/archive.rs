//! What was learnt, out of one database and into another.

use crate::fixtures::{
    account, at, device, ended_job, gres, node, profile, start, summary, summary_report, told,
};
use crate::support::fresh_store;
use pillion_core::name::NameSource;
use pillion_core::{JobStart, UserId, WorkloadKey, WorkloadName};
use pillion_store::archive::Archive;
use pillion_store::postgres::{PgStore, TakenIn};
use pillion_store::prelude::*;
use pillion_store::{Lesson, Naming, StoredProfile};

async fn learn(store: &PgStore, id: u32, profile: &StoredProfile) {
    store.record_jobs(&[ended_job(id)], at(0)).await.expect("recorded");
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    store.ingest(&node(), "j", &summary_report(id.into(), summary(id))).await.expect("stored");
    let lesson = Lesson::nothing("a test");
    store.profile_run(start(id), &gres(), &account(id), &lesson, Some(profile)).await.expect("profiled");
}

async fn name(store: &PgStore, workload: &str, text: &str, source: NameSource) {
    let naming = Naming {
        workload: WorkloadKey::new(workload),
        uid: UserId(7),
        name: WorkloadName::safe(text).expect("a name"),
        source,
    };
    store.name_workloads(&[naming], at(3)).await.expect("named");
}

/// A store in which everything was learnt once.
async fn learned() -> Option<PgStore> {
    let store = fresh_store().await?;
    for (id, workload) in [(1, "alice/1"), (2, "bob/2")] {
        learn(&store, id, &profile(workload)).await;
        name(&store, workload, &format!("train-{id}"), NameSource::Job).await;
    }
    for (first, own, speed) in [(5, 5, 0.75), (5, 6, 0.9), (1, 1, 0.5)] {
        assert!(store.record_observation(&told(first, own, speed), at(10 + own)).await.expect("kept"));
    }
    Some(store)
}

fn through_a_file(archive: &Archive) -> Archive {
    let mut text = Vec::new();
    archive.write(&mut text, at(99)).expect("written");
    Archive::read(&*text).expect("read")
}

#[tokio::test]
async fn an_empty_store_has_all_of_it_afterwards_and_the_same_again_is_nothing_new() {
    let (Some(from), Some(to)) = (learned().await, fresh_store().await) else { return };
    let learnt = from.learnt().await.expect("exported");
    assert_eq!((learnt.profiles.len(), learnt.names.len(), learnt.observations.len()), (2, 2, 2));
    let before = to.revision().await.expect("a revision");
    let taken = to.take_in(&through_a_file(&learnt)).await.expect("imported");
    assert_eq!(taken, Some(TakenIn { profiles: 2, names: 2, observations: 2 }));
    assert!(to.revision().await.expect("a revision") > before, "plans are made of it");
    assert_eq!(to.learnt().await.expect("exported"), learnt);
    // As the scheduler reads it, to the value.
    assert_eq!(to.profiles().await.expect("read"), from.profiles().await.expect("read"));
    let [seen, known] = [to.observations(0, 9).await, from.observations(0, 9).await].map(|all| {
        all.expect("read").into_iter().map(|one| (one.starts, one.observation)).collect::<Vec<_>>()
    });
    assert_eq!(seen, known);
    let again = to.take_in(&learnt).await.expect("imported");
    assert_eq!(again, Some(TakenIn::default()));
    assert_eq!(to.learnt().await.expect("exported"), learnt);
    // And what comes after it is learnt as ever.
    assert!(to.record_observation(&told(5, 6, 0.8), at(50)).await.expect("kept"));
}

#[tokio::test]
async fn of_what_is_known_twice_the_better_one_stays() {
    let (Some(from), Some(to)) = (learned().await, fresh_store().await) else { return };
    let mut learnt = from.learnt().await.expect("exported");
    let with = |run_count: u32, seconds: u32| {
        let mut known = profile("alice/1");
        known.profile.run_count = run_count;
        StoredProfile { updated_at: at(seconds), ..known }
    };
    name(&to, "alice/1", "own-name", NameSource::Job).await;
    assert!(to.record_observation(&told(5, 5, 0.25), at(1)).await.expect("kept"));
    learn(&to, 9, &with(4, 1)).await;
    for (offered, is_taken) in [
        (with(3, 900), false),
        (with(4, 1), false),
        (with(4, 2), true),
        (with(5, 1), true),
        (with(4, 900), false),
    ] {
        learnt.profiles = vec![offered.clone()];
        let taken = to.take_in(&learnt).await.expect("imported").expect("nobody leads");
        assert_eq!(taken.profiles, u64::from(is_taken), "{offered:?}");
        let known = to.profile(&WorkloadKey::new("alice/1"), "h100").await.expect("read").expect("known");
        assert_eq!(known == offered, is_taken || known == offered);
    }
    let known = to.learnt().await.expect("exported");
    let of_alice = known.names.iter().find(|name| name.workload.as_str() == "alice/1").expect("a name");
    assert_eq!(of_alice.name.as_str(), "own-name");
    let kept = known.observations.iter().find(|one| one.tenants[0].start == start(5)).expect("kept");
    assert_eq!(kept.tenants[0].speed_fraction, Some(0.25), "what was seen here stays");
    learnt.names[0].source = NameSource::Profile;
    assert_eq!(to.take_in(&learnt).await.expect("imported").expect("nobody leads").names, 1, "as ever");
}

#[tokio::test]
async fn a_record_that_the_database_refuses_leaves_nothing_half_done() {
    let (Some(from), Some(to)) = (learned().await, fresh_store().await) else { return };
    let mut learnt = from.learnt().await.expect("exported");
    learnt.observations[1].mechanism = "of-the-future".to_owned();
    let before = to.revision().await.expect("a revision");
    let error = to.take_in(&learnt).await.expect_err("no such mechanism");
    assert!(!error.is_transient(), "{error}");
    assert_eq!(to.learnt().await.expect("exported"), Archive::default());
    assert_eq!(to.revision().await.expect("a revision"), before);
    // Cut off in the middle: what was written is gone with the connection.
    let mut endless = from.learnt().await.expect("exported");
    let one = endless.observations[0].clone();
    endless.observations = (100..20_000)
        .map(|id| {
            let mut other = one.clone();
            for (tenant, place) in other.tenants.iter_mut().zip(0..) {
                tenant.start = JobStart { restart_count: place, ..start(id) };
            }
            other
        })
        .collect();
    let cut = tokio::time::timeout(std::time::Duration::from_millis(200), to.take_in(&endless)).await;
    assert!(cut.is_err(), "it was still at it");
    assert_eq!(to.learnt().await.expect("exported"), Archive::default());
    let taken = to.take_in(&learned().await.expect("a store").learnt().await.expect("exported")).await;
    assert!(taken.expect("imported").is_some(), "and it can be done again");
}

#[tokio::test]
async fn where_a_scheduler_leads_nothing_is_taken_in() {
    let (Some(from), Some(to)) = (learned().await, fresh_store().await) else { return };
    let learnt = from.learnt().await.expect("exported");
    let leadership = to.try_lead().await.expect("asked").expect("nobody leads");
    assert_eq!(to.take_in(&learnt).await.expect("asked"), None);
    assert_eq!(to.learnt().await.expect("exported"), Archive::default());
    drop(leadership);
}
