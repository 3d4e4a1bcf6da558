//! One setting, once: a size of the pool, a share of the users, a seed. The queue of those who share and the queue of the others
//! are simulated by the same rules as the queue without Pillion.

use crate::options::PoolSize;
use crate::pool::truth::Truth;
use crate::pool::{self, GpuType, Kind, PoolJob, PoolNode, PoolOutcome, Rules, Setting, Unseen, Work};
use crate::queue::QueueNode;
use crate::replay::{Replay, order_of, seconds};
use crate::statistics::percentile;
use pillion_core::{Fraction, WorkloadKey};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Waits that differ by less are alike.
pub(crate) const ALIKE_SECONDS: f64 = 60.0;

/// One setting, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// The pool.
    pub pool: PoolSize,
    /// The share of the users whose jobs share.
    pub adoption: Fraction,
    /// What is drawn.
    pub seed: u64,
}

/// Median and 95th percentile of waits, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Waits {
    /// Half wait less.
    pub median_seconds: f64,
    /// One of twenty waits longer.
    pub p95_seconds: f64,
}

impl Waits {
    pub(crate) fn of(waits: &[f64]) -> Self {
        Self { median_seconds: percentile(waits, 0.5), p95_seconds: percentile(waits, 0.95) }
    }
}

/// What came of one task.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Which.
    pub task: Task,
    pub(crate) pool: PoolOutcome,
    pub(crate) managed_count: usize,
    /// Jobs that find no node any more, for the pool has it.
    pub(crate) stranded_count: usize,
    pub(crate) pool_gpus: u32,
    /// Of the jobs that share, and of all others: without Pillion and with it.
    pub(crate) managed_waits: [Waits; 2],
    pub(crate) other_waits: [Waits; 2],
    pub(crate) all_waits: [Waits; 2],
    pub(crate) users_gain: usize,
    pub(crate) users_lose: usize,
    /// By how much longer each user waits on average, in seconds; by user.
    pub(crate) waits_more: BTreeMap<u32, f64>,
}

impl Outcome {
    /// GPU-hours that were saved: what a GPU for each job holds, less what they held.
    pub fn saved_hours(&self) -> f64 {
        let saved = self.pool.solo_hours - self.pool.busy_hours;
        // Where nobody shares there is nothing but the dust of sums.
        if saved.abs() < 1e-6 * self.pool.solo_hours { 0.0 } else { saved }
    }
    /// How many were slower beside others than promised, of how many that were beside others, and how many the model expected.
    pub fn promises(&self) -> (usize, usize, f64) {
        (self.pool.broken, self.pool.tenancies, self.pool.risk_sum)
    }
    /// How often jobs came together.
    pub fn groups(&self) -> usize {
        self.pool.groups
    }
    /// How often the planner was asked.
    pub fn plans(&self) -> usize {
        self.pool.plans
    }
}

/// Who is in the pool's queue and who is in the others'.
struct Split {
    managed: Vec<usize>,
    others: Vec<usize>,
    stranded: Vec<usize>,
}

impl Replay {
    /// Everything that is replayed.
    pub fn tasks(&self) -> Vec<Task> {
        let Self { options, .. } = self;
        let mut tasks = Vec::new();
        // Of few nodes two parts may be the same.
        let mut seen = FxHashSet::default();
        for pool in options.pools.iter().filter(|pool| seen.insert(self.pool_nodes(**pool))) {
            let mut seen = FxHashSet::default();
            for adoption in options.adoptions.iter().filter(|part| seen.insert(part.value().to_bits())) {
                tasks.extend((0..options.seeds).map(|seed| Task { pool: *pool, adoption: *adoption, seed }));
            }
        }
        tasks
    }

    /// Replays one of them, with what comes of sharing drawn.
    /// `progress` is told now and then which part of it is done, 0..=1.
    pub fn run(&self, task: Task, progress: &dyn Fn(f64)) -> Outcome {
        self.run_with(task, &Truth::Drawn(task.seed), progress)
    }

    /// The same with what comes of sharing as it is.
    pub fn run_with(&self, task: Task, truth: &Truth, progress: &dyn Fn(f64)) -> Outcome {
        let pool_nodes = self.pool_nodes(task.pool);
        let split = self.split(task, &pool_nodes);
        let (nodes, setting) = self.pool_setting(&pool_nodes);
        let work = self.work(&split.managed, &setting, task.seed);
        let rules = Rules { setting: &setting.setting, truth, progress };
        let mut outcome = pool::play(&nodes, &work, rules);
        let mut with: Vec<Option<f64>> = vec![None; self.jobs.len()];
        for (at, start) in split.managed.iter().zip(std::mem::take(&mut outcome.started_at)) {
            with[*at] = start;
        }
        let rest = self.rest(&pool_nodes);
        let starts = self.queue(&rest, &split.others, self.order);
        for (at, start) in split.others.iter().zip(starts) {
            with[*at] = start.map(seconds);
        }
        let pool_gpus = pool_nodes.iter().map(|at| self.nodes()[*at].gpus).sum();
        self.compared(task, outcome, &split, &with, pool_gpus)
    }

    fn rest(&self, pool_nodes: &[usize]) -> Vec<QueueNode> {
        let taken: FxHashSet<usize> = pool_nodes.iter().copied().collect();
        let left = self.nodes().iter().enumerate().filter(|(at, _)| !taken.contains(at));
        left.map(|(_, node)| node.clone()).collect()
    }

    /// Whoever adopts shares what can be shared: one GPU on one node, of a model that the pool has, on a node that could run it.
    fn split(&self, task: Task, pool_nodes: &[usize]) -> Split {
        let adopters = self.adopters(task);
        let rest = self.rest(pool_nodes);
        let possible = self.possible(&rest);
        let mut split = Split { managed: Vec::new(), others: Vec::new(), stranded: Vec::new() };
        for (at, is_possible) in possible.into_iter().enumerate() {
            let (job, demand) = (self.of(self.jobs[at]), self.demand(at));
            let fits = || {
                pool_nodes.iter().any(|node| {
                    let node = &self.nodes()[*node];
                    Some(node.gpu_type.unwrap_or(self.untyped)) == self.jobs[at].ran_on
                        && node.cpus >= demand.cpus
                        && node.memory_mib >= demand.memory_mib
                })
            };
            if job.gpus == 1 && job.nodes == 1 && adopters.contains(&job.user) && fits() {
                split.managed.push(at);
            } else if is_possible {
                split.others.push(at);
            } else {
                split.stranded.push(at);
            }
        }
        split
    }

    /// Drawn by user, so that who adopts at a small share does at a larger one.
    fn adopters(&self, task: Task) -> FxHashSet<u32> {
        let users: FxHashSet<u32> = self.jobs.iter().map(|job| self.of(*job).user).collect();
        let adopts = |user: &u32| {
            let mut rng = ChaCha8Rng::seed_from_u64(task.seed);
            rng.set_stream(u64::from(*user) + 1);
            rng.random::<f64>() < task.adoption.value()
        };
        users.into_iter().filter(adopts).collect()
    }

    fn pool_setting(&self, pool_nodes: &[usize]) -> (Vec<PoolNode>, PoolSetting) {
        let mut types: BTreeMap<u32, u32> = BTreeMap::new();
        let mut nodes = Vec::new();
        for at in pool_nodes {
            let (shape, node) = self.node(*at);
            let number = node.gpu_type.unwrap_or(self.untyped);
            let next = u32::try_from(types.len()).expect("a site has few types");
            nodes.push(PoolNode {
                name: shape.name.clone(),
                gpu_type: *types.entry(number).or_insert(next),
                gpus: node.gpus,
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                cpus_free: node.cpus,
                memory_mib_free: node.memory_mib,
            });
        }
        let mut gpu_types = vec![GpuType { name: String::new(), memory_bytes: None }; types.len()];
        for (number, place) in &types {
            let name = self.accounting.gpu_types.text(*number).to_owned();
            gpu_types[*place as usize] = GpuType { memory_bytes: self.gpu_memory.bytes(&name), name };
        }
        let setting = Setting {
            policy: self.options.policy.clone(),
            mechanism: self.options.mechanism,
            gpu_types,
            no_account: self.accounting.accounts.find("").unwrap_or(u32::MAX),
            plan_seconds: self.options.plan_seconds,
            effort: self.options.effort,
            speeds: self.options.speeds.clone(),
        };
        (nodes, PoolSetting { setting, place_of_type: types.into_iter().collect() })
    }

    /// The jobs that are managed, and what is alike among them.
    fn work(&self, managed: &[usize], setting: &PoolSetting, seed: u64) -> Work {
        let mut work = Work { jobs: Vec::with_capacity(managed.len()), kinds: Vec::new() };
        let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for at in managed {
            let (replayed, demand) = (self.jobs[*at], self.demand(*at));
            let job = self.of(replayed);
            let gpu_type =
                replayed.ran_on.and_then(|number| setting.place_of_type.get(&number)).copied().unwrap_or(0);
            let kind = *numbers.entry((job.workload, gpu_type)).or_insert_with(|| {
                work.kinds.push(Kind {
                    workload: job.workload,
                    gpu_type,
                    key: workload_key(job.user, job.workload),
                    unseen: Unseen::drawn(job.workload, seed),
                });
                u32::try_from(work.kinds.len() - 1).expect("there are fewer kinds than jobs")
            });
            work.jobs.push(PoolJob {
                user: job.user,
                account: job.account,
                kind,
                eligible_at: seconds(job.eligible_at),
                seconds: seconds(job.seconds()),
                limit_seconds: job.limit_seconds.map(seconds),
                order: order_of(job, *at, self.order),
                cpus: demand.cpus,
                memory_mib: demand.memory_mib,
                ended: job.ended,
                usage: job.usage,
            });
        }
        work
    }

    fn compared(
        &self,
        task: Task,
        pool: PoolOutcome,
        split: &Split,
        with: &[Option<f64>],
        pool_gpus: u32,
    ) -> Outcome {
        let waits = |places: &[usize]| {
            let (mut without, mut beside) = (Vec::new(), Vec::new());
            for at in places {
                let Some(start) = with[*at] else { continue };
                let eligible = seconds(self.of(self.jobs[*at]).eligible_at);
                without.push(seconds(self.exclusive[*at]) - eligible);
                beside.push((start - eligible).max(0.0));
            }
            [Waits::of(&without), Waits::of(&beside)]
        };
        let everybody: Vec<usize> = split.managed.iter().chain(&split.others).copied().collect();
        let waits_more = self.waits_more(&everybody, with);
        Outcome {
            task,
            managed_count: split.managed.len(),
            stranded_count: split.stranded.len(),
            pool_gpus,
            managed_waits: waits(&split.managed),
            other_waits: waits(&split.others),
            all_waits: waits(&everybody),
            users_gain: waits_more.values().filter(|more| **more < -ALIKE_SECONDS).count(),
            users_lose: waits_more.values().filter(|more| **more > ALIKE_SECONDS).count(),
            waits_more,
            pool,
        }
    }

    /// By how much longer each user waits on average.
    fn waits_more(&self, places: &[usize], with: &[Option<f64>]) -> BTreeMap<u32, f64> {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for at in places {
            let Some(start) = with[*at] else { continue };
            let (sum, count) = sums.entry(self.of(self.jobs[*at]).user).or_default();
            *sum += start - seconds(self.exclusive[*at]);
            *count += 1.0;
        }
        sums.into_iter().map(|(user, (sum, count))| (user, sum / count)).collect()
    }
}

struct PoolSetting {
    setting: Setting,
    place_of_type: FxHashMap<u32, u32>,
}

/// A workload as the model knows it: whose it is stands before the slash.
pub fn workload_key(user: u32, workload: u32) -> WorkloadKey {
    WorkloadKey::new(format!("{user}/{workload}"))
}
