//! What the engine is shown: what is free, who is where, who waits and who is held.

mod alone;
mod arrays;
mod by_job;
mod sessions;
use super::*;
use crate::agents::AgentState;
use crate::device_status::Amiss;
use crate::first_runs::seen::FirstRunSeen;
use crate::testing::{NOW, at, decision, job, leased, member, node};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::mark::Mark;
use pillion_core::profile::WorkloadProfile;
use pillion_core::restart::RestartConsent;
use pillion_core::{CapStep, DecisionId, JobStart, Revision, UnixTime, UserId, WorkloadKey};
use pillion_slurm::ReasonKind;
use pillion_store::{Drain, Durations, StoredProfile};
use std::sync::Arc;

const GIB: u64 = 1 << 30;

fn agent(is_connected: bool) -> AgentState {
    let device = |index: u32| DeviceDescription {
        model: "h100".into(),
        memory_bytes: 80 * GIB,
        ..pillion_test_kit::device(index)
    };
    AgentState {
        devices: vec![device(0), device(1)],
        version: "0".into(),
        is_connected,
        observes: false,
        last_seen_at: at(NOW),
        clock_skew_seconds: 0.0,
        conditions: BTreeMap::new(),
    }
}

/// What is wrong with `g1`.
fn faulty(kind: FaultKind) -> DeviceCondition {
    let fault = DeviceFault { kind, detail: "fell off the bus".into(), since: at(NOW - 5) };
    DeviceCondition {
        gres_type: GresType::new("g1"),
        faults: vec![fault],
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    }
}

struct World {
    settings: crate::context::Settings,
    jobs: Vec<Job>,
    used: u32,
    profiles: Vec<StoredProfile>,
    decisions: Vec<Decision>,
    is_agent_connected: bool,
    fault: Option<FaultKind>,
    drains: Vec<Drain>,
    cooling: BTreeMap<SlurmJobId, UnixTime>,
    stopped: BTreeMap<NodeName, Violation>,
    amiss: Amiss,
    first_runs: BTreeMap<JobStart, Arc<FirstRunSeen>>,
    idle_sessions: BTreeSet<JobStart>,
    room_asked: BTreeMap<JobStart, RoomAsked>,
    steadfast: BTreeSet<JobStart>,
    watched: BTreeMap<Combination, Watched>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            settings: crate::context::Settings::default(),
            jobs: Vec::new(),
            used: 0,
            profiles: Vec::new(),
            decisions: Vec::new(),
            is_agent_connected: true,
            fault: None,
            drains: Vec::new(),
            cooling: BTreeMap::new(),
            stopped: BTreeMap::new(),
            amiss: Amiss::default(),
            first_runs: BTreeMap::new(),
            idle_sessions: BTreeSet::new(),
            room_asked: BTreeMap::new(),
            steadfast: BTreeSet::new(),
            watched: BTreeMap::new(),
        }
    }
}

/// The view of a node with `g0` idle and `used` shards of `g1` held.
fn view_of(world: &World) -> ClusterView {
    let mut agent = agent(world.is_agent_connected);
    agent.conditions = world.fault.map(|kind| (GresType::new("g1"), faulty(kind))).into_iter().collect();
    view_beside(world, agent)
}

fn view_beside(world: &World, agent: AgentState) -> ClusterView {
    let mut node = node(NodeAvailability::Up);
    node.shards = [("g0", (100, 0)), ("g1", (100, world.used))]
        .map(|(name, count)| (GresType::new(name), count))
        .into();
    let scan = Scan::new(
        at(NOW),
        world.jobs.iter().cloned().map(Into::into).collect(),
        vec![node],
        &["shared".to_owned()],
        0,
    );
    view_by(world, &scan, agent)
}

fn view_by(world: &World, scan: &Scan, agent: AgentState) -> ClusterView {
    cluster_view(Sources {
        revision: Revision(1),
        scan,
        decisions: &world.decisions,
        agents: &[(NodeName::new("n1"), agent)].into(),
        stopped: &world.stopped,
        drains: &world.drains,
        cooling: &world.cooling,
        profiles: &world.profiles,
        policy: &world.settings.policy,
        by_job: world.settings.by_job(),
        owed: &BTreeMap::new(),
        charged: &Charged::default(),
        amiss: &world.amiss,
        first_runs: &world.first_runs,
        idle_sessions: &world.idle_sessions,
        alone_devices_max: 2,
        gpu_types: &BTreeMap::new(),
        room_asked: &world.room_asked,
        steadfast: &world.steadfast,
        watched: &world.watched,
        restarts_by_consent: true,
        copies: &pillion_pairing::CopyBook::default(),
        trials: None,
    })
}

fn running() -> Job {
    Job {
        nodes: vec![NodeName::new("n1")],
        started_at: Some(at(NOW - 10)),
        ..leased(job(JobState::Running), NOW - 12)
    }
}

#[test]
fn a_planned_member_holds_its_shards_before_slurm_books_them_and_once_only() {
    let planned = decision(&member(MemberState::Planned));
    let jobs = vec![job(JobState::Pending)];
    let view = view_of(&World { jobs, decisions: vec![planned], ..World::default() });
    assert_eq!(view.devices[1].shards_free, 60);
    assert_eq!(view.waiting, [], "a planned job does not wait for a plan");
    let runs = decision(&member(MemberState::Running));
    let view = view_of(&World { jobs: vec![running()], used: 40, decisions: vec![runs], ..World::default() });
    assert_eq!(view.devices[1].shards_free, 60);
    assert_eq!(view.devices[1].tenants.len(), 1);
    assert_eq!(view.devices[1].blocked, None);
}

#[test]
fn shards_that_nobody_of_ours_holds_close_a_shared_device() {
    let runs = decision(&member(MemberState::Running));
    let view = view_of(&World { jobs: vec![running()], used: 70, decisions: vec![runs], ..World::default() });
    assert!(view.devices[1].blocked.is_some());
    assert_eq!(view.devices[0].blocked, None);
}

#[test]
fn a_device_is_asked_for_by_its_model_and_by_the_names_that_the_site_gave_it() {
    assert_eq!(view_of(&World::default()).devices[0].gpu_types, ["h100"], "as the heartbeat tells lua");
    let given = [("h100".to_owned(), vec!["hopper".to_owned(), "h100".to_owned()])].into();
    assert_eq!(gpu_type_names("h100", &given), ["hopper", "h100"]);
    assert_eq!(gpu_type_names("a100", &given), ["a100"]);
}

#[test]
fn nothing_is_placed_where_the_agent_is_away() {
    let view = view_of(&World { is_agent_connected: false, ..World::default() });
    assert_eq!(view.nodes[0].blocked.as_deref(), Some("its agent is not responding"));
}

#[test]
fn nothing_is_placed_on_a_device_that_is_at_fault_and_the_others_stay_open() {
    let blocked = |kind| {
        let view = view_of(&World { fault: Some(kind), ..World::default() });
        assert_eq!((&view.devices[0].blocked, &view.nodes[0].blocked), (&None, &None));
        view.devices[1].blocked.clone()
    };
    assert_eq!(blocked(FaultKind::Gone).as_deref(), Some("it is gone: fell off the bus"));
    for kind in [
        FaultKind::Unreadable,
        FaultKind::MpsFault,
        FaultKind::MpsDied,
        FaultKind::ModeHeld,
        FaultKind::Divided,
        FaultKind::Held,
    ] {
        assert!(blocked(kind).is_some(), "{kind}");
    }
    for kind in [FaultKind::MetricLost, FaultKind::NoMechanism, FaultKind::Other] {
        assert_eq!(blocked(kind), None, "{kind}");
    }
    assert_eq!(view_of(&World::default()).devices[1].blocked, None, "it answers again");
}

/// The sentence goes to every user whose job waits for the device.
#[test]
fn why_a_device_takes_nothing_names_nobody_who_is_on_it() {
    let place = (NodeName::new("n1"), GresType::new("g1"));
    let amiss = Amiss { overrun: [(place.clone(), DecisionId(1))].into(), ..Amiss::default() };
    let lies = view_of(&World { amiss, ..World::default() });
    assert_eq!(lies.devices[1].blocked.as_deref(), Some("who runs there is not as he was known"));
    let amiss = Amiss { strained: [(place, DecisionId(1))].into(), ..Amiss::default() };
    let slowed = view_of(&World { amiss, ..World::default() });
    assert_eq!(slowed.devices[1].blocked.as_deref(), Some("a promise is being broken there"));
    let (node, job_id) = (NodeName::new("n1"), SlurmJobId::plain(4711));
    let holds = Violation::WholeGpuInPool { node: node.clone(), job_id };
    let stopped = view_of(&World { stopped: [(node, holds)].into(), ..World::default() });
    assert_eq!(stopped.nodes[0].blocked.as_deref(), Some("P-4 does not hold here; operators see more"));
    let died = view_of(&World { fault: Some(FaultKind::MpsDied), ..World::default() });
    assert_eq!(died.devices[1].blocked.as_deref(), Some("its MPS daemon died"));
}

#[test]
fn the_order_of_service_is_priority_then_age() {
    let waiting = |id: u32, priority: u64, submitted: u64| Job {
        id: SlurmJobId::plain(id),
        priority,
        submitted_at: at(submitted),
        ..job(JobState::Pending)
    };
    let view = view_of(&World {
        jobs: vec![waiting(1, 5, 30), waiting(2, 9, 40), waiting(3, 5, 20)],
        ..World::default()
    });
    let order: Vec<u32> = view.waiting.iter().map(|job| job.start.job_id.id).collect();
    assert_eq!(order, [2, 3, 1]);
}

#[test]
fn what_keeps_a_job_from_starting_is_named() {
    let held = |change: fn(&mut Job)| {
        let mut waiting = job(JobState::Pending);
        change(&mut waiting);
        view_of(&World { jobs: vec![waiting], ..World::default() }).waiting[0].held.clone()
    };
    assert_eq!(held(|_| {}), None);
    assert!(held(|job| job.has_dependency = true).is_some());
    assert!(held(|job| job.priority = 0).is_some());
    assert!(held(|job| job.reason = ReasonKind::Limit("QOSMaxJobsPerUserLimit".into())).is_some());
    let own_begin = |job: &mut Job| {
        job.mark = Ok(Some(Mark { original_begin_epoch: NOW + 50, ..Mark::default() }));
    };
    assert!(held(own_begin).is_some());
    let cooling = [(SlurmJobId::plain(7), at(NOW + 5))].into();
    let view = view_of(&World { jobs: vec![job(JobState::Pending)], cooling, ..World::default() });
    assert!(view.waiting[0].held.is_some());
}

#[test]
fn the_gpu_type_asked_for_is_found() {
    assert_eq!(asked_gpu_type("gpu:1"), None);
    assert_eq!(asked_gpu_type("gpu:a100:1"), Some("a100".into()));
    assert_eq!(asked_gpu_type("gpu:a100"), Some("a100".into()));
    assert_eq!(asked_gpu_type("gpu"), None);
}

fn drain(gres_type: Option<&str>) -> Drain {
    let place =
        pillion_store::DrainPlace { node: NodeName::new("n1"), gres_type: gres_type.map(GresType::new) };
    Drain { place, by: "alice".to_owned(), reason: "fan noise".to_owned(), since: at(NOW - 5) }
}

#[test]
fn what_is_drained_takes_nobody_new_and_says_by_whom() {
    let why = Some("drained by alice: fan noise");
    let device = view_of(&World { drains: vec![drain(Some("g1"))], ..World::default() });
    let blocked: Vec<_> = device.devices.iter().map(|device| device.blocked.as_deref()).collect();
    assert_eq!((blocked, device.nodes[0].blocked.as_deref()), (vec![None, why], None));
    let node = view_of(&World { drains: vec![drain(None)], ..World::default() });
    assert_eq!(node.nodes[0].blocked.as_deref(), why);
    assert!(node.devices.iter().all(|device| device.blocked.as_deref() == why));
    let faulty = World { drains: vec![drain(Some("g1"))], fault: Some(FaultKind::Gone), ..World::default() };
    assert_eq!(view_of(&faulty).devices[1].blocked.as_deref(), why, "the operator's word goes before");
}

/// As it was tried: a user's many jobs that nobody can join, by each of the ways to ask for that. They come first, and two of
/// them keep their turn.
#[test]
fn whoever_asks_for_devices_for_himself_in_whatever_way_comes_last_beyond_his_budget() {
    let of = |number: u32, uid: u32, mark: Mark| Job {
        id: SlurmJobId::plain(number),
        uid: UserId(uid),
        user: if uid == 1000 { "alice".into() } else { "mallory".into() },
        submitted_at: at(NOW - 100 + u64::from(number)),
        mark: Ok(Some(mark)),
        ..job(JobState::Pending)
    };
    let named = |name: &str| Mark { workload_digest: name.into(), ..Mark::default() };
    let known = ["alice/w", "mallory/w"].map(|workload| StoredProfile {
        profile: WorkloadProfile::empty(WorkloadKey::new(workload), "h100"),
        durations: Durations::default(),
        run_counts_at_cap: [0; 9],
        updated_at: at(NOW),
    });
    let order = |mark_of: &dyn Fn(u32) -> Mark| {
        let mut jobs: Vec<Job> = (1..=4).map(|number| of(number, 1001, mark_of(number))).collect();
        jobs.push(of(5, 1000, named("w")));
        let view = view_of(&World { jobs, profiles: known.to_vec(), ..World::default() });
        view.waiting.iter().map(|job| job.start.job_id.id).collect::<Vec<_>>()
    };
    let orders = [
        ("max-slowdown=1", order(&|_| Mark { slowdown_ratio_max: Some(1.0), ..named("w") })),
        ("cap=1", order(&|_| Mark { cap: Some(CapStep::WHOLE), ..named("w") })),
        ("a new name each time", order(&|number| named(&format!("new{number}")))),
    ];
    let beyond_two =
        ["max-slowdown=1", "cap=1", "a new name each time"].map(|how| (how, vec![1, 2, 5, 3, 4]));
    assert_eq!(orders, beyond_two);
    assert_eq!(order(&|_| named("w")), [1, 2, 3, 4, 5], "who may be joined keeps his turn");
}

/// A host that was started with nothing known of its workload.
fn first_run_host() -> Decision {
    let mut host = member(MemberState::Running);
    host.plan.role = pillion_pairing::Role::Host;
    (host.plan.memory_bytes, host.plan.estimate) = (None, None);
    decision(&host)
}

#[test]
fn a_first_run_stands_in_the_view_as_far_as_it_was_seen_and_with_what_its_user_declared() {
    let decision = first_run_host();
    let plan = decision.members[0].plan.clone();
    let declared = Mark { memory_mib: Some(2048), ..Mark::default() };
    let seen = FirstRun { measured_seconds: 310.0, ..FirstRun::unseen(plan.workload.clone(), "h100") };
    let seen = Arc::new(FirstRunSeen { first: seen, joinable_since: None });
    let world = |first_runs: BTreeMap<_, _>, profiles| World {
        jobs: vec![Job { mark: Ok(Some(declared.clone())), ..running() }],
        used: 40,
        decisions: vec![first_run_host()],
        profiles,
        first_runs,
        ..World::default()
    };
    let first = |world: World| view_of(&world).devices[1].tenants[0].first_run.clone();
    let so_far = first(world([(plan.start, seen)].into(), Vec::new())).expect("it is a first run");
    assert!((so_far.measured_seconds - 310.0).abs() < 1e-9);
    assert_eq!(so_far.memory_bytes_declared, Some(2 << 30));
    let unseen = first(world(BTreeMap::new(), Vec::new())).expect("it is one before anybody looked");
    assert!(unseen.measured_seconds < 1e-9, "so that nobody joins");
    let profile = WorkloadProfile { run_count: 1, ..WorkloadProfile::empty(plan.workload, "h100") };
    let known = StoredProfile {
        profile,
        durations: Durations::default(),
        run_counts_at_cap: [0; 9],
        updated_at: at(NOW),
    };
    assert_eq!(first(world(BTreeMap::new(), vec![known])), None, "another run of it has ended meanwhile");
}

#[test]
fn a_known_host_is_no_first_run() {
    let mut host = member(MemberState::Running);
    host.plan.memory_bytes = Some(GIB);
    let decisions = vec![decision(&host)];
    let view = view_of(&World { jobs: vec![running()], used: 40, decisions, ..World::default() });
    assert_eq!(view.devices[1].tenants[0].first_run, None);
}

#[test]
fn a_wall_is_what_the_mark_says_and_whose_mark_cannot_be_read_has_one() {
    let tenant = |mark| {
        let decisions = vec![decision(&member(MemberState::Running))];
        let jobs = vec![Job { mark, ..running() }];
        view_of(&World { jobs, used: 40, decisions, ..World::default() }).devices[1].tenants[0].isolation
    };
    assert_eq!(tenant(Ok(Some(Mark::default()))), Isolation::Shared);
    assert_eq!(tenant(Ok(Some(Mark { isolation: Isolation::Hard, ..Mark::default() }))), Isolation::Hard);
    assert_eq!(tenant(Ok(None)), Isolation::Hard, "somebody else wrote over it");
    let waits = Job {
        mark: Ok(Some(Mark { isolation: Isolation::Hard, ..Mark::default() })),
        ..job(JobState::Pending)
    };
    let view = view_of(&World { jobs: vec![waits], ..World::default() });
    assert_eq!(view.waiting[0].isolation, Isolation::Hard);
}

/// What stands on a device whose shape is held can be given away; without any it is closed.
#[test]
fn a_device_is_cut_as_its_agent_says() {
    let held = faulty(FaultKind::Held);
    let slot: pillion_core::mig::Slot = "2g.35gb@0".parse().unwrap();
    for (instances_empty, is_closed) in [(Vec::new(), true), (vec![slot], false)] {
        let condition = DeviceCondition { instances_empty: instances_empty.clone(), ..held.clone() };
        let geometry = pillion_core::mig::Geometry::of_model("h200").cloned();
        let mut own = agent(true);
        own.devices[1].geometry.clone_from(&geometry);
        own.conditions = [(GresType::new("g1"), condition)].into();
        let view = view_beside(&World::default(), own);
        let [plain, cut] = [&view.devices[0], &view.devices[1]];
        assert_eq!((&plain.geometry, plain.is_shape_held, &cut.geometry), (&None, false, &geometry));
        assert_eq!((cut.is_shape_held, &cut.instances_empty), (true, &instances_empty));
        assert_eq!(cut.blocked.is_some(), is_closed, "{:?}", cut.blocked);
    }
}

#[test]
fn who_would_be_started_again_with_more_memory_may_run_out() {
    let with = |change: &dyn Fn(&mut Mark)| {
        let mut own = job(JobState::Pending);
        if let Ok(Some(mark)) = &mut own.mark {
            mark.restart = RestartConsent::Yes;
            change(mark);
        }
        own
    };
    let start = job(JobState::Pending).start();
    let may = |job: Job, steadfast: &[JobStart]| {
        let steadfast = steadfast.iter().copied().collect();
        view_of(&World { jobs: vec![job], steadfast, ..World::default() }).waiting[0].may_run_out
    };
    assert!(may(with(&|_| {}), &[]));
    assert!(!may(with(&|mark| mark.restart = RestartConsent::No), &[]), "nobody asked for it");
    assert!(!may(with(&|mark| mark.again_lease_epoch = Some(NOW)), &[]), "it was once already");
    assert!(!may(with(&|_| {}), &[start]), "--no-requeue");
}

#[test]
fn a_guest_is_one_that_goes_until_it_was_asked_and_did_not() {
    let guest_seen = |state: JobState, asked: Option<u64>, as_guest: bool| {
        let mut own = leased(job(state), NOW - 100);
        if let Ok(Some(mark)) = &mut own.mark {
            mark.as_guest = as_guest;
        }
        let room_asked =
            asked.map(|ago| (own.start(), RoomAsked::first(at(NOW - ago)))).into_iter().collect();
        let decisions = vec![decision(&member(MemberState::Running))];
        let view = view_of(&World { jobs: vec![own], decisions, room_asked, ..World::default() });
        let tenant = view.devices.iter().flat_map(|device| &device.tenants).next().unwrap().clone();
        tenant.guest.map(|guest| guest.is_leaving)
    };
    let running = || JobState::Running;
    assert_eq!(guest_seen(running(), None, true), Some(false));
    assert_eq!(guest_seen(running(), None, false), None, "it is none");
    assert_eq!(guest_seen(running(), Some(5), true), Some(true), "it is on its way");
    assert_eq!(guest_seen(running(), Some(20), true), None, "Slurm would not, and another is asked");
    assert_eq!(guest_seen(running(), Some(100), true), Some(false), "what stood against it may be over");
    assert_eq!(guest_seen(JobState::Completing, Some(20), true), Some(true), "it takes KillWait to go");
    assert_eq!(guest_seen(JobState::Completing, None, true), Some(true), "its user cancelled it");
}

#[test]
fn a_guest_is_promised_nothing_unless_its_user_asked() {
    let promise = |slowdown_ratio_max, as_guest| {
        let mut own = job(JobState::Pending);
        if let Ok(Some(mark)) = &mut own.mark {
            (mark.slowdown_ratio_max, mark.as_guest) = (slowdown_ratio_max, as_guest);
        }
        let waiting = &view_of(&World { jobs: vec![own], ..World::default() }).waiting[0];
        (waiting.slowdown_ratio_max.value(), waiting.as_guest)
    };
    assert_eq!(promise(None, true), (10.0, true));
    assert_eq!(promise(Some(1.5), true), (1.5, true));
    assert_eq!(promise(None, false), (1.25, false));
}

#[test]
fn what_the_watch_sees_is_told_also_where_nothing_is_tried() {
    let mut other = member(MemberState::Running);
    other.plan.start.job_id = SlurmJobId::plain(99);
    let (mine, other) = (decision(&member(MemberState::Running)), decision(&other));
    let two = [(&mine, &mine.members[0]), (&other, &other.members[0])];
    let speeds = two.map(|(_, member)| (member.plan.start, 0.5)).into();
    let seen = Watched::of(&two, &speeds, at(NOW)).unwrap();
    let watched = [(seen.combination(), seen)].into();
    let trials = view_of(&World { watched, ..World::default() }).trials;
    assert_eq!(trials.watched.len(), 1);
    assert_eq!(trials.watched[0].speed_fractions, Some([0.5, 0.5]));
    assert!(trials.verdicts.is_empty() && trials.records.is_empty());
}
