//! Tenants of one device that are cancelled, run into their time limit or are evicted at random moments, over simulated devices on
//! which a client that is killed at work takes its neighbours along. Who orders, and Slurm, are played here; the rest is real.

use crate::devices::{Devices, DevicesParts};
use crate::ending::{Endings, list_path};
use crate::mechanism::{Mechanisms, MpsPolicy};
use crate::node::{Inventory, Node};
use crate::procfs::{ProcFs, ProcessId};
use crate::progress::ProgressFiles;
use crate::sampler::{Attribution, SamplerTools};
use crate::share::{SharePaths, ShareTable, environment};
use crate::tracker::Registration;
use pillion_core::device::Mechanism;
use pillion_core::report::{EndOrder, EndOutcome, EndResult, FromAgent, ReportBody};
use pillion_core::share::{Share, Sharing};
use pillion_core::{
    Clock as _, DecisionId, JobStart, ManualClock, NodeName, Shards, SlurmJobId, UnixTime, UserId,
};
use pillion_device::simulated::{AttachRequest, ClientId, InProcess, Machine, MachineConfig, Phase};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const STEP: Duration = Duration::from_millis(100);
const TRIALS: u64 = 200;
/// What the scheduler leaves between the end of the last clients and SIGKILL, in seconds.
const MARGIN_SECONDS: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Term,
    Kill,
}

/// What ends the tenant, or tries to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// By its user or its time limit: nobody knows before Slurm has begun.
    Slurm,
    /// By us, and Slurm takes it.
    Evicted,
    /// By us, and Slurm refuses it.
    Refused,
    /// By us, and the scheduler dies before it has said anything more.
    Forgotten,
}

struct Tenant {
    start: JobStart,
    client: ClientId,
    pid: u32,
    catches_term: bool,
    group: PathBuf,
    /// When they come, where it does not stand still.
    signals: Vec<(f64, Signal)>,
    is_alive: bool,
}

/// How a trial went.
#[derive(Debug, Default, Clone, PartialEq)]
struct Outcome {
    /// Signals that killed a client at work, which the daemon could have been asked to end before.
    avoidable: Vec<Signal>,
    /// SIGTERM of a cancel, to one that it kills: nobody could know.
    unforeseen: u32,
    neighbours_dead: u32,
    /// How long the tenant stood still, in seconds.
    held_seconds: f64,
    /// How long before its SIGKILL one that catches SIGTERM lost the device, in seconds.
    early_seconds: Option<f64>,
    victim_works: bool,
}

struct World {
    directory: tempfile::TempDir,
    machine: Arc<Mutex<Machine>>,
    devices: Devices,
    clock: Arc<ManualClock>,
    answers: mpsc::Receiver<FromAgent>,
    _reports: mpsc::Receiver<ReportBody>,
    tenants: Vec<Tenant>,
    steps: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let config =
            MachineConfig { killed_client_ends_mps: true, seed, ..MachineConfig::plain("n1", "h200", 1) };
        let machine = Machine::new(&config).unwrap();
        let described = machine.descriptions();
        let machine = Arc::new(Mutex::new(machine));
        let inventory = Inventory { devices: described.clone().into(), fault: None };
        let shares = ShareTable::open(root.join("shares.json"));
        let node = Node::new(NodeName::new("n1"), inventory, shares, root.join("jobs")).unwrap();
        let clock = Arc::new(ManualClock::new(UnixTime::from_epoch(1_000_000)));
        let (answers, answers_out) = mpsc::channel(64);
        let (reports, reports_out) = mpsc::channel(4096);
        let tools = SamplerTools {
            devices: described.clone(),
            proc: ProcFs::new(root.join("proc")),
            attribution: Attribution::Told(ProgressFiles::new(root).unwrap()),
            period_seconds: 1.0,
        };
        let policy = MpsPolicy { multi_user: true, static_partitions: false };
        let devices = Devices::new(DevicesParts {
            backend: Box::new(InProcess::new(Arc::clone(&machine))),
            clock: clock.clone(),
            node: Arc::new(node),
            mechanisms: Mechanisms::new(root, policy, &described, &[]),
            tools,
            site: crate::inventory::site(&crate::config::Config::default(), "none"),
            state_path: root.join("runs.json"),
            endings: Endings::new(list_path(root), root.join("cgroup")),
            conditions: watch::channel(Vec::new()).0,
            reports,
            answers,
        });
        Self {
            directory,
            machine,
            devices,
            clock,
            answers: answers_out,
            _reports: reports_out,
            tenants: Vec::new(),
            steps: 0,
        }
    }

    fn now(&self) -> f64 {
        self.clock.now().seconds()
    }

    /// A job begins on the device, in a control group of its own.
    fn start(&mut self, job: u32, catches_term: bool) {
        let start = JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 };
        let device = self.devices.node.devices()[0].clone();
        let share = Share {
            decision_id: DecisionId(u64::from(job)),
            start,
            uid: UserId(1000 + job),
            gres_types: device.gres_type.clone().into(),
            sharing: Sharing::by(Mechanism::Mps, None, None),
            shards: Shards::try_new(20).unwrap(),
            memory_bytes: None,
            is_session: false,
            is_plain: false,
        };
        self.devices.prepare(share.clone());
        let pipe = self.directory.path().join(format!("mps/{}/pipe", device.gres_type));
        let paths =
            SharePaths { progress: None, mps_pipe_directory: pipe, mps_partition: None, instance: None };
        let request = AttachRequest {
            workload: "gemm-hog".to_owned(),
            seconds: Some(1e8),
            memory_bytes: Some(1 << 30),
            environment: environment(&share, std::slice::from_ref(&device), &paths).into_iter().collect(),
            ..AttachRequest::default()
        };
        let group = self.directory.path().join(format!("cgroup/system.slice/slurmstepd.scope/job_{job}"));
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.freeze"), "0").unwrap();
        std::fs::write(group.join("cgroup.events"), "frozen 1\n").unwrap();
        let process = self.directory.path().join(format!("proc/{job}"));
        std::fs::create_dir_all(&process).unwrap();
        let line = format!("{job} (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {job} 0");
        std::fs::write(process.join("stat"), line).unwrap();
        let of_job = format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n");
        std::fs::write(process.join("cgroup"), of_job).unwrap();
        let caught = if catches_term { 1 << 14 } else { 0 };
        std::fs::write(process.join("status"), format!("SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n"))
            .unwrap();
        self.devices.sampler.register(Registration {
            start,
            inner_job_id: Some(job),
            uid: share.uid,
            gres_types: vec![device.gres_type],
            root: ProcessId { pid: job, start_ticks: u64::from(job) },
            at: self.clock.now(),
        });
        let client = self.machine.lock().unwrap().attach(&request, job, share.uid).unwrap();
        let signals = Vec::new();
        self.tenants.push(Tenant { start, client, pid: job, catches_term, group, signals, is_alive: true });
    }

    fn works(&self, tenant: usize) -> bool {
        let client = self.tenants[tenant].client;
        let progress = self.machine.lock().unwrap().progress(client);
        progress.is_some_and(|progress| progress.phase == Phase::Running)
    }

    fn stands_still(&self, tenant: usize) -> bool {
        let file = self.tenants[tenant].group.join("cgroup.freeze");
        std::fs::read_to_string(file).unwrap() == "1"
    }

    /// Signals come to whoever does not stand still. Gives what killed a client at work.
    fn deliver(&mut self) -> Vec<Signal> {
        let (now, mut killed) = (self.now(), Vec::new());
        for place in 0..self.tenants.len() {
            if self.stands_still(place) {
                continue;
            }
            let works = self.works(place);
            let tenant = &mut self.tenants[place];
            let due = tenant.signals.iter().filter(|(at, _)| *at <= now).map(|(_, signal)| *signal);
            let fatal = due.into_iter().find(|signal| *signal == Signal::Kill || !tenant.catches_term);
            if let Some(signal) = fatal.filter(|_| tenant.is_alive) {
                tenant.is_alive = false;
                killed.extend(works.then_some(signal));
                self.machine.lock().unwrap().detach(tenant.client);
                std::fs::remove_dir_all(self.directory.path().join(format!("proc/{}", tenant.pid))).unwrap();
            }
        }
        killed
    }

    fn step(&mut self) {
        self.clock.advance(STEP);
        self.machine.lock().unwrap().advance(STEP);
        self.steps += 1;
        if self.steps.is_multiple_of(10) {
            self.devices.sample();
        }
        if self.steps.is_multiple_of(5) {
            self.devices.go_on_ending();
        }
    }

    fn is_held(&mut self) -> bool {
        let is_it =
            |answer| matches!(answer, FromAgent::EndResult(EndResult { outcome: EndOutcome::Held, .. }));
        std::iter::from_fn(|| self.answers.try_recv().ok()).any(is_it)
    }
}

/// One tenant among some is ended. `is_asked`: whether the agent is told of it at all.
fn trial(seed: u64, cause: Cause, is_asked: bool) -> Outcome {
    let mut chance = StdRng::seed_from_u64(seed);
    let mut world = World::new(seed);
    for job in 0..chance.random_range(2..=4_u32) {
        world.start(101 + job, chance.random_bool(0.5));
    }
    for _ in 0..chance.random_range(0..40) {
        world.step();
    }
    let kill_wait_seconds = f64::from(chance.random_range(3..=30_u32));
    let victim = chance.random_range(0..world.tenants.len());
    let start = world.tenants[victim].start;
    let mut orders: Vec<(f64, EndOrder)> = Vec::new();
    let begun_at = world.now();
    if cause != Cause::Slurm && is_asked {
        world.devices.end(start, EndOrder::Hold);
        assert!(world.is_held());
    }
    // What Slurm takes to answer, and the scheduler to see what Slurm does.
    let (asked_seconds, seen_seconds) = (chance.random_range(0.0..1.0), chance.random_range(0.0..2.0));
    let taken_at = begun_at + if cause == Cause::Slurm { 0.0 } else { asked_seconds };
    let end = |at: f64| {
        let delay_seconds = (taken_at + kill_wait_seconds - MARGIN_SECONDS - at).max(0.0);
        (at, EndOrder::End { delay_seconds })
    };
    match cause {
        Cause::Slurm => orders.push(end(taken_at + seen_seconds)),
        Cause::Evicted => orders.push(end(taken_at)),
        Cause::Refused => orders.push((taken_at, EndOrder::LetGo)),
        Cause::Forgotten => {}
    }
    if matches!(cause, Cause::Slurm | Cause::Evicted) {
        let kill_at = taken_at + kill_wait_seconds;
        world.tenants[victim].signals = vec![(taken_at, Signal::Term), (kill_at, Signal::Kill)];
    }
    let mut outcome = Outcome::default();
    let mut worked_until = begun_at;
    let over_at = taken_at + if cause == Cause::Forgotten { 14.0 } else { kill_wait_seconds + 1.0 };
    while world.now() < over_at {
        let now = world.now();
        if is_asked {
            let (due, later): (Vec<_>, Vec<_>) = orders.into_iter().partition(|(at, _)| *at <= now);
            for (_, order) in due {
                world.devices.end(start, order);
            }
            orders = later;
        }
        for signal in world.deliver() {
            let foreseeable = signal == Signal::Kill || cause != Cause::Slurm;
            if foreseeable { outcome.avoidable.push(signal) } else { outcome.unforeseen += 1 }
        }
        outcome.held_seconds += if world.stands_still(victim) { STEP.as_secs_f64() } else { 0.0 };
        worked_until = if world.works(victim) { now } else { worked_until };
        world.step();
    }
    let neighbours = (0..world.tenants.len()).filter(|place| *place != victim);
    outcome.neighbours_dead = neighbours.map(|place| u32::from(!world.works(place))).sum();
    outcome.victim_works = world.works(victim);
    let catches = world.tenants[victim].catches_term && cause == Cause::Evicted;
    outcome.early_seconds = catches.then_some(taken_at + kill_wait_seconds - worked_until);
    outcome
}

fn cause_of(seed: u64) -> Cause {
    match seed % 5 {
        0 | 2 => Cause::Slurm,
        1 | 3 => Cause::Evicted,
        _ => Cause::Refused,
    }
}

#[test]
fn no_neighbour_dies_that_the_daemon_would_have_spared() {
    let mut harmed_unforeseen = 0;
    for seed in 0..TRIALS {
        let cause = cause_of(seed);
        let outcome = trial(seed, cause, true);
        assert_eq!(outcome.avoidable, [], "trial {seed}, {cause:?}");
        assert_eq!(outcome.neighbours_dead > 0, outcome.unforeseen > 0, "trial {seed}: {outcome:?}");
        assert!(outcome.held_seconds <= 1.5, "trial {seed}: {outcome:?}");
        assert_eq!(outcome.victim_works, cause == Cause::Refused, "trial {seed}: {outcome:?}");
        // Its checkpoint has nearly all the time that Slurm gives it.
        assert!(outcome.early_seconds.is_none_or(|early| early <= 3.1), "trial {seed}: {outcome:?}");
        harmed_unforeseen += u64::from(outcome.unforeseen > 0);
    }
    // A cancel's SIGTERM that kills at once, which nobody knows of before: about half of two fifths.
    assert!((TRIALS / 8..TRIALS / 3).contains(&harmed_unforeseen), "{harmed_unforeseen}");
}

#[test]
fn without_the_daemon_they_do_die() {
    let spared_none = (0..50).filter(|seed| {
        let outcome = trial(*seed, cause_of(*seed), false);
        !outcome.avoidable.is_empty() && outcome.neighbours_dead > 0
    });
    assert!(spared_none.count() > 15);
}

#[test]
fn who_is_held_and_forgotten_goes_on_within_seconds() {
    for seed in 0..20 {
        let outcome = trial(seed, Cause::Forgotten, true);
        assert!(outcome.victim_works && outcome.neighbours_dead == 0, "trial {seed}: {outcome:?}");
        assert!((9.0..11.0).contains(&outcome.held_seconds), "trial {seed}: {outcome:?}");
    }
}

/// Whoever asks again counts ten seconds from then.
#[test]
fn who_is_held_again_stands_still_from_then_on() {
    let mut world = World::new(1);
    for job in [101, 102] {
        world.start(job, false);
    }
    for _ in 0..20 {
        world.step();
    }
    let start = world.tenants[0].start;
    for _ in 0..2 {
        world.devices.end(start, EndOrder::Hold);
        assert!(world.is_held());
        for _ in 0..80 {
            world.step();
        }
        assert!(world.stands_still(0));
    }
    for _ in 0..40 {
        world.step();
    }
    assert!(!world.stands_still(0));
}

/// Without a control group of Slurm's whoever SIGTERM kills dies at work, and whoever outlasts it can be ended before SIGKILL.
#[test]
fn who_cannot_be_held_tells_whether_sigterm_would_kill_him() {
    for catches_term in [true, false] {
        let mut world = World::new(1);
        for job in [101, 102] {
            world.start(job, catches_term);
            std::fs::remove_file(world.directory.path().join(format!("proc/{job}/cgroup"))).unwrap();
        }
        for _ in 0..20 {
            world.step();
        }
        let start = world.tenants[0].start;
        world.devices.end(start, EndOrder::Hold);
        let said = std::iter::from_fn(|| world.answers.try_recv().ok()).find_map(|answer| match answer {
            FromAgent::EndResult(EndResult {
                outcome: EndOutcome::NotHeld { outlasts_sigterm, is_of_it_alone, .. },
                ..
            }) => Some((outlasts_sigterm, is_of_it_alone)),
            _ => None,
        });
        assert_eq!(said, Some((catches_term, false)));
    }
}
