//! What is done where a promise is being broken, over the memory store; and, seeded, that nobody is sent back who should not be.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::credit::strain::Strain;
use crate::pace::settings::PaceSettings;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, device, hello, job, leased, member, node};
use pillion_config::Watch;
use pillion_core::decision::MemberState;
use pillion_core::device::{Reading, TenantUse};
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples};
use pillion_core::{DecisionId, Fraction, GresType, ManualClock, NodeName, SlurmJobId, UserId, WorkloadKey};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::{FailWhen, MemoryStore};
use pillion_pairing::{Role, UserPolicy};
use pillion_slurm::{JobState, NodeAvailability, SlurmVersion};
use pillion_store::prelude::*;
use pillion_store::{Durations, NewMember, Requeue, RequeueCause, Store, StoredProfile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

mod first_runs;
mod sets;

/// How fast every workload here counts alone.
const RATE: f64 = 10.0;

/// A tenant, as a test wants it.
#[derive(Clone, Copy)]
struct Is {
    uid: u32,
    requeue: bool,
    /// 0: nothing is stored of its workload.
    run_count: u32,
    limit_seconds: Option<u64>,
}

const PLAIN: Is = Is { uid: 1000, requeue: true, run_count: 20, limit_seconds: Some(86_400) };

struct World {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    context: Arc<Context>,
    pace: Pace,
    /// Of the host, and of the guest.
    ids: Vec<SlurmJobId>,
    tenants: Vec<Is>,
    is_trial: bool,
    second: u64,
    counters: Vec<f64>,
    _orders: tokio::sync::mpsc::Receiver<pillion_core::report::ToAgent>,
}

impl World {
    /// The first is the host; each other came ten seconds after the one before.
    fn new(watch: Watch, tenants: &[Is]) -> Self {
        let settings = PaceSettings { watch, ..PaceSettings::default() };
        Self::with(settings, tenants)
    }

    fn with(pace: PaceSettings, tenants: &[Is]) -> Self {
        Self::of_site(Settings { pace, ..Settings::default() }, tenants)
    }

    fn of_site(settings: Settings, tenants: &[Is]) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(ManualClock::new(at(NOW))));
        let agents = Agents::default();
        let hello = AgentHello { devices: vec![device(1)], ..hello("n1") };
        let (_, orders) = agents.connect(&hello, at(NOW));
        let nodes = vec![FakeNode::pool("n1", 2)];
        let partitions = vec![FakePartition::new("shared", &["n1"])];
        let slurm = FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW));
        let ids =
            tenants.iter().map(|is| slurm.submit(FakeJob { requeue: is.requeue, ..FakeJob::default() }));
        let ids: Vec<SlurmJobId> = ids.collect();
        let context = Arc::new(Context::new(
            Arc::clone(&clock) as _,
            Arc::new(slurm),
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::new(agents),
            settings,
        ));
        context.board_mut().slurm_version = Some(SlurmVersion { major: 24, minor: 11, patch: 5 });
        let pace = Pace::new(Arc::clone(&context));
        let (tenants, counters) = (tenants.to_vec(), vec![0.0; tenants.len()]);
        let world = Self {
            clock,
            store,
            context,
            pace,
            ids,
            tenants,
            is_trial: false,
            second: 0,
            counters,
            _orders: orders,
        };
        for (index, is) in world.tenants.iter().enumerate().filter(|(_, is)| is.run_count > 0) {
            let profile = WorkloadProfile {
                throughput_per_second: Some(RATE),
                duration_variation_fraction: Some(0.02),
                run_count: is.run_count,
                metrics: Metrics::from([(Metric::SmActiveFraction, 0.4)]),
                ..WorkloadProfile::empty(workload(index), "h100")
            };
            world.store.know(&StoredProfile {
                profile,
                durations: Durations::default(),
                run_counts_at_cap: [0; 9],
                updated_at: at(NOW),
            });
        }
        world.let_in(world.tenants.len());
        world
    }

    /// The first so many are there now.
    fn let_in(&self, count: usize) {
        let members = (0..count).map(|index| {
            let is = self.tenants[index];
            let running = member(MemberState::Running);
            let plan = NewMember {
                start: self.start(index),
                uid: UserId(is.uid),
                workload: workload(index),
                role: if index == 0 { Role::Host } else { Role::Joiner },
                ..running.plan.clone()
            };
            Member { plan, started_at: Some(at(NOW + 10 * index as u64)), ..running }
        });
        let members: Vec<Member> = members.collect();
        let trial = self.is_trial.then(|| Fraction::clamped(0.5));
        let shared = Decision { trial, members: members.clone(), ..decision(&members[0]) };
        self.context.board_mut().active = Arc::new(vec![shared]);
    }

    fn start(&self, index: usize) -> JobStart {
        JobStart { job_id: self.ids[index], restart_count: 0 }
    }

    fn place() -> Place {
        (NodeName::new("n1"), GresType::new("g1"))
    }

    fn scan(&self) {
        let now = self.context.now();
        let jobs = self.ids.iter().zip(&self.tenants).map(|(id, is)| {
            let running = pillion_slurm::Job {
                id: *id,
                uid: UserId(is.uid),
                time_limit_seconds: is.limit_seconds,
                ..leased(job(JobState::Running), NOW)
            };
            running.into()
        });
        let nodes = vec![node(NodeAvailability::Up)];
        let scan = Scan::new(now, jobs.collect(), nodes, &["shared".to_owned()], 0);
        self.context.board_mut().scan = Some(Arc::new(scan));
    }

    /// A second passes, at these speeds; whoever has none says nothing.
    async fn pass(&mut self, speeds: &[Option<f64>]) {
        self.second += 1;
        self.clock.set(at(NOW + self.second));
        self.scan();
        let mut tenants = Vec::new();
        for (index, speed) in speeds.iter().enumerate() {
            self.counters[index] += RATE * speed.unwrap_or(0.0);
            tenants.push(TenantUse {
                job_id: self.ids[index],
                restart_count: 0,
                memory_bytes: None,
                process_count: 1,
                progress: speed.map(|_| self.counters[index]),
            });
        }
        let reading = Reading::from([(Metric::SmActiveFraction, 0.64)]);
        let samples = vec![DeviceSample { gres_type: GresType::new("g1"), reading, tenants }];
        let samples = DeviceSamples { recorded_at: self.context.now(), samples };
        self.context.agents.set_readings(&NodeName::new("n1"), &samples);
        let _ = self.pace.tick().await;
    }

    async fn pass_for(&mut self, seconds: u32, speeds: &[Option<f64>]) {
        for _ in 0..seconds {
            self.pass(speeds).await;
        }
    }

    async fn kinds(&self, index: usize) -> Vec<String> {
        let events = self.store.events(self.ids[index]).await.unwrap();
        events.iter().map(|event| event.kind.to_string()).collect()
    }

    async fn why_it_stays(&self, index: usize) -> String {
        let events = self.store.events(self.ids[index]).await.unwrap();
        let stays: Vec<_> = events.iter().filter(|event| event.kind.to_string() == "not-sent-back").collect();
        assert_eq!(stays.len(), 1, "{events:?}");
        stays[0].detail.clone()
    }

    async fn intended(&self) -> Vec<Requeue> {
        self.store.open_requeues().await.unwrap()
    }

    fn is_closed(&self) -> bool {
        self.context.board().amiss.strained.contains_key(&Self::place())
    }
}

fn workload(index: usize) -> WorkloadKey {
    WorkloadKey::new(format!("user/{index}"))
}

/// A host that goes at half of its speed, promised four fifths; a guest at its full one.
const SLOWED: [Option<f64>; 2] = [Some(0.5), Some(1.0)];

#[tokio::test]
async fn a_broken_promise_is_told_once_and_nobody_joins_there() {
    let mut world = World::new(Watch::Advise, &[PLAIN, PLAIN]);
    world.pass_for(60, &SLOWED).await;
    assert!(world.kinds(0).await.is_empty() && !world.is_closed(), "it was hardly measured");
    world.pass_for(20, &SLOWED).await;
    assert_eq!(world.kinds(0).await, ["promise-breaking"]);
    assert!(world.is_closed());
    let told = world.store.events(world.ids[0]).await.unwrap()[0].detail.clone();
    assert!(told.starts_with("it goes at 0.50 of its speed alone (give or take 0.0"), "{told}");
    assert!(told.contains("was promised 0.80"), "{told}");
    world.pass_for(2_000, &SLOWED).await;
    assert_eq!((world.kinds(0).await.len(), world.kinds(1).await.len()), (1, 0));
    assert_eq!(world.intended().await, [], "that is the admin's to allow");
    world.let_in(1);
    world.pass(&SLOWED[..1]).await;
    assert!(!world.is_closed(), "the guest has gone");
}

#[tokio::test]
async fn the_guest_goes_back_once_whoever_looks() {
    let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
    world.pass_for(80, &SLOWED).await;
    let intended = world.intended().await;
    assert_eq!(intended.len(), 1);
    assert_eq!((intended[0].cause, intended[0].start), (RequeueCause::SentBack, world.start(1)));
    // Another scheduler leads, or this one was started again: neither is it told again, nor intended.
    world.pace = Pace::new(Arc::clone(&world.context));
    world.pass_for(700, &SLOWED).await;
    assert_eq!(
        (world.kinds(0).await, world.kinds(1).await),
        (vec!["promise-breaking".to_owned()], vec!["sent-back".to_owned()])
    );
    assert_eq!(world.intended().await, intended);
    let told = world.store.events(world.ids[1]).await.unwrap()[0].detail.clone();
    assert!(!told.contains(|letter: char| letter.is_ascii_digit()), "nothing of its neighbour: {told}");
}

/// One that is kept by less than 2 % is no reason to send a guest back, unless he was only tried.
#[tokio::test]
async fn a_trial_goes_back_that_hardly_holds_and_says_what_it_was() {
    let near = [Some(0.81), Some(1.0)];
    for is_trial in [false, true] {
        let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
        world.is_trial = is_trial;
        world.let_in(2);
        world.pass_for(80, &near).await;
        assert_eq!(world.intended().await.len(), usize::from(is_trial));
        assert_eq!(world.context.board().speeds[&World::place()].len(), 2);
        if is_trial {
            let told = world.store.events(world.ids[1]).await.unwrap()[0].detail.clone();
            assert!(told.starts_with("a trial: ") && told.ends_with("started again, alone"), "{told}");
        }
    }
    let mut holds = World::new(Watch::Act, &[PLAIN, PLAIN]);
    holds.is_trial = true;
    holds.let_in(2);
    holds.pass_for(80, &[Some(0.84), Some(1.0)]).await;
    assert_eq!(holds.kinds(0).await.len() + holds.intended().await.len(), 0);
    holds.pass_for(1_500, &[Some(0.80), Some(1.0)]).await;
    assert_eq!(holds.intended().await.len(), 0, "from then on it is a sharing like every other");
    holds.let_in(1);
    holds.pass(&near[..1]).await;
    assert!(holds.context.board().speeds.is_empty());
}

#[tokio::test]
async fn a_guest_that_is_slowed_itself_goes_back_too() {
    let mut world = World::new(Watch::Act, &[PLAIN, Is { uid: 1001, ..PLAIN }]);
    world.pass_for(80, &[Some(1.0), Some(0.5)]).await;
    assert_eq!(world.kinds(1).await, ["promise-breaking", "sent-back"]);
    assert_eq!(world.intended().await[0].start, world.start(1));
}

#[tokio::test]
async fn whose_promise_is_kept_or_unsure_is_left_in_peace() {
    for speed in [0.78, 0.81, 1.0, 1.5] {
        let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
        world.pass_for(1_500, &[Some(speed), Some(1.0)]).await;
        assert!(world.kinds(0).await.is_empty() && world.intended().await.is_empty(), "at {speed}");
    }
}

#[tokio::test]
async fn what_its_user_or_the_clock_says_keeps_a_guest() {
    let guests = [
        (Is { requeue: false, ..PLAIN }, "it was submitted with --no-requeue"),
        (Is { limit_seconds: Some(240), ..PLAIN }, "less time is left beside it than going back costs"),
        (Is { uid: 1001, ..PLAIN }, "a counter of another user tells it"),
    ];
    for (guest, why) in guests {
        let mut world = World::new(Watch::Act, &[PLAIN, guest]);
        world.pass_for(1_300, &SLOWED).await;
        let told = world.why_it_stays(1).await;
        assert!(told.contains(why), "{told}");
        assert_eq!((world.intended().await, world.is_closed()), (Vec::new(), true));
    }
    let endless = Is { limit_seconds: None, ..PLAIN };
    let mut world = World::new(Watch::Act, &[endless, endless]);
    world.pass_for(80, &SLOWED).await;
    assert!(world.why_it_stays(1).await.contains("nobody knows how long"));
}

/// Where the site believes its users, a counter of another user takes two apart; of an account, where both are of one.
#[tokio::test]
async fn another_users_counter_counts_where_the_site_believes_it() {
    let stranger = Is { uid: 1001, ..PLAIN };
    for (believes, is_sent) in
        [(UserPolicy::SameUser, false), (UserPolicy::SameAccount, true), (UserPolicy::Any, true)]
    {
        let pace = PaceSettings { watch: Watch::Act, ..PaceSettings::default() };
        let mut settings = Settings { pace, ..Settings::default() };
        settings.policy.watch_believes = believes;
        let mut world = World::of_site(settings, &[PLAIN, stranger]);
        world.pass_for(80, &SLOWED).await;
        assert_eq!(!world.intended().await.is_empty(), is_sent, "{believes:?}");
        assert!(world.context.board().believed.is_empty(), "nobody is believed but by the site's own word");
    }
}

/// Nobody is sent away on another user's word alone; what agents measured makes it more than that.
#[tokio::test]
async fn another_users_counter_counts_where_what_was_measured_bears_it_out() {
    let newcomer = Is { uid: 1001, run_count: 1, ..PLAIN };
    for (guest, is_sent) in [(newcomer, true), (Is { run_count: 90, ..newcomer }, false)] {
        let mut world = World::new(Watch::Act, &[PLAIN, guest]);
        let strain = Strain::beyond(DecisionId(1));
        world.context.board_mut().strains.insert(world.start(1), strain);
        world.pass_for(80, &SLOWED).await;
        assert_eq!(!world.intended().await.is_empty(), is_sent, "known by {} runs", guest.run_count);
    }
}

/// Compute units are the device's: a user who is known to be light, does more himself and writes his counter slower would have one
/// guest after the other sent away. Once an hour, then. Memory is read of each, and may be told as often as it is so.
#[tokio::test]
async fn what_may_be_ones_own_doing_sends_others_away_once_an_hour() {
    let newcomer = Is { uid: 1001, run_count: 1, ..PLAIN };
    let beyond = Strain::beyond(DecisionId(1));
    for (strain, since_seconds, is_sent) in
        [(beyond, 3_000, false), (beyond, 4_000, true), (Strain::of_memory(DecisionId(1)), 3_000, true)]
    {
        let mut world = World::new(Watch::Act, &[PLAIN, newcomer]);
        world.context.board_mut().believed.insert(UserId(1000), at(NOW - since_seconds));
        world.context.board_mut().strains.insert(world.start(1), strain);
        world.pass_for(80, &SLOWED).await;
        assert_eq!(!world.intended().await.is_empty(), is_sent, "{strain:?} {since_seconds} s later");
    }
    let mut world = World::new(Watch::Act, &[PLAIN, newcomer]);
    world.context.board_mut().strains.insert(world.start(1), beyond);
    world.pass_for(80, &SLOWED).await;
    assert_eq!(world.context.board().believed.keys().collect::<Vec<_>>(), [&UserId(1000)], "it counts");
}

#[tokio::test]
async fn a_job_that_was_started_again_before_stays() {
    let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
    let before = Requeue {
        cause: RequeueCause::SentBack,
        start: JobStart { restart_count: 3, ..world.start(1) },
        node: NodeName::new("n1"),
        decided_at: at(NOW - 500),
        reason: "before".into(),
    };
    let event = sent::stays(&member(MemberState::Running), &before.node, at(NOW - 500), guest::Stays::Once);
    assert!(world.store.intend_requeue(&before, &event).await.unwrap());
    world.pass_for(80, &SLOWED).await;
    assert!(world.why_it_stays(1).await.contains("once at most"));
    assert_eq!(world.intended().await, [before]);
}

#[tokio::test]
async fn partitions_have_their_own_say() {
    let by = |partition: &str, watch| [(partition.to_owned(), watch)].into();
    for (watch, by_partition, told, sent) in [
        (Watch::Off, BTreeMap::new(), 0, 0),
        (Watch::Off, by("shared", Watch::Act), 1, 1),
        (Watch::Act, by("shared", Watch::Off), 0, 0),
        (Watch::Act, by("shared", Watch::Advise), 1, 0),
        (Watch::Advise, by("other", Watch::Act), 1, 0),
    ] {
        let settings = PaceSettings { watch, by_partition, ..PaceSettings::default() };
        let mut world = World::with(settings.clone(), &[PLAIN, PLAIN]);
        world.pass_for(80, &SLOWED).await;
        assert_eq!((world.kinds(0).await.len(), world.intended().await.len()), (told, sent), "{settings:?}");
        assert_eq!(world.is_closed(), told > 0);
    }
}

#[tokio::test]
async fn what_the_store_did_not_take_is_done_at_the_next_tick() {
    for when in [FailWhen::Before, FailWhen::After] {
        for failures in 1..6 {
            let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
            world.pass_for(70, &SLOWED).await;
            world.store.fail_next(failures, when);
            world.pass_for(30, &SLOWED).await;
            world.store.heal();
            world.pass_for(3, &SLOWED).await;
            assert_eq!(world.intended().await.len(), 1, "{when:?} {failures}");
            let told = (world.kinds(0).await.len(), world.kinds(1).await.len());
            assert_eq!(told, (1, 1), "{when:?} {failures}");
        }
    }
}

#[tokio::test]
async fn who_follows_another_scheduler_does_nothing() {
    let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
    world.context.set_leading(false);
    world.pass_for(200, &SLOWED).await;
    assert!(world.kinds(0).await.is_empty() && world.intended().await.is_empty());
}

#[tokio::test]
async fn a_newcomer_has_everybody_measured_anew_and_is_the_one_who_goes() {
    let mut world = World::new(Watch::Act, &[PLAIN; 3]);
    world.let_in(2);
    world.pass_for(50, &[Some(0.5), Some(1.0)]).await;
    world.let_in(3);
    world.pass_for(60, &[Some(0.5), Some(1.0), Some(1.0)]).await;
    assert!(world.intended().await.is_empty(), "beside him it was hardly measured");
    world.pass_for(20, &[Some(0.5), Some(1.0), Some(1.0)]).await;
    assert_eq!(world.intended().await[0].start, world.start(2));
}

/// What a counter does that its user, a crash or the node's clock plays with.
async fn play(world: &mut World, rng: &mut SmallRng, speeds: [f64; 2]) {
    match rng.random_range(0..40) {
        0 => world.counters[0] = 0.0,
        1 => world.counters[rng.random_range(0..2)] += 1e6,
        2 => world.second += rng.random_range(0..200),
        3 => world.pace = Pace::new(Arc::clone(&world.context)),
        4 => {
            let when = if rng.random_bool(0.5) { FailWhen::Before } else { FailWhen::After };
            world.store.fail_next(rng.random_range(1..4), when);
        }
        5 => world.let_in(1),
        6 => world.context.set_leading(rng.random_bool(0.8)),
        7 => world.second = world.second.saturating_sub(rng.random_range(0..20)),
        _ => world.let_in(2),
    }
    let noisy = speeds.map(|speed| Some(speed * rng.random_range(0.8..1.2)));
    world.pass(&noisy).await;
}

/// Seeded: whatever happens to counters, clocks, store and scheduler, nobody goes back but the guest, once, who may be started again
/// and beside whom a promise is broken; and where it plainly is, he nearly always goes in time.
#[tokio::test]
async fn nobody_is_sent_back_who_should_not_be() {
    let (mut sent_count, mut broken_count) = (0, 0);
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let guest = Is { requeue: rng.random_bool(0.8), ..PLAIN };
        let speeds = [[0.45, 1.0], [0.85, 0.9], [0.95, 0.5]][rng.random_range(0..3)];
        let is_broken = speeds.iter().any(|speed| *speed < 0.8);
        let mut world = World::new(Watch::Act, &[PLAIN, guest]);
        for _ in 0..400 {
            play(&mut world, &mut rng, speeds).await;
        }
        world.store.heal();
        world.context.set_leading(true);
        world.let_in(2);
        world.pass_for(150, &speeds.map(Some)).await;
        let intended = world.intended().await;
        assert!(intended.len() <= 1 && intended.iter().all(|one| one.start == world.start(1)), "{seed}");
        assert!(intended.is_empty() || (guest.requeue && is_broken), "{seed}: {intended:?}");
        let told = world.kinds(1).await.iter().filter(|kind| *kind == "sent-back").count();
        assert_eq!(told, intended.len(), "{seed}: told as often as intended");
        sent_count += intended.len();
        broken_count += usize::from(is_broken && guest.requeue);
    }
    // Whose clock was set back seems faster for a while: nobody is sent away for that, and he is judged again in ten minutes.
    let is_in_time = sent_count * 10 >= broken_count * 9 && sent_count > 50;
    assert!(is_in_time, "{sent_count} of {broken_count} went back");
}

/// The host may run for days, and nobody has measured to its end what it was like beside the one that went back.
#[tokio::test]
async fn what_was_seen_of_two_is_remembered_when_one_of_them_has_gone() {
    let mut world = World::new(Watch::Act, &[PLAIN, PLAIN]);
    world.is_trial = true;
    world.let_in(2);
    world.pass_for(80, &SLOWED).await;
    assert_eq!(world.context.board().watched.len(), 1);
    world.let_in(1);
    world.pass_for(2_000, &[Some(1.0)]).await;
    assert_eq!(world.context.board().watched.len(), 1, "the host runs still");
}
