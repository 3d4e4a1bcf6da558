//! The whole system in one thread and in virtual time, driven by a seed: real reconcilers over fake Slurm, the memory store
//! and simulated devices. `step` does one random thing; `check` holds the world against the invariants.

mod faults;
mod meddle;
pub(crate) mod sessions;
mod submit;

use crate::faulty::{FaultySlurm, is_over};
use crate::node::{Node, Work, end_those_gone};
use crate::scheduler::Scheduler;
use crate::users::{OUTSIDE, STRICT};
use faults::{Copied, Saved};
use pillion_cli::commands::rescue::carry_out;
use pillion_config::Watch;
use pillion_core::device::{COPIES_MAX, TENANTS_MAX};
use pillion_core::isolation::Isolation;
use pillion_core::{GresType, JobStart, ManualClock, SlurmJobId, UnixTime};
use pillion_fake_slurm::{FakeCall, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::UserPolicy;
use pillion_scheduler::context::Settings;
use pillion_scheduler::job_rules::JobPolicy;
use pillion_scheduler::pace::PaceSettings;
use pillion_slurm::{Ending, JobState};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const BEGIN: u64 = 1_700_000_000;
/// The bound that jobs are submitted with, in seconds.
pub(crate) const BOUND_SECONDS: u64 = 120;
/// A scheduler that stands by looks at Slurm every so many steps.
const STANDBY_LOOKS_STEPS: u64 = 4;
const JOBS_MAX: usize = 14;
const WORKLOADS: [&str; 6] =
    ["resnet50-infer", "bert-small-batch", "gemm-hog", "spmv-bandwidth", "launch-bound", "llama-infer"];
const LIGHT: &str = "launch-bound";
/// The devices of each node, by Slurm's types.
pub(crate) const GRES_TYPES: [&str; 3] = ["g0", "g1", "g2"];
/// What runs under the name of the light one now and then, with as much memory: a store that forgot the light one and learnt this one
/// would give the next light one too small a limit, and nobody here starts again who ran out of memory.
const HEAVY: &str = "gemm-hog";
const LIE_BYTES: u64 = 2 << 30;
const USERS: [(&str, u32); 2] = [("alice", 2001), ("bob", 2002)];

/// What a world keeps to the end that others are rid of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stays {
    /// A second scheduler stands by, which looks at Slurm less often than it does all else.
    Standby,
    /// Releases land late.
    LateCalls,
}

impl Stays {
    fn of(seed: u64) -> BTreeSet<Self> {
        let all = [(seed % 3 == 1, Self::Standby), (seed % 4 == 1, Self::LateCalls)];
        all.into_iter().filter_map(|(is_here, one)| is_here.then_some(one)).collect()
    }
}

/// The world at one moment.
pub(crate) struct World {
    rng: SmallRng,
    pub(crate) now: UnixTime,
    clock: Arc<ManualClock>,
    pub(crate) slurm: Arc<FakeSlurm>,
    pub(crate) line: Arc<FaultySlurm>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) settings: Settings,
    schedulers: Vec<Scheduler>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) works: BTreeMap<SlurmJobId, Work>,
    /// Starts that are to die with a partner, and when.
    dying: Vec<(UnixTime, JobStart)>,
    /// Who died so, each job's first time.
    pub(crate) victims: BTreeMap<SlurmJobId, JobStart>,
    /// Who was to be sent back for a promise, each job's first time.
    pub(crate) sent_back: BTreeMap<SlurmJobId, JobStart>,
    /// Who was submitted as a guest.
    pub(crate) guests: BTreeSet<SlurmJobId>,
    /// What each batch job asked Slurm for when it was submitted, as GRES.
    submitted_gres: BTreeMap<SlurmJobId, String>,
    /// Guests that were to make room.
    pub(crate) made_room: BTreeSet<JobStart>,
    started: BTreeSet<JobStart>,
    is_slurmctld_down: bool,
    /// What the world was when slurmctld last wrote its state.
    saved: Option<Saved>,
    /// What the store held lately, the newest last.
    backups: VecDeque<Copied>,
    /// How many calls Slurm had had whenever the store forgot something.
    pub(crate) forgot_stored_at: Vec<usize>,
    /// When it last did.
    pub(crate) forgot_stored: Option<UnixTime>,
    rescued_at: UnixTime,
    pub(crate) check_count: u64,
    /// What happened, for a failing seed.
    pub(crate) log: Vec<String>,
    /// Starts that shared a device, so that a simulation without any is noticed.
    pub(crate) shared_starts: usize,
    /// The most tenants that one device had, likewise.
    pub(crate) tenants_peak: usize,
    /// Starts that were requeued after they died with a partner, and those that were sent back, likewise.
    pub(crate) requeued_count: usize,
    pub(crate) sent_back_count: usize,
    /// The most starts that had instances on one node at once, likewise.
    pub(crate) walled_peak: usize,
    /// The most devices that one start had, likewise.
    pub(crate) width_peak: usize,
    /// How many on both nodes started that were let go, and of these with other devices than they had waited with.
    pub(crate) let_go_count: usize,
    pub(crate) moved_count: usize,
    /// How often a guest was seen beside an interactive job, likewise.
    pub(crate) accompanied_count: usize,
    /// How often two starts were seen that shared several devices, likewise.
    pub(crate) sets_shared: usize,
    /// Whether devices are cut here.
    is_cut: bool,
    /// What goes on when everything else is well again.
    pub(crate) stays: BTreeSet<Stays>,
    /// From here on nothing fails any more.
    is_healed: bool,
}

/// How the schedulers of a seed's world are set.
fn settings_of(seed: u64) -> Settings {
    let mut settings = Settings { bound: Duration::from_secs(BOUND_SECONDS), ..Settings::default() };
    settings.policy.users = UserPolicy::Any;
    settings.session_idle = sessions::IDLE;
    // Jobs are short here: they are judged as soon as four blocks are there, and a restart costs nothing but the work.
    settings.pace = PaceSettings {
        watch: Watch::Act,
        first_seconds: 10.0,
        steady_seconds: 20.0,
        restart_seconds: 0.0,
        ..PaceSettings::default()
    };
    settings.policy.tenants_max = match seed % 6 {
        4 => COPIES_MAX,
        0 | 2 => TENANTS_MAX,
        _ => 2,
    };
    // In some jobs of several devices share them.
    settings.policy.share_wide = seed % 4 == 3;
    // In some worlds rules go by QOS.
    if seed % 8 == 5 {
        let text = format!(
            "[pool]\npartitions = [\"shared\"]\n[[policy.override]]\nqos = [\"{STRICT}\"]\nusers = \"same-user\"\n"
        );
        settings.job_policy =
            JobPolicy::new(&pillion_config::parse_scheduler(&text).expect("a configuration"));
    }
    settings
}

impl World {
    /// A world in which users want walls between them, and the devices of `n1` can be cut; in half of them one user's jobs may share what is
    /// cut.
    pub(crate) fn with_instances(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.is_cut = true;
        world.settings.policy.isolation = Isolation::Hard;
        world.settings.policy.share_wide = false;
        world.settings.policy.share_instances = (seed / 2).is_multiple_of(2);
        world.schedulers.clear();
        world.start_scheduler();
        let slot = "1g.18gb@0".parse().expect("an instance");
        let foreign = seed.is_multiple_of(3).then(|| (GresType::new("g2"), slot));
        world.nodes[0].let_be_cut(foreign.into_iter().collect(), seed.is_multiple_of(2));
        world
    }

    pub(crate) fn new(seed: u64) -> Self {
        let now = UnixTime::from_epoch(BEGIN);
        let clock = Arc::new(ManualClock::new(now));
        let slurm = Arc::new(slurm(now));
        let line = Arc::new(FaultySlurm::new(Arc::clone(&slurm), Arc::clone(&clock)));
        let settings = settings_of(seed);
        let mut world = Self {
            rng: SmallRng::seed_from_u64(seed),
            now,
            clock,
            slurm,
            line,
            store: Arc::new(MemoryStore::new()),
            settings,
            schedulers: Vec::new(),
            nodes: vec![
                Node::new("n1", "h200", GRES_TYPES.len()),
                Node::new("n2", "max-1550", GRES_TYPES.len()),
            ],
            works: BTreeMap::new(),
            dying: Vec::new(),
            victims: BTreeMap::new(),
            sent_back: BTreeMap::new(),
            guests: BTreeSet::new(),
            submitted_gres: BTreeMap::new(),
            made_room: BTreeSet::new(),
            started: BTreeSet::new(),
            is_slurmctld_down: false,
            saved: None,
            backups: VecDeque::new(),
            forgot_stored_at: Vec::new(),
            forgot_stored: None,
            rescued_at: now,
            check_count: 0,
            log: Vec::new(),
            shared_starts: 0,
            tenants_peak: 0,
            requeued_count: 0,
            sent_back_count: 0,
            walled_peak: 0,
            width_peak: 0,
            let_go_count: 0,
            moved_count: 0,
            accompanied_count: 0,
            sets_shared: 0,
            is_cut: false,
            stays: Stays::of(seed),
            is_healed: false,
        };
        world.start_scheduler();
        world
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.log.push(format!("{:9.1} {what}", self.now.seconds() - UnixTime::from_epoch(BEGIN).seconds()));
    }

    fn start_scheduler(&mut self) {
        let (clock, line, store) = (Arc::clone(&self.clock), Arc::clone(&self.line), Arc::clone(&self.store));
        self.schedulers.push(Scheduler::new(clock, line, store, self.settings.clone()));
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count.max(1))
    }

    /// One random thing.
    pub(crate) async fn step(&mut self) {
        self.line.deliver().await;
        self.refuse_now_and_then();
        match self.below(100) {
            0..33 => {
                let seconds = self.rng.random_range(0.1..4.0);
                self.pass(Duration::from_secs_f64(seconds));
            }
            33..70 => {
                let which = self.below(self.schedulers.len());
                let tick = self.below(self.schedulers.get(which).map_or(0, Scheduler::task_count));
                if let Some(scheduler) = self.schedulers.get(which) {
                    let _ = scheduler.tick(tick).await;
                }
            }
            70..86 => self.talk().await,
            86..94 => self.submit(),
            94..97 => self.meddle(),
            _ => self.fault(),
        }
    }

    /// Lets time pass everywhere.
    pub(crate) fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        self.clock.set(self.now);
        for node in &mut self.nodes {
            node.advance(by);
        }
        self.sit_in_front(by);
        if !self.is_slurmctld_down {
            self.finish_work();
        }
        self.slurm.tick(self.now);
        self.follow_slurm();
        self.save_now_and_then();
        self.back_up_now_and_then();
        for node in &mut self.nodes {
            node.look(self.now);
        }
    }

    /// Processes that are done exit; Slurm notices.
    fn finish_work(&mut self) {
        // One of several devices is done when its first process is.
        let done: BTreeMap<JobStart, bool> = self.nodes.iter().flat_map(Node::finished).collect();
        self.finish_outside();
        self.leave_sessions();
        for (start, is_good) in done {
            assert!(is_good, "{start} failed on its device: sharing must not make a job fail");
            self.slurm.finish(start.job_id, Ending::Completed);
        }
        self.let_victims_die();
    }

    /// What runs outside the pool is over when its time has passed there.
    fn finish_outside(&mut self) {
        let jobs = self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Running);
        for job in jobs.filter(is_outside) {
            let Some((started_at, work)) = job.started_at.zip(self.works.get(&job.id)) else { continue };
            if self.now.seconds_since(started_at) >= work.seconds {
                self.slurm.finish(job.id, Ending::Completed);
            }
        }
    }

    /// What Slurm started runs on its node from now on; what it ended is killed there.
    fn follow_slurm(&mut self) {
        end_those_gone(&mut self.nodes, &self.slurm, self.now);
        for job in self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Running) {
            if self.started.insert(job.start()) && !is_outside(&job) {
                self.run_on_node(&job);
            }
        }
    }

    fn run_on_node(&mut self, job: &pillion_slurm::Job) {
        let (_, shards) = job.shards().next().expect("pool jobs hold shards");
        let (now, work) = (self.now, self.works[&job.id].clone());
        let of_nodes = self.slurm.devices_of(job.id);
        // Those that Slurm started without us show nothing.
        if job.mark.as_ref().is_ok_and(|mark| mark.as_ref().is_some_and(|mark| mark.let_go.is_some())) {
            self.let_go_count += usize::from(of_nodes.len() > 1);
            let is_moved = self.submitted_gres.get(&job.id).is_some_and(|gres| *gres != job.gres);
            self.moved_count += usize::from(of_nodes[0].1.len() > 1 && is_moved);
        }
        for (name, gres_types) in of_nodes {
            self.width_peak = self.width_peak.max(gres_types.len());
            self.note(format!("start {} on {name} {gres_types:?} with {}", job.start(), job.gres));
            let node = self.nodes.iter_mut().find(|node| node.name == name).expect("it runs on a node");
            node.start(job.start(), (&gres_types, shards), &work, now);
        }
    }

    async fn talk(&mut self) {
        let (which, place) = (self.below(self.schedulers.len()), self.below(self.nodes.len()));
        let (count, twice) = (self.rng.random_range(0..6), self.rng.random_bool(0.1));
        if let Some(scheduler) = self.schedulers.get_mut(which) {
            scheduler.talk(&mut self.nodes[place], count, twice).await;
        }
    }

    /// An ordinary span of time without faults.
    pub(crate) async fn run_for(&mut self, seconds: u64) {
        for step in 0..seconds / 2 {
            // Slurm may start at once what it hears of.
            self.line.deliver().await;
            if self.is_healed {
                self.drain_where_late();
            }
            self.pass(Duration::from_secs(2));
            self.rescue().await;
            for place in 0..self.nodes.len() {
                // Agents go to who leads.
                for scheduler in self.schedulers.iter_mut().filter(|scheduler| scheduler.context.is_leading())
                {
                    scheduler.talk(&mut self.nodes[place], 1000, false).await;
                }
            }
            for scheduler in &self.schedulers {
                let looks = scheduler.context.is_leading() || step.is_multiple_of(STANDBY_LOOKS_STEPS);
                scheduler.tick_all(looks).await;
            }
            self.check().await;
        }
    }

    /// `pillion rescue`, every minute.
    async fn rescue(&mut self) {
        if self.is_slurmctld_down || self.now.seconds_since(self.rescued_at) < 60.0 {
            return;
        }
        self.rescued_at = self.now;
        let clock = Arc::clone(&self.clock);
        let pools = ["shared".to_owned()];
        let undone = carry_out(self.slurm.as_ref(), clock.as_ref(), &pools, 120.0, false).await;
        for outcome in undone.map(|(outcomes, _)| outcomes).unwrap_or_default() {
            self.note(format!("rescue: {} {}", outcome.job_id, outcome.result));
        }
    }

    /// What Slurm was told, for a failing seed.
    pub(crate) fn updates(&self) -> String {
        let line = |call: &FakeCall| match call {
            FakeCall::Update { at, ok, jobs, update } => {
                let at = at.seconds() - UnixTime::from_epoch(BEGIN).seconds();
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                Some(format!("{at:9.1} update {} ok={ok} {update:?}", jobs.join(",")))
            }
            _ => None,
        };
        self.slurm.journal().iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    /// Jobs that should have run to their end and did not.
    pub(crate) fn unfinished(&self) -> Vec<SlurmJobId> {
        let open = |id: &&SlurmJobId| !is_over(&self.slurm, **id);
        self.works.keys().filter(open).copied().collect()
    }
}

/// The pool, and nodes without shards for jobs that leave it: two of each, for some are on both nodes.
fn slurm(now: UnixTime) -> FakeSlurm {
    let outside = ["w1", "w2"].map(|name| {
        let mut node = FakeNode::pool(name, 8);
        node.devices.values_mut().for_each(|shards| *shards = 0);
        node
    });
    let nodes = ["n1", "n2"].map(|name| FakeNode::pool(name, 3)).into_iter().chain(outside);
    let partitions =
        vec![FakePartition::new("shared", &["n1", "n2"]), FakePartition::new(OUTSIDE, &["w1", "w2"])];
    FakeSlurm::new(FakeSettings::default(), nodes.collect(), partitions, now)
}

fn is_outside(job: &pillion_slurm::Job) -> bool {
    job.partition == OUTSIDE
}
