//! The case about jobs that are only observed.

use crate::fixtures::{at, node, profile, start, summary};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::{JobSummary, Report, ReportBody};
use pillion_core::{GresType, NodeName, UserId, WorkloadKey};
use pillion_slurm::Ending;
use pillion_store::postgres::PgStore;
use pillion_store::{HeldDevice, Lesson, Observed as _, ObservedJob, Store, StoredProfile, UsedOfStarts};
use std::sync::Arc;

pub(crate) fn observed(id: u32, began: u32) -> ObservedJob {
    let device = HeldDevice::new(node(), GresType::new("g0"));
    ObservedJob {
        start: start(id),
        inner_id: id,
        uid: UserId(1000),
        user: "alice".to_owned(),
        account: "physics".to_owned(),
        partition: "gpu".to_owned(),
        workload: WorkloadKey::new("alice/w"),
        submitted_at: at(began),
        started_at: at(began),
        ended_at: None,
        ending: None,
        exit: None,
        nodes: vec![node(), NodeName::new("n2")],
        gres: "gpu:2".to_owned(),
        devices: vec![HeldDevice { busy_at: [Some(at(began)), None, None, None], ..device }],
    }
}

fn counted(run_count: u32) -> StoredProfile {
    let stored = profile("alice/w");
    StoredProfile { profile: WorkloadProfile { run_count, ..stored.profile }, ..stored }
}

/// What a page asks: of how many of its devices a workload made use.
pub(crate) async fn devices_that_were_never_used_are_counted(store: Arc<PgStore>) {
    let device = |place: &str, process: bool, seen_seconds: f64| HeldDevice {
        process_at: process.then(|| at(15)),
        busy_at: [None; 4],
        seen_seconds,
        ..HeldDevice::new(node(), GresType::new(place))
    };
    let ended = |id: u32, devices: Vec<HeldDevice>| ObservedJob {
        ended_at: Some(at(110)),
        devices,
        ..observed(id, 10)
    };
    let one = ended(1, vec![device("g0", true, 90.0), device("g1", false, 90.0), device("g2", false, 10.0)]);
    let other =
        ended(2, vec![device("g0", true, 90.0), device("g1", false, 90.0), device("g2", false, 90.0)]);
    let alone = ended(3, vec![device("g0", false, 90.0)]);
    let unlearned = ended(4, vec![device("g0", true, 90.0), device("g1", true, 90.0)]);
    store.record_observed(&[one, other, alone, unlearned]).await.expect("recorded");
    for id in [1, 2, 3] {
        let lesson = Lesson::from(LessonKind::Alone);
        store.learn_observed(start(id), &lesson, None).await.expect("learnt");
    }
    let used = store.used_devices(at(0)).await.expect("read");
    let expected =
        UsedOfStarts { workload: WorkloadKey::new("alice/w"), held_count: 3, start_count: 2, used_count: 2 };
    assert_eq!(used, [expected], "of one device nobody was looking for most of the time");
    assert_eq!(store.used_devices(at(111)).await.expect("read"), []);
}

pub(crate) async fn an_observed_start_is_kept_and_learnt_from_once(store: Arc<dyn Store>) {
    let (first, second) = (observed(1, 10), observed(2, 20));
    store.record_observed(&[first.clone(), second.clone(), first.clone()]).await.expect("recorded");
    assert_eq!(store.open_observed().await.expect("read"), [first.clone(), second.clone()]);
    let ended = ObservedJob { ended_at: Some(at(50)), ending: Some(Ending::Completed), ..first };
    store.record_observed(std::slice::from_ref(&ended)).await.expect("recorded");
    assert_eq!(store.open_observed().await.expect("read"), std::slice::from_ref(&second));
    assert_eq!(store.observed_by_number(&[1, 7]).await.expect("read"), std::slice::from_ref(&ended));
    assert_eq!(store.observed_job(start(1).job_id).await.expect("read"), Some((ended.clone(), None)));
    assert_eq!(store.observed_job(start(9).job_id).await.expect("read"), None);
    // Two parts on one device, one of which is told twice, and one on another node.
    let part = |began: u32| JobSummary { started_at: at(began), ended_at: at(began + 5), ..summary(1) };
    for (sequence, of, began) in
        [(1, node(), 10), (2, node(), 30), (3, node(), 10), (1, NodeName::new("n2"), 10)]
    {
        let body = ReportBody::ObservedRun(Box::new(part(began)));
        store.ingest(&of, "j", &Report { sequence, body }).await.expect("stored");
    }
    let unlearned = store.unlearned_observed(10).await.expect("read");
    let [(job, runs)] = &unlearned[..] else { panic!("{unlearned:?}") };
    let parts: Vec<_> = runs.iter().map(|run| (run.node.as_str(), run.summary.started_at)).collect();
    assert_eq!((job, &parts[..]), (&ended, &[("n1", at(10)), ("n1", at(30)), ("n2", at(10))][..]));
    assert_eq!(runs[0].summary, part(10));
    let stored = counted(1);
    let lesson = Lesson::from(LessonKind::Alone);
    store.learn_observed(start(1), &lesson, Some(&stored)).await.expect("kept");
    store.learn_observed(start(1), &Lesson::nothing("again"), Some(&counted(9))).await.expect("ignored");
    assert_eq!(store.unlearned_observed(10).await.expect("read"), []);
    let known =
        store.profile(&WorkloadKey::new("alice/w"), &stored.profile.device_model).await.expect("read");
    assert_eq!(known.map(|known| known.profile.run_count), Some(1));
    assert_eq!(store.observed_job(start(1).job_id).await.expect("read"), Some((ended, Some(lesson))));
    // Nothing of it is a managed job's.
    assert_eq!(store.unprofiled_runs(10).await.expect("read"), []);
    assert_eq!(store.unjudged_runs(10).await.expect("read"), []);
    assert_eq!(store.job(start(1).job_id).await.expect("read"), None);
}
