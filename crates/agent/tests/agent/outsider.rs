//! A process on a device that is no job's: told with its number and its user, nobody joins while it is there, nobody is ended.

use crate::node::TestNode;
use crate::scheduler::FakeScheduler;
use crate::{share, start};
use pillion_core::device::Mechanism;
use pillion_core::health::{DeviceCondition, FaultKind};

const UID: u32 = 65_533;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_outside_every_job_is_told_and_nobody_joins_and_nobody_is_ended() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    scheduler.prepare(share(33, Mechanism::TimeSliced)).await;
    assert_eq!(scheduler.result(start(33)).await.error, None);
    let mut host = node.start_task(33, 1, Some("yes"));
    host.reply().await;
    let mut outsider = node.start_outsider(UID);
    let expected = format!("process {} of uid {UID}", outsider.pid());
    let is_told = |condition: &DeviceCondition| {
        let fault = condition.closed_by().filter(|fault| fault.kind == FaultKind::Outsider);
        condition.gres_type.as_str() == "g1" && fault.is_some_and(|fault| fault.detail == expected)
    };
    scheduler.conditions("the outsider to be told of", |conditions| conditions.iter().any(is_told)).await;
    // Planned before the scheduler heard of it.
    scheduler.prepare(share(34, Mechanism::TimeSliced)).await;
    let refused = scheduler.result(start(34)).await.error;
    assert!(refused.as_ref().is_some_and(|why| why.contains("belongs to no job")), "{refused:?}");
    assert!(!refused.is_some_and(|why| why.contains(&UID.to_string())), "users read it");
    assert!(!outsider.has_ended() && !host.has_ended(), "it is not ours to end");
    host.end();
    outsider.end();
}
