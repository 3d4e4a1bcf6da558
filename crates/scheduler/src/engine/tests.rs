//! What of the settings reaches a plan.

mod company;
mod instances;

use super::*;
use crate::testing::{NOW, at, context_of, job, node};
use pillion_core::mark::Mark;
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
