//! What a scan of Slurm changes for others: who may see what, and which nodes are known.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::testing::{NOW, at, hello};
use pillion_core::ManualClock;
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;

/// A pool of the node n1, and nothing seen of it yet.
fn world() -> (Arc<FakeSlurm>, Arc<Context>) {
    let (nodes, partitions) = (vec![FakeNode::pool("n1", 1)], vec![FakePartition::new("shared", &["n1"])]);
    let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
    let context = Context::new(
        Arc::new(ManualClock::new(at(NOW))),
        Arc::clone(&slurm) as Arc<dyn pillion_slurm::Slurm>,
        Arc::new(MemoryStore::new()),
        Arc::new(Agents::default()),
        Settings::default(),
    );
    (slurm, Arc::new(context))
}

#[tokio::test]
async fn until_slurm_has_said_what_is_private_users_see_their_own_jobs_only() {
    let (slurm, context) = world();
    let watch = Watch::new(Arc::clone(&context));
    assert!(context.hides_jobs(), "nobody has asked yet");
    slurm.set_down(true);
    watch.tick().await.expect_err("Slurm is away");
    assert!(context.hides_jobs(), "it has not answered");
    slurm.set_down(false);
    watch.tick().await.unwrap();
    assert!(!context.hides_jobs(), "this slurm.conf has no PrivateData");
}

#[tokio::test]
async fn a_node_that_slurm_has_no_more_is_forgotten() {
    let (_, context) = world();
    for node in ["n1", "gone"] {
        context.agents.connect(&hello(node), at(NOW));
    }
    Watch::new(Arc::clone(&context)).tick().await.unwrap();
    let known: Vec<NodeName> = context.agents.all().into_keys().collect();
    assert_eq!(known, [NodeName::new("n1")]);
}

#[tokio::test]
async fn what_slurm_forgot_to_have_started_is_left_alone_for_a_moment_and_once() {
    let (slurm, context) = world();
    let mark = "pillion1;w=x;part=shared;field=node;gres=gpu:1;other=;begin=0".to_owned();
    let job = FakeJob {
        partition: "shared".to_owned(),
        admin_comment: mark,
        begin: Some(at(NOW + 60)),
        ..FakeJob::default()
    };
    let start = JobStart { job_id: slurm.submit(job), restart_count: 0 };
    let watch = Watch::new(Arc::clone(&context));
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "no node has begun it");
    context.board_mut().launched.insert(start, at(NOW));
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "the scan is as old as the word of the node");
    context.board_mut().launched.insert(start, at(NOW - 1));
    watch.tick().await.unwrap();
    assert_eq!(context.board().cooling.get(&start.job_id), Some(&(at(NOW) + FORGOTTEN_PAUSE)));
    context.board_mut().cooling.clear();
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "it waits no second time for it");
}
