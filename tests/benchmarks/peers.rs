//! The same seeded queue beside what a site would do today: whole GPUs, Slurm's own shards without a brain, Pillion from an
//! empty history, and Pillion once it knows. Real Slurm, the same simulated devices for each.

use crate::bound::{bound, sentence};
use crate::queue::{clock, open_count};
use anyhow::Context as _;
use pillion_core::device::Mechanism;
use pillion_device::simulated::Simulated;
use pillion_tests::cluster::spec::{JobSubmit, PoolNode, SharingPolicy};
use pillion_tests::peers::{
    DEVICE_COUNT, DEVICE_MODEL, DEVICES_PER_NODE, Figures, JobEnd, NODES, Order, PROMISE_RATIO, SEED, Way,
    draw, figures, named, picture, table,
};
use pillion_tests::wait::now;
use pillion_tests::{Cluster, ClusterSpec};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much faster simulated work runs than the clock.
const TIME_SCALE: f64 = 60.0;
/// The environment's name of the file for the picture.
const PICTURE: &str = "PILLION_PICTURE";
/// How often devices are looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// How often the queue is looked at for its end.
const QUEUE_PERIOD: Duration = Duration::from_secs(2);

fn spec(way: Way) -> ClusterSpec {
    let is_ours = way == Way::Pillion;
    ClusterSpec {
        pool_nodes: NODES.map(|name| PoolNode::new(name, DEVICE_MODEL, Mechanism::Mps)).into(),
        gpus_per_node: DEVICES_PER_NODE,
        whole_gpu_node_count: 0,
        job_submit: if is_ours { JobSubmit::Pillion } else { JobSubmit::Absent },
        spank: is_ours,
        hooks: is_ours,
        policy: SharingPolicy::Any,
        time_scale: TIME_SCALE,
        ..ClusterSpec::default()
    }
}

/// What the devices of a cluster did while somebody looked.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// With a process, in seconds of the clock.
    held_seconds: f64,
    /// By their meters; at the clock's pace.
    energy_joules: f64,
}

fn sockets(root: &Path) -> Vec<Simulated> {
    NODES.iter().map(|node| Simulated::new(root.join("run").join(node).join("devices.sock"))).collect()
}

fn energy_joules(nodes: &mut [Simulated]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for node in nodes {
        for index in 0..DEVICES_PER_NODE {
            sum += node.counters(index)?.totals.energy_joules;
        }
    }
    Ok(sum)
}

/// Looks at the devices until `is_over`.
fn look(root: &Path, is_over: &AtomicBool) -> anyhow::Result<Used> {
    let mut nodes = sockets(root);
    let before = energy_joules(&mut nodes)?;
    let (mut held_seconds, mut last) = (0.0, now());
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_PERIOD);
        let mut held = 0_u32;
        for node in &mut nodes {
            for index in 0..DEVICES_PER_NODE {
                held += u32::from(!node.tenants(index)?.is_empty());
            }
        }
        let here = now();
        held_seconds += f64::from(held) * (here - last).as_secs_f64();
        last = here;
    }
    Ok(Used { held_seconds, energy_joules: energy_joules(&mut nodes)? - before })
}

/// One job as it was submitted: when, and where it says what came of it.
struct Submitted {
    at_seconds: f64,
    output: PathBuf,
}

fn submit(
    cluster: &Cluster,
    way: Way,
    order: &Order,
    number: usize,
    again: u32,
) -> anyhow::Result<Submitted> {
    let output = cluster.home(order.user).join(format!("peers-{again}-{number}.out"));
    let script = format!(
        "#!/bin/bash\npillion-load '{name}'{options} --seconds {work}\necho \"ended $? $EPOCHREALTIME\"\n",
        name = order.load.split(" --").next().unwrap_or_default(),
        options = order.load.find(" --").map_or("", |at| &order.load[at..]),
        work = order.work_seconds,
    );
    let colocate = format!("--colocate=profile={}", order.workload);
    let written = format!("--output={}", output.display());
    let asked: &[&str] = match way {
        Way::Whole => &["-p", "shared", "--gres=shard:100"],
        Way::Shards => &["-p", "shared", "--gres=shard:50"],
        Way::Pillion => &[&colocate, "--gres=gpu:1"],
    };
    let at_seconds = clock();
    let arguments = [asked, &["-c1", "--mem=100", "-t10", &written]].concat();
    cluster.submit_as(order.user, &script, &arguments)?;
    Ok(Submitted { at_seconds, output })
}

/// What a job wrote, if it ended by itself: its end by the clock, and how much longer it worked than alone.
fn told(text: &str) -> Option<(f64, f64)> {
    let outcome = text.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())?;
    let speed = outcome.get("speed_fraction_mean")?.as_f64()?;
    let (status, at) = text.lines().find_map(|line| line.strip_prefix("ended "))?.split_once(' ')?;
    Some((at.parse().ok()?, 1.0 / speed)).filter(|_| status == "0")
}

/// Runs the queue to its end.
fn run_queue(cluster: &Cluster, way: Way, orders: &[Order], again: u32) -> anyhow::Result<Figures> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(cluster.root(), &is_over));
        let done = submit_all(cluster, way, orders, again);
        is_over.store(true, Ordering::Relaxed);
        let used = looking.join().expect("it does not panic")?;
        let submitted = done?;
        let begun = submitted.first().map_or(0.0, |job| job.at_seconds);
        let mut last = begun;
        let jobs: Vec<Option<JobEnd>> = submitted
            .iter()
            .map(|job| {
                let text = std::fs::read_to_string(&job.output).unwrap_or_default();
                let (ended, slowdown_ratio) = told(&text)?;
                last = last.max(ended);
                let turnaround_seconds = (ended - job.at_seconds) * TIME_SCALE;
                Some(JobEnd { turnaround_seconds, slowdown_ratio })
            })
            .collect();
        let scaled = |seconds: f64| seconds * TIME_SCALE;
        Ok(figures(
            &jobs,
            PROMISE_RATIO,
            scaled(last - begun),
            scaled(used.held_seconds),
            scaled(used.energy_joules),
        ))
    })
}

/// Each job at its moment; returns when none is in the queue any more.
fn submit_all(cluster: &Cluster, way: Way, orders: &[Order], again: u32) -> anyhow::Result<Vec<Submitted>> {
    let begun = now();
    let mut submitted = Vec::with_capacity(orders.len());
    for (number, order) in orders.iter().enumerate() {
        let due = Duration::from_secs_f64(order.at_seconds / TIME_SCALE);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        submitted.push(submit(cluster, way, order, number, again).with_context(|| format!("job {number}"))?);
    }
    while open_count(cluster)? > 0 {
        std::thread::sleep(QUEUE_PERIOD);
    }
    Ok(submitted)
}

/// What the queue would allow at most.
pub(crate) fn print_bound(jobs: usize) -> anyhow::Result<()> {
    let found = bound(&draw(SEED, jobs, DEVICE_COUNT, 0), DEVICE_MODEL, PROMISE_RATIO)?;
    println!("{}", sentence(&found));
    Ok(())
}

/// Runs the topic; `jobs` is the length of the queue.
pub(crate) fn run(jobs: usize) -> anyhow::Result<()> {
    let start_plain = |way| -> anyhow::Result<Cluster> {
        let mut cluster = Cluster::start(spec(way))?;
        for node in NODES {
            cluster.start_devices(node)?;
        }
        Ok(cluster)
    };
    let (whole, shards) = (start_plain(Way::Whole)?, start_plain(Way::Shards)?);
    let mut ours = Cluster::start(spec(Way::Pillion))?;
    ours.start_pillion()?;
    let first = draw(SEED, jobs, DEVICE_COUNT, 0);
    // All at the same time, so that whatever else the machine does slows all of them.
    let [whole, shards, empty] = std::thread::scope(|scope| {
        [(&whole, Way::Whole), (&shards, Way::Shards), (&ours, Way::Pillion)]
            .map(|(cluster, way)| {
                let orders = &first;
                scope.spawn(move || run_queue(cluster, way, orders, 0))
            })
            .map(|running| running.join().expect("it does not panic"))
    });
    let warm = run_queue(&ours, Way::Pillion, &draw(SEED, jobs, DEVICE_COUNT, 1), 1)?;
    let ways = named(whole?, shards?, empty?, warm);
    let title = format!("{jobs} jobs on {DEVICE_COUNT} devices, nobody slower than {PROMISE_RATIO} times");
    println!("### {title}\n\n{}", table(&ways));
    print_bound(jobs)?;
    // For who wants to see it: the table is what counts.
    if let Some(file) = std::env::var_os(PICTURE) {
        let drawn = picture(&title, &ways, "Pillion").map_err(anyhow::Error::msg)?;
        std::fs::write(&file, drawn).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}
