//! The cases about what operators do: drains, evictions, and the list of events.

use crate::conformance::revision;
use crate::faults::{event, requeue};
use crate::fixtures::{at, job, plain, start};
use pillion_core::{GresType, NodeName, UserId};
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{
    Drain, DrainChange, DrainPlace, Event, EventFilter, JobRecord, Requeue, RequeueCause, RequeueOutcome,
    Store, Undrain,
};
use std::sync::Arc;

fn place(node: &str, gres_type: Option<&str>) -> DrainPlace {
    DrainPlace { node: NodeName::new(node), gres_type: gres_type.map(GresType::new) }
}

fn drain(place: DrainPlace, reason: &str, seconds: u32) -> Drain {
    Drain { place, by: "alice".to_owned(), reason: reason.to_owned(), since: at(seconds) }
}

pub(crate) async fn a_drain_is_kept_until_it_is_undone(store: Arc<dyn Store>) {
    use DrainChange::{Begun, ReasonChanged, Unchanged};
    let (node, device) = (|| place("n1", None), || place("n1", Some("g1")));
    let order = async |orders: &[Drain]| store.drain(orders).await.expect("kept");
    let orders = [drain(device(), "ecc", 1), drain(place("n0", None), "fan", 1), drain(node(), "fan", 1)];
    assert_eq!(order(&orders).await, [Begun; 3]);
    let places = async || -> Vec<DrainPlace> {
        store.drains().await.expect("read").into_iter().map(|drain| drain.place).collect()
    };
    assert_eq!(places().await, [place("n0", None), node(), device()], "in the order of places");
    let before = revision(&*store).await;
    let again = [drain(node(), "fan", 2), drain(device(), "odd\0 \u{1f3cd}", 2)];
    assert_eq!(order(&again).await, [Unchanged, ReasonChanged]);
    assert_eq!(revision(&*store).await, before, "plans do not depend on words");
    let kept = store.drains().await.expect("read");
    assert_eq!((kept[2].since, kept[2].by.as_str()), (at(1), "alice"));
    assert_eq!(store.event_count(&"drained".into()).await.expect("read"), 4);

    let (by, reason) = ("bob".to_owned(), Some("new fan".to_owned()));
    let undrain = Undrain { places: vec![node(), place("n7", None)], by, reason, at: at(3) };
    assert_eq!(store.undrain(&undrain).await.expect("opened"), [true, false]);
    assert_eq!(places().await, [place("n0", None), device()]);
    assert_eq!(revision(&*store).await, before + 1);
    assert_eq!(store.undrain(&undrain).await.expect("known"), [false, false]);
    assert_eq!(revision(&*store).await, before + 1, "nothing was changed");
    assert_eq!(store.event_count(&"undrained".into()).await.expect("read"), 1);
    assert_eq!(order(&[drain(node(), "fan", 4)]).await, [Begun]);
}

pub(crate) async fn a_drain_and_its_end_are_told(store: Arc<PgStore>) {
    let node = || place("n1", None);
    store.drain(&[drain(node(), "fan", 1)]).await.expect("kept");
    let (by, reason) = ("bob".to_owned(), Some("new fan".to_owned()));
    store.undrain(&Undrain { places: vec![node()], by, reason, at: at(3) }).await.expect("opened");
    let told = store.list_events(&EventFilter::default()).await.expect("read");
    let details: Vec<&str> = told.iter().map(|event| event.detail.as_str()).collect();
    assert_eq!(details, ["drained by alice: fan", "open again, by bob: new fan"]);
}

pub(crate) async fn an_eviction_waits_for_the_requeue_before_it(store: Arc<dyn Store>) {
    let evicted = |id, restart_count| Requeue { cause: RequeueCause::Evicted, ..requeue(id, restart_count) };
    let evict =
        async |requeue: &Requeue| store.intend_requeue(requeue, &event("evicted", 1)).await.expect("kept");
    assert!(evict(&evicted(1, 0)).await);
    assert!(!evict(&evicted(1, 0)).await, "one is under way");
    assert_eq!(store.events(plain(1)).await.expect("read").len(), 1, "one event");
    assert_eq!(store.open_requeues().await.expect("read"), [evicted(1, 0)]);
    let settled = event("requeue-refused", 1);
    let refused = store.settle_requeue(start(1), RequeueOutcome::Refused, &settled).await;
    assert!(refused.expect("settled"));
    assert!(evict(&evicted(1, 2)).await, "that came to nothing, and it may be asked for again");
    assert_eq!(store.open_requeues().await.expect("read"), [evicted(1, 2)]);
}

pub(crate) async fn a_guest_is_sent_back_once(store: Arc<dyn Store>) {
    let of = |cause, id, restart_count| Requeue { cause, ..requeue(id, restart_count) };
    let intend = async |requeue: &Requeue| {
        store.intend_requeue(requeue, &event("sent-back", requeue.start.job_id.id)).await.expect("kept")
    };
    let settle = async |id, restart_count, outcome| {
        let start = pillion_core::JobStart { restart_count, ..start(id) };
        assert!(store.settle_requeue(start, outcome, &event("requeued", id)).await.expect("settled"));
    };
    let (back, evicted) = (RequeueCause::SentBack, RequeueCause::Evicted);
    for (id, outcome) in [(1, RequeueOutcome::Requeued), (2, RequeueOutcome::Refused)] {
        assert!(intend(&of(back, id, 0)).await);
        assert_eq!(store.open_requeues().await.expect("read"), [of(back, id, 0)]);
        assert!(!intend(&of(back, id, 0)).await, "one is under way");
        settle(id, 0, outcome).await;
        assert!(!intend(&of(back, id, 1)).await, "never twice, whatever became of it");
        assert_eq!(store.events(plain(id)).await.expect("read").len(), 2);
    }
    for (id, outcome, is_free) in [(3, RequeueOutcome::Requeued, false), (4, RequeueOutcome::Refused, true)] {
        assert!(intend(&of(evicted, id, 0)).await);
        assert!(!intend(&of(back, id, 0)).await, "an operator's order goes first");
        settle(id, 0, outcome).await;
        assert_eq!(intend(&of(back, id, 1)).await, is_free, "after an eviction: {outcome:?}");
    }
    assert!(intend(&of(evicted, 1, 1)).await, "an operator may order it after that");
}

pub(crate) async fn events_are_listed_by_filter(store: Arc<PgStore>) {
    let others = JobRecord { uid: UserId(1001), ..job(2) };
    store.record_jobs(&[job(1), others], at(0)).await.expect("recorded");
    let told = [
        Event { at: at(30), ..event("victim", 1) },
        Event { at: at(10), ..event("evicted", 2) },
        Event { at: at(20), job_id: None, node: Some(NodeName::new("n2")), ..event("drained", 1) },
        Event { at: at(40), node: None, ..event("requeued", 1) },
        Event { at: at(50), ..event("missed", 9) },
    ];
    for event in &told {
        store.record_event(event).await.expect("recorded");
    }
    let list = async |filter: EventFilter| -> Vec<String> {
        let events = store.list_events(&filter).await.expect("read");
        events.into_iter().map(|event| event.kind.to_string()).collect()
    };
    let all = EventFilter::default;
    assert_eq!(list(all()).await, ["evicted", "drained", "victim", "requeued", "missed"]);
    let some = EventFilter { since: Some(at(20)), until: Some(at(40)), ..all() };
    assert_eq!(list(some).await, ["drained", "victim"], "from one time until before another");
    assert_eq!(list(EventFilter { limit: 2, ..all() }).await, ["requeued", "missed"], "the newest");
    let on = |name: &str| EventFilter { nodes: vec![NodeName::new(name)], ..all() };
    assert_eq!(list(on("n2")).await, ["drained"]);
    assert_eq!(list(EventFilter { job_ids: vec![plain(2), plain(9)], ..all() }).await, ["evicted", "missed"]);
    let kinds = vec!["victim".into(), "drained".into()];
    assert_eq!(list(EventFilter { kinds, ..all() }).await, ["drained", "victim"]);
    let of = |uid: u32| EventFilter { uid: Some(UserId(uid)), ..all() };
    assert_eq!(list(of(1000)).await, ["victim", "requeued"], "neither of nodes nor of others");
    assert_eq!(list(of(1001)).await, ["evicted"]);
    assert_eq!(list(EventFilter { job_ids: vec![plain(2)], ..of(1000) }).await, [""; 0]);
}
