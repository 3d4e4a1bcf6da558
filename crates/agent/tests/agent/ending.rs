//! A tenant that Slurm ends is ended through the daemon before any signal, and its neighbour works on.

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::task::Task;
use crate::{share, start};
use pillion_core::device::Mechanism;
use pillion_core::report::{EndOrder, EndOutcome};
use pillion_device::{MpsControl as _, MpsPlace};
use std::time::Duration;

/// Jobs 33 and 34 side by side on one device.
async fn two_tenants(scheduler: &FakeScheduler, node: &TestNode) -> [Task; 2] {
    scheduler.hello().await;
    for job in [33, 34] {
        scheduler.prepare(share(job, Mechanism::Mps)).await;
        assert_eq!(scheduler.result(start(job)).await.error, None);
    }
    let mut tasks = [33, 34].map(|job| node.start_task(job, 1, Some("yes")));
    for task in &mut tasks {
        task.reply().await;
    }
    eventually("both clients", || clients(node) == 2).await;
    tasks
}

fn clients(node: &TestNode) -> usize {
    node.driver().status(&MpsPlace::device(1)).unwrap().map_or(0, |status| status.client_pids.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_ended_through_the_daemon_takes_nobody_along() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::harsh(scheduler.port());
    let _agent = node.start_agent();
    let [mut victim, mut neighbour] = two_tenants(&scheduler, &node).await;
    // No control group of Slurm's here: it is not held, and ended all the same.
    scheduler.end(start(33), EndOrder::Hold).await;
    eventually("an answer", || !scheduler.ends(start(33)).is_empty()).await;
    assert!(
        matches!(scheduler.ends(start(33))[0], EndOutcome::NotHeld { .. }),
        "{:?}",
        scheduler.ends(start(33))
    );
    assert_eq!(clients(&node), 2);
    scheduler.end(start(33), EndOrder::End { delay_seconds: 0.0 }).await;
    eventually("its client's end", || clients(&node) == 1).await;
    eventually("the word of it", || scheduler.ends(start(33)).len() == 2).await;
    assert_eq!(scheduler.ends(start(33))[1], EndOutcome::Ended { client_count: 1 });
    victim.end();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(clients(&node) == 1 && !neighbour.has_ended(), "{}", node.log());
    neighbour.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_no_tenant_here_is_not_touched() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::harsh(scheduler.port());
    let _agent = node.start_agent();
    let [mut victim, mut neighbour] = two_tenants(&scheduler, &node).await;
    let again = pillion_core::JobStart { restart_count: 1, ..start(33) };
    for stranger in [start(35), again] {
        scheduler.end(stranger, EndOrder::Hold).await;
        scheduler.end(stranger, EndOrder::End { delay_seconds: 0.0 }).await;
        eventually("a refusal", || !scheduler.ends(stranger).is_empty()).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(matches!(scheduler.ends(stranger).as_slice(), [EndOutcome::NotHeld { .. }]));
    }
    assert!(clients(&node) == 2 && !victim.has_ended(), "{}", node.log());
    // What the daemon spares: this is what the double does otherwise.
    victim.end();
    eventually("its neighbour to go with it", || clients(&node) == 0).await;
    neighbour.end();
}
