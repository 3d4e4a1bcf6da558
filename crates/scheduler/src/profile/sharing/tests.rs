//! From what agents and Slurm say of two or three tenants to what is observed of them.

use crate::agents::Agents;
use crate::context::{Context, Settings};
use crate::credit::strain::Strain;
use crate::profile::Profile;
use crate::testing::{at, member, new_decision, record, summary};
use pillion_core::decision::MemberState::{Planned, Released, Running};
use pillion_core::device::{DeviceDescription, Mechanism, Reading};
use pillion_core::event::EventKind;
use pillion_core::metric::Metric;
use pillion_core::name::NameSource;
use pillion_core::report::{
    ActivityMeans, DeviceSample, DeviceSamples, JobSummary, Launch, ProgressPart, Report, ReportBody,
};
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, Fraction, GresType, JobStart, ManualClock, NodeName, SlurmJobId, UserId, WorkloadKey,
    WorkloadName,
};
use pillion_memory_store::MemoryStore;
use pillion_pairing::Role;
use pillion_slurm::Ending;
use pillion_store::prelude::*;
use pillion_store::{JobRecord, MemberStep, Naming, NewDecision, NewMember, StoredObservation};
use std::sync::Arc;

mod charged;

/// Seconds on one device, alone and then beside others.
struct Told {
    id: u32,
    from: u64,
    until: u64,
    shared: f64,
    neighbours: Vec<u32>,
    /// Progress while alone and while shared.
    progress: (Option<f64>, Option<f64>),
    ending: Ending,
    memory_bytes: Option<u64>,
}

impl Told {
    fn new(id: u32, from: u64, until: u64) -> Self {
        Self {
            id,
            from,
            until,
            shared: 0.0,
            neighbours: Vec::new(),
            progress: (None, None),
            ending: Ending::Completed,
            memory_bytes: Some(10),
        }
    }
    /// Shared from beginning to end.
    fn beside(self, neighbours: &[u32]) -> Self {
        let seconds = at(self.until).seconds_since(at(self.from));
        Self { shared: seconds, neighbours: neighbours.to_vec(), ..self }
    }
    /// At this rate, of one a second alone.
    fn at_speed(self, speed: f64) -> Self {
        let progress = (None, Some(speed * self.shared));
        Self { progress, ..self }
    }
}

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn node() -> NodeName {
    NodeName::new("n1")
}

struct World {
    store: Arc<MemoryStore>,
    context: Arc<Context>,
    profile: Profile,
    sequence: u64,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let store = Arc::new(MemoryStore::new());
        let slurm = pillion_fake_slurm::FakeSlurm::new(
            pillion_fake_slurm::FakeSettings::default(),
            vec![],
            vec![],
            at(0),
        );
        let clock = Arc::new(ManualClock::new(at(5000)));
        let context = Context::new(
            clock,
            Arc::new(slurm),
            Arc::clone(&store) as _,
            Arc::new(Agents::default()),
            settings,
        );
        let device = DeviceDescription { memory_bytes: 100, ..pillion_test_kit::device(1) };
        store.record_devices(&node(), &[device], at(0)).await.unwrap();
        let context = Arc::new(context);
        let profile = Profile::new(Arc::clone(&context));
        let mut world = Self { store, context, profile, sequence: 0 };
        // Everybody ran alone before, one step a second.
        for id in 1..=3 {
            let alone = Told { progress: (Some(100.0), None), ..Told::new(90 + id, 100, 200) };
            world.tell(&alone, id).await;
        }
        world.tick().await;
        world
    }

    async fn tick(&self) -> Vec<StoredObservation> {
        self.profile.tick().await.unwrap();
        self.store.observations(0, 0).await.unwrap()
    }

    async fn ingest(&mut self, body: ReportBody) {
        self.sequence += 1;
        let report = Report { sequence: self.sequence, body };
        assert!(self.store.ingest(&node(), "j", &report).await.unwrap());
    }

    /// An agent's summary of a run of workload `which`, and Slurm's word that it is over.
    async fn tell(&mut self, told: &Told, which: u32) {
        let elapsed = at(told.until).seconds_since(at(told.from));
        self.ingest(ReportBody::JobSummary(Box::new(JobSummary {
            started_at: at(told.from),
            ended_at: at(told.until),
            shared_seconds: told.shared,
            memory_bytes_peak: told.memory_bytes,
            solo: ProgressPart { progress: told.progress.0, seconds: elapsed - told.shared },
            shared: ProgressPart { progress: told.progress.1, seconds: told.shared },
            solo_means: Some(ActivityMeans::default()),
            solo_sample_count: 10,
            neighbours: told.neighbours.iter().map(|id| start(*id)).collect(),
            ..summary(start(told.id))
        })))
        .await;
        let job = JobRecord {
            uid: UserId(1000 + which),
            workload: workload(which),
            submitted_at: at(90),
            started_at: Some(at(told.from)),
            ended_at: Some(at(told.until)),
            ending: Some(told.ending),
            node: Some(node()),
            ..record(start(told.id))
        };
        self.store.record_jobs(&[job], at(told.until)).await.unwrap();
    }

    /// A decision whose members run: job `n` runs workload `n` of user 1000 + `n`.
    async fn plan(&self, joins: Option<DecisionId>, ids: &[u32]) -> DecisionId {
        let member = |id: &u32| NewMember {
            start: start(*id),
            uid: UserId(1000 + *id),
            workload: workload(ran_by(*id)),
            role: Role::Host,
            sharing: Sharing::by(Mechanism::Mps, (*id == 2).then(|| Fraction::clamped(0.4)), None),
            ..member(Planned).plan
        };
        let decision = NewDecision {
            gres_types: GresType::new("g1").into(),
            device_model: "h200".into(),
            joins,
            ..new_decision(ids.iter().map(member).collect())
        };
        let parent = self.store.revision().await.unwrap();
        let decision_id = self.store.commit_plan(parent, &[decision], at(300)).await.unwrap()[0];
        for id in ids {
            for (from, to) in [(Planned, Released), (Released, Running)] {
                let step = MemberStep { decision_id, start: start(*id), from, to, at: at(300) };
                assert!(self.store.step_member(&step).await.unwrap());
            }
        }
        decision_id
    }
}

/// From job ten on all are copies of one.
fn ran_by(id: u32) -> u32 {
    if id >= 10 { 1 } else { id }
}

fn workload(which: u32) -> WorkloadKey {
    WorkloadKey::new(format!("alice/{which}"))
}

fn speeds(one: &StoredObservation) -> Vec<Option<f64>> {
    one.observation.tenants.iter().map(|tenant| tenant.speed_fraction).collect()
}

#[tokio::test]
async fn two_who_ran_together_are_one_observation() {
    let mut world = World::new().await;
    let group = world.plan(None, &[1, 2]).await;
    for (seconds, watts) in [(350, 300.0), (450, 500.0), (550, 100.0)] {
        let reading = Reading::from([(Metric::PowerWatts, watts)]);
        let sample = DeviceSample { gres_type: GresType::new("g1"), reading, tenants: Vec::new() };
        world
            .ingest(ReportBody::Samples(DeviceSamples { recorded_at: at(seconds), samples: vec![sample] }))
            .await;
    }
    let told = Told::new(1, 300, 500).beside(&[2]).at_speed(0.8);
    world.tell(&told, 1).await;
    let all = world.tick().await;
    assert_eq!(speeds(&all[0]), [Some(0.8), None], "the other still runs");
    world.tell(&Told::new(2, 300, 600).beside(&[1]).at_speed(0.5), 2).await;
    let all = world.tick().await;
    assert_eq!((all.len(), speeds(&all[0])), (1, vec![Some(0.8), Some(0.5)]));
    let seen = &all[0].observation;
    assert_eq!((seen.device_model.as_str(), seen.mechanism(), seen.fits), ("h200", Mechanism::Mps, true));
    assert_eq!(seen.power_watts, Some(400.0), "only while both were there");
    assert_eq!(seen.tenants[1].sharing.cap(), Some(Fraction::clamped(0.4)));
    assert!(seen.tenants.iter().all(|tenant| tenant.is_self_reported));
    let outcome = world.store.decision(group).await.unwrap().unwrap();
    assert_eq!(outcome.members[0].measured_speed_fraction, Some(0.8));
}

#[tokio::test]
async fn a_joiner_belongs_to_the_group_and_a_stranger_to_nothing() {
    let mut world = World::new().await;
    let group = world.plan(None, &[1]).await;
    world.plan(Some(group), &[2]).await;
    world.plan(None, &[3]).await;
    world.tell(&Told::new(1, 300, 500).beside(&[2]).at_speed(0.8), 1).await;
    assert_eq!(world.tick().await.len(), 1);
    world.tell(&Told::new(2, 300, 500).beside(&[3]).at_speed(0.8), 2).await;
    let all = world.tick().await;
    assert_eq!((all.len(), speeds(&all[0])), (1, vec![Some(0.8), None]), "beside one of another group");
}

#[tokio::test]
async fn changing_partners_teach_nothing_unless_one_was_there_nearly_all_the_time() {
    for (second_from, expected) in [(400, 0), (495, 1)] {
        let mut world = World::new().await;
        let group = world.plan(None, &[1]).await;
        world.plan(Some(group), &[2]).await;
        world.plan(Some(group), &[3]).await;
        world.tell(&Told::new(2, 300, second_from), 2).await;
        world.tell(&Told::new(3, second_from, 500), 3).await;
        world.tell(&Told::new(1, 300, 500).beside(&[2, 3]).at_speed(0.7), 1).await;
        let all = world.tick().await;
        assert_eq!(all.len(), expected, "{all:?}");
        if let Some(one) = all.first() {
            assert_eq!((one.starts.clone(), speeds(one)), (vec![start(1), start(2)], vec![Some(0.7), None]));
        }
    }
}

#[tokio::test]
async fn three_who_were_always_there_are_one_observation_of_three() {
    let mut world = World::new().await;
    let group = world.plan(None, &[1]).await;
    world.plan(Some(group), &[2]).await;
    world.plan(Some(group), &[3]).await;
    for id in 1..=3 {
        let others: Vec<u32> = (1..=3).filter(|other| *other != id).collect();
        world.tell(&Told::new(id, 300, 500).beside(&others).at_speed(0.1 * f64::from(id) + 0.5), id).await;
    }
    let all = world.tick().await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(speeds(&all[0]).iter().all(Option::is_some));
}

#[tokio::test]
async fn copies_that_take_each_others_places_are_as_many_as_they_were() {
    // Two were always beside it but for a moment, and they were three.
    for (second_from, expected) in [(405, 1), (460, 0)] {
        let mut world = World::new().await;
        let group = world.plan(None, &[10]).await;
        for id in 11..=13 {
            world.plan(Some(group), &[id]).await;
        }
        world.tell(&Told::new(11, 300, 400), 1).await;
        world.tell(&Told::new(12, second_from, 500), 1).await;
        world.tell(&Told::new(13, 300, 500), 1).await;
        world.tell(&Told::new(10, 300, 500).beside(&[11, 12, 13]).at_speed(0.9), 1).await;
        let all = world.tick().await;
        assert_eq!(all.len(), expected, "{all:?}");
        if let Some(one) = all.first() {
            assert_eq!(one.starts, [start(10), start(11), start(13)], "whoever was there the longest");
            assert_eq!(speeds(one), [Some(0.9), None, None]);
        }
    }
}

#[tokio::test]
async fn sixteen_copies_are_one_observation() {
    let mut world = World::new().await;
    let group = world.plan(None, &[10]).await;
    for id in 11..=26 {
        world.plan(Some(group), &[id]).await;
    }
    for id in 10..=24 {
        world.tell(&Told::new(id, 300, 500), 1).await;
    }
    for id in [25, 26] {
        let others: Vec<u32> = (10..id).collect();
        world.tell(&Told::new(id, 300, 500).beside(&others).at_speed(0.9), 1).await;
    }
    let all = world.tick().await;
    assert_eq!(all.len(), 1, "seventeen are none: {all:?}");
    assert_eq!(all[0].starts.len(), 16);
}

#[tokio::test]
async fn a_start_without_its_decision_teaches_nothing() {
    let mut world = World::new().await;
    world.plan(None, &[1, 2]).await;
    let missed = Launch { at: at(300), gres_types: Vec::new(), ..pillion_test_kit::launch(start(2)) };
    world.ingest(ReportBody::Launch(missed)).await;
    world.tell(&Told::new(1, 300, 500).beside(&[2]).at_speed(0.8), 1).await;
    world.tell(&Told::new(2, 300, 500).beside(&[1]).at_speed(0.8), 2).await;
    assert_eq!(world.tick().await, [], "one of them had no mechanism");
}

#[tokio::test]
async fn what_does_not_fit_is_known_where_the_peaks_leave_no_other_way() {
    for (memory_bytes, ending, fits) in [
        (Some(95), Ending::Failed, false),
        (Some(95), Ending::Completed, true),
        (Some(50), Ending::Failed, true),
        (None, Ending::Failed, true),
    ] {
        let mut world = World::new().await;
        world.plan(None, &[1, 2]).await;
        world.tell(&Told { ending, ..Told::new(1, 300, 310).beside(&[2]) }, 1).await;
        world.tell(&Told { memory_bytes, ..Told::new(2, 300, 500).beside(&[1]).at_speed(0.9) }, 2).await;
        let all = world.tick().await;
        assert_eq!((all.len(), all[0].observation.fits), (1, fits), "{memory_bytes:?} {ending:?}");
    }
}

/// As it was tried: a user wrote his counter at a third of its pace while he shared, and whoever was beside him ran alone for it.
#[tokio::test]
async fn a_promise_that_only_its_user_calls_broken_costs_nobody_anything() {
    for (is_borne_out, expected) in [(false, vec![]), (true, vec![UserId(1002)])] {
        let mut world = World::new().await;
        // Hers is known better than his.
        let again = Told { progress: (Some(50.0), None), ..Told::new(81, 210, 260) };
        world.tell(&again, 1).await;
        world.tick().await;
        let group = world.plan(None, &[1, 2]).await;
        if is_borne_out {
            world.context.board_mut().strains.insert(start(2), Strain::beyond(group));
        }
        world.tell(&Told::new(1, 300, 500).beside(&[2]).at_speed(0.3), 1).await;
        world.tick().await;
        let decided = world.store.decision(group).await.unwrap().unwrap();
        assert_eq!(decided.members[0].measured_speed_fraction, Some(0.3), "what it says is learned from");
        let owed = world.store.atonements(30.0, 10).await.unwrap();
        assert_eq!(owed.iter().map(|one| one.uid).collect::<Vec<_>>(), expected);
    }
}

/// Versions and sizes of a script are of one family; one that nobody named has none, and keeps what was stored before.
#[tokio::test]
async fn a_profile_is_of_the_family_that_its_name_says() {
    let mut world = World::new().await;
    let namings = [(1, "resnet50-v2.sh"), (2, "ResNet-152")].map(|(which, name)| Naming {
        workload: workload(which),
        uid: UserId(1000),
        name: WorkloadName::safe(name).unwrap(),
        source: NameSource::Job,
    });
    world.store.name_workloads(&namings, at(300)).await.unwrap();
    for which in 1..=3 {
        world.tell(&Told::new(10 + which, 300, 400), which).await;
    }
    world.tick().await;
    let mut families = Vec::new();
    for which in 1..=3 {
        let stored = world.store.profile(&workload(which), "h200").await.unwrap().unwrap();
        families.push(stored.profile.family);
    }
    assert!(families[0].as_deref().is_some_and(|family| family.ends_with("/resnet")), "{families:?}");
    assert_eq!(families[0], families[1]);
    assert_eq!(families[2], None);
}
