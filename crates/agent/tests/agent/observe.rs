//! `mode = "observe"`: the agent as a program on an ordinary node, beside jobs that know nothing of it.

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::{has_tenant, start};
use pillion_core::Clock as _;
use pillion_core::report::{JobSummary, ReportBody};
use pillion_core::share::{Share, Sharing};
use pillion_core::{DecisionId, GresType, Shards, SystemClock, UserId};
use pillion_device::{MpsControl as _, MpsPlace};
use std::path::Path;

fn observed(body: &ReportBody, job: u32) -> Option<&JobSummary> {
    let ReportBody::ObservedRun(run) = body else { return None };
    Some(&**run).filter(|run| run.start == start(job))
}

/// What lies in a folder, but for what the test's driver and log need.
fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("step-") && name != "slurmstepd")
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_knows_nothing_of_it_is_measured_under_slurms_number() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::observing("h200", scheduler.port());
    let mut agent = node.start_agent();
    let hello = scheduler.hello().await;
    assert!(hello.observes && hello.devices.len() == 2, "{hello:?}");
    assert_eq!(hello.setup.map(|setup| setup.faults), Some(Vec::new()), "nothing of it is needed");
    // It lies: in its environment it is another job, with another device.
    let mut step = node.start_step(77, &[("SLURM_JOB_ID", "999"), ("SLURM_JOB_GPUS", "0")]);
    eventually("some looks at it", || {
        scheduler.bodies().iter().filter(|body| has_tenant(body, 77)).count() > 4
    })
    .await;
    // An agent that is started anew in the middle of a job goes on with it.
    agent.kill();
    let restarted_at = SystemClock.now();
    let mut agent = node.start_agent();
    scheduler.hello().await;
    let is_later = |body: &&ReportBody| {
        let ReportBody::Samples(samples) = body else { return false };
        samples.recorded_at > restarted_at && has_tenant(body, 77)
    };
    eventually("looks by the new agent", || scheduler.bodies().iter().filter(is_later).count() > 4).await;
    step.end();
    let run = scheduler.report(|body| observed(body, 77).cloned()).await;
    assert_eq!(run.gres_type, GresType::new("g1"), "the device that it was on");
    assert!(run.started_at < restarted_at && run.ended_at > restarted_at, "{run:?}");
    assert!(
        run.memory_bytes_peak > Some(0) && run.solo_sample_count > 0 && run.solo_means.is_some(),
        "{run:?}"
    );
    assert_eq!(run.solo.progress, None, "no counter of its own is asked for");
    assert!(run.signs.is_some_and(|signs| signs.stderr.is_none()), "nothing of the job is opened");
    assert_eq!(scheduler.bodies().iter().filter(|body| observed(body, 77).is_some()).count(), 1, "once");
    assert!(!scheduler.bodies().iter().any(|body| has_tenant(body, 999)));
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(
        files(node.directory()),
        ["agent.log", "agent.toml", "devices.sock", "state"],
        "no file of its elsewhere"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_is_ordered_to_share_it_refuses() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::observing("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    let share = Share {
        decision_id: DecisionId(1),
        start: start(5),
        uid: UserId(0),
        gres_types: GresType::new("g1").into(),
        sharing: Sharing::by(pillion_core::device::Mechanism::Mps, None, None),
        shards: Shards::try_new(60).expect("in range"),
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    };
    scheduler.prepare(share).await;
    let error = scheduler.result(start(5)).await.error.unwrap();
    assert!(error.contains("this agent observes"), "{error}");
    assert_eq!(node.driver().status(&MpsPlace::device(1)).unwrap(), None, "no daemon was begun");
}
