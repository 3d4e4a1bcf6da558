//! Observing over a real Postgres: a start is seen, written down, learnt from; a row that cannot be read back stops nobody.

use crate::support::fresh_store;
use pillion_core::heartbeat::Mode;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::report::{ActivityMeans, JobSummary, Report, ReportBody};
use pillion_core::workload::of_script;
use pillion_core::{Clock as _, GresType, JobStart, ManualClock, NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::ingest::Ingest;
use pillion_scheduler::observe::Observe;
use pillion_slurm::Ending;
use pillion_store::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const SCRIPT: &str = "#!/bin/sh\nsrun python train.py\n";

#[tokio::test]
async fn a_start_is_written_down_and_learnt_from_beside_a_row_that_cannot_be_read() {
    let Some(store) = fresh_store().await.map(Arc::new) else { return };
    let mut node = FakeNode::pool("w1", 2);
    node.devices.values_mut().for_each(|shards| *shards = 0);
    let began = UnixTime::from_epoch(1_795_000_000);
    let partitions = vec![FakePartition::new("gpu", &["w1"])];
    let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), vec![node], partitions, began));
    let (clock, agents) = (Arc::new(ManualClock::new(began)), Arc::new(Agents::default()));
    let settings = Settings {
        pool: Vec::new(),
        observed: vec!["gpu".to_owned()],
        mode: Mode::Off,
        ..Settings::default()
    };
    let (foreign, kept) = (Arc::clone(&slurm) as _, Arc::clone(&store) as _);
    let context = Arc::new(Context::new(Arc::clone(&clock) as _, foreign, kept, agents, settings));
    let (observe, ingest) = (Observe::new(Arc::clone(&context)), Ingest::new(Arc::clone(&context)));
    let wait = async |seconds: u64| {
        clock.advance(Duration::from_secs(seconds));
        slurm.tick(clock.now());
        observe.tick().await.unwrap();
    };
    sqlx::query(
        "insert into observed_job (job_id, restart_count, inner_id, started_at, ended_at, body)
        values ('999', 0, 999, now(), now(), '{\"start\": 7}'), ('998', 0, 998, now(), null, '{}')",
    )
    .execute(store.pool())
    .await
    .unwrap();
    let job = slurm.submit(FakeJob {
        partition: "gpu".to_owned(),
        gres: "gpu:1".to_owned(),
        name: "train".to_owned(),
        script: Some(SCRIPT.to_owned()),
        ..FakeJob::default()
    });
    wait(5).await;
    wait(300).await;
    slurm.finish(job, Ending::Completed);
    let (node, device) = (NodeName::new("w1"), pillion_test_kit::device(0));
    store.record_devices(&node, &[device], clock.now()).await.unwrap();
    let start = JobStart { job_id: SlurmJobId::plain(job.id), restart_count: 0 };
    let run = JobSummary {
        gres_type: GresType::new("g0"),
        started_at: began + Duration::from_secs(5),
        ended_at: clock.now(),
        solo_means: Some(ActivityMeans(Metrics::from([(Metric::SmActiveFraction, 0.5)]))),
        solo_sample_count: 100,
        ..pillion_test_kit::summary(start)
    };
    let report = Report { sequence: 1, body: ReportBody::ObservedRun(Box::new(run)) };
    assert!(ingest.report(&node, "j", &report).await.unwrap().is_some());
    wait(2).await;
    wait(12).await;
    let workload = of_script("alice", "train", SCRIPT.as_bytes());
    let profile = store.profile(&workload, &pillion_test_kit::device(0).model).await.unwrap();
    assert_eq!(profile.map(|stored| stored.profile.run_count), Some(1));
    let (kept, lesson) = store.observed_job(job).await.unwrap().unwrap();
    assert!(lesson.is_some() && kept.ending == Some(Ending::Completed), "{kept:?}");
    assert_eq!(store.unprofiled_runs(10).await.unwrap(), [], "nothing of it is a managed job's");
}
