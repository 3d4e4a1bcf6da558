//! What of the settings reaches a plan.

mod company;
mod instances;

use super::*;
use crate::testing::{NOW, at, context_of, job, node};
use pillion_core::mark::Mark;
use pillion_pairing::AloneClaim;
use pillion_slurm::{Job, JobState, NodeAvailability};

/// In which order these are served: each a job of this user, and of a workload that nobody has seen.
async fn served(alone_devices_max: u32, uids: &[u32]) -> Vec<u32> {
    let context = context_of(Settings { alone_devices_max, ..Settings::default() });
    let waiting = (1..).zip(uids).map(|(id, uid)| {
        let mark = Mark { workload_digest: format!("new{id}").into(), ..Mark::default() };
        let waits = job(JobState::Pending);
        Job { id: SlurmJobId::plain(id), uid: UserId(*uid), mark: Ok(Some(mark)), ..waits }.into()
    });
    let nodes = vec![node(NodeAvailability::Up)];
    let scan = Scan::new(at(NOW), waiting.collect(), nodes, &["shared".to_owned()], 0);
    context.board_mut().scan = Some(Arc::new(scan));
    let (view, _) = Engine::new(context).dry_run().await.unwrap().unwrap();
    view.waiting.iter().map(|job| job.start.job_id.id).collect()
}

#[tokio::test]
async fn the_budget_of_users_is_the_sites() {
    let uids = [1000, 1000, 1000, 1001];
    assert_eq!(served(1, &uids).await, [1, 4, 2, 3]);
    assert_eq!(served(2, &uids).await, [1, 2, 4, 3]);
    assert_eq!(served(4, &uids).await, [1, 2, 3, 4]);
}

/// What a plan knows of a job on two nodes that was let go so many seconds ago, and becomes eligible so many from now; `None`: nothing.
async fn claim_of_let_go(seconds_ago: u64, eligible_in: u64) -> Option<AloneClaim> {
    let context = context_of(Settings::default());
    let waited = Mark { nodes: Some(2), fallback: "g0,g1".parse().ok(), ..Mark::default() };
    let mark = waited.let_go_with(None, at(NOW - seconds_ago), 0);
    let eligible_at = Some(at(NOW + eligible_in));
    let job = Job { mark: Ok(Some(mark)), eligible_at, ..job(JobState::Pending) };
    let nodes = vec![node(NodeAvailability::Up)];
    let scan = Scan::new(at(NOW), vec![job.into()], nodes, &["shared".to_owned()], 0);
    context.board_mut().scan = Some(Arc::new(scan));
    let (view, _) = Engine::new(context).dry_run().await.unwrap().unwrap();
    view.alone_claims.into_iter().next()
}

#[tokio::test]
async fn who_was_let_go_keeps_his_devices_from_then_on_and_gets_others_when_he_does_not_start() {
    // It begins in a moment: after a restart it waits five seconds.
    let claim = claim_of_let_go(0, 5).await.expect("its devices are its own");
    assert_eq!((claim.node_count, claim.gres_types, claim.waits), (2, "g0,g1".parse().ok(), None));
    assert!(claim_of_let_go(0, 60).await.is_none(), "its user wants it later");
    assert!(claim_of_let_go(30, 0).await.is_some_and(|claim| claim.waits.is_none()));
    let waits = claim_of_let_go(31, 0).await.and_then(|claim| claim.waits).expect("it does not start");
    assert_eq!((waits.node_count, waits.device_count, waits.held), (2, 2, None));
}
