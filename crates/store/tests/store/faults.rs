//! The cases about why runs failed, who is requeued for it, and faults of devices.

use crate::fixtures::{at, device, ended_job, gres, job, node, plain, start, summary, summary_report};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::{GresType, JobStart, NodeName};
use pillion_store::{Event, JobRecord, Judgement, Requeue, RequeueCause, RequeueOutcome, Store};
use std::sync::Arc;

pub(crate) fn event(kind: &str, id: u32) -> Event {
    let (kind, detail) = (kind.into(), "because".to_owned());
    Event { at: at(5), kind, job_id: Some(plain(id)), node: Some(node()), detail }
}

pub(crate) fn requeue(id: u32, restart_count: u32) -> Requeue {
    let start = JobStart { restart_count, ..start(id) };
    Requeue {
        cause: RequeueCause::Victim,
        start,
        node: node(),
        decided_at: at(100 - id),
        reason: "it died".to_owned(),
    }
}

async fn told(store: &dyn Store, sequence: u64, id: u32) {
    store.ingest(&node(), "j", &summary_report(sequence, summary(id))).await.expect("stored");
}

pub(crate) async fn a_run_is_judged_once(store: Arc<dyn Store>) {
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    let restarted = JobRecord { restart_count: 1, ..job(2) };
    store.record_jobs(&[ended_job(1), restarted, job(3)], at(0)).await.expect("recorded");
    for (sequence, id) in [(1, 1), (2, 2), (3, 3)] {
        told(&*store, sequence, id).await;
    }
    let runs = store.unjudged_runs(10).await.expect("read");
    assert_eq!(runs.iter().map(|run| run.summary.start).collect::<Vec<_>>(), [start(1), start(2)]);
    assert_eq!((&runs[0].summary, &runs[0].job), (&summary(1), &ended_job(1)), "its signs are kept");
    assert_eq!(store.unjudged_runs(1).await.expect("read").len(), 1);
    let judgement = Judgement { events: vec![event("out-of-memory", 1)], requeue: Some(requeue(1, 0)) };
    assert!(store.judge_run(start(1), &gres(), &judgement).await.expect("judged"));
    assert!(!store.judge_run(start(1), &gres(), &judgement).await.expect("known"));
    assert_eq!(store.events(plain(1)).await.expect("read"), [event("out-of-memory", 1)], "once");
    assert_eq!(store.open_requeues().await.expect("read"), [requeue(1, 0)]);
    assert_eq!(store.unjudged_runs(10).await.expect("read").len(), 1);
    assert_eq!(store.unprofiled_runs(10).await.expect("read").len(), 2, "a profile is another matter");
    let unknown = store.judge_run(start(9), &gres(), &Judgement::default()).await;
    assert!(unknown.is_err(), "it was never told of");
}

pub(crate) async fn a_job_is_requeued_once(store: Arc<dyn Store>) {
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    for (sequence, id) in [(1, 1), (2, 2)] {
        told(&*store, sequence, id).await;
        let judgement = Judgement { events: vec![], requeue: Some(requeue(id, 0)) };
        assert!(store.judge_run(start(id), &gres(), &judgement).await.expect("judged"));
    }
    assert_eq!(store.open_requeues().await.expect("read"), [requeue(2, 0), requeue(1, 0)], "oldest first");
    let settle = async |start, outcome| {
        store.settle_requeue(start, outcome, &event("requeued", 1)).await.expect("settled")
    };
    let other = JobStart { restart_count: 1, ..start(1) };
    assert!(!settle(other, RequeueOutcome::Requeued).await, "not that start");
    assert!(settle(start(1), RequeueOutcome::Requeued).await);
    assert!(!settle(start(1), RequeueOutcome::Refused).await);
    assert_eq!(store.events(plain(1)).await.expect("read").len(), 1, "one event");
    assert_eq!(store.open_requeues().await.expect("read"), [requeue(2, 0)]);
    // Its next start dies as well: never again.
    let next = pillion_core::report::JobSummary { start: other, ..summary(1) };
    store.ingest(&node(), "j", &summary_report(3, next)).await.expect("stored");
    let judgement = Judgement { events: vec![], requeue: Some(requeue(1, 1)) };
    assert!(store.judge_run(other, &gres(), &judgement).await.expect("judged"));
    assert_eq!(store.open_requeues().await.expect("read"), [requeue(2, 0)]);
    // An eviction that was not carried out does not stand in the way of a victim.
    let evicted = Requeue { cause: RequeueCause::Evicted, ..requeue(3, 0) };
    assert!(store.intend_requeue(&evicted, &event("evicted", 3)).await.expect("kept"));
    told(&*store, 4, 3).await;
    let judgement = Judgement { events: vec![], requeue: Some(requeue(3, 0)) };
    assert!(store.judge_run(start(3), &gres(), &judgement).await.expect("judged"));
    assert_eq!(store.open_requeues().await.expect("read"), [requeue(3, 0), requeue(2, 0)]);
}

pub(crate) async fn one_that_ran_out_of_memory_is_requeued_once_and_its_need_is_kept(store: Arc<dyn Store>) {
    let more = |id, restart_count| Requeue {
        cause: RequeueCause::OutOfMemory { memory_bytes: 12 << 30 },
        ..requeue(id, restart_count)
    };
    let of = |cause, id, restart_count| Requeue { cause, ..requeue(id, restart_count) };
    let intend = async |requeue: &Requeue| store.intend_requeue(requeue, &event("x", 1)).await.expect("kept");
    let settle = async |requeue: &Requeue, outcome| {
        assert!(store.settle_requeue(requeue.start, outcome, &event("x", 1)).await.expect("settled"));
    };
    assert_eq!(store.last_requeue(plain(1)).await.expect("read"), None);
    assert!(intend(&more(1, 0)).await);
    assert_eq!(store.open_requeues().await.expect("read"), [more(1, 0)]);
    settle(&more(1, 0), RequeueOutcome::Requeued).await;
    assert_eq!(store.last_requeue(plain(1)).await.expect("read"), Some(more(1, 0)), "also when it is done");
    assert!(!intend(&more(1, 1)).await, "never twice");
    // It shares again, and what may happen to others there may happen to it.
    assert!(intend(&of(RequeueCause::SentBack, 1, 1)).await);
    assert!(!intend(&more(1, 1)).await, "one is under way");
    settle(&of(RequeueCause::SentBack, 1, 1), RequeueOutcome::Requeued).await;
    assert!(!intend(&more(1, 2)).await, "it runs alone");
    assert!(intend(&more(2, 0)).await);
    settle(&more(2, 0), RequeueOutcome::Refused).await;
    assert!(!intend(&more(2, 1)).await, "never twice, whatever became of it");
    assert!(intend(&of(RequeueCause::Victim, 2, 1)).await);
    for (id, outcome, is_free) in [(3, RequeueOutcome::Requeued, false), (4, RequeueOutcome::Refused, true)] {
        let victim = of(RequeueCause::Victim, id, 0);
        assert!(intend(&victim).await);
        settle(&victim, outcome).await;
        assert_eq!(intend(&more(id, 1)).await, is_free, "after {outcome:?}");
    }
    // One that is ended before it runs out is given more by the same once; where that came to nothing, it may run out.
    let growing = |id, restart_count| Requeue {
        cause: RequeueCause::Growing { memory_bytes: 12 << 30 },
        ..requeue(id, restart_count)
    };
    assert!(intend(&growing(5, 0)).await && !intend(&growing(5, 0)).await);
    assert!(!intend(&more(5, 0)).await, "nobody knows yet");
    assert_eq!(store.last_requeue(plain(5)).await.expect("read"), Some(growing(5, 0)));
    settle(&growing(5, 0), RequeueOutcome::Refused).await;
    assert!(!intend(&growing(5, 0)).await && intend(&more(5, 0)).await);
    settle(&more(5, 0), RequeueOutcome::Requeued).await;
    assert!(!intend(&growing(5, 1)).await, "never twice");
    assert!(intend(&growing(6, 0)).await);
    settle(&growing(6, 0), RequeueOutcome::Requeued).await;
    assert!(!intend(&more(6, 1)).await, "it was given more");
    assert!(intend(&of(RequeueCause::SentBack, 6, 1)).await, "it shares again");
    // A guest makes room as often as it is asked, and what happens to it between is judged as if it had not.
    let room = RequeueCause::MadeRoom;
    assert!(intend(&of(room, 7, 0)).await && !intend(&of(room, 7, 0)).await, "one is under way");
    settle(&of(room, 7, 0), RequeueOutcome::Refused).await;
    assert!(intend(&of(room, 7, 0)).await, "Slurm may be asked again");
    settle(&of(room, 7, 0), RequeueOutcome::Requeued).await;
    assert_eq!(store.last_requeue(plain(7)).await.expect("read"), Some(of(room, 7, 0)));
    for (id, cause) in [(8, RequeueCause::Victim), (9, RequeueCause::SentBack)] {
        assert!(intend(&of(room, id, 0)).await);
        settle(&of(room, id, 0), RequeueOutcome::Requeued).await;
        assert!(intend(&of(cause, id, 1)).await, "{cause:?}");
    }
    for (id, more) in [(10, more(10, 1)), (11, growing(11, 1))] {
        assert!(intend(&of(room, id, 0)).await);
        settle(&of(room, id, 0), RequeueOutcome::Requeued).await;
        assert!(intend(&more).await);
        settle(&more, RequeueOutcome::Requeued).await;
        assert!(intend(&of(room, id, 2)).await, "it is a guest still");
    }
}

fn fault(kind: FaultKind, since: u32, detail: &str) -> DeviceFault {
    DeviceFault { kind, detail: detail.to_owned(), since: at(since) }
}

pub(crate) fn condition(name: &str, faults: Vec<DeviceFault>) -> DeviceCondition {
    DeviceCondition {
        gres_type: GresType::new(name),
        faults,
        sources: [].into(),
        instances_empty: Vec::new(),
    }
}

pub(crate) async fn a_fault_of_a_device_is_told_once_and_when_it_is_over(store: Arc<dyn Store>) {
    let (here, there) = (node(), NodeName::new("n2"));
    let tell = async |node: &NodeName, faults: Vec<DeviceFault>, seconds| {
        let conditions = [condition("g1", faults), condition("g2", vec![])];
        store.record_conditions(node, &conditions, at(seconds)).await.expect("recorded");
        let count = async |kind: &str| store.event_count(&kind.into()).await.expect("read");
        (count("device-fault").await, count("device-well").await)
    };
    let died = || fault(FaultKind::MpsDied, 10, "gone");
    let lost = || fault(FaultKind::MetricLost, 10, "power");
    assert_eq!(tell(&here, vec![], 9).await, (0, 0));
    assert_eq!(tell(&here, vec![died(), lost()], 11).await, (2, 0));
    assert_eq!(tell(&here, vec![died(), lost()], 12).await, (2, 0), "after a reconnect");
    assert_eq!(tell(&there, vec![died()], 12).await, (3, 0), "another node's");
    assert_eq!(tell(&here, vec![lost()], 13).await, (3, 1));
    assert_eq!(tell(&here, vec![died(), lost()], 14).await, (3, 1), "told late: it is over");
    let again = || fault(FaultKind::MpsDied, 20, "gone");
    assert_eq!(tell(&here, vec![again(), lost()], 21).await, (4, 1), "a new one");
    let anew = || fault(FaultKind::MetricLost, 30, "power");
    assert_eq!(tell(&here, vec![again(), anew()], 31).await, (5, 1), "dated anew, not well meanwhile");
    store.record_conditions(&here, &[condition("g2", vec![])], at(32)).await.expect("recorded");
    assert_eq!(
        store.event_count(&"device-well".into()).await.expect("read"),
        1,
        "nothing was said of the other"
    );
    let since = async |name: &str, seconds| {
        let faults = store.device_faults(&here, &GresType::new(name), at(seconds)).await.expect("read");
        faults.iter().map(|fault| (fault.kind, fault.since.epoch() - at(0).epoch())).collect::<Vec<_>>()
    };
    assert_eq!(since("g1", 15).await, [(FaultKind::MpsDied, 20), (FaultKind::MetricLost, 30)]);
    assert_eq!(since("g2", 0).await, []);
    let odd = fault(FaultKind::Gone, 40, &format!("a\0b\n{}", "\u{1f3cd}".repeat(5000)));
    tell(&there, vec![odd.clone()], 41).await;
    assert_eq!(tell(&there, vec![odd], 42).await, (6, 2), "whatever a driver says");
}
