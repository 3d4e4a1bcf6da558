//! A queue in front of whole GPUs, as Slurm serves it: in the order of priority, the first that cannot start in each partition
//! has its place kept, and whoever comes later starts only where that place is not touched (backfill by time limits).
//!
//! Jobs that ask for the same are one class, and classes that differ in their time limit alone are of one shape. A class whose first
//! job finds no place is passed over whole, and a shape for which nothing is free is passed over until somebody ends: what a look
//! at the queue costs grows with what is asked for and not with the queue. Pure; the same for both simulations.

mod capacity;
#[cfg(test)]
mod tests;

use capacity::{Capacity, Part, Reservation};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// What a job asks for of each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Demand {
    /// The partition that it is in, by number.
    pub(crate) partition: u32,
    /// The type of GPU that it names, by number.
    pub(crate) gpu_type: Option<u32>,
    /// How many nodes.
    pub(crate) nodes: u32,
    /// GPUs of each.
    pub(crate) gpus: u32,
    /// CPUs of each.
    pub(crate) cpus: u32,
    /// Memory in MiB of each.
    pub(crate) memory_mib: u64,
    /// Its time limit.
    pub(crate) limit_seconds: Option<u64>,
}

/// One node, as the queue sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueNode {
    /// Its partitions by number; absent: all.
    pub(crate) partitions: Option<BTreeSet<u32>>,
    /// The type of its GPUs, by number.
    pub(crate) gpu_type: Option<u32>,
    /// How many it has.
    pub(crate) gpus: u32,
    /// Its CPUs.
    pub(crate) cpus: u32,
    /// Its memory in MiB.
    pub(crate) memory_mib: u64,
}

/// One job, as the queue sees it. Times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueJob {
    /// From when it may start.
    pub(crate) eligible_at: u64,
    /// How long it runs.
    pub(crate) seconds: u64,
    /// Its class, by place in the list of demands.
    pub(crate) class: usize,
    /// Jobs with less of it are served first.
    pub(crate) order: u64,
}

/// Between two looks at the queue at least so much time passes, as Slurm's own scheduler rests.
const LOOK_SECONDS: u64 = 2;

/// When each job starts; `None`: no node could ever run it. Jobs must stand in the order of `eligible_at`.
pub(crate) fn starts(nodes: &[QueueNode], demands: &[Demand], jobs: &[QueueJob]) -> Vec<Option<u64>> {
    let mut queue = Queue::new(nodes, demands, jobs);
    queue.run();
    queue.started
}

/// Classes that some node could run, by place in `demands`.
pub(crate) fn possible(nodes: &[QueueNode], demands: &[Demand]) -> Vec<bool> {
    let capacity = Capacity::new(nodes, demands);
    (0..demands.len()).map(|class| capacity.find(&demands[class], class, None).is_some()).collect()
}

type OrderKey = (u64, usize);

struct Queue<'q> {
    demands: &'q [Demand],
    jobs: &'q [QueueJob],
    capacity: Capacity,
    possible: Vec<bool>,
    /// By class, what it asks for but for its time limit.
    shape_of: Vec<usize>,
    /// By class, the jobs that wait in the order of service.
    waiting: Vec<BTreeSet<OrderKey>>,
    shapes: Vec<Shape>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Who runs, by when Slurm ends him at the latest.
    latest_ends: BTreeSet<(u64, usize)>,
    parts: FxHashMap<usize, Vec<Part>>,
    started: Vec<Option<u64>>,
}

/// Classes that differ in their time limit alone.
#[derive(Debug, Clone)]
struct Shape {
    /// What all of them ask for, without a limit.
    demand: Demand,
    /// Of all of its classes, the jobs that wait in the order of service.
    waiting: BTreeSet<OrderKey>,
    /// Classes somebody waits in.
    open: BTreeSet<usize>,
    /// That nothing was free for it, and no node has become free for a part of it since.
    is_full: bool,
}

/// By class, which shape it is of.
fn shapes(demands: &[Demand]) -> (Vec<usize>, Vec<Shape>) {
    let mut numbers: FxHashMap<Demand, usize> = FxHashMap::default();
    let mut shapes = Vec::new();
    let of_class = demands.iter().map(|demand| {
        let demand = Demand { limit_seconds: None, ..demand.clone() };
        *numbers.entry(demand).or_insert_with_key(|demand| {
            let (demand, waiting, open) = (demand.clone(), BTreeSet::new(), BTreeSet::new());
            shapes.push(Shape { demand, waiting, open, is_full: false });
            shapes.len() - 1
        })
    });
    (of_class.collect(), shapes)
}

impl<'q> Queue<'q> {
    fn new(nodes: &[QueueNode], demands: &'q [Demand], jobs: &'q [QueueJob]) -> Self {
        let capacity = Capacity::new(nodes, demands);
        let (shape_of, shapes) = shapes(demands);
        Self {
            possible: (0..demands.len())
                .map(|class| capacity.find(&demands[class], class, None).is_some())
                .collect(),
            demands,
            jobs,
            capacity,
            shape_of,
            waiting: vec![BTreeSet::new(); demands.len()],
            shapes,
            ends: BinaryHeap::new(),
            latest_ends: BTreeSet::new(),
            parts: FxHashMap::default(),
            started: vec![None; jobs.len()],
        }
    }

    fn run(&mut self) {
        let mut arrivals: VecDeque<usize> = (0..self.jobs.len()).collect();
        let mut now = 0;
        let mut looked_at: Option<u64> = None;
        loop {
            let arrival = arrivals.front().map(|job| self.jobs[*job].eligible_at);
            let end = self.ends.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [arrival, end].into_iter().flatten().min() else { break };
            now = next.max(looked_at.map_or(now, |at| at + LOOK_SECONDS)).max(now);
            while let Some(Reverse((_, job))) =
                self.ends.peek().copied().filter(|Reverse((at, _))| *at <= now)
            {
                self.ends.pop();
                self.end(job);
            }
            while let Some(job) = arrivals.pop_front_if(|job| self.jobs[*job].eligible_at <= now) {
                self.arrive(job);
            }
            self.look(now);
            looked_at = Some(now);
        }
    }

    fn arrive(&mut self, job: usize) {
        let QueueJob { class, order, .. } = self.jobs[job];
        if self.possible[class] {
            self.waiting[class].insert((order, job));
            let shape = &mut self.shapes[self.shape_of[class]];
            shape.waiting.insert((order, job));
            shape.open.insert(class);
        }
    }

    fn end(&mut self, job: usize) {
        self.latest_ends.remove(&(self.latest_end(job), job));
        let Some(parts) = self.parts.remove(&job) else { return };
        self.capacity.give_back(&parts);
        for shape in self.shapes.iter_mut().filter(|shape| shape.is_full) {
            shape.is_full = !self.capacity.has_met(&shape.demand, &parts);
        }
    }

    /// When Slurm ends a job that has started; one without a limit never.
    fn latest_end(&self, job: usize) -> u64 {
        let limit = self.demands[self.jobs[job].class].limit_seconds;
        let started = self.started[job].unwrap_or(0);
        // A job may overrun its limit by what Slurm grants it; its end is then its real one.
        limit.map_or(u64::MAX, |limit| started.saturating_add(limit.max(self.jobs[job].seconds)))
    }

    /// Starts whoever can start now.
    fn look(&mut self, now: u64) {
        let mut heads = self.heads();
        let mut kept: BTreeMap<u32, Option<Reservation>> = BTreeMap::new();
        let mut blocked: BTreeSet<u32> = BTreeSet::new();
        while let Some(Reverse(((_, job), class))) = heads.pop() {
            let demand = &self.demands[class];
            let Some(anywhere) = self.find(class) else {
                blocked.insert(demand.partition);
                continue;
            };
            // Nobody overtakes before it is known what may not be touched.
            for partition in &blocked {
                if !kept.contains_key(partition) {
                    let reservation = self.reserve(*partition, now);
                    kept.insert(*partition, reservation);
                }
            }
            let parts = if kept.values().all(Option::is_none) {
                Some(anywhere)
            } else {
                let ends_at = demand.limit_seconds.map(|seconds| now.saturating_add(seconds));
                self.capacity.find(demand, class, Some(&Limits { kept: &kept, ends_at }))
            };
            let Some(parts) = parts else {
                blocked.insert(demand.partition);
                continue;
            };
            self.start(job, class, parts, now);
            if let Some(next) = self.waiting[class].first() {
                heads.push(Reverse((*next, class)));
            }
        }
    }

    /// The first of each class that waits; where nothing is free for a shape, the first of all of its classes, who stands for them.
    fn heads(&self) -> BinaryHeap<Reverse<(OrderKey, usize)>> {
        let mut heads = Vec::new();
        for shape in &self.shapes {
            if shape.is_full {
                let first = shape.waiting.first();
                heads.extend(first.map(|head| Reverse((*head, self.jobs[head.1].class))));
                continue;
            }
            let of_class =
                shape.open.iter().filter_map(|class| Some((*self.waiting[*class].first()?, *class)));
            heads.extend(of_class.map(Reverse));
        }
        heads.into()
    }

    /// Where the next of a class could start, whatever is kept for others.
    fn find(&mut self, class: usize) -> Option<Vec<Part>> {
        let shape = &mut self.shapes[self.shape_of[class]];
        if shape.is_full {
            return None;
        }
        let found = self.capacity.find(&self.demands[class], class, None);
        shape.is_full = found.is_none();
        found
    }

    fn start(&mut self, job: usize, class: usize, parts: Vec<Part>, now: u64) {
        self.capacity.take(&parts);
        self.parts.insert(job, parts);
        let key = (self.jobs[job].order, job);
        self.waiting[class].remove(&key);
        let shape = &mut self.shapes[self.shape_of[class]];
        shape.waiting.remove(&key);
        if self.waiting[class].is_empty() {
            shape.open.remove(&class);
        }
        self.started[job] = Some(now);
        self.ends.push(Reverse((now + self.jobs[job].seconds, job)));
        self.latest_ends.insert((self.latest_end(job), job));
    }

    /// The place of the first in this partition that waits: when it can start at the latest, and where. `None` where nobody
    /// knows, for who runs there has no limit.
    fn reserve(&mut self, partition: u32, now: u64) -> Option<Reservation> {
        // The first that cannot start by itself. Of one shape all can, or none can.
        let of_partition = self.shapes.iter().filter(|shape| shape.demand.partition == partition);
        let mut heads: Vec<OrderKey> =
            of_partition.filter_map(|shape| shape.waiting.first().copied()).collect();
        heads.sort_unstable();
        let class = heads
            .into_iter()
            .map(|(_, job)| self.jobs[job].class)
            .find(|class| self.find(*class).is_none())?;
        let demand = &self.demands[class];
        let mut then = self.capacity.clone();
        for (at, job) in &self.latest_ends {
            if *at == u64::MAX {
                return None;
            }
            let parts = &self.parts[job];
            then.give_back(parts);
            // Nothing else has changed.
            if !then.has_met(demand, parts) {
                continue;
            }
            let Some(parts) = then.find(demand, class, None) else { continue };
            then.take(&parts);
            return Some(Reservation::new((*at).max(now), &parts, &then));
        }
        None
    }
}

/// What whoever overtakes must not touch.
struct Limits<'l> {
    kept: &'l BTreeMap<u32, Option<Reservation>>,
    /// When he ends at the latest.
    ends_at: Option<u64>,
}

impl Limits<'_> {
    /// Whether so much of a node may be taken.
    fn allows(&self, node: usize, demand: &Demand) -> bool {
        self.kept
            .values()
            .flatten()
            .all(|kept| self.ends_at.is_some_and(|ends_at| ends_at <= kept.at) || kept.leaves(node, demand))
    }
}
