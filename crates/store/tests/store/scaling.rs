//! The cases about runs that tell how a workload scales.

use crate::fixtures::{
    at, commit, decision, device, ended_job, full_member, job, node, run, start, summary, summary_report,
};
use crate::observed::observed;
use pillion_core::report::{JobSummary, Report, ReportBody};
use pillion_core::{GresType, UserId, WorkloadKey};
use pillion_pairing::Role;
use pillion_slurm::Ending;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{JobRecord, NewMember, ObservedJob, ScalingFilter, ScalingRun};
use std::sync::Arc;

/// An observed start of so many seconds before its end.
fn ended(id: u32, at_end: u32, ending: Ending) -> ObservedJob {
    ObservedJob { ended_at: Some(at(at_end)), ending: Some(ending), ..observed(id, at_end - 5) }
}

/// Alice's job of four GPUs of one node of the pool.
fn wide(id: u32, at_end: u32) -> JobRecord {
    JobRecord {
        workload: WorkloadKey::new("alice/4x-w"),
        gres: "shard:g0:100,shard:g1:100,shard:g2:100,shard:g3:100".to_owned(),
        started_at: Some(at(at_end - 5)),
        ended_at: Some(at(at_end)),
        ..ended_job(id)
    }
}

async fn tell(store: &PgStore, sequence: u64, id: u32, device: &str) {
    let told = JobSummary { gres_type: GresType::new(device), ..summary(id) };
    store.ingest(&node(), "pool", &summary_report(sequence, told)).await.expect("stored");
}

async fn numbers(store: &PgStore, filter: ScalingFilter) -> Vec<(u32, usize)> {
    let found = store.scaling(&filter).await.expect("read");
    found.into_iter().map(|run| (run.start.job_id.id, run.parts.len())).collect()
}

/// What came to its end by itself is found, by whose it is, what it runs and when it ended.
pub(crate) async fn completed_runs_are_listed_by_filter(store: Arc<PgStore>) {
    let bobs = ObservedJob {
        uid: UserId(2000),
        workload: WorkloadKey::new("bob/w"),
        ..ended(3, 70, Ending::Completed)
    };
    let jobs = [
        ended(1, 50, Ending::Completed),
        ended(2, 60, Ending::Failed),
        bobs.clone(),
        ended(4, 80, Ending::Completed),
        observed(5, 90),
    ];
    store.record_observed(&jobs).await.expect("recorded");
    let body = ReportBody::ObservedRun(Box::new(summary(4)));
    store.ingest(&node(), "j", &Report { sequence: 1, body }).await.expect("stored");
    assert_eq!(numbers(&store, ScalingFilter::default()).await, [(4, 1), (3, 0), (1, 0)]);
    let alices = ScalingFilter { uid: Some(UserId(1000)), ..ScalingFilter::default() };
    assert_eq!(numbers(&store, alices.clone()).await, [(4, 1), (1, 0)]);
    assert_eq!(numbers(&store, ScalingFilter { limit: 1, ..alices }).await, [(4, 1)]);
    let workload = Some(bobs.workload);
    assert_eq!(numbers(&store, ScalingFilter { workload, ..ScalingFilter::default() }).await, [(3, 0)]);
    let stretch = ScalingFilter { since: Some(at(50)), until: Some(at(70)), ..ScalingFilter::default() };
    assert_eq!(numbers(&store, stretch).await, [(1, 0)]);
}

/// Those of the pool are found beside observed ones, by what they run whatever the number of their devices.
pub(crate) async fn runs_of_the_pool_are_listed_beside_observed_ones(store: Arc<PgStore>) {
    store.record_observed(&[ended(20, 60, Ending::Completed)]).await.expect("recorded");
    store.record_devices(&node(), &[device()], at(0)).await.expect("recorded");
    let of_one =
        JobRecord { workload: WorkloadKey::new("alice/w"), gres: "shard:g1:40".to_owned(), ..wide(3, 80) };
    let jobs = [
        wide(1, 50),
        JobRecord { node_count: Some(2), ..wide(2, 70) },
        of_one.clone(),
        JobRecord { id: start(4).job_id, ended_at: Some(at(90)), ..of_one },
        JobRecord { ending: Some(Ending::Failed), ..wide(5, 100) },
        // Taken out of the pool.
        JobRecord { gres: "gpu:4".to_owned(), ..wide(6, 110) },
        JobRecord { node_count: None, ..wide(7, 40) },
        job(8),
    ];
    store.record_jobs(&jobs, at(0)).await.expect("recorded");
    for (sequence, id, device) in [(1, 1, "g1"), (2, 1, "g0"), (3, 3, "g1"), (4, 4, "g1")] {
        tell(&store, sequence, id, device).await;
    }
    let with_cap = decision(vec![NewMember { role: Role::Alone, ..full_member(4) }]);
    let planned = commit(&*store, &[with_cap]).await;
    run(&*store, planned[0], 4).await;

    let workload = Some(WorkloadKey::new("alice/w"));
    let of_workload = ScalingFilter { workload, uid: Some(UserId(1000)), ..ScalingFilter::default() };
    let found = store.scaling(&of_workload).await.expect("read");
    let told: Vec<_> = found
        .iter()
        .map(|run| {
            let ScalingRun { start, node_count, device_count, has_whole_devices, is_of_a_part, .. } = run;
            (start.job_id.id, *node_count, *device_count, *has_whole_devices, *is_of_a_part, run.parts.len())
        })
        .collect();
    let expected = [
        (4, Some(1), Some(1), false, true, 1),
        (3, Some(1), Some(1), false, false, 1),
        (2, Some(2), Some(8), true, false, 0),
        (20, Some(2), None, true, false, 0),
        (1, Some(1), Some(4), true, false, 2),
        (7, None, None, true, false, 0),
    ];
    assert_eq!(told, expected);
    assert!(found.iter().all(|run| run.workload.as_str() == "alice/w"), "{found:#?}");
    let wide = &found[4];
    let names: Vec<&str> = wide.devices.iter().map(|held| held.gres_type.as_str()).collect();
    assert_eq!(names, ["g0", "g1", "g2", "g3"]);
    assert_eq!((wide.started_at, wide.ended_at), (at(45), at(50)), "as Slurm tells them");
    assert_eq!(wide.device_model.as_deref(), Some("h100"), "of its node");
    let models: Vec<&str> = wide.parts.iter().map(|part| part.device_model.as_str()).collect();
    assert_eq!(models, ["", "h100"], "of the one that was announced");
    let others = ScalingFilter { uid: Some(UserId(2000)), ..ScalingFilter::default() };
    assert_eq!(numbers(&store, others).await, []);
}

/// All of a stretch of time, in pages that are smaller than it, of both kinds among each other and with as many at one moment as come.
pub(crate) async fn all_runs_are_read_page_after_page(store: Arc<PgStore>) {
    let observed: Vec<_> = (1..=9).map(|id| ended(id, 50 + id / 3, Ending::Completed)).collect();
    store.record_observed(&observed).await.expect("recorded");
    let pool: Vec<_> = (11..=17).map(|id| wide(id, 48 + id / 4)).collect();
    store.record_jobs(&pool, at(0)).await.expect("recorded");
    let all = numbers(&store, ScalingFilter::default()).await;
    assert_eq!(all.len(), 16);
    for limit in [1, 2, 3, 7, 16, 17] {
        let mut read = Vec::new();
        let filter = ScalingFilter { limit, ..ScalingFilter::default() };
        store
            .each_scaling(&filter, |run| read.push((run.start.job_id.id, run.parts.len())))
            .await
            .expect("read");
        assert_eq!(read, all, "{limit} a page");
    }
    // One that cannot be read is passed over, and what is behind it is not.
    let spoil = "update observed_job set body = jsonb_set(body, '{uid}', '-1') where job_id = '2'";
    sqlx::query(spoil).execute(store.pool()).await.expect("spoilt");
    let mut read = Vec::new();
    let filter = ScalingFilter { limit: 1, ..ScalingFilter::default() };
    store.each_scaling(&filter, |run| read.push(run.start.job_id.id)).await.expect("read");
    let but_one: Vec<u32> = all.iter().map(|(id, _)| *id).filter(|id| *id != 2).collect();
    assert_eq!(read, but_one);
    let stretch =
        ScalingFilter { since: Some(at(51)), until: Some(at(53)), limit: 2, ..ScalingFilter::default() };
    let (mut read, mut expected) = (0, 0);
    store.each_scaling(&stretch, |_| read += 1).await.expect("read");
    store
        .each_scaling(&filter, |run| expected += u32::from((at(51)..at(53)).contains(&run.ended_at)))
        .await
        .expect("read");
    assert_eq!(read, expected);
}
