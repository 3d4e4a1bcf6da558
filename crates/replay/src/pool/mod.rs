//! The pool, played out: jobs come as they came, Pillion's own planner decides with what would be known by then, and what comes of
//! sharing is drawn or looked up ([`truth`]). Time goes from event to event; plans are made where something has changed, and not
//! more often than asked.
//!
//! ```text
//! arrivals, ends ─► view ─► pillion_pairing::pairings ─► seats ─► truth: speeds ─► ends ─► learn: profiles, outcomes, model ─┐
//!                    ▲──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

mod learn;
mod seats;
#[cfg(test)]
mod tests;
pub(crate) mod truth;
mod view;
mod waiting;

pub(crate) use learn::Unseen;

use crate::jobs::{Ended, Usage};
use learn::Known;
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Shards, WorkloadKey};
use pillion_pairing::model::{Owners, TrainOptions, train};
use pillion_pairing::{Effort, Learned, Observation, Pairing, Policy, ProfileBook, pairings};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use truth::{SpeedsByBusy, Truth};
use waiting::Waiting;

/// Two that do not fit are found out after five minutes, and both start again.
const UNFIT_SECONDS: f64 = 300.0;
/// Events this near are one.
const TOGETHER_SECONDS: f64 = 1e-6;
/// The model learns anew once it has seen so much more than when it last did.
const RETRAIN_GROWTH: f64 = 1.25;
const RETRAIN_MIN: usize = 8;
/// Two whose memory fills more than this of a device are near its end.
const MEMORY_NEAR_FRACTION: f64 = 0.9;

/// A model of GPU in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuType {
    /// How the planner calls it.
    pub(crate) name: String,
    pub(crate) memory_bytes: Option<u64>,
}

/// What is the same for every job.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) policy: Policy,
    pub(crate) mechanism: Mechanism,
    pub(crate) gpu_types: Vec<GpuType>,
    /// The number that stands for having no account.
    pub(crate) no_account: u32,
    /// Between two plans at least so much time passes.
    pub(crate) plan_seconds: f64,
    /// How much each of them evaluates.
    pub(crate) effort: Effort,
    /// How fast jobs ran beside each other elsewhere.
    pub(crate) speeds: SpeedsByBusy,
}

/// A node of the pool.
#[derive(Debug, Clone)]
pub(crate) struct PoolNode {
    pub(crate) name: String,
    pub(crate) gpu_type: u32,
    pub(crate) gpus: u32,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u64,
    pub(crate) cpus_free: u32,
    pub(crate) memory_mib_free: u64,
}

/// What jobs of one workload on one type of GPU have in common.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) workload: u32,
    pub(crate) gpu_type: u32,
    /// The workload, in the planner's words.
    pub(crate) key: WorkloadKey,
    /// What nobody measured of it.
    pub(crate) unseen: Unseen,
}

/// A managed job: one GPU on one node.
#[derive(Debug, Clone)]
pub(crate) struct PoolJob {
    pub(crate) user: u32,
    pub(crate) account: u32,
    /// Its kind, by place.
    pub(crate) kind: u32,
    pub(crate) eligible_at: f64,
    /// How long it runs alone.
    pub(crate) seconds: f64,
    pub(crate) limit_seconds: Option<f64>,
    pub(crate) order: u64,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u64,
    pub(crate) ended: Ended,
    pub(crate) usage: Usage,
}

/// All that is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work {
    /// In the order of `eligible_at`.
    pub(crate) jobs: Vec<PoolJob>,
    pub(crate) kinds: Vec<Kind>,
}

impl Work {
    fn kind(&self, job: &PoolJob) -> &Kind {
        &self.kinds[job.kind as usize]
    }
}

/// A job on a device.
#[derive(Debug, Clone)]
struct Seat {
    job: usize,
    /// How this very run uses the device alone.
    profile: Box<WorkloadProfile>,
    sharing: Sharing,
    shards: Shards,
    memory_bytes: Option<u64>,
    started_at: f64,
    /// Of its seconds alone, what is left to do.
    left: f64,
    speed: f64,
    alone_seconds: f64,
    shared_seconds: f64,
    /// Whom it has met: nobody, one job, or several.
    partner: Partner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partner {
    Nobody,
    One(usize),
    Several,
}

#[derive(Debug, Clone)]
struct Device {
    node: usize,
    gres: String,
    gpu_type: u32,
    /// The host first.
    seats: Vec<Seat>,
    group: u64,
    touched_at: f64,
    /// When it is found out that those here do not fit together.
    unfit_at: Option<f64>,
    version: u32,
}

/// What came of one run of the pool. Hours are GPU-hours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PoolOutcome {
    /// When each job first started, by place; `None`: no node of the pool could run it.
    pub(crate) started_at: Vec<Option<f64>>,
    /// What the jobs would hold with a GPU for each.
    pub(crate) solo_hours: f64,
    /// What they hold together, with everything that was done again.
    pub(crate) busy_hours: f64,
    /// Hours in which a device had several tenants.
    pub(crate) shared_hours: f64,
    /// How often two or more came together.
    pub(crate) groups: usize,
    /// How often a job came to be beside others.
    pub(crate) tenancies: usize,
    /// The sum of the planner's own probability that each of them is slower than promised.
    pub(crate) risk_sum: f64,
    /// The same by what was published of jobs as busy.
    pub(crate) risk_foretold_sum: f64,
    /// How many of them were.
    pub(crate) broken: usize,
    /// How much longer each job took that ever shared, over its time alone.
    pub(crate) slowdowns: Vec<f64>,
    /// Groups that did not fit, and that were near it.
    pub(crate) out_of_memory: usize,
    pub(crate) near_out_of_memory: usize,
    /// Jobs that sharing slowed beyond their time limit.
    pub(crate) limit_hits: usize,
    /// Of the shared hours those of which power is known, and what a GPU at rest would have drawn in them.
    pub(crate) power_known_hours: f64,
    pub(crate) rest_watt_hours: f64,
    pub(crate) plans: usize,
}

/// How it is played.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'r> {
    pub(crate) setting: &'r Setting,
    pub(crate) truth: &'r Truth,
    /// Told now and then which part of the jobs has come, 0..=1.
    pub(crate) progress: &'r dyn Fn(f64),
}

/// So often progress is told.
const PROGRESS_STEPS: usize = 200;

/// Plays all of it on these nodes.
pub(crate) fn play(nodes: &[PoolNode], work: &Work, rules: Rules<'_>) -> PoolOutcome {
    let mut pool = Pool::new(nodes, work, rules);
    pool.run();
    pool.outcome
}

struct Pool<'p> {
    work: &'p Work,
    jobs: &'p [PoolJob],
    setting: &'p Setting,
    truth: &'p Truth,
    progress: &'p dyn Fn(f64),
    nodes: Vec<PoolNode>,
    devices: Vec<Device>,
    device_of: FxHashMap<(String, String), usize>,
    waiting: Waiting,
    goes_alone: FxHashSet<usize>,
    /// By kind.
    known: Vec<Option<Known>>,
    observations: Vec<Observation>,
    trained_on: usize,
    model: Learned,
    events: BinaryHeap<Reverse<Event>>,
    now: f64,
    next_group: u64,
    outcome: PoolOutcome,
}

/// Something is to happen on a device, unless it has changed since.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    at: f64,
    device: usize,
    version: u32,
}

impl Eq for Event {}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at
            .total_cmp(&other.at)
            .then(self.device.cmp(&other.device))
            .then(self.version.cmp(&other.version))
    }
}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn options() -> TrainOptions {
    TrainOptions { owners: Owners::InKeys, ..TrainOptions::default() }
}

impl<'p> Pool<'p> {
    fn new(nodes: &[PoolNode], work: &'p Work, Rules { setting, truth, progress }: Rules<'p>) -> Self {
        let jobs = &work.jobs;
        let mut devices = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            devices.extend((0..node.gpus).map(|index| Device {
                node: at,
                gres: format!("g{index}"),
                gpu_type: node.gpu_type,
                seats: Vec::new(),
                group: 0,
                touched_at: 0.0,
                unfit_at: None,
                version: 0,
            }));
        }
        let named = devices.iter().enumerate();
        let device_of =
            named.map(|(at, device)| ((nodes[device.node].name.clone(), device.gres.clone()), at)).collect();
        Self {
            work,
            jobs,
            setting,
            truth,
            progress,
            nodes: nodes.to_vec(),
            devices,
            device_of,
            waiting: Waiting::new(setting.gpu_types.len()),
            goes_alone: FxHashSet::default(),
            known: vec![None; work.kinds.len()],
            observations: Vec::new(),
            trained_on: 0,
            model: train(&ProfileBook::default(), &[], &options()),
            events: BinaryHeap::new(),
            now: 0.0,
            next_group: 1,
            outcome: PoolOutcome { started_at: vec![None; jobs.len()], ..PoolOutcome::default() },
        }
    }

    /// Whether some node of the pool could run it.
    fn is_possible(&self, job: &PoolJob) -> bool {
        self.nodes.iter().any(|node| {
            node.gpu_type == self.work.kind(job).gpu_type
                && node.gpus > 0
                && node.cpus_free >= job.cpus
                && node.memory_mib_free >= job.memory_mib
        })
    }

    fn run(&mut self) {
        // Judged while the nodes are empty.
        let possible: Vec<bool> = self.jobs.iter().map(|job| self.is_possible(job)).collect();
        let mut arrivals = (0..self.jobs.len()).filter(|job| possible[*job]).peekable();
        let (mut is_changed, mut plan_at) = (false, 0.0_f64);
        loop {
            let arrival = arrivals.peek().map(|job| self.jobs[*job].eligible_at);
            let event = self.next_event();
            let due = (is_changed && !self.waiting.is_empty()).then(|| plan_at.max(self.now));
            let Some(next) = [arrival, event, due].into_iter().flatten().reduce(f64::min) else { break };
            self.now = self.now.max(next);
            while let Some(event) = self.pop_event() {
                self.happen(event.device);
                is_changed = true;
            }
            while let Some(job) = arrivals.next_if(|job| self.jobs[*job].eligible_at <= self.now) {
                self.outcome.solo_hours += self.jobs[job].seconds / 3600.0;
                self.wait(job);
                self.tell_progress(job);
                is_changed = true;
            }
            if is_changed && !self.waiting.is_empty() && self.now >= plan_at {
                is_changed = self.plan();
                plan_at = self.now + self.setting.plan_seconds;
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
    fn tell_progress(&self, job: usize) {
        if job.is_multiple_of(self.jobs.len() / PROGRESS_STEPS + 1) {
            (self.progress)(job as f64 / self.jobs.len() as f64);
        }
    }

    fn wait(&mut self, job: usize) {
        let this = &self.jobs[job];
        self.waiting.insert(self.work.kind(this).gpu_type, (this.order, job));
    }

    /// When the next thing happens on a device.
    fn next_event(&mut self) -> Option<f64> {
        while let Some(Reverse(event)) = self.events.peek() {
            if self.devices[event.device].version == event.version {
                return Some(event.at);
            }
            self.events.pop();
        }
        None
    }

    fn pop_event(&mut self) -> Option<Event> {
        self.next_event().filter(|at| *at <= self.now + TOGETHER_SECONDS)?;
        self.events.pop().map(|Reverse(event)| event)
    }

    /// What the planner would start now; whether it should be asked again though nothing changes.
    fn plan(&mut self) -> bool {
        let Some(view) = self.view() else { return false };
        self.outcome.plans += 1;
        let planned = pairings(&view, &self.model, &self.setting.policy, self.setting.effort);
        let has_started = !planned.is_empty();
        for pairing in &planned {
            self.carry_out(pairing);
        }
        // Of a long queue the rest is planned at the next look.
        has_started && !self.waiting.is_empty()
    }

    fn carry_out(&mut self, pairing: &Pairing) {
        let place = (pairing.node.to_string(), pairing.gres_types.first().to_string());
        let Some(device) = self.device_of.get(&place).copied() else { return };
        self.pass_time(device);
        if self.devices[device].seats.is_empty() {
            self.devices[device].group = self.next_group;
            self.next_group += 1;
        }
        for member in &pairing.members {
            let job = view::job_of(member.start.job_id);
            self.seat(device, job, member);
        }
        self.settle(device, true);
    }

    /// The model learns from what was seen since, once that is worth it.
    fn learn_anew(&mut self) {
        let seen = self.observations.len();
        #[expect(clippy::cast_precision_loss, reason = "a count of outcomes")]
        let has_grown = seen as f64 >= self.trained_on as f64 * RETRAIN_GROWTH;
        if !has_grown || seen < self.trained_on + RETRAIN_MIN {
            return;
        }
        let known: Vec<WorkloadProfile> =
            self.known.iter().flatten().map(|known| known.profile.clone()).collect();
        let book = ProfileBook::from(known);
        self.model = train(&book, &self.observations, &options());
        self.trained_on = seen;
    }
}
