//! What a stranger's word may do to others: nothing.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::failure::Judge;
use crate::profile::Profile;
use crate::scan::Scan;
use crate::testing::{NOW, at, device, new_decision, record, start, summary};
use pillion_core::report::{ActivityMeans, JobSummary};
use pillion_core::{GresType, ManualClock, WorkloadKey};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::Ending;
use pillion_store::JobRecord;
use std::collections::BTreeMap;

struct World {
    store: Arc<MemoryStore>,
    context: Arc<Context>,
    ingest: Ingest,
}

impl World {
    /// Alice's job is over; it ran on n1 by Slurm's word. The agents of n1 and of an invented node are there.
    async fn new(job: JobRecord) -> Self {
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW));
        let agents = Agents::default();
        let store = Arc::new(MemoryStore::new());
        let context = Context::new(
            Arc::new(ManualClock::new(at(NOW))),
            Arc::new(slurm),
            Arc::clone(&store) as Arc<dyn pillion_store::Store>,
            Arc::new(agents),
            Settings::default(),
        );
        let context = Arc::new(context);
        for node in ["n1", "evil"] {
            let node = NodeName::new(node);
            context.store.record_devices(&node, &[device(1)], at(1)).await.unwrap();
        }
        context.store.record_jobs(&[job], at(NOW)).await.unwrap();
        context.board_mut().scan = Some(Arc::new(Scan::new(at(NOW), Vec::new(), Vec::new(), &[], 0)));
        Self { ingest: Ingest::new(Arc::clone(&context)), context, store }
    }

    async fn tell(&self, node: &str, sequence: u64, told: JobSummary) -> Option<ToAgent> {
        let report = Report { sequence, body: ReportBody::JobSummary(Box::new(told)) };
        self.ingest.report(&NodeName::new(node), node, &report).await.unwrap()
    }

    /// Why the device of [`new_decision`] takes nobody.
    fn closed(&self) -> Option<String> {
        let board = self.context.board();
        let closed = board.amiss.of(&NodeName::new("n1"), &GresType::new("g0"));
        closed.map(|why| why.to_string())
    }

    fn doubted(&self) -> BTreeMap<&'static str, u64> {
        self.context.tally.counts().doubted
    }
}

/// A run alone of alice's workload, which needs this much memory.
fn told(memory_bytes: u64) -> JobSummary {
    JobSummary {
        gres_type: GresType::new("g1"),
        started_at: at(1001),
        ended_at: at(2000),
        memory_bytes_peak: Some(memory_bytes),
        solo_means: Some(ActivityMeans::default()),
        solo_sample_count: 100,
        ..summary(start())
    }
}

/// As it was tried: the profile said 1 MiB, and alice's next run was given that as its limit.
#[tokio::test]
async fn a_stranger_from_an_invented_node_changes_no_profile() {
    let world = World::new(record(start())).await;
    let answer = world.tell("evil", 1, told(1 << 20)).await;
    assert_eq!(answer, Some(ToAgent::Ack(1)), "it would come again for ever");
    assert_eq!(world.tell("n1", 1, told(60 << 30)).await, Some(ToAgent::Ack(1)));
    Profile::new(Arc::clone(&world.context)).tick().await.unwrap();
    let profile = world.context.store.profile(&WorkloadKey::new("alice/w"), "h200").await.unwrap().unwrap();
    assert_eq!(
        profile.profile.memory_bytes_peak,
        Some(60 << 30),
        "the first word would have been the stranger's"
    );
    assert_eq!(world.doubted(), [("other-node", 1)].into());
    for sequence in 2..50 {
        world.tell("evil", sequence, told(1 << 20)).await;
    }
    assert_eq!(world.doubted(), [("other-node", 49)].into());
    let events = world.store.recorded_events();
    let events: Vec<_> = events.iter().map(|event| (event.kind.clone(), event.node.clone())).collect();
    assert_eq!(
        events,
        [("report-dropped".into(), Some(NodeName::new("evil")))],
        "one event, however often it tries"
    );
}

/// As it was tried: a stranger told of a neighbour that died, and Slurm started somebody's failed job again.
#[tokio::test]
async fn a_stranger_has_nobodys_job_started_again() {
    let failed = JobRecord {
        ending: Some(Ending::Failed),
        exit: Some((1, 0)),
        ended_at: Some(at(NOW - 1)),
        ..record(start())
    };
    let world = World::new(failed).await;
    world.tell("evil", 1, JobSummary { ended_at: at(NOW - 1), ..told(1) }).await;
    Judge::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert_eq!(world.context.store.unjudged_runs(9).await.unwrap(), []);
    assert_eq!(world.context.store.open_requeues().await.unwrap(), []);
    assert_eq!(world.doubted(), [("other-node", 1)].into());
}

#[tokio::test]
async fn what_slurm_was_not_asked_of_since_is_told_again() {
    let world = World::new(record(start())).await;
    let unknown = JobSummary {
        start: pillion_core::JobStart { restart_count: 1, ..start() },
        ended_at: at(NOW),
        ..told(1)
    };
    assert_eq!(world.tell("n1", 1, unknown.clone()).await, None);
    let later = Scan::new(at(NOW + 5), Vec::new(), Vec::new(), &[], 0);
    world.context.board_mut().scan = Some(Arc::new(later));
    assert_eq!(world.tell("n1", 1, unknown).await, Some(ToAgent::Ack(1)));
    assert_eq!(world.doubted(), [("unknown-start", 1)].into());
}

#[tokio::test]
async fn no_agent_gives_up_a_decision_for_another_node() {
    let world = World::new(record(start())).await;
    let store = &world.context.store;
    let host = crate::testing::member(pillion_core::decision::MemberState::Planned).plan;
    let parent = store.revision().await.unwrap();
    let id = store.commit_plan(parent, &[new_decision(vec![host])], at(NOW)).await.unwrap()[0];
    let error = Some("no".to_owned());
    let told = ShareResult { decision_id: id, start: start(), error, revoked: false };
    world.ingest.share_result(&NodeName::new("evil"), &told).await.unwrap();
    assert_eq!(store.decision(id).await.unwrap().unwrap().state, DecisionState::Planned);
    assert_eq!(world.closed(), None);
    world.ingest.share_result(&NodeName::new("n1"), &told).await.unwrap();
    assert_eq!(store.decision(id).await.unwrap().unwrap().state, DecisionState::Abandoned);
    assert_eq!(world.doubted(), [("other-share", 1)].into());
    let why = world.closed().expect("or the node would be given each job of the queue in turn");
    assert_eq!(why, "a share could not be set up there: no");
    let ready = ShareResult { error: None, ..told };
    world.ingest.share_result(&NodeName::new("n1"), &ready).await.unwrap();
    assert_eq!(world.closed(), None, "one was set up");
}
