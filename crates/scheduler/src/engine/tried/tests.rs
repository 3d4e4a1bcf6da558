//! Whose trials are taken out of a plan, over a Slurm that is asked.

use super::*;
use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::testing::{NOW, at, scan};
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, GresType, ManualClock, NodeName, Revision, Shards, SlurmJobId, WorkloadKey};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::{Explanation, Member, Pairing, Policy, Reason, Role, TrialPolicy};
use pillion_slurm::NodeAvailability;

fn member(job_id: SlurmJobId) -> Member {
    let text = String::new();
    Member {
        start: JobStart { job_id, restart_count: 0 },
        workload: WorkloadKey::new("alice/w"),
        role: Role::Host,
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::ALL,
        memory_bytes: None,
        estimate: None,
        explanation: Explanation {
            job_id,
            reason: Reason::Trial,
            model: text.as_str().into(),
            text: text.into(),
            candidates: [].into(),
        },
    }
}

fn pairing(jobs: &[SlurmJobId], trial: Option<f64>) -> Pairing {
    Pairing {
        node: NodeName::new("n1"),
        gres_types: GresType::new("g1").into(),
        device_model: "h100".into(),
        joins: None,
        members: jobs.iter().map(|id| member(*id)).collect(),
        gain: 0.5,
        trial: trial.map(Fraction::clamped),
    }
}

/// One that has less memory than it held at most.
fn smaller(job: SlurmJobId) -> Pairing {
    let mut own = pairing(&[job], None);
    own.members[0].explanation.reason = Reason::SmallerInstance;
    own
}

fn world(policy: Policy) -> (Engine, Vec<SlurmJobId>) {
    let (nodes, partitions) = (vec![FakeNode::pool("n1", 2)], vec![FakePartition::new("shared", &["n1"])]);
    let slurm = FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW));
    let ids = [true, true, false, false]
        .map(|requeue| slurm.submit(FakeJob { requeue, ..FakeJob::default() }))
        .to_vec();
    let context = Context::new(
        Arc::new(ManualClock::new(at(NOW))),
        Arc::new(slurm),
        Arc::new(MemoryStore::new()),
        Arc::new(Agents::default()),
        Settings { policy, ..Settings::default() },
    );
    (Engine::new(Arc::new(context)), ids)
}

#[tokio::test]
async fn who_may_not_be_started_again_is_not_tried_and_remembered() {
    let (engine, ids) = world(Policy::default());
    let unknown = SlurmJobId::plain(99_999);
    let mut plan = Plan {
        pairings: vec![
            pairing(&ids[..2], Some(0.5)),
            pairing(&[ids[0], ids[2]], Some(0.5)),
            pairing(&[unknown], Some(0.5)),
            pairing(&ids[2..], None),
            smaller(ids[1]),
            smaller(ids[3]),
        ],
        ..Plan::empty(Revision(1))
    };
    engine.leave_steadfast(&mut plan, &scan(None, NodeAvailability::Up)).await;
    let left: Vec<_> = plan.pairings.iter().map(|pairing| pairing.members[0].start.job_id).collect();
    assert_eq!(left, [ids[0], ids[2], ids[1]], "whoever is no trial is not asked about");
    let steadfast = engine.context.board().steadfast.clone();
    assert_eq!(steadfast, [ids[2], ids[3]].map(|job_id| JobStart { job_id, restart_count: 0 }).into());
}

#[tokio::test]
async fn where_the_site_wants_no_trials_nothing_is_read() {
    assert!(world(Policy::default()).0.history().await.unwrap().is_none());
    let daring = Policy { trials: Some(TrialPolicy::default()), ..Policy::default() };
    assert_eq!(world(daring).0.history().await.unwrap().map(|history| history.horizon()), Some(0));
}
