//! A node of two GPUs as Slurm has it, and who would be where. Time passes only where a test says so.

mod scores;
mod shell;

use super::decide::{Decided, Minds, adopted, decided};
use super::standing::Standings;
use super::view::{Ground, Seat, Work, is_manageable, pool, seats};
use crate::agents::AgentState;
use crate::context::Settings;
use crate::observe::seen::Observed;
use crate::testing::{self, NOW, at};
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_pairing::model::{TrainOptions, train};
use pillion_pairing::{ProfileBook, Role};
use pillion_slurm::{Job, JobState, Node, NodeAvailability, ReasonKind};
use pillion_store::{Durations, HeldDevice, ObservedJob, ObservedRun, ShadowDecision, StoredProfile};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const GIB: u64 = 1 << 30;
/// How long each workload runs alone, by its profile.
const USUAL_SECONDS: f64 = 3600.0;

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

/// What is known of a light workload of alice's.
fn profile(workload: &str) -> StoredProfile {
    let metrics = [(Metric::SmActiveFraction, 0.25), (Metric::MemoryBandwidthFraction, 0.15)];
    let profile = WorkloadProfile {
        metrics: Metrics::from(metrics),
        run_count: 9,
        duration_seconds: Some(USUAL_SECONDS),
        duration_variation_fraction: Some(0.01),
        memory_bytes_peak: Some(8 * GIB),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(WorkloadKey::new(workload), "h100")
    };
    StoredProfile { profile, durations: Durations::default(), run_counts_at_cap: [0; 9], updated_at: at(NOW) }
}

struct World {
    now: UnixTime,
    queue: BTreeMap<u32, Job>,
    jobs: BTreeMap<u32, ObservedJob>,
    runs: BTreeMap<u32, Vec<ObservedRun>>,
    works: BTreeMap<u32, Work>,
    open: Vec<ShadowDecision>,
    profiles: Vec<StoredProfile>,
    partitions: Vec<String>,
    is_whole: bool,
    /// GPUs in use of which nobody has said which.
    unclear_count: u32,
}

impl World {
    fn new() -> Self {
        Self {
            now: at(NOW),
            queue: BTreeMap::new(),
            jobs: BTreeMap::new(),
            runs: BTreeMap::new(),
            works: BTreeMap::new(),
            open: Vec::new(),
            profiles: ["alice/w", "alice/v", "bob/w"].map(profile).to_vec(),
            partitions: vec!["gpu".to_owned()],
            is_whole: true,
            unclear_count: 0,
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// A job of one GPU that waits.
    fn waits(&mut self, id: u32, workload: &str) {
        let user = workload.split_once('/').unwrap().0;
        let job = Job {
            id: SlurmJobId::plain(id),
            inner_id: id,
            uid: UserId(if user == "alice" { 1000 } else { 2000 }),
            user: user.into(),
            partition: "gpu".into(),
            gres: "gpu:1".into(),
            reason: ReasonKind::Resources("Resources".to_owned()),
            submitted_at: self.now,
            eligible_at: None,
            time_limit_seconds: Some(7200),
            mark: Ok(None),
            ..testing::job(JobState::Pending)
        };
        self.queue.insert(id, job);
        self.works.insert(id, Work { workload: WorkloadKey::new(workload), node_count: 1 });
    }

    /// Slurm gives it a GPU.
    fn starts(&mut self, id: u32, device: &str) {
        let job = self.queue.get_mut(&id).unwrap();
        job.state = JobState::Running;
        job.started_at = Some(self.now);
        job.nodes = vec![NodeName::new("w1")];
        let observed = ObservedJob {
            uid: job.uid,
            user: job.user.to_string(),
            workload: self.works[&id].workload.clone(),
            started_at: self.now,
            ending: None,
            nodes: job.nodes.clone(),
            devices: vec![HeldDevice::new(NodeName::new("w1"), GresType::new(device))],
            ..crate::observe::tests::observed(id)
        };
        self.jobs.insert(id, observed);
    }

    /// One that runs from now on.
    fn runs(&mut self, id: u32, workload: &str, device: &str) {
        self.waits(id, workload);
        self.starts(id, device);
    }

    /// It ends now, and its agent tells what it held at most.
    fn ends(&mut self, id: u32, memory_gib: Option<u64>) {
        let job = self.jobs.get_mut(&id).unwrap();
        job.ended_at = Some(self.now);
        let summary = pillion_core::report::JobSummary {
            gres_type: job.devices[0].gres_type.clone(),
            memory_bytes_peak: memory_gib.map(|gib| gib * GIB),
            ..testing::summary(job.start)
        };
        let run = ObservedRun {
            node: NodeName::new("w1"),
            summary,
            device_model: "h100".to_owned(),
            device_memory_bytes: 80 * GIB,
        };
        self.runs.insert(id, vec![run]);
        self.queue.remove(&id);
    }

    fn observed(&self) -> Observed {
        let running = self.jobs.values().filter(|job| job.ended_at.is_none());
        let used = u32::try_from(running.clone().count()).unwrap() + self.unclear_count;
        let node = Node {
            name: NodeName::new("w1"),
            cpus: 64,
            memory_mib: 1 << 20,
            partitions: vec!["gpu".to_owned()],
            gpus: BTreeMap::from([(GresType::new(""), (2, used))]),
            ..testing::node(NodeAvailability::Up)
        };
        Observed {
            at: Some(self.now),
            nodes: BTreeMap::from([(node.name.clone(), node)]),
            jobs: running.cloned().collect(),
            queue: self.queue.values().cloned().map(Arc::new).collect(),
            is_whole: self.is_whole,
        }
    }

    fn stored(&self) -> Vec<(ObservedJob, Vec<ObservedRun>)> {
        self.jobs
            .iter()
            .map(|(id, job)| (job.clone(), self.runs.get(id).cloned().unwrap_or_default()))
            .collect()
    }

    /// Shows everything as it is now.
    fn see<T>(&self, look: impl FnOnce(&Ground<'_>) -> T) -> T {
        let device = |index: u32| pillion_core::device::DeviceDescription {
            model: "h100".into(),
            memory_bytes: 80 * GIB,
            mechanism: pillion_core::device::Mechanism::TimeSliced,
            ..testing::device(index)
        };
        let agent = AgentState { observes: true, ..testing::agent(vec![device(0), device(1)]) };
        let (observed, stored) = (self.observed(), self.stored());
        let standings = Standings::new(&observed, &stored, self.now);
        look(&Ground {
            at: self.now,
            observed: &observed,
            standings: &standings,
            works: &self.works,
            agents: &BTreeMap::from([(NodeName::new("w1"), agent)]),
            open: &self.open,
            partitions: &self.partitions,
            bound: Duration::from_mins(10),
        })
    }

    /// One look: who runs is given his own GPU in the books, then the queue is decided on.
    fn look(&mut self) -> Decided {
        let model = train(&ProfileBook::default(), &[], &TrainOptions::default());
        let settings = Settings::default();
        let minds = Minds {
            profiles: &self.profiles,
            model: &model,
            policy: &settings.policy,
            by_job: settings.by_job(),
            alone_devices_max: 4,
            gpu_types: &BTreeMap::new(),
        };
        let own = self.see(|ground| adopted(ground, &minds));
        self.open.extend(own);
        let decided = self.see(|ground| decided(ground, &minds));
        self.open.extend(decided.decisions.iter().cloned());
        decided
    }

    /// Who sits where: job, device, and whether he runs there.
    fn seated(&self) -> Vec<(u32, String, bool)> {
        self.see(|ground| {
            let seats = seats(ground);
            let told = |seat: &Seat<'_>| {
                (seat.decision.start().job_id.id, seat.place.1.to_string(), seat.started_at.is_some())
            };
            seats.iter().map(told).collect()
        })
    }
}

/// Of decisions: job, role, device and beside whom.
fn told(decisions: &[ShadowDecision]) -> Vec<(u32, Role, String, Vec<u32>)> {
    let one = |it: &ShadowDecision| {
        let beside = it.beside.iter().map(|other| other.start.job_id.id).collect();
        (it.start().job_id.id, it.member.role, it.gres_type.to_string(), beside)
    };
    decisions.iter().map(one).collect()
}

#[test]
fn one_that_waits_would_join_one_that_runs_and_is_decided_on_once() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(2, "bob/w", "g1");
    world.waits(3, "alice/v");
    let decided = world.look();
    assert_eq!(
        told(&world.open[..2]),
        [(1, Role::Host, "g0".into(), vec![]), (2, Role::Host, "g1".into(), vec![])]
    );
    assert_eq!(
        told(&decided.decisions),
        [(3, Role::Joiner, "g0".into(), vec![1])],
        "its own user's, by policy"
    );
    let joiner = &decided.decisions[0];
    assert!(joiner.gain > 0.3 && joiner.gain_low < joiner.gain, "{joiner:?}");
    assert!(joiner.broken_expected > 0.0 && joiner.broken_expected < 0.5, "{joiner:?}");
    let believed = joiner.overlap_seconds_believed.unwrap();
    assert!((3600.0..4800.0).contains(&believed), "{believed}");
    assert!(world.look().decisions.is_empty());
    assert_eq!(world.seated(), [(1, "g0".into(), true), (2, "g1".into(), true), (3, "g0".into(), true)]);
}

#[test]
fn who_would_be_there_already_leaves_room_for_nobody_further() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(2, "alice/w", "g1");
    for id in 3..6 {
        world.waits(id, "alice/v");
    }
    let decided = world.look();
    assert_eq!(decided.decisions.len(), 2, "one a device: {:?}", told(&decided.decisions));
    let last = decided.reasons.get(&SlurmJobId::plain(5)).unwrap();
    assert!(last.starts_with("it would wait"), "{last}");
    assert!(world.look().decisions.is_empty(), "nor at the next look");
}

#[test]
fn the_gpu_that_slurm_gives_a_joiner_is_nobodys_meanwhile() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(2, "bob/w", "g1");
    world.waits(3, "alice/v");
    world.look();
    world.pass(60);
    world.ends(2, Some(8));
    world.starts(3, "g1");
    world.waits(4, "alice/v");
    let decided = world.look();
    assert_eq!(told(&decided.decisions), []);
    assert_eq!(
        world.seated(),
        [(1, "g0".into(), true), (3, "g0".into(), true)],
        "where it would be, and not where it is"
    );
    assert!(decided.reasons.contains_key(&SlurmJobId::plain(4)), "{:?}", decided.reasons);
}

#[test]
fn a_joiner_leaves_when_it_would_have_ended_and_another_may_come() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.runs(2, "bob/w", "g1");
    world.queue.get_mut(&1).unwrap().time_limit_seconds = Some(100_000);
    world.profiles[0].profile.duration_seconds = Some(90_000.0);
    world.waits(3, "alice/v");
    world.look();
    world.pass(3000);
    world.waits(4, "alice/v");
    assert_eq!(told(&world.look().decisions), [], "it is believed to be there still");
    world.pass(3000);
    assert_eq!(told(&world.look().decisions), [(4, Role::Joiner, "g0".into(), vec![1])]);
}

#[test]
fn two_that_wait_begin_together_and_live_where_the_first_of_them_is_started() {
    let mut world = World::new();
    world.runs(1, "bob/w", "g1");
    world.waits(2, "alice/w");
    world.waits(3, "alice/v");
    let decided = world.look();
    let [host, joiner] = &decided.decisions[..] else { panic!("{:?}", told(&decided.decisions)) };
    assert_eq!((host.group, joiner.group, joiner.is_with_host), (host.start(), host.start(), true));
    assert!(host.beside.is_empty() && joiner.beside.len() == 1);
    let places = |world: &World| world.seated().into_iter().filter(|it| it.0 != 1).collect::<Vec<_>>();
    assert_eq!(places(&world), [(2, "g0".into(), false), (3, "g0".into(), false)]);
    // Slurm gives that GPU to somebody else: they are nowhere, and wait no more either.
    world.pass(10);
    world.runs(4, "bob/w", "g0");
    assert_eq!(world.look().decisions, []);
    assert_eq!(places(&world), [(4, "g0".into(), true)]);
    // The second of them is started first, where the first one ended.
    world.pass(10);
    world.ends(1, Some(8));
    world.starts(3, "g1");
    world.look();
    assert_eq!(places(&world), [(2, "g1".into(), false), (3, "g1".into(), true), (4, "g0".into(), true)]);
}

#[test]
fn a_workload_that_nobody_knows_has_its_gpu_to_itself() {
    let mut world = World::new();
    world.runs(1, "alice/new", "g0");
    world.runs(2, "bob/w", "g1");
    world.waits(3, "alice/v");
    let decided = world.look();
    assert_eq!(
        told(&world.open),
        [(1, Role::Alone, "g0".into(), vec![]), (2, Role::Host, "g1".into(), vec![])]
    );
    assert_eq!(told(&decided.decisions), []);
}

#[test]
fn what_pillion_would_not_manage_is_not_decided_on() {
    let mut world = World::new();
    world.waits(1, "alice/w");
    let (job, work) = (world.queue[&1].clone(), world.works[&1].clone());
    assert!(is_manageable(&job, &work));
    let of = |gres: &str| is_manageable(&Job { gres: gres.into(), ..job.clone() }, &work);
    assert!(of("gpu") && of("gpu:a100") && of("gpu:a100:1") && of("lscratch:10,gpu:1"));
    assert!(!of("gpu:2") && !of("gpu:a100:2") && !of("gpu:a:1,gpu:b:1") && !of("") && !of("shard:40"));
    assert!(!is_manageable(&job, &Work { node_count: 2, ..work.clone() }));
    let interactive = WorkloadKey::new("alice/line-77ab");
    assert!(!is_manageable(&job, &Work { workload: interactive, ..work.clone() }));
    let named = Job { required_nodes: vec![NodeName::new("w1")], ..job.clone() };
    assert!(!is_manageable(&named, &work));
    assert!(!is_manageable(&Job { reservation: "r".into(), ..job }, &work));
}

#[test]
fn where_slurm_has_not_said_which_gpus_are_held_none_is_free() {
    let mut world = World::new();
    world.unclear_count = 1;
    for id in 1..3 {
        world.waits(id, "alice/w");
    }
    let decided = world.look();
    assert_eq!((told(&decided.decisions), decided.reasons.len()), (vec![], 2));
    world.unclear_count = 0;
    let decided = world.look();
    assert!(
        decided.reasons.values().all(|reason| !reason.starts_with("it would wait")),
        "{:?}",
        decided.reasons
    );
}

#[test]
fn a_limit_that_is_changed_counts_as_it_is_now() {
    let mut world = World::new();
    world.runs(1, "alice/w", "g0");
    world.look();
    let limit = |world: &World| {
        world.see(|ground| {
            let pool = pool(ground);
            let host = pool.scan.jobs.get(&SlurmJobId::plain(1)).unwrap();
            (host.time_limit_seconds, host.state.clone())
        })
    };
    assert_eq!(limit(&world), (Some(7200), JobState::Running));
    world.queue.get_mut(&1).unwrap().time_limit_seconds = Some(60);
    assert_eq!(limit(&world), (Some(60), JobState::Running));
    world.runs(4, "bob/w", "g1");
    // It must have a GPU to itself, and came first.
    world.waits(3, "bob/new");
    world.pass(1);
    world.waits(2, "alice/v");
    assert_eq!(
        told(&world.look().decisions),
        [],
        "it would outlive its host while somebody waits for a whole GPU"
    );
}
