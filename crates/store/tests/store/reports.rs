//! The cases about what agents report, and what becomes of it.

use crate::conformance::{revision, the};
use crate::fixtures::{
    LESSON, account, at, commit, decision, device, ended_job, gres, job, launch, member, node, pair, plain,
    profile, run, samples_report, start, step, summary, summary_report,
};
use pillion_core::profile::LessonKind;
use pillion_core::report::{JobSummary, Launch, Report, ReportBody};
use pillion_core::{JobStart, NodeName, WorkloadKey};
use pillion_pairing::Role;
use pillion_store::{Event, JobRecord, Lesson, Store};
use std::sync::Arc;

pub(crate) async fn a_report_is_stored_once(store: Arc<dyn Store>) {
    let told = Report { sequence: 2, body: ReportBody::Launch(launch(1)) };
    let (here, there) = (node(), NodeName::new("n2"));
    assert_eq!(store.last_sequence(&here, "j").await.expect("read"), 0);
    assert!(store.ingest(&here, "j", &told).await.expect("stored"));
    assert!(!store.ingest(&here, "j", &told).await.expect("known"), "sent again after a reconnect");
    let earlier = Report { sequence: 1, ..told.clone() };
    assert!(!store.ingest(&here, "j", &earlier).await.expect("known"));
    assert_eq!(store.last_sequence(&here, "j").await.expect("read"), 2);
    let after_a_gap = Report { sequence: 9, ..told.clone() };
    assert!(store.ingest(&here, "j", &after_a_gap).await.expect("stored"));
    assert!(store.ingest(&here, "another journal", &earlier).await.expect("stored"));
    assert!(store.ingest(&there, "j", &earlier).await.expect("stored"));
    assert_eq!(store.launches(start(1)).await.expect("read").len(), 4);
    let storing = |_| {
        let (store, node) = (Arc::clone(&store), here.clone());
        let report = Report { sequence: 10, body: ReportBody::Launch(launch(1)) };
        tokio::spawn(async move { store.ingest(&node, "j", &report).await })
    };
    let racers: Vec<_> = (0..4).map(storing).collect();
    let mut stored = 0;
    for racer in racers {
        stored += u32::from(racer.await.expect("no panic").expect("no error"));
    }
    assert_eq!(stored, 1, "two streams of one agent");
    assert_eq!(store.launches(start(1)).await.expect("read").len(), 5);
    assert_eq!(revision(&*store).await, 0, "no plan depends on reports");
}

pub(crate) async fn a_run_is_told_once(store: Arc<dyn Store>) {
    assert_eq!(store.summary(start(1)).await.expect("read"), None);
    assert!(store.ingest(&node(), "j", &summary_report(1, summary(1))).await.expect("stored"));
    let again = JobSummary { shared_seconds: 99.0, ..summary(1) };
    let from_a_new_journal = store.ingest(&node(), "new", &summary_report(1, again)).await.expect("stored");
    assert!(from_a_new_journal, "the journal moves on all the same");
    assert_eq!(store.summary(start(1)).await.expect("read"), Some(summary(1)), "the first one counts");
    assert_eq!(store.summaries(start(1)).await.expect("read"), [summary(1)]);
    assert_eq!(store.summaries(start(9)).await.expect("read"), []);
    let restarted = JobSummary {
        start: JobStart { restart_count: 1, ..start(1) },
        energy_joules: None,
        solo_means: None,
        neighbours: vec![],
        memory_bytes_peak: None,
        ..summary(1)
    };
    store.ingest(&node(), "new", &summary_report(2, restarted.clone())).await.expect("stored");
    assert_eq!(store.summary(restarted.start).await.expect("read"), Some(restarted));
}

pub(crate) async fn a_run_is_profiled_when_its_end_is_known(store: Arc<dyn Store>) {
    let found = async || -> Vec<u32> {
        let runs = store.unprofiled_runs(10).await.expect("read");
        runs.iter().map(|run| run.summary.start.job_id.id).collect()
    };
    for (sequence, id) in [(1, 3), (2, 2), (3, 1)] {
        store.ingest(&node(), "j", &summary_report(sequence, summary(id))).await.expect("stored");
    }
    assert_eq!(found().await, [0; 0], "nothing is known of their jobs");
    let running = JobRecord { ended_at: None, ending: None, ..ended_job(1) };
    let restarted = JobRecord { restart_count: 1, ..job(2) };
    store.record_jobs(&[running, restarted, ended_job(3)], at(0)).await.expect("recorded");
    assert_eq!(found().await, [0; 0], "nor of the device");
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    assert_eq!(found().await, [2, 3], "oldest first; job 1 still runs, job 2 was started again");
    store.record_jobs(&[ended_job(1)], at(0)).await.expect("recorded");
    assert_eq!(found().await, [1, 2, 3]);
    let runs = store.unprofiled_runs(1).await.expect("read");
    assert_eq!(runs.len(), 1, "the limit");
    assert_eq!((&runs[0].node, &*runs[0].device_model), (&node(), "h100"));
    assert_eq!((&runs[0].summary, &runs[0].job, &runs[0].decision), (&summary(1), &ended_job(1), &None));
    let replaced = pillion_core::device::DeviceDescription { model: "h200".to_owned(), ..device() };
    store.record_devices(&node(), &[replaced], at(1)).await.expect("recorded");
    assert_eq!(store.unprofiled_runs(1).await.expect("read")[0].device_model, "h200");
}

pub(crate) async fn a_run_knows_the_decision_it_ran_under(store: Arc<dyn Store>) {
    store.record_jobs(&[ended_job(1), ended_job(2)], at(0)).await.expect("recorded");
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    let given_up = commit(&*store, &[pair(1, 2)]).await[0];
    store.abandon(given_up, "", at(2)).await.expect("abandoned");
    let id = commit(&*store, &[decision(vec![member(1, Role::Host)])]).await[0];
    run(&*store, id, 1).await;
    for (sequence, job) in [(1, 1), (2, 2)] {
        store.ingest(&node(), "j", &summary_report(sequence, summary(job))).await.expect("stored");
    }
    let runs = store.unprofiled_runs(10).await.expect("read");
    let under: Vec<_> = runs.iter().map(|run| run.decision.as_ref().map(|one| one.id)).collect();
    assert_eq!(under, [Some(id), None], "job 2 was given back");
    assert_eq!(runs[0].decision, Some(the(&*store, id).await));
}

pub(crate) async fn old_history_goes_and_what_was_learnt_stays(store: Arc<dyn Store>) {
    use pillion_core::decision::MemberState::{Ended, Planned, Released, Running, Undone};
    store.record_jobs(&[ended_job(1), ended_job(2), job(3)], at(0)).await.expect("recorded");
    let over = commit(&*store, &[pair(1, 2)]).await[0];
    for (id, from, to) in
        [(1, Planned, Released), (1, Released, Running), (1, Running, Ended), (2, Planned, Undone)]
    {
        assert!(store.step_member(&step(over, id, from, to, 2)).await.expect("step"));
    }
    let waits = commit(&*store, &[pair(3, 4)]).await[0];
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    store.ingest(&node(), "j", &summary_report(1, summary(1))).await.expect("stored");
    let lesson = Lesson::from(LessonKind::Alone);
    store
        .profile_run(start(1), &gres(), &account(1), &lesson, Some(&profile("a/1")))
        .await
        .expect("profiled");
    let deleted = store.prune_history(at(1_000_000_000)).await.expect("pruned");
    assert!(deleted >= 3, "{deleted}");
    assert_eq!(store.prune_history(at(1_000_000_000)).await.expect("pruned"), 0, "once");
    assert_eq!(store.decision(over).await.expect("read"), None);
    assert_eq!(store.job(plain(1)).await.expect("read"), None);
    assert_eq!(store.active_decisions().await.expect("read")[0].id, waits, "what is not over stays");
    assert_eq!(store.job(plain(3)).await.expect("read"), Some(job(3)));
    assert_eq!(store.profiles().await.expect("read"), [profile("a/1")]);
}

pub(crate) async fn a_run_counts_once(store: Arc<dyn Store>) {
    store.record_jobs(&[ended_job(1), ended_job(2)], at(0)).await.expect("recorded");
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    for (sequence, id) in [(1, 1), (2, 2)] {
        store.ingest(&node(), "j", &summary_report(sequence, summary(id))).await.expect("stored");
    }
    let empty = pillion_store::StoredProfile {
        profile: pillion_core::profile::WorkloadProfile::empty(pillion_core::WorkloadKey::new("a/1"), "v100"),
        ..profile("a/1")
    };
    assert_eq!(store.lesson(start(1)).await.expect("read"), None);
    let alone = Lesson::from(LessonKind::Alone);
    store.profile_run(start(1), &gres(), &account(1), &alone, Some(&profile("b/1"))).await.expect("profiled");
    store.profile_run(start(1), &gres(), &account(1), &LESSON, Some(&empty)).await.expect("known already");
    assert_eq!(store.profiles().await.expect("read"), [profile("b/1")], "the second time counts for nothing");
    assert_eq!(store.lesson(start(1)).await.expect("read"), Some(alone));
    let nothing = Lesson::nothing("it did not complete");
    store.profile_run(start(2), &gres(), &account(2), &nothing, None).await.expect("of no use");
    assert_eq!(store.lesson(start(2)).await.expect("read"), Some(nothing));
    assert_eq!(revision(&*store).await, 0, "plans are made from whichever profile is there");
    assert!(store.unprofiled_runs(10).await.expect("read").is_empty());

    store.record_jobs(&[ended_job(3), ended_job(4)], at(0)).await.expect("recorded");
    for (sequence, id) in [(3, 3), (4, 4)] {
        store.ingest(&node(), "j", &summary_report(sequence, summary(id))).await.expect("stored");
    }
    let mut better = profile("b/1");
    better.profile.run_count = 4;
    store.profile_run(start(3), &gres(), &account(3), &LESSON, Some(&better)).await.expect("profiled");
    store.profile_run(start(4), &gres(), &account(4), &LESSON, Some(&empty)).await.expect("profiled");
    assert_eq!(
        store.profiles().await.expect("read"),
        [empty, better.clone()],
        "replaced, in the order of workloads"
    );
    let one = async |workload: &str, model: &str| {
        store.profile(&WorkloadKey::new(workload), model).await.expect("read")
    };
    assert_eq!(one("b/1", "h100").await, Some(better));
    assert_eq!((one("b/1", "a100").await, one("b/2", "h100").await), (None, None));
}

pub(crate) async fn launches_and_events_read_as_recorded(store: Arc<dyn Store>) {
    let missed = Launch { decision_id: None, gres_types: vec![], ..launch(1) };
    for (sequence, launch) in [(1, launch(1)), (2, missed.clone()), (3, launch(2))] {
        store
            .ingest(&node(), "j", &Report { sequence, body: ReportBody::Launch(launch) })
            .await
            .expect("stored");
    }
    assert_eq!(store.launches(start(1)).await.expect("read"), [launch(1), missed]);
    let event = |seconds, kind: &str, job: Option<u32>| Event {
        at: at(seconds),
        kind: kind.into(),
        job_id: job.map(plain),
        node: job.map(|_| node()),
        detail: "one sentence".to_owned(),
    };
    let all = [event(2, "undone", Some(1)), event(1, "missed", Some(1)), event(3, "missed", None)];
    for one in &all {
        store.record_event(one).await.expect("recorded");
    }
    assert_eq!(store.events(plain(1)).await.expect("read"), all[..2], "in the order they came in");
    assert_eq!(store.event_count(&"missed".into()).await.expect("counted"), 2);
    assert_eq!(store.event_count(&"violation".into()).await.expect("counted"), 0);
}

pub(crate) async fn old_samples_are_pruned(store: Arc<dyn Store>) {
    for (sequence, seconds) in [(1, 10), (2, 20), (3, 30)] {
        assert!(store.ingest(&node(), "j", &samples_report(sequence, seconds)).await.expect("stored"));
    }
    assert!(!store.ingest(&node(), "j", &samples_report(3, 30)).await.expect("known"));
    assert_eq!(store.prune_samples(at(20)).await.expect("pruned"), 2, "two devices, once");
    assert_eq!(store.prune_samples(at(20)).await.expect("pruned"), 0);
    assert_eq!(store.prune_samples(at(31)).await.expect("pruned"), 4);
}
