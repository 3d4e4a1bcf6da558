//! Interactive jobs: begun by a step, and over when the scheduler says so.

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::{has_tenant, launch_of, share, start, summary_of};
use pillion_core::DecisionId;
use pillion_core::device::Mechanism;
use pillion_core::handoff::Verdict;
use pillion_core::share::Share;
use pillion_device::{MpsControl as _, MpsPlace};

fn session(job: u32) -> Share {
    Share { is_session: true, ..share(job, Mechanism::Mps) }
}

/// How many clients the daemon of the device has; `None` where there is no daemon.
fn clients(node: &TestNode) -> Option<usize> {
    let status = node.driver().status(&MpsPlace::device(1)).unwrap();
    status.filter(|status| status.state.takes_clients()).map(|status| status.client_pids.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_an_interactive_job_is_a_client_until_it_is_over() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let mut agent = node.start_agent();
    scheduler.hello().await;
    scheduler.prepare(session(33)).await;
    assert_eq!(scheduler.result(start(33)).await.error, None);
    assert_eq!(clients(&node), Some(0), "the daemon is there before the job is");
    for step in 0..2 {
        let mut task = node.start_session_step(33, step);
        let reply = task.reply().await;
        assert_eq!((reply.verdict, reply.decision_id), (Verdict::Decided, Some(DecisionId(133))), "{step}");
        let launch =
            scheduler.report(|body| launch_of(body, 33).filter(|it| it.step_id == step).cloned()).await;
        assert_eq!(launch.decision_id, Some(DecisionId(133)));
        eventually("a client", || clients(&node) == Some(1)).await;
        scheduler.report(|body| has_tenant(body, 33).then_some(())).await;
        task.end();
        scheduler.report(|body| summary_of(body, 33).cloned()).await;
        eventually("that it is over", || node.log().contains("its share stays until it is over")).await;
        // Whoever begins between two steps finds the share of before.
        agent.kill();
        agent = node.start_agent();
        assert_eq!(scheduler.hello().await.decision_ids, [DecisionId(133)]);
    }
    assert_eq!(clients(&node), Some(0));
    scheduler.revoke(DecisionId(133), start(33)).await;
    eventually("that it is taken back", || scheduler.is_revoked(start(33))).await;
    eventually("that the plugin's mark goes", || !node.path("jobs/33").exists()).await;
    let reply = node.start_session_step(33, 2).reply().await;
    assert_eq!(reply.verdict, Verdict::Unknown);
    eventually("that the daemon goes", || clients(&node).is_none()).await;
    assert_eq!(agent.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_over_while_his_last_task_is_still_here_loses_his_share_with_it() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    scheduler.prepare(session(33)).await;
    scheduler.result(start(33)).await;
    let mut task = node.start_session_step(33, 0);
    assert_eq!(task.reply().await.verdict, Verdict::Decided);
    eventually("a client", || clients(&node) == Some(1)).await;
    scheduler.revoke(DecisionId(133), start(33)).await;
    eventually("an answer", || scheduler.is_revoked(start(33))).await;
    assert_eq!(clients(&node), Some(1), "it goes on to its end");
    task.end();
    eventually("that its share has gone", || !node.path("jobs/33").exists()).await;
    eventually("that the daemon goes", || clients(&node).is_none()).await;
}
