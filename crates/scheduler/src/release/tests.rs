//! Releases against the strict double of Slurm: what a tick does again, and what it must not.

mod by_job;
mod several_nodes;
mod turns;

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::watch::Watch;
use pillion_core::mark::Mark;
use pillion_core::{Clock as _, ManualClock, NodeName};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use std::time::Duration;

/// A job that waits pinned to a node that takes no jobs, with a lease that no decision stands behind.
fn lost_lease() -> (Arc<Context>, Arc<ManualClock>, Arc<FakeSlurm>, SlurmJobId) {
    let clock = Arc::new(ManualClock::new(UnixTime::from_epoch(1_795_000_000)));
    let partitions = vec![FakePartition::new("shared", &["n1"])];
    let nodes = vec![FakeNode::pool("n1", 1)];
    let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, clock.now()));
    slurm.set_node_flag(&NodeName::new("n1"), Some("DRAIN"));
    let mark = Mark { original_gres: "gpu:1".into(), ..Mark::default() };
    let job = slurm.submit(FakeJob {
        gres: "shard:g0:40".to_owned(),
        required_nodes: vec![NodeName::new("n1")],
        admin_comment: mark.leased(clock.now(), 0).to_string(),
        ..FakeJob::default()
    });
    let store = Arc::new(MemoryStore::new());
    let agents = Arc::new(Agents::default());
    let context =
        Context::new(Arc::clone(&clock) as _, Arc::clone(&slurm) as _, store, agents, Settings::default());
    (Arc::new(context), clock, slurm, job)
}

#[tokio::test]
async fn a_lease_is_put_back_once_for_one_scan() {
    let (context, clock, slurm, job) = lost_lease();
    let (watch, release) = (Watch::new(Arc::clone(&context)), Release::new(Arc::clone(&context)));
    watch.tick().await.unwrap();
    clock.advance(Duration::from_millis(200));
    release.tick().await.unwrap();
    let updates = slurm.journal().len();
    // Agents and the clock nudge it again before Slurm was asked again: the old scan still shows the lease.
    release.tick().await.unwrap();
    assert_eq!(slurm.journal().len(), updates, "the job was touched again on the word of an old scan");
    assert_eq!(context.store.events(job).await.unwrap().len(), 1);
    clock.advance(Duration::from_millis(200));
    watch.tick().await.unwrap();
    release.tick().await.unwrap();
    let events = context.store.events(job).await.unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
}

/// Its node has begun it, and slurmctld, killed since, has forgotten that: whoever is put back is Slurm's to start, and not before the
/// node can have ended it.
#[tokio::test]
async fn a_start_that_slurm_forgot_is_put_back_for_later() {
    let begin = async |is_forgotten: bool| {
        let (context, clock, slurm, job) = lost_lease();
        let (watch, release) = (Watch::new(Arc::clone(&context)), Release::new(Arc::clone(&context)));
        if is_forgotten {
            let start = JobStart { job_id: job, restart_count: 0 };
            context.board_mut().launched.insert(start, clock.now());
            clock.advance(Duration::from_secs(1));
        }
        watch.tick().await.unwrap();
        release.tick().await.unwrap();
        let begin = slurm.job(job).unwrap().eligible_at.unwrap();
        begin.seconds_since(clock.now())
    };
    assert!((begin(false).await - 3.0).abs() < 1.0);
    assert!((begin(true).await - updates::FORGOTTEN_PAUSE.as_secs_f64()).abs() < 1.0);
}
