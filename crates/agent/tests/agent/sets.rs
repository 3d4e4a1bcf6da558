//! Tenants of two devices that one MPS daemon serves: on both they are seen, held to their limits and ended, whoever dies meanwhile.

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::{has_tenant, share, start, summary_of};
use pillion_core::device::Mechanism;
use pillion_core::report::{EndOrder, EndOutcome, ReportBody};
use pillion_core::share::Share;
use pillion_core::{GresType, Shards};
use pillion_device::{MpsControl as _, MpsPlace};
use std::collections::BTreeSet;

fn of_both(job: u32) -> Share {
    let one = share(job, Mechanism::Mps);
    let shards = Shards::try_new(50).unwrap();
    Share {
        gres_types: "g0,g1".parse().unwrap(),
        sharing: one.sharing.limited_to(Some(8 << 30)),
        shards,
        ..one
    }
}

fn both() -> MpsPlace {
    MpsPlace::set(0, vec![1])
}

fn clients(node: &TestNode) -> usize {
    node.driver().status(&both()).unwrap().map_or(0, |status| status.client_pids.len())
}

async fn prepare(scheduler: &FakeScheduler, share: Share) -> Option<String> {
    let start = share.start;
    scheduler.prepare(share).await;
    scheduler.result(start).await.error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_jobs_share_two_devices_and_an_agent_that_is_killed_between() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let mut agent = node.start_agent();
    scheduler.hello().await;
    for job in [33, 34] {
        assert_eq!(prepare(&scheduler, of_both(job)).await, None);
    }
    let refused = prepare(&scheduler, share(35, Mechanism::Mps)).await.expect("not on one of them");
    assert!(refused.contains("as one of g0,g1"), "{refused}");
    let mut first = node.start_wide_task(33);
    let told = first.reply().await;
    let value = |name: &str| told.set.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    assert_eq!(value("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").as_deref(), Some("0=8192M,1=8192M"));
    assert_eq!(value("CUDA_VISIBLE_DEVICES").map(|list| list.split(',').count()), Some(2));
    let pipe = node.path("mps/g0+g1/pipe").display().to_string();
    assert_eq!(value("CUDA_MPS_PIPE_DIRECTORY"), Some(pipe.clone()));
    assert_eq!(told.container_bind, Some(pipe));
    eventually("the first one's client", || clients(&node) == 1).await;
    // The next agent finds daemon and shares.
    agent.kill();
    drop(agent);
    let agent = node.start_agent();
    let mut second = node.start_wide_task(34);
    second.reply().await;
    eventually("both on it", || clients(&node) == 2).await;
    for index in [0, 1] {
        let tenants = node.driver().tenants(index).unwrap();
        assert!(tenants.iter().all(|it| it.is_mps && it.memory_bytes_max == Some(8 << 30)), "{tenants:?}");
        assert_eq!(tenants.len(), 2, "{tenants:?}");
    }
    // Both are seen on each device.
    for job in [33, 34] {
        for device in ["g0", "g1"] {
            let is_on = |body: &ReportBody| match body {
                ReportBody::Samples(samples) => samples.samples.iter().any(|sample| {
                    let is_its = sample.tenants.iter().any(|tenant| tenant.job_id == start(job).job_id);
                    sample.gres_type == GresType::new(device) && is_its
                }),
                _ => false,
            };
            scheduler.report(|body| is_on(body).then_some(())).await;
        }
        scheduler.report(|body| has_tenant(body, job).then_some(())).await;
    }
    // One leaves through the daemon, as before SIGKILL; the other goes on.
    scheduler.end(start(33), EndOrder::End { delay_seconds: 0.0 }).await;
    eventually("its end on both", || clients(&node) == 1).await;
    eventually("the word of it", || !scheduler.ends(start(33)).is_empty()).await;
    assert_eq!(scheduler.ends(start(33)), [EndOutcome::Ended { client_count: 1 }]);
    first.end();
    let mut of_devices = BTreeSet::new();
    while of_devices.len() < 2 {
        let known = of_devices.clone();
        let new = scheduler.report(|body| {
            summary_of(body, 33).map(|it| it.gres_type.clone()).filter(|own| !known.contains(own))
        });
        of_devices.insert(new.await);
    }
    assert!(!second.has_ended() && clients(&node) == 1);
    second.end();
    eventually("the daemon to go with its last tenant", || node.driver().status(&both()).unwrap().is_none())
        .await;
    assert_eq!(prepare(&scheduler, share(36, Mechanism::Mps)).await, None, "one of them is free for others");
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_of_a_set_whose_tenants_left_while_no_agent_ran_goes() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let mut agent = node.start_agent();
    scheduler.hello().await;
    assert_eq!(prepare(&scheduler, of_both(33)).await, None);
    let mut task = node.start_wide_task(33);
    task.reply().await;
    eventually("its client", || clients(&node) == 1).await;
    agent.kill();
    drop(agent);
    task.end();
    let _agent = node.start_agent();
    scheduler.report(|body| summary_of(body, 33).cloned()).await;
    eventually("its end", || node.driver().sets().unwrap().is_empty()).await;
    assert_eq!(prepare(&scheduler, share(34, Mechanism::Mps)).await, None);
}
