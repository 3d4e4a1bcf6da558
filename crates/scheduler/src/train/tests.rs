//! The trainer over a store in memory, with a recipe that is easily foreseen, and with the real one.

use super::*;
use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::engine::Engine;
use crate::testing::{NOW, at};
use pillion_core::device::Mechanism;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::{JobSummary, Report, ReportBody};
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, JobStart, ManualClock, NodeName, Revision, SlowdownRatio, SlurmJobId, UserId,
    WorkloadKey,
};
use pillion_memory_store::MemoryStore;
use pillion_pairing::view::{DeviceView, NodeView, WaitingJob};
use pillion_pairing::{
    ClusterView, InterferenceModel, Observation, Plan, Policy, PredictError, ProfileBook, SpeedEstimate,
    TenantInput, plan,
};
use pillion_store::prelude::*;
use pillion_store::{Durations, ModelState, NewObservation, RunAccount, SharingTenant, StoredProfile, Sums};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Remembers the mean speed of each pair of workloads, and foretells 0.9 where it has seen none.
struct MeanRecipe {
    kind: &'static str,
    /// From so many observations on it goes wrong.
    sane_max: usize,
}

struct Mean(BTreeMap<String, f64>);

fn pair_of<'a>(workloads: impl Iterator<Item = &'a WorkloadKey>) -> String {
    let mut names: Vec<&str> = workloads.map(WorkloadKey::as_str).collect();
    names.sort_unstable();
    names.join("+")
}

impl Recipe for MeanRecipe {
    fn kind(&self) -> &str {
        self.kind
    }
    fn train(&self, _: &ProfileBook, observations: &[Observation]) -> Value {
        let mut speeds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for one in observations {
            let pair = pair_of(one.tenants.iter().map(|tenant| &tenant.workload));
            let seen = one.tenants.iter().filter_map(|tenant| tenant.speed_fraction);
            speeds.entry(pair).or_default().extend(seen);
        }
        let is_sane = observations.len() <= self.sane_max;
        let mean = |speeds: &Vec<f64>| -> f64 {
            let sum: f64 = speeds.iter().sum();
            if is_sane { sum / f64::from(u32::try_from(speeds.len()).unwrap()) } else { 0.2 }
        };
        let means: BTreeMap<_, _> =
            speeds.iter().map(|(pair, speeds)| (pair.clone(), mean(speeds))).collect();
        json!({ "means": means })
    }
    fn read(&self, mut body: Value) -> Result<Arc<dyn InterferenceModel>, serde_json::Error> {
        Ok(Arc::new(Mean(serde_json::from_value(body["means"].take())?)))
    }
}

impl InterferenceModel for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }
    fn predict(&self, tenants: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
        let pair = pair_of(tenants.iter().map(|tenant| &tenant.profile.workload));
        let speed_fraction = self.0.get(&pair).copied().unwrap_or(0.9);
        let estimate = SpeedEstimate {
            speed_fraction,
            speed_fraction_deviation: 0.05,
            has_heavy_tail: false,
            speed_fraction_low: speed_fraction - 0.064,
            speed_fraction_high: 1.0,
            terms: std::sync::Arc::default(),
        };
        Ok(vec![estimate; tenants.len()])
    }
    fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
        None
    }
}

/// The same memory under a release that writes models in another way.
struct Renamed;
impl Recipe for Renamed {
    fn kind(&self) -> &'static str {
        "renamed"
    }
    fn train(&self, profiles: &ProfileBook, observations: &[Observation]) -> Value {
        json!({ "centres": SANE.train(profiles, observations)["means"] })
    }
    fn read(&self, mut body: Value) -> Result<Arc<dyn InterferenceModel>, serde_json::Error> {
        SANE.read(json!({ "means": body["centres"].take() }))
    }
}

const SANE: MeanRecipe = MeanRecipe { kind: "mean", sane_max: usize::MAX };

struct World {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    context: Arc<Context>,
    train: Train,
    observed: u32,
}

impl World {
    async fn new(recipe: impl Recipe + 'static) -> Self {
        let (clock, store) = (Arc::new(ManualClock::new(at(NOW))), Arc::new(MemoryStore::new()));
        let context = started(&clock, &store, recipe);
        let mut world = Self { train: Train::new(Arc::clone(&context)), clock, store, context, observed: 0 };
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            world.know(u32::try_from(index).unwrap() + 900, name).await;
        }
        world
    }

    /// A solo run of a workload becomes its profile.
    async fn know(&mut self, id: u32, name: &str) {
        let start = JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 };
        let summary = JobSummary {
            started_at: at(NOW),
            ended_at: at(NOW),
            memory_bytes_peak: None,
            ..pillion_test_kit::summary(start)
        };
        let report = Report { sequence: u64::from(id), body: ReportBody::JobSummary(Box::new(summary)) };
        self.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
        let stored = StoredProfile {
            profile: profile(name),
            durations: Durations::default(),
            run_counts_at_cap: [0; 9],
            updated_at: at(NOW),
        };
        let account = RunAccount {
            uid: UserId(1000),
            user: "alice".to_owned(),
            account: String::new(),
            partition: "shared".to_owned(),
            workload: WorkloadKey::new(name),
            node: NodeName::new("n1"),
            ended_at: at(NOW),
            sums: Sums::default(),
            use_beyond_fraction: None,
            slice: None,
        };
        self.store
            .profile_run(start, &GresType::new("g1"), &account, &LessonKind::Alone.into(), Some(&stored))
            .await
            .unwrap();
    }

    /// Two workloads shared a device, both at this speed.
    async fn observe(&mut self, names: [&str; 2], speed: f64) {
        self.observed += 2;
        let start =
            |which: u32| JobStart { job_id: SlurmJobId::plain(self.observed + which), restart_count: 0 };
        let tenant = |which: u32, name: &str| SharingTenant {
            start: start(which),
            workload: WorkloadKey::new(format!("alice/{name}")),
            sharing: Sharing::by(Mechanism::Mps, None, None),
        };
        for which in [0, 1] {
            let new = NewObservation {
                group: DecisionId(1),
                device_model: "h200".to_owned(),
                tenants: vec![tenant(0, names[0]), tenant(1, names[1])],
                power_watts: None,
                fits: true,
                own: start(which),
                speed_fraction: Some(speed),
                speed_fraction_deviation: None,
                is_self_reported: true,
            };
            assert!(self.store.record_observation(&new, self.context.now()).await.unwrap());
        }
    }

    /// Trains when the next training may be.
    async fn tick(&self) -> Vec<(u64, ModelState)> {
        self.clock.advance(Duration::from_mins(2));
        self.train.tick().await.unwrap();
        let known = self.store.models(0).await.unwrap();
        known.iter().rev().map(|one| (one.version, one.state)).collect()
    }

    async fn model(&self) -> String {
        self.context.models.current(self.store.as_ref()).await.unwrap().name().to_owned()
    }
}

fn started(
    clock: &Arc<ManualClock>,
    store: &Arc<MemoryStore>,
    recipe: impl Recipe + 'static,
) -> Arc<Context> {
    let slurm = pillion_fake_slurm::FakeSlurm::new(
        pillion_fake_slurm::FakeSettings::default(),
        vec![],
        vec![],
        at(NOW),
    );
    let agents = Arc::new(Agents::default());
    let context = Context::new(
        Arc::clone(clock) as _,
        Arc::new(slurm),
        Arc::clone(store) as _,
        agents,
        Settings::default(),
    );
    Arc::new(context.with_recipe(Arc::new(recipe)))
}

fn profile(name: &str) -> WorkloadProfile {
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, 0.3),
            (Metric::GpuBusyFraction, 0.4),
            (Metric::MemoryBandwidthFraction, 0.2),
        ]),
        run_count: 2,
        duration_seconds: Some(100.0),
        memory_bytes_peak: Some(10),
        ..WorkloadProfile::empty(WorkloadKey::new(format!("alice/{name}")), "h200")
    }
}

/// Two jobs wait before one device.
fn view() -> ClusterView {
    let job = |id: u32, name: &str| WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 },
        uid: UserId(1000),
        account: "".into(),
        partition: "shared".into(),
        workload: WorkloadKey::new(format!("alice/{name}")),
        submitted_at: at(NOW),
        starts_alone_at: at(NOW + 600),
        slowdown_ratio_max: SlowdownRatio::try_promise(2.0).unwrap(),
        memory_bytes_declared: None,
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: pillion_core::isolation::Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: 1,
        memory_mib: 1,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: Some(600),
        duration_seconds_expected: None,
        held: None,
    };
    ClusterView {
        revision: Revision(1),
        taken_at: at(NOW),
        nodes: vec![NodeView {
            name: NodeName::new("n1"),
            blocked: None,
            cpus: 8,
            memory_mib: 1000,
            cpus_free: 8,
            memory_mib_free: 1000,
            features: Vec::new(),
            partitions: vec!["shared".into()],
            open_seconds: None,
        }],
        devices: vec![DeviceView {
            node: NodeName::new("n1"),
            gres_type: GresType::new("g1"),
            model: "h200".into(),
            gpu_types: vec!["h200".into()],
            memory_bytes: 100,
            mechanism: Mechanism::Mps,
            shards_free: 100,
            tenants: Vec::new(),
            geometry: None,
            is_shape_held: false,
            instances_empty: Vec::new(),
            alone_until: None,
            links: BTreeMap::new(),
            blocked: None,
        }],
        waiting: vec![job(1, "a"), job(2, "b")],
        alone_claims: Vec::new(),
        copies: pillion_pairing::CopyBook::default(),
        slices: pillion_pairing::mig::SliceBook::default(),
        profiles: vec![profile("a"), profile("b")].into(),
        trials: pillion_pairing::TrialBook::default(),
    }
}

async fn planned(context: &Context) -> Plan {
    let model = context.models.current(context.store.as_ref()).await.unwrap();
    plan(&view(), model.as_ref(), &Policy::default())
}

#[tokio::test]
async fn a_misjudged_pair_is_learnt_from_at_once_and_what_was_expected_is_not() {
    let mut world = World::new(SANE).await;
    assert_eq!((world.tick().await, world.model().await.as_str()), (vec![], "mean v0"));
    for _ in 0..4 {
        world.observe(["a", "b"], 0.88).await;
    }
    assert_eq!(world.tick().await, [], "four, all as expected");
    world.observe(["b", "b"], 0.5).await;
    assert_eq!(world.tick().await, [(1, ModelState::Active)]);
    assert_eq!(world.model().await, "mean v1");
    assert_eq!(world.store.event_count(&"model-promoted".into()).await.unwrap(), 1);
    assert_eq!(world.tick().await.len(), 1, "nothing is new");
}

#[tokio::test]
async fn one_surprise_is_enough() {
    let mut world = World::new(SANE).await;
    world.observe(["a", "b"], 0.5).await;
    assert_eq!(world.tick().await, [(1, ModelState::Active)]);
    let known = &world.store.models(1).await.unwrap()[0];
    assert_eq!((known.observation_count, known.score.outcome_count), (1, 0));
    assert!(
        known.reason.starts_with("one sharing went worse than thought possible; too few outcomes"),
        "{}",
        known.reason
    );
}

#[tokio::test]
async fn the_fifth_observation_trains_and_is_held_out_with_the_two_before() {
    let mut world = World::new(SANE).await;
    for _ in 0..5 {
        world.observe(["a", "b"], 0.86).await;
    }
    assert_eq!(world.tick().await, [(1, ModelState::Active)]);
    let score = &world.store.models(1).await.unwrap()[0].score;
    assert_eq!((score.outcome_count, score.incumbent_version), (6, None));
    let (own, other) = (score.candidate.unwrap(), score.incumbent.unwrap());
    assert!(own.error_mean < other.error_mean && own.log_score_mean > other.log_score_mean, "{score:?}");
}

#[tokio::test]
async fn a_loser_is_kept_and_not_used() {
    let mut world = World::new(MeanRecipe { kind: "mean", sane_max: 6 }).await;
    for _ in 0..5 {
        world.observe(["a", "b"], 0.86).await;
    }
    world.tick().await;
    let before = world.store.revision().await.unwrap();
    for _ in 0..5 {
        world.observe(["a", "b"], 0.86).await;
    }
    assert_eq!(world.tick().await, [(1, ModelState::Active), (2, ModelState::Rejected)]);
    assert_eq!((world.model().await.as_str(), world.store.revision().await.unwrap()), ("mean v1", before));
    assert_eq!(world.store.event_count(&"model-rejected".into()).await.unwrap(), 1);
    assert_eq!(world.tick().await.len(), 2, "not again, before there is more to learn");
}

#[tokio::test]
async fn another_scheduler_uses_what_the_leader_promoted_and_trains_nothing() {
    let mut world = World::new(SANE).await;
    world.observe(["a", "b"], 0.5).await;
    let follower = started(&world.clock, &world.store, SANE);
    follower.set_leading(false);
    Train::new(Arc::clone(&follower)).tick().await.unwrap();
    assert_eq!(world.store.models(0).await.unwrap(), []);
    world.tick().await;
    assert_eq!(follower.models.current(world.store.as_ref()).await.unwrap().name(), "mean v1");
}

#[tokio::test]
async fn a_model_that_cannot_be_read_is_trained_anew() {
    let mut world = World::new(SANE).await;
    world.observe(["a", "b"], 0.5).await;
    world.tick().await;
    let context = started(&world.clock, &world.store, Renamed);
    assert_eq!(context.models.current(world.store.as_ref()).await.unwrap().name(), "mean v0", "a stand-in");
    Train::new(Arc::clone(&context)).tick().await.unwrap();
    let current = context.models.current(world.store.as_ref()).await.unwrap();
    assert_eq!((current.name(), current.is_stand_in), ("mean v2", false));
    for kind in ["model-unreadable", "model-promoted"] {
        assert!(world.store.event_count(&kind.into()).await.unwrap() > 0, "no event {kind}");
    }
}

#[tokio::test]
async fn a_restart_changes_no_plan() {
    let mut world = World::new(LearnedRecipe::default()).await;
    for speed in [0.7, 0.72, 0.69, 0.71, 0.7] {
        world.observe(["a", "b"], speed).await;
    }
    assert!(!world.tick().await.is_empty());
    let before = planned(&world.context).await;
    let restarted = started(&world.clock, &world.store, LearnedRecipe::default());
    let after = planned(&restarted).await;
    assert_eq!(before, after);
    let shown = &after.pairings[0].members[0].explanation.model;
    assert_eq!(**shown, format!("{} v1", LearnedRecipe::default().kind()));
    // What the engine would do is the same thing: it has no model of its own.
    assert!(Engine::new(restarted).dry_run().await.unwrap().is_none(), "no scan, no plan");
}

#[tokio::test]
async fn a_store_that_does_not_answer_costs_a_tick_only() {
    let mut world = World::new(SANE).await;
    world.observe(["a", "b"], 0.5).await;
    for calls in 1..=9 {
        world.store.heal();
        world.store.fail_next(calls, pillion_memory_store::FailWhen::Before);
        let _ = world.train.tick().await;
    }
    world.store.heal();
    assert_eq!(world.tick().await.last(), Some(&(1, ModelState::Active)));
}
