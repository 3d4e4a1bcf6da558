//! A full queue of jobs of 1, 2, 4 and 2 x 4 devices, none of which shares, planned as it comes and served by plain Slurm's rule, both in
//! virtual time: whoever asks for whole devices is to see no difference. On real Slurm it is `tests/bench queue-mixed`.

#![expect(clippy::cast_precision_loss, reason = "some hundred jobs of some hours")]

use super::{held, on};
use crate::model::Contention;
use crate::planner::plan;
use crate::policy::Policy;
use crate::testing::{self, NOW, device, view};
use crate::view::{DeviceView, WaitingJob};
use pillion_core::device::Mechanism::Mps;
use pillion_core::{UnixTime, WorkloadKey};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

const NODES: usize = 2;
const DEVICES_PER_NODE: usize = 8;
const QUEUES: u64 = 12;
const JOBS: u32 = 40;
/// Devices of a node, and nodes; and how often of ten.
const SHAPES: [(usize, usize, u32); 4] = [(1, 1, 5), (2, 1, 3), (4, 1, 1), (4, 2, 1)];
/// What a queue asks for, of what the devices can do while it comes.
const LOAD: f64 = 1.05;
/// How often Slurm looks past the first that waits; the default of `bf_interval`.
const BACKFILL_SECONDS: f64 = 30.0;

/// Times in seconds from the beginning of the queue.
#[derive(Debug, Clone, Copy)]
struct Job {
    id: u32,
    device_count: usize,
    node_count: usize,
    submitted_at: f64,
    run_seconds: f64,
    limit_seconds: u64,
}

/// How long jobs run, and their limits.
#[derive(Clone)]
struct Span {
    run_seconds: std::ops::Range<f64>,
    limit_seconds: std::ops::Range<u64>,
}

fn queue(span: &Span, seed: u64) -> Vec<Job> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let devices_mean =
        SHAPES.iter().map(|(count, nodes, often)| (count * nodes) as f64 * f64::from(*often) / 10.0);
    let seconds_mean = f64::midpoint(span.run_seconds.start, span.run_seconds.end);
    let pause_mean = devices_mean.sum::<f64>() * seconds_mean / (NODES * DEVICES_PER_NODE) as f64 / LOAD;
    let mut submitted_at = 0.0;
    let mut draw = |id| {
        let mut point = chance.random_range(0..10);
        let is_it = |(_, _, often): &&(usize, usize, u32)| {
            let is_it = point < *often;
            point = point.saturating_sub(*often);
            is_it
        };
        let (device_count, node_count, _) = SHAPES.iter().find(is_it).unwrap_or(&SHAPES[0]);
        submitted_at += chance.random_range(0.0..2.0 * pause_mean);
        Job {
            id,
            device_count: *device_count,
            node_count: *node_count,
            submitted_at,
            run_seconds: chance.random_range(span.run_seconds.clone()),
            limit_seconds: chance.random_range(span.limit_seconds.clone()),
        }
    };
    (1..=JOBS).map(&mut draw).collect()
}

/// What serves a queue.
trait Server {
    /// Takes back what jobs hold that are over, and starts others, each with what it holds.
    fn look(&mut self, now: f64, waiting: &[Job]) -> Vec<u32>;
    /// When somebody who runs is over next, or it looks again by itself.
    fn next_at(&self) -> f64;
}

/// How long each job of a queue waits.
fn waits(queue: &[Job], server: &mut impl Server) -> Vec<f64> {
    let mut coming = queue.iter().peekable();
    let mut waiting: Vec<Job> = Vec::new();
    let mut waits = vec![f64::NAN; queue.len()];
    while coming.peek().is_some() || !waiting.is_empty() {
        let next_at = coming.peek().map_or(f64::INFINITY, |job| job.submitted_at);
        let now = next_at.min(server.next_at());
        assert!(now.is_finite(), "nobody runs, and {} wait", waiting.len());
        while let Some(job) = coming.next_if(|job| job.submitted_at <= now) {
            waiting.push(*job);
        }
        for started in server.look(now, &waiting) {
            let place = waiting.iter().position(|job| job.id == started).expect("it waits");
            let job = waiting.remove(place);
            waits[job.id as usize - 1] = now - job.submitted_at;
        }
    }
    waits
}

/// Somebody who runs on a device.
#[derive(Clone, Copy)]
struct Holder {
    id: u32,
    ends_at: f64,
    limit_at: f64,
}

/// The planner, and a Slurm that does at once what it says.
#[derive(Default)]
struct Planned {
    /// Whether these are jobs that did not ask for co-location.
    are_plain: bool,
    holders: [[Option<Holder>; DEVICES_PER_NODE]; NODES],
}

fn at(seconds: f64) -> UnixTime {
    UnixTime::from_epoch(NOW) + Duration::from_secs_f64(seconds)
}

fn as_waiting(job: &Job, is_plain: bool) -> WaitingJob {
    WaitingJob {
        is_plain,
        device_count: u8::try_from(job.device_count).unwrap(),
        node_count: u16::try_from(job.node_count).unwrap(),
        // Nobody has seen it before, so it is alone.
        workload: WorkloadKey::new(format!("new-{}", job.id)),
        cpus: 1,
        time_limit_seconds: Some(job.limit_seconds),
        ..testing::job(job.id, "light")
    }
}

impl Planned {
    fn device(&self, node: usize, index: usize, now: f64) -> DeviceView {
        let (node_name, gres_type) = (format!("n{node}"), format!("g{index}"));
        match self.holders[node][index] {
            None => on(&node_name, device(&gres_type, Mps)),
            Some(holder) => {
                let mut device = held(&node_name, &gres_type, 10_000 + holder.id, 0);
                device.tenants[0].time_limit_at = Some(at(holder.limit_at.max(now)));
                device.tenants[0].group = None;
                device
            }
        }
    }

    fn give(&mut self, job: &Job, now: f64, node: usize, gres_types: &pillion_core::GresTypes) {
        for gres_type in gres_types {
            let spot = &mut self.holders[node][place(gres_type.as_str())];
            let (ends_at, limit_at) = (now + job.run_seconds, now + job.limit_seconds as f64);
            assert!(spot.replace(Holder { id: job.id, ends_at, limit_at }).is_none(), "{gres_type} is taken");
        }
    }
}

/// `n1`, `g5`.
fn place(name: &str) -> usize {
    name[1..].parse().unwrap()
}

impl Server for Planned {
    fn look(&mut self, now: f64, waiting: &[Job]) -> Vec<u32> {
        for spot in self.holders.iter_mut().flatten() {
            *spot = spot.filter(|holder| holder.ends_at > now);
        }
        let all = (0..NODES).flat_map(|node| (0..DEVICES_PER_NODE).map(move |index| (node, index)));
        let devices = all.map(|(node, index)| self.device(node, index, now)).collect();
        let mut view = view(devices, waiting.iter().map(|job| as_waiting(job, self.are_plain)).collect());
        view.taken_at = at(now);
        let plan = plan(&view, &Contention, &Policy::default());
        let find = |id: u32| waiting.iter().find(|job| job.id == id).expect("it waits");
        let mut started = Vec::new();
        for pairing in &plan.pairings {
            assert_eq!(pairing.members.len(), 1, "nobody is known, so nobody shares");
            let job = find(pairing.members[0].start.job_id.id);
            self.give(job, now, place(pairing.node.as_str()), &pairing.gres_types);
            started.push(job.id);
        }
        for one in &plan.let_go {
            let job = find(one.start.job_id.id);
            for node in 0..job.node_count {
                self.give(job, now, node, one.gres_types.as_ref().expect("it has several of each"));
            }
            started.push(job.id);
        }
        started
    }

    fn next_at(&self) -> f64 {
        self.holders.iter().flatten().flatten().map(|holder| holder.ends_at).fold(f64::INFINITY, f64::min)
    }
}

/// Slurm: in the order of the queue until one finds no room; and every now and then past it, where that one's nodes are not touched
/// when it would start by time limits.
#[derive(Default)]
struct Plain {
    runs: Vec<Run>,
    looks_past_at: f64,
    somebody_waits: bool,
}

#[derive(Clone, Copy)]
struct Run {
    ends_at: f64,
    limit_at: f64,
    takes: [usize; NODES],
}

/// What a job takes of each node; `None`: there is no room. On the fuller node, if it is to be on one.
fn room(job: &Job, free: [usize; NODES]) -> Option<[usize; NODES]> {
    let mut nodes: Vec<usize> = (0..NODES).filter(|node| free[*node] >= job.device_count).collect();
    nodes.sort_by_key(|node| free[*node]);
    nodes.truncate(job.node_count);
    let mut takes = [0; NODES];
    for node in &nodes {
        takes[*node] = job.device_count;
    }
    (nodes.len() == job.node_count).then_some(takes)
}

impl Plain {
    fn free(&self) -> [usize; NODES] {
        let mut free = [DEVICES_PER_NODE; NODES];
        for run in &self.runs {
            (0..NODES).for_each(|node| free[node] -= run.takes[node]);
        }
        free
    }

    fn start(&mut self, job: &Job, now: f64, takes: [usize; NODES]) {
        let (ends_at, limit_at) = (now + job.run_seconds, now + job.limit_seconds as f64);
        self.runs.push(Run { ends_at, limit_at, takes });
    }

    /// When there is room for it by time limits, and where.
    fn reserved(&self, job: &Job, now: f64) -> Option<(f64, [usize; NODES])> {
        let mut runs = self.runs.clone();
        runs.sort_by(|a, b| a.limit_at.total_cmp(&b.limit_at));
        let mut free = self.free();
        let mut when = now;
        let mut ends = runs.into_iter();
        loop {
            if let Some(takes) = room(job, free) {
                return Some((when, takes));
            }
            let run = ends.next()?;
            when = run.limit_at;
            (0..NODES).for_each(|node| free[node] += run.takes[node]);
        }
    }

    fn look_past(&mut self, now: f64, waiting: &[&Job]) -> Vec<u32> {
        let mut started = Vec::new();
        let mut reserved: Vec<(f64, [usize; NODES])> = Vec::new();
        for job in waiting {
            let mut free = self.free();
            for (when, takes) in &reserved {
                let is_in_time = now + job.limit_seconds as f64 <= *when;
                (0..NODES).filter(|node| takes[*node] > 0 && !is_in_time).for_each(|node| free[node] = 0);
            }
            if let Some(takes) = room(job, free) {
                self.start(job, now, takes);
                started.push(job.id);
            } else {
                reserved.extend(self.reserved(job, now));
            }
        }
        started
    }
}

impl Server for Plain {
    fn look(&mut self, now: f64, waiting: &[Job]) -> Vec<u32> {
        self.runs.retain(|run| run.ends_at > now);
        let mut started = Vec::new();
        for job in waiting {
            let Some(takes) = room(job, self.free()) else { break };
            self.start(job, now, takes);
            started.push(job.id);
        }
        if now >= self.looks_past_at {
            let left: Vec<&Job> = waiting.iter().filter(|job| !started.contains(&job.id)).collect();
            started.extend(self.look_past(now, &left));
            self.looks_past_at = now + BACKFILL_SECONDS;
        }
        self.somebody_waits = started.len() < waiting.len();
        started
    }

    fn next_at(&self) -> f64 {
        let ends = self.runs.iter().map(|run| run.ends_at).fold(f64::INFINITY, f64::min);
        if self.somebody_waits { ends.min(self.looks_past_at) } else { ends }
    }
}

/// Mean and 95th percentile.
fn of(mut waits: Vec<f64>) -> [f64; 2] {
    waits.sort_by(f64::total_cmp);
    [waits.iter().sum::<f64>() / waits.len() as f64, waits[waits.len() * 95 / 100]]
}

/// What each waits in plain Slurm and here, of twelve queues.
fn waits_of_both(span: &Span, are_plain: bool) -> Vec<(Job, [f64; 2])> {
    let mut both = Vec::new();
    for seed in 0..QUEUES {
        let jobs = queue(span, seed);
        let there = waits(&jobs, &mut Plain::default());
        let here = waits(&jobs, &mut Planned { are_plain, ..Planned::default() });
        both.extend(jobs.iter().zip(there.into_iter().zip(here)).map(|(job, (a, b))| (*job, [a, b])));
    }
    both
}

/// Means and 95th percentiles of the waits here, of those in plain Slurm, of jobs of these shapes (devices of a node, and nodes).
fn ratios(both: &[(Job, [f64; 2])], shapes: &[(usize, usize, u32)]) -> [f64; 2] {
    let is_it = |job: &Job| {
        shapes.iter().any(|(devices, nodes, _)| (*devices, *nodes) == (job.device_count, job.node_count))
    };
    let [there, here] = [0, 1].map(|side: usize| {
        of(both.iter().filter(|(job, _)| is_it(job)).map(|(_, waits)| waits[side]).collect())
    });
    [here[0] / there[0], here[1] / there[1]]
}

#[test]
fn nobody_who_asks_for_whole_devices_waits_longer_than_in_plain_slurm() {
    let minutes = |run_seconds, from: u64, to: u64| Span { run_seconds, limit_seconds: from * 60..to * 60 };
    for span in [minutes(3.0..20.0, 3, 8), minutes(30.0..120.0, 3, 8), minutes(600.0..7200.0, 240, 1440)] {
        for are_plain in [false, true] {
            let both = waits_of_both(&span, are_plain);
            let all = ratios(&both, &SHAPES);
            println!("runs of {:?} s, plain: {are_plain}, all {all:.2?}", span.run_seconds);
            assert!(all.iter().all(|ratio| *ratio <= 1.02), "{all:?}");
            for shape in SHAPES {
                let (own, (device_count, node_count, _)) = (ratios(&both, &[shape]), shape);
                println!("  {node_count} x {device_count}: {own:.2?}");
                // None of them pays much for it that the others wait less; a job on two nodes waits for four of the same names on each.
                assert!(own[0] <= 1.4 && own[1] <= 1.25, "{node_count} x {device_count}: {own:?}");
            }
        }
    }
}
