//! Orders of operators against the strict double of Slurm: two jobs run on n1's g0, a third waits.

use super::order::{name_of, reason};
use super::*;
use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::engine::Engine;
use crate::failure::requeue::Requeuer;
use crate::grpc::auth::Caller;
use crate::release::Release;
use crate::testing::{NOW, at, member, new_decision};
use crate::watch::Watch;
use pillion_api as api;
use pillion_core::decision::MemberState::{Planned, Released, Running};
use pillion_core::heartbeat::Mode;
use pillion_core::mark::Mark;
use pillion_core::{JobStart, ManualClock, NodeName, SlurmJobId, UserId};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::Role;
use pillion_slurm::JobState;
use pillion_store::prelude::*;
use pillion_store::{MemberStep, NewMember, RequeueCause};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Root, whatever user the tests run as.
const OPERATOR: Caller = Caller { uid: Some(UserId(0)), is_operator: true };
const ALICE: Caller = Caller { uid: Some(UserId(2001)), is_operator: false };

struct World {
    context: Arc<Context>,
    clock: Arc<ManualClock>,
    slurm: Arc<FakeSlurm>,
    store: Arc<MemoryStore>,
    host: SlurmJobId,
    guest: SlurmJobId,
    waiting: SlurmJobId,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default(), true).await
    }

    /// `requeue`: how the guest was submitted.
    async fn with(settings: Settings, requeue: bool) -> Self {
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let partitions = vec![FakePartition::new("shared", &["n1", "n2"])];
        let nodes = vec![FakeNode::pool("n1", 2), FakeNode::pool("n2", 1)];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
        let mark = Mark { workload_digest: "w".into(), original_gres: "gpu:1".into(), ..Mark::default() };
        let leased = |requeue: bool| FakeJob {
            gres: "shard:g0:40".to_owned(),
            required_nodes: vec![NodeName::new("n1")],
            admin_comment: mark.leased(at(NOW - 10), 0).to_string(),
            requeue,
            ..FakeJob::default()
        };
        let host = slurm.submit(leased(true));
        let guest = slurm.submit(leased(requeue));
        let begin = Some(at(NOW + 500));
        let waiting = slurm.submit(FakeJob { admin_comment: mark.to_string(), begin, ..FakeJob::default() });
        let store = Arc::new(MemoryStore::new());
        let context = Arc::new(Context::new(
            clock.clone(),
            slurm.clone(),
            store.clone(),
            Arc::new(Agents::default()),
            settings,
        ));
        let world = Self { context, clock, slurm, store, host, guest, waiting };
        world.decide(&[(host, Role::Host), (guest, Role::Joiner)]).await;
        world.scan().await;
        world
    }

    /// A second passes, and Slurm is scanned.
    async fn scan(&self) {
        self.clock.advance(Duration::from_secs(1));
        self.slurm.tick(self.context.now());
        Watch::new(Arc::clone(&self.context)).tick().await.unwrap();
    }

    async fn decide(&self, jobs: &[(SlurmJobId, Role)]) {
        let start = |job_id| JobStart { job_id, restart_count: 0 };
        let members = jobs.iter().map(|(id, role)| NewMember {
            start: start(*id),
            role: *role,
            ..member(Planned).plan
        });
        let plan = new_decision(members.collect());
        let revision = self.store.revision().await.unwrap();
        let decision_id = self.store.commit_plan(revision, &[plan], at(NOW)).await.unwrap()[0];
        for (id, _) in jobs {
            for (from, to) in [(Planned, Released), (Released, Running)] {
                let step = MemberStep { decision_id, start: start(*id), from, to, at: at(NOW) };
                assert!(self.store.step_member(&step).await.unwrap());
            }
        }
    }

    async fn evict(&self, id: SlurmJobId) -> Result<api::EvictResponse, Status> {
        let request = api::EvictRequest { job_id: id.to_string(), reason: "too\nnoisy".to_owned() };
        evict(&self.context, OPERATOR, request).await
    }

    async fn refusal(&self, id: SlurmJobId) -> String {
        self.evict(id).await.expect_err("refused").message().to_owned()
    }

    async fn drain(&self, places: &[(&str, &str)], reason: &str) -> Result<Vec<String>, Status> {
        let places = places.iter().map(|(node, gres_type)| place(node, gres_type)).collect();
        let request = api::DrainRequest { places, reason: reason.to_owned() };
        let answer = drain(&self.context, OPERATOR, request).await?;
        let word = |outcome: api::DrainOutcome| format!("{} {}", outcome.change, outcome.running_count);
        Ok(answer.places.into_iter().map(word).collect())
    }

    async fn undrain(&self, node: &str, gres_type: &str) -> Result<(bool, usize), Status> {
        let places = vec![place(node, gres_type)];
        let request = api::UndrainRequest { places, reason: String::new() };
        let answer = undrain(&self.context, OPERATOR, request).await?;
        let outcome = &answer.places[0];
        Ok((outcome.was_drained, outcome.remaining.len()))
    }

    async fn kinds(&self, id: SlurmJobId) -> Vec<String> {
        self.store.events(id).await.unwrap().into_iter().map(|event| event.kind.to_string()).collect()
    }
}

fn place(node: &str, gres_type: &str) -> api::Place {
    api::Place { node: node.to_owned(), gres_type: super::super::listing::some_text(gres_type.to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn a_user_may_order_nothing() {
    let world = World::new().await;
    let drained = drain(&world.context, ALICE, api::DrainRequest::default()).await;
    let undrained = undrain(&world.context, ALICE, api::UndrainRequest::default()).await;
    let evicted = evict(&world.context, ALICE, api::EvictRequest::default()).await;
    let codes = [drained.map(drop), undrained.map(drop), evicted.map(drop)].map(|it| it.unwrap_err().code());
    assert_eq!(codes, [Code::PermissionDenied; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_kept_and_told_and_its_tenants_go_on() {
    let world = World::new().await;
    assert_eq!(
        world.drain(&[("n1", "g0"), ("n2", "")], "fan\n noise").await.unwrap(),
        ["drained 2", "drained 0"]
    );
    let drains: Vec<String> =
        world.store.drains().await.unwrap().iter().map(|drain| format!("{} {drain}", drain.place)).collect();
    assert_eq!(drains, ["n1:g0 drained by root: fan noise", "n2 drained by root: fan noise"]);
    assert_eq!(world.drain(&[("n2", "")], "fan noise").await.unwrap(), ["unchanged 0"], "said twice");
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(world.drain(&[("n2", "")], "new firmware").await.unwrap(), ["retold 0"]);
    let kept = world.store.drains().await.unwrap();
    assert_eq!((kept[1].reason.as_str(), kept[1].since), ("new firmware", kept[0].since));
    Release::new(Arc::clone(&world.context)).tick().await.unwrap();
    world.scan().await;
    for id in [world.host, world.guest] {
        assert_eq!(world.slurm.job(id).unwrap().state, JobState::Running);
    }
    let told = world.store.recorded_events();
    let drained = told.iter().filter(|event| event.kind == "drained".into());
    let told: Vec<&str> = drained.map(|event| event.detail.as_str()).collect();
    let expected =
        ["g0: drained by root: fan noise", "drained by root: fan noise", "drained by root: new firmware"];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_plan_from_before_a_drain_is_stale() {
    let world = World::new().await;
    let revision = world.store.revision().await.unwrap();
    world.drain(&[("n1", "")], "fan noise").await.unwrap();
    assert!(world.store.commit_plan(revision, &[], at(NOW)).await.is_err());
    let (view, _) = Engine::new(Arc::clone(&world.context)).dry_run().await.unwrap().expect("a fresh scan");
    assert_eq!(view.nodes[0].blocked.as_deref(), Some("drained by root: fan noise"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_drained_is_said_and_nothing_is_done() {
    let world = World::new().await;
    let refusal = async |places: &[(&str, &str)], reason: &str| {
        world.drain(places, reason).await.expect_err("refused").message().to_owned()
    };
    let strangers = refusal(&[("n1", ""), ("n8", ""), ("n9", "g0")], "x").await;
    assert_eq!(strangers, "the pool has no node n8, n9; its nodes are n1, n2");
    assert_eq!(refusal(&[("n2", "g7")], "x").await, "n2 has no GPU g7; it has g0");
    assert_eq!(refusal(&[("n2", "")], " \n").await, "a drain needs a reason; write --reason 'fan noise'");
    assert!(refusal(&[("n2", "")], &"x".repeat(201)).await.starts_with("the reason is longer than 200"));
    assert!(refusal(&[], "x").await.contains("write n1, n[1-3] or n1:g0"));
    assert!(world.store.drains().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_undrain_opens_what_was_named_and_says_what_is_left() {
    let world = World::new().await;
    world.drain(&[("n1", ""), ("n1", "g1")], "fan noise").await.unwrap();
    assert_eq!(world.undrain("n1", "").await.unwrap(), (true, 1), "its GPU is drained by itself");
    assert_eq!(world.undrain("n1", "").await.unwrap(), (false, 1), "said twice");
    assert_eq!(world.undrain("n1", "g1").await.unwrap(), (true, 0));
    assert_eq!(world.undrain("n9", "").await.expect_err("refused").code(), Code::NotFound);
    // A node that has left the pool can be opened still.
    let order = pillion_store::Drain {
        place: pillion_store::DrainPlace { node: NodeName::new("n9"), gres_type: None },
        by: "root".to_owned(),
        reason: "sold".to_owned(),
        since: at(NOW),
    };
    world.store.drain(&[order]).await.unwrap();
    assert_eq!(world.undrain("n9", "").await.unwrap(), (true, 0));
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_is_started_again_alone_and_its_neighbour_goes_on() {
    let world = World::new().await;
    let answer = world.evict(world.guest).await.unwrap();
    assert_eq!((answer.node.as_str(), answer.reason.as_str()), ("n1", "evicted by root: too noisy"));
    assert_eq!(world.store.open_requeues().await.unwrap()[0].cause, RequeueCause::Evicted);
    assert!(world.refusal(world.guest).await.ends_with("is being started again already; see 'pillion why'"));
    // The scheduler is another one by now: what is written down is enough.
    for _ in 0..3 {
        world.scan().await;
        Requeuer::new(Arc::clone(&world.context)).tick().await.unwrap();
    }
    for _ in 0..300 {
        world.scan().await;
        Release::new(Arc::clone(&world.context)).tick().await.unwrap();
        if world.slurm.job(world.guest).unwrap().state == JobState::Running {
            break;
        }
    }
    let job = world.slurm.job(world.guest).unwrap();
    assert_eq!((job.state, job.restart_count, job.gres.as_str()), (JobState::Running, 1, "shard:100"));
    let host = world.slurm.job(world.host).unwrap();
    assert_eq!((host.state, host.restart_count), (JobState::Running, 0));
    assert_eq!(world.kinds(world.guest).await, ["evicted", "requeued", "restarted"]);
    let told = world.store.events(world.guest).await.unwrap();
    let expected = "evicted by root: too noisy; it is to be ended and started again, alone";
    assert_eq!(told[0].detail, expected);
    assert!(world.store.open_requeues().await.unwrap().is_empty());
    let again = world.refusal(world.guest).await;
    assert!(again.ends_with("runs alone already: nobody shares its GPU"), "{again}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_evicted_is_said_in_one_sentence() {
    let world = World::new().await;
    let unknown = world.refusal(SlurmJobId::plain(999)).await;
    assert!(unknown.starts_with("job 999 is not known to Pillion"), "{unknown}");
    assert!(world.refusal(world.waiting).await.ends_with("does not run: it waits"));
    world.slurm.finish(world.guest, pillion_slurm::Ending::Completed);
    for _ in 0..60 {
        world.scan().await;
        Release::new(Arc::clone(&world.context)).tick().await.unwrap();
    }
    assert!(world.refusal(world.guest).await.ends_with("does not run: it is over (completed)"));
    assert!(world.refusal(world.host).await.ends_with("runs alone already: nobody shares its GPU"));
    assert!(world.store.open_requeues().await.unwrap().is_empty());

    let stubborn = World::with(Settings::default(), false).await;
    let refusal = stubborn.refusal(stubborn.guest).await;
    assert!(refusal.ends_with("was submitted with --no-requeue: Slurm does not start it again"), "{refusal}");
    let off = World::with(Settings { mode: Mode::Off, ..Settings::default() }, true).await;
    assert!(off.refusal(off.guest).await.contains("acts in mode active only, and this is mode off"));
}

#[test]
fn a_reason_is_one_line() {
    assert_eq!(reason(" a\tb\u{1b}c\n").unwrap().as_deref(), Some("a bc"));
    assert_eq!(reason(" \n").unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn who_acts_is_named_or_at_least_numbered() {
    assert_eq!(name_of(OPERATOR).await, "root");
    let nobody = Caller { uid: Some(UserId(3_999_999_999)), is_operator: true };
    assert_eq!(name_of(nobody).await, "uid 3999999999");
    assert_eq!(name_of(Caller { uid: None, is_operator: true }).await, "an operator over TCP");
}
