//! Who holds more device memory than its share allows is ended, and nobody else.

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::share;
use pillion_core::device::Mechanism;
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::share::Share;
use pillion_device::{MpsControl as _, MpsPlace};

/// Jobs 33 and 34 on one device: the daemon holds both to the larger limit; each task takes 1 GiB.
async fn prepare_a_large_and_a_small_limit(scheduler: &FakeScheduler) {
    for (job, bytes) in [(33, 16 << 30), (34, 512 << 20)] {
        let share = share(job, Mechanism::Mps);
        let share = Share { sharing: share.sharing.limited_to(Some(bytes)), ..share };
        let start = share.start;
        scheduler.prepare(share).await;
        assert_eq!(scheduler.result(start).await.error, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_his_memory_limit_away_is_ended_and_it_is_told() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    prepare_a_large_and_a_small_limit(&scheduler).await;
    let mut victim = node.start_task(33, 1, Some("yes"));
    victim.reply().await;
    eventually("the victim's client", || {
        node.driver().status(&MpsPlace::device(1)).unwrap().unwrap().client_pids.len() == 1
    })
    .await;
    let of_victim = node.driver().status(&MpsPlace::device(1)).unwrap().unwrap().client_pids;
    let mut thief = node.start_task_without("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", 34, 1, Some("yes"));
    thief.reply().await;
    let is_overused = |condition: &DeviceCondition| {
        condition
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::Overused && fault.detail.contains("job 34"))
    };
    scheduler.conditions("the thief to be told of", |conditions| conditions.iter().any(is_overused)).await;
    eventually("the thief's end", || {
        node.driver().status(&MpsPlace::device(1)).unwrap().unwrap().client_pids == of_victim
    })
    .await;
    assert!(node.log().contains("over its memory limit"), "{}", node.log());
    victim.end();
    thief.end();
}

/// Without the pipe directory a program is no client of the daemon: it runs beside it, and nobody but the kernel ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_too_much_beside_the_daemon_is_killed() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    prepare_a_large_and_a_small_limit(&scheduler).await;
    let mut neighbour = node.start_task(33, 1, Some("yes"));
    neighbour.reply().await;
    let mut thief = node.start_task_without("CUDA_MPS_PIPE_DIRECTORY", 34, 1, Some("yes"));
    thief.reply().await;
    eventually("the kernel to end it", || thief.has_ended()).await;
    assert!(node.log().contains("over its memory limit"), "{}", node.log());
    assert!(!neighbour.has_ended(), "and nobody else");
    assert_eq!(node.driver().status(&MpsPlace::device(1)).unwrap().unwrap().client_pids.len(), 1);
}
