//! One site, ready to be replayed: its jobs as a queue sees them, its nodes, and the queue without Pillion, simulated once.

use crate::jobs::{Accounting, Job};
use crate::options::{Options, Order, PoolSize};
use crate::queue::{self, Demand, QueueJob, QueueNode};
use crate::site::{GpuMemory, NodeShape};
use crate::statistics::median;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Why nothing can be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No job fits the nodes.
    #[error(
        "none of the jobs could run on the nodes that were given: see that both are of one cluster (partitions, GPU types, CPUs)"
    )]
    NoJobFits,
    /// A pool of more nodes than there are.
    #[error("a pool of {asked} nodes was asked for; there are {there} with GPUs")]
    PoolTooLarge {
        /// What was asked for.
        asked: u32,
        /// What there is.
        there: usize,
    },
}

/// A job that is replayed: where it stands in the accounting, and its class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replayed {
    pub(crate) job: usize,
    class: usize,
    /// The type of GPU that it ran on; absent: nobody knows.
    pub(crate) ran_on: Option<u32>,
}

/// See the module.
pub struct Replay {
    pub(crate) accounting: Accounting,
    pub(crate) options: Options,
    pub(crate) gpu_memory: GpuMemory,
    /// The number that stands for the one type of GPU of a site that names none.
    pub(crate) untyped: u32,
    shapes: Vec<NodeShape>,
    nodes: Vec<QueueNode>,
    demands: Vec<Demand>,
    /// In the order of `eligible_at`; all of them could run on some node.
    pub(crate) jobs: Vec<Replayed>,
    /// Jobs that no node could run.
    pub(crate) misfit_count: usize,
    /// By what jobs were served in the simulations.
    pub(crate) order: Order,
    /// By place in `jobs`, when each starts without Pillion.
    pub(crate) exclusive: Vec<u64>,
}

/// What GPUs are called where Slurm has no type for them.
const UNTYPED: &str = "gpu";

/// The limits of a node of which nothing is said.
fn or_boundless<T: PartialEq + From<u8>>(amount: T, most: T) -> T {
    if amount == T::from(0) { most } else { amount }
}

impl Replay {
    /// Simulates the queue without Pillion.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn new(
        mut accounting: Accounting,
        shapes: Vec<NodeShape>,
        gpu_memory: GpuMemory,
        options: Options,
    ) -> Result<Self, ReplayError> {
        for size in &options.pools {
            if let PoolSize::Nodes(asked) = size
                && *asked as usize > shapes.len()
            {
                return Err(ReplayError::PoolTooLarge { asked: *asked, there: shapes.len() });
            }
        }
        let nodes = queue_nodes(&shapes, &mut accounting);
        let untyped = accounting.gpu_types.number(UNTYPED);
        let (jobs, demands) = replayed(&accounting, &shapes, &nodes, untyped);
        let possible = queue::possible(&nodes, &demands);
        let all = jobs.len();
        let jobs: Vec<Replayed> = jobs.into_iter().filter(|job| possible[job.class]).collect();
        if jobs.is_empty() {
            return Err(ReplayError::NoJobFits);
        }
        let misfit_count = all - jobs.len();
        let mut replay = Self {
            accounting,
            options,
            gpu_memory,
            untyped,
            shapes,
            nodes,
            demands,
            jobs,
            misfit_count,
            order: Order::Submit,
            exclusive: Vec::new(),
        };
        replay.learn_memory();
        replay.simulate_exclusive();
        Ok(replay)
    }

    /// How many jobs are replayed.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// What jobs themselves saw of the memory of their GPUs: the least, where they differ.
    fn learn_memory(&mut self) {
        let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
        for replayed in &self.jobs {
            let bytes = self.accounting.jobs[replayed.job].usage.memory_bytes_device;
            if let (Some(gpu_type), Some(bytes)) = (replayed.ran_on, bytes) {
                let least = seen.entry(gpu_type).or_insert(bytes);
                *least = bytes.min(*least);
            }
        }
        for (gpu_type, bytes) in seen {
            self.gpu_memory.learn(self.accounting.gpu_types.text(gpu_type), bytes);
        }
    }

    /// By the order that was asked for, else by the one under which simulated waits are nearer to the real ones.
    fn simulate_exclusive(&mut self) {
        let has_priorities = self.jobs.iter().filter(|job| self.of(**job).priority.is_some()).count() * 10
            >= self.jobs.len() * 9;
        let orders: &[Order] = match self.options.order {
            Some(Order::Priority) => &[Order::Priority],
            None if has_priorities => &[Order::Submit, Order::Priority],
            Some(Order::Submit) | None => &[Order::Submit],
        };
        let history = self.waits(|job, _| job.started_at);
        let mut best: Option<(f64, Order, Vec<u64>)> = None;
        for order in orders {
            let everybody: Vec<usize> = (0..self.jobs.len()).collect();
            let starts = self.queue(&self.nodes, &everybody, *order);
            let starts: Vec<u64> =
                starts.into_iter().map(|start| start.expect("all of them could run on some node")).collect();
            let waits = self.waits(|_, at| starts[at]);
            let error = (median(&waits) - median(&history)).abs();
            if best.as_ref().is_none_or(|(least, ..)| error < *least) {
                best = Some((error, *order, starts));
            }
        }
        let (_, order, starts) = best.expect("there is an order");
        (self.order, self.exclusive) = (order, starts);
    }

    pub(crate) fn of(&self, replayed: Replayed) -> &Job {
        &self.accounting.jobs[replayed.job]
    }

    /// How long each waits that starts so, in seconds.
    pub(crate) fn waits(&self, start: impl Fn(&Job, usize) -> u64) -> Vec<f64> {
        let jobs = self.jobs.iter().enumerate();
        jobs.map(|(at, replayed)| {
            let job = self.of(*replayed);
            seconds(start(job, at).saturating_sub(job.eligible_at))
        })
        .collect()
    }

    /// When jobs, by place and in their order, start on these nodes.
    pub(crate) fn queue(&self, nodes: &[QueueNode], jobs: &[usize], order: Order) -> Vec<Option<u64>> {
        let queue_jobs: Vec<QueueJob> = jobs
            .iter()
            .map(|at| {
                let replayed = self.jobs[*at];
                let job = self.of(replayed);
                QueueJob {
                    eligible_at: job.eligible_at,
                    seconds: job.seconds(),
                    class: replayed.class,
                    order: order_of(job, *at, order),
                }
            })
            .collect();
        queue::starts(nodes, &self.demands, &queue_jobs)
    }

    /// The nodes of a pool of this size: of each kind in proportion, at least one.
    pub(crate) fn pool_nodes(&self, size: PoolSize) -> Vec<usize> {
        // Nodes of one kind stand side by side, so that a part of the row is a part of each kind.
        let mut row: Vec<usize> = (0..self.nodes.len()).collect();
        row.sort_by_key(|at| {
            let (node, shape) = (&self.nodes[*at], &self.shapes[*at]);
            (node.gpu_type, node.gpus, node.cpus, node.memory_mib, &shape.partitions)
        });
        let all = self.nodes.len();
        #[expect(clippy::cast_precision_loss, reason = "a count of nodes")]
        let part = match size {
            PoolSize::Part(part) => part.value(),
            PoolSize::Nodes(count) => f64::from(count) / all as f64,
        };
        let row_last = row.last().copied();
        let mut chosen = Vec::new();
        let mut owed = 0.0;
        for node in row {
            owed += part;
            if owed >= 1.0 - 1e-9 {
                owed -= 1.0;
                chosen.push(node);
            }
        }
        if chosen.is_empty() {
            chosen.extend(row_last);
        }
        chosen.sort_unstable();
        chosen
    }

    pub(crate) fn node(&self, at: usize) -> (&NodeShape, &QueueNode) {
        (&self.shapes[at], &self.nodes[at])
    }

    pub(crate) fn nodes(&self) -> &[QueueNode] {
        &self.nodes
    }

    pub(crate) fn demand(&self, at: usize) -> &Demand {
        &self.demands[self.jobs[at].class]
    }

    /// By place, whether some of these nodes could run it.
    pub(crate) fn possible(&self, nodes: &[QueueNode]) -> Vec<bool> {
        let of_class = queue::possible(nodes, &self.demands);
        self.jobs.iter().map(|job| of_class[job.class]).collect()
    }

    /// From the first start to the last end.
    pub(crate) fn span(&self) -> (u64, u64) {
        let starts = self.jobs.iter().map(|job| self.of(*job).started_at);
        let ends = self.jobs.iter().map(|job| self.of(*job).ended_at);
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }
}

/// Less is served first; who is alike is served as he came.
pub(crate) fn order_of(job: &Job, at: usize, order: Order) -> u64 {
    let place = at as u64;
    match order {
        Order::Submit => place,
        Order::Priority => (u64::from(u32::MAX - job.priority.unwrap_or(0)) << 32) | (place & 0xffff_ffff),
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
pub(crate) fn seconds(whole: u64) -> f64 {
    whole as f64
}

fn queue_nodes(shapes: &[NodeShape], accounting: &mut Accounting) -> Vec<QueueNode> {
    let of_shape = shapes.iter().map(|shape| QueueNode {
        partitions: (!shape.partitions.is_empty())
            .then(|| shape.partitions.iter().map(|name| accounting.partitions.number(name)).collect()),
        gpu_type: (!shape.gpu_type.is_empty()).then(|| accounting.gpu_types.number(&shape.gpu_type)),
        gpus: shape.gpus,
        cpus: or_boundless(shape.cpus, u32::MAX),
        memory_mib: or_boundless(shape.memory_mib, u64::MAX / 2),
    });
    of_shape.collect()
}

/// The jobs in the order of their time, each with its class.
fn replayed(
    accounting: &Accounting,
    shapes: &[NodeShape],
    nodes: &[QueueNode],
    untyped: u32,
) -> (Vec<Replayed>, Vec<Demand>) {
    let types: Vec<Option<u32>> = nodes.iter().map(|node| node.gpu_type).collect();
    let is_typed = types.iter().any(Option::is_some);
    let the_only = types.first().copied().filter(|first| types.iter().all(|other| other == first)).flatten();
    let of_node: FxHashMap<u32, Option<u32>> = shapes
        .iter()
        .zip(nodes)
        .filter_map(|(shape, node)| Some((accounting.nodes.find(&shape.name)?, node.gpu_type)))
        .collect();
    let mut classes: FxHashMap<Demand, usize> = FxHashMap::default();
    let mut demands = Vec::new();
    let mut jobs: Vec<Replayed> = Vec::with_capacity(accounting.jobs.len());
    for (at, job) in accounting.jobs.iter().enumerate() {
        let demand = Demand {
            partition: job.partition,
            gpu_type: job.gpu_type.filter(|_| is_typed),
            nodes: job.nodes,
            gpus: job.gpus.div_ceil(job.nodes),
            cpus: job.cpus.div_ceil(job.nodes),
            memory_mib: job.memory_mib.div_ceil(u64::from(job.nodes)),
            limit_seconds: job.limit_seconds,
        };
        let class = *classes.entry(demand).or_insert_with_key(|demand| {
            demands.push(demand.clone());
            demands.len() - 1
        });
        let known = job.gpu_type_given.or(of_node.get(&job.node).copied().flatten());
        let ran_on = if is_typed { known.or(the_only).or(job.gpu_type) } else { Some(untyped) };
        jobs.push(Replayed { job: at, class, ran_on });
    }
    jobs.sort_by_key(|replayed| {
        (accounting.jobs[replayed.job].eligible_at, accounting.jobs[replayed.job].id)
    });
    (jobs, demands)
}
