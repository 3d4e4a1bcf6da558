//! The same queue of short jobs beside plain Slurm: how many are launched while a backlog lasts, how long jobs wait while
//! devices for all of them stand idle, how long they wait where some want several GPUs, and what jobs that asked for nothing pay
//! for a scheduler of ours that lives, is frozen or is dead.

use crate::stats::{Chance, Variant, quantile, table};
use anyhow::{Context as _, ensure};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{JobSubmit, PoolNode};
use pillion_tests::wait::{Look, now, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_mins(20);
/// The names of ours among a cluster's daemons.
const SCHEDULER: &str = "pillion-scheduler";
const AGENTS: [&str; 2] = ["pillion-agent-n1", "pillion-agent-n2"];
const NODES: [&str; 2] = ["n1", "n2"];
const DEVICES_PER_NODE: u32 = 8;
const DEVICE_COUNT: usize = NODES.len() * DEVICES_PER_NODE as usize;
/// Backlogs on a quiet machine, and as many on a busy one in between.
const BACKLOGS: usize = 3;
/// Jobs of one burst, on twice as many idle devices.
const BURST: usize = 8;
/// GPUs of each node that the jobs of a mixed queue ask for, of how many nodes, and how often each: of ten.
const SHAPES: [(Shape, u32); 4] = [
    (Shape { width: 1, nodes: 1 }, 5),
    (Shape { width: 2, nodes: 1 }, 3),
    (Shape { width: 4, nodes: 1 }, 1),
    (Shape { width: 4, nodes: 2 }, 1),
];
/// A mixed queue asks for so much of what the devices can do while it is submitted: it builds up, and wide jobs have to wait for devices
/// side by side.
const LOAD: f64 = 1.05;
/// How long its jobs run, in seconds, and those of the long queue.
const SECONDS: (f64, f64) = (3.0, 20.0);
const MINUTES: (f64, f64) = (30.0, 120.0);
/// Mixed queues of jobs of seconds, each drawn anew.
const MIXED_QUEUES: u64 = 3;
/// Plain jobs of one round, and on how many CPUs at once.
const PLAIN_COUNT: usize = 60;

fn spec(is_ours: bool) -> ClusterSpec {
    ClusterSpec {
        pool_nodes: NODES.map(|name| PoolNode::new(name, "h200", Mechanism::Mps)).into(),
        whole_gpu_node_count: if is_ours { 1 } else { NODES.len() },
        gpus_per_node: DEVICES_PER_NODE,
        job_submit: if is_ours { JobSubmit::Pillion } else { JobSubmit::Absent },
        spank: is_ours,
        hooks: is_ours,
        ..ClusterSpec::default()
    }
}

/// One side: where jobs go, and what they ask for there.
struct Side<'a> {
    cluster: &'a Cluster,
    is_ours: bool,
}

impl Side<'_> {
    /// A job that says when it begins, and runs so long. None was seen before, so each has a device alone, here as there.
    fn submit(&self, number: usize, seconds: f64) -> anyhow::Result<SlurmJobId> {
        let script = format!("echo $EPOCHREALTIME\nsleep {seconds:.2}");
        let profile = format!("--colocate=profile=first-{number}");
        let ours = [profile.as_str(), "--gres=gpu:1"];
        let plain = ["-p", "shared", "--gres=shard:100"];
        let asked: &[&str] = if self.is_ours { &ours } else { &plain };
        let job =
            self.cluster.submit_as("alice", &script, &[asked, &["-c1", "--mem=100", "-t5"]].concat())?;
        Ok(job)
    }

    /// A job of so many GPUs of a node, each whole: where nobody shares, by `gpu`, as a user writes it without us.
    fn submit_wide(&self, number: u64, job: Mixed) -> anyhow::Result<SlurmJobId> {
        let script = format!("echo $EPOCHREALTIME\nsleep {:.2}", job.seconds);
        let profile = format!("--colocate=profile=mixed-{number}");
        let (gres, limit) = (format!("--gres=gpu:{}", job.shape.width), format!("-t{}", job.limit_minutes));
        let whose = if self.is_ours { profile.as_str() } else { "--partition=gpu" };
        let nodes = format!("-N{}", job.shape.nodes);
        let asked = [whose, &gres, &limit, &nodes, "-c1", "--mem=100"];
        Ok(self.cluster.submit_as("alice", &script, &asked)?)
    }

    /// Waits for the ends of these jobs, and gives the moments at which they began.
    fn begun(&self, jobs: &[SlurmJobId]) -> anyhow::Result<Vec<f64>> {
        wait_for("the end of the queue", LONG, || {
            let open = open_count(self.cluster)?;
            Ok(if open == 0 { Look::Ready(()) } else { Look::NotYet(format!("{open} jobs")) })
        })?;
        let began = |job: &SlurmJobId| {
            let printed = self.cluster.finished_output(*job, LONG)?;
            printed.trim().parse().with_context(|| format!("job {job} printed '{printed}'"))
        };
        jobs.iter().map(began).collect()
    }
}

/// Jobs that are not over; Slurm lists those that are for some minutes more.
pub(crate) fn open_count(cluster: &Cluster) -> Result<usize, pillion_tests::HarnessError> {
    let states = cluster.squeue("%T")?;
    Ok(states
        .iter()
        .filter(|state| !matches!(state.as_str(), "COMPLETED" | "FAILED" | "CANCELLED" | "TIMEOUT"))
        .count())
}

pub(crate) fn clock() -> f64 {
    pillion_core::Clock::now(&pillion_core::SystemClock).seconds()
}

/// All at once: how many are launched a second from the first submission until the last one began.
fn backlog(side: &Side<'_>, jobs: usize, round: usize) -> anyhow::Result<f64> {
    let mut chance = SmallRng::seed_from_u64(14 + round as u64);
    let opened = clock();
    let ids = (0..jobs)
        .map(|number| side.submit(round * jobs + number, chance.random_range(0.5..7.0)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let last = side.begun(&ids)?.into_iter().fold(opened, f64::max);
    #[expect(clippy::cast_precision_loss, reason = "some hundred jobs")]
    let count = jobs as f64;
    Ok(count / (last - opened))
}

/// Bursts onto a pool with twice as many idle devices: how long each job waits.
fn bursts(side: &Side<'_>, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut chance = SmallRng::seed_from_u64(15);
    let mut waits = Vec::new();
    for burst in 0..count {
        let mut submitted = Vec::new();
        for place in 0..BURST {
            let at = clock();
            let number = 1_000_000 + burst * BURST + place;
            submitted.push((side.submit(number, chance.random_range(0.5..3.0))?, at));
        }
        let ids: Vec<SlurmJobId> = submitted.iter().map(|(job, _)| *job).collect();
        let begun = side.begun(&ids)?;
        waits.extend(begun.iter().zip(&submitted).map(|(begun, (_, at))| begun - at));
    }
    Ok(waits)
}

/// How many GPUs of each of how many nodes a job asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    width: u32,
    nodes: u32,
}

impl Shape {
    fn devices(self) -> u32 {
        self.width * self.nodes
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nodes > 1 {
            write!(f, "{} x {}", self.nodes, self.width)
        } else {
            write!(f, "{}", self.width)
        }
    }
}

/// A job of a mixed queue.
#[derive(Clone, Copy)]
struct Mixed {
    shape: Shape,
    seconds: f64,
    limit_minutes: u32,
    /// After the one before it.
    pause: Duration,
}

/// A queue of jobs that run from `seconds.0` to `seconds.1`.
fn mixed_queue(count: usize, seconds: (f64, f64), seed: u64) -> Vec<Mixed> {
    let mut chance = SmallRng::seed_from_u64(16 + seed);
    let devices_mean =
        SHAPES.iter().map(|(shape, often)| f64::from(shape.devices() * often) / 10.0).sum::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let pause_mean = devices_mean * f64::midpoint(seconds.0, seconds.1) / DEVICE_COUNT as f64 / LOAD;
    let mut draw = || {
        let mut point = chance.random_range(0..10);
        let drawn = SHAPES.iter().find(|(_, often)| {
            let is_it = point < *often;
            point = point.saturating_sub(*often);
            is_it
        });
        let run_seconds = chance.random_range(seconds.0..seconds.1);
        Mixed {
            shape: drawn.map_or(SHAPES[0].0, |(shape, _)| *shape),
            seconds: run_seconds,
            limit_minutes: chance.random_range(3..8),
            pause: Duration::from_secs_f64(chance.random_range(0.0..2.0 * pause_mean)),
        }
    };
    (0..count).map(|_| draw()).collect()
}

/// How long each job waits, by what it asks for.
fn mixed(side: &Side<'_>, jobs: &[Mixed], first: u64) -> anyhow::Result<Vec<(Shape, f64)>> {
    let mut submitted = Vec::new();
    for (number, job) in (first..).zip(jobs) {
        std::thread::sleep(job.pause);
        let at = clock();
        submitted.push((side.submit_wide(number, *job)?, at));
    }
    let ids: Vec<SlurmJobId> = submitted.iter().map(|(job, _)| *job).collect();
    let begun = side.begun(&ids)?;
    let waits = begun.iter().zip(&submitted).map(|(begun, (_, at))| begun - at);
    Ok(jobs.iter().map(|job| job.shape).zip(waits).collect())
}

/// `queues`: how many, each drawn from a seed of its own.
fn mixed_queues(
    sides: &(Side<'_>, Side<'_>),
    queues: std::ops::Range<u64>,
    count: usize,
    seconds: (f64, f64),
) -> anyhow::Result<()> {
    let (mut there, mut here) = (Vec::new(), Vec::new());
    println!(
        "### Mixed queues ({}) of {count} jobs of {} to {} s on {DEVICE_COUNT} devices, from sbatch to the first instruction\n",
        queues.end - queues.start,
        seconds.0,
        seconds.1
    );
    for seed in queues {
        let jobs = mixed_queue(count, seconds, seed);
        let both = beside(&sides.0, &sides.1, |side| mixed(side, &jobs, seed * 10_000))?;
        there.extend(both.0);
        here.extend(both.1);
    }
    println!(
        "| GPUs | n | plain Slurm, mean s | p95 s | with Pillion, mean s | p95 s | ratio of means | of p95 |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for shape in SHAPES.iter().map(|(shape, _)| Some(*shape)).chain([None]) {
        let [mut plain, mut ours] = [waits_of(&there, shape), waits_of(&here, shape)];
        #[expect(clippy::cast_precision_loss, reason = "some hundred jobs")]
        let [a, b] = [&plain, &ours].map(|waits| waits.iter().sum::<f64>() / waits.len() as f64);
        let [c, d] = [quantile(&mut plain, 0.95), quantile(&mut ours, 0.95)];
        let name = shape.map_or_else(|| "all".to_owned(), |shape| shape.to_string());
        println!(
            "| {name} | {} | {a:.2} | {c:.2} | {b:.2} | {d:.2} | {:.3} | {:.3} |",
            plain.len(),
            b / a,
            d / c
        );
    }
    println!();
    Ok(())
}

fn waits_of(waits: &[(Shape, f64)], shape: Option<Shape>) -> Vec<f64> {
    let own = waits.iter().filter(|(own, _)| shape.is_none_or(|shape| shape == *own));
    own.map(|(_, wait)| *wait).collect()
}

/// Both sides at the same time, so that whatever else the machine does slows both.
fn beside<T: Send>(
    plain: &Side<'_>,
    ours: &Side<'_>,
    measure: impl Fn(&Side<'_>) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<(T, T)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| measure(plain));
        let here = measure(ours);
        Ok((other.join().expect("it does not panic")?, here?))
    })
}

/// Plain jobs on nodes outside the pool, one after the other: seconds for all of them.
fn plain_jobs(cluster: &Cluster) -> anyhow::Result<f64> {
    let begun = now();
    for _ in 0..PLAIN_COUNT {
        cluster.submit_as("bob", "true", &["-p", "gpu", "-c1", "--mem=100", "-t5"])?;
    }
    wait_for("the end of the plain jobs", LONG, || {
        let open = open_count(cluster)?;
        Ok(if open == 0 { Look::Ready(()) } else { Look::NotYet(format!("{open} jobs")) })
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// What of ours is how while plain jobs run elsewhere.
const STATES: [&str; 6] = [
    "plain Slurm, without us",
    "every part of ours alive",
    "the scheduler frozen",
    "the scheduler dead",
    "the agents frozen",
    "scheduler and agents dead",
];

/// Brings our daemons from life into that state.
fn bring_down(cluster: &mut Cluster, state: usize) -> anyhow::Result<()> {
    match state {
        2 => cluster.daemon(SCHEDULER)?.signal(Signal::STOP),
        3 => cluster.kill_scheduler(Signal::KILL)?,
        4 => AGENTS
            .iter()
            .try_for_each(|agent| cluster.daemon(agent).map(|daemon| daemon.signal(Signal::STOP)))?,
        5 => {
            cluster.kill_scheduler(Signal::KILL)?;
            NODES.iter().try_for_each(|node| cluster.kill_agent(node, Signal::KILL))?;
        }
        _ => {}
    }
    Ok(())
}

/// And back to life.
fn bring_back(cluster: &mut Cluster, state: usize) -> anyhow::Result<()> {
    match state {
        2 => cluster.daemon(SCHEDULER)?.signal(Signal::CONT),
        3 => cluster.start_scheduler()?,
        4 => AGENTS
            .iter()
            .try_for_each(|agent| cluster.daemon(agent).map(|daemon| daemon.signal(Signal::CONT)))?,
        5 => {
            cluster.start_scheduler()?;
            NODES.iter().try_for_each(|node| cluster.start_agent(node))?;
        }
        _ => {}
    }
    Ok(())
}

fn elsewhere(plain: &Cluster, ours: &mut Cluster, rounds: usize) -> anyhow::Result<()> {
    let mut variants = STATES.map(Variant::new);
    let mut chance = Chance::new();
    for _ in 0..rounds {
        for state in chance.order(STATES.len()) {
            bring_down(ours, state)?;
            let seconds = plain_jobs(if state == 0 { plain } else { ours })?;
            bring_back(ours, state)?;
            variants[state].push(seconds);
        }
    }
    println!(
        "### {PLAIN_COUNT} plain jobs outside the pool, seconds for all of them\n\n{}",
        table(&variants)
    );
    Ok(())
}

/// Runs something while every core computes something else.
fn with_busy_cores<T>(work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs the topic; `rounds` is the number of jobs in the backlog.
/// Plain Slurm, and the same with us.
fn clusters() -> anyhow::Result<(Cluster, Cluster)> {
    let mut plain = Cluster::start(spec(false))?;
    for node in plain.spec().node_names() {
        plain.start_devices(&node)?;
    }
    let mut ours = Cluster::start(spec(true))?;
    ours.start_pillion()?;
    Ok((plain, ours))
}

/// Mixed queues alone: of seconds, and one of a minute and more, where what a start costs is a smaller part.
pub(crate) fn run_mixed(rounds: usize) -> anyhow::Result<()> {
    let (plain, ours) = clusters()?;
    let sides = (Side { cluster: &plain, is_ours: false }, Side { cluster: &ours, is_ours: true });
    mixed_queues(&sides, 0..MIXED_QUEUES, rounds.div_ceil(3), SECONDS)?;
    mixed_queues(&sides, MIXED_QUEUES..MIXED_QUEUES + 1, rounds.div_ceil(3), MINUTES)
}

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    let (plain, mut ours) = clusters()?;
    let sides = (Side { cluster: &plain, is_ours: false }, Side { cluster: &ours, is_ours: true });
    println!("### A backlog of {rounds} jobs of 0.5 to 7 s on {DEVICE_COUNT} devices\n");
    println!("| machine | plain Slurm, launches a second | with Pillion | ratio |\n|---|---:|---:|---:|");
    for round in 0..BACKLOGS * 2 {
        let both = || beside(&sides.0, &sides.1, |side| backlog(side, rounds, round));
        let is_busy = round % 2 == 1;
        let (there, here) = if is_busy { with_busy_cores(both)? } else { both()? };
        ensure!(there > 0.0 && here > 0.0, "nothing was launched");
        let machine = if is_busy { "every core busy" } else { "quiet" };
        println!("| {machine} | {there:.3} | {here:.3} | {:.3} |", here / there);
    }
    println!();
    let (there, here) = beside(&sides.0, &sides.1, |side| bursts(side, rounds.div_ceil(20)))?;
    println!(
        "### Bursts of {BURST} jobs on {DEVICE_COUNT} idle devices, from sbatch to the first instruction\n"
    );
    println!("| | n | p50 s | p95 s | max s |\n|---|---:|---:|---:|---:|");
    for (name, mut waits) in [("plain Slurm", there), ("with Pillion", here)] {
        let [p50, p95, max] = [0.5, 0.95, 1.0].map(|fraction| quantile(&mut waits, fraction));
        println!("| {name} | {} | {p50:.2} | {p95:.2} | {max:.2} |", waits.len());
    }
    println!();
    mixed_queues(&sides, 0..MIXED_QUEUES, rounds.div_ceil(3), SECONDS)?;
    elsewhere(&plain, &mut ours, 3)
}
