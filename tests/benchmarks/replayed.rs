//! Jobs of a public trace through real Slurm on whole GPUs, sixty times as fast as they were, and `pillion replay` over what Slurm wrote
//! down of them: how far the waits of its queue without Pillion are from those that they had. Nothing of Pillion runs on the cluster.

use crate::queue::open_count;
use anyhow::{Context as _, ensure};
use pillion_tests::cluster::spec::JobSubmit;
use pillion_tests::wait::{Look, now, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How much faster arrivals and jobs are than they were.
const TIME_SCALE: f64 = 60.0;
/// Where in the trace it begins: what comes then is some hours more than the devices can do, and some hours less.
const FIRST: usize = 500;
/// Shorter jobs are left out, and longer ones cut: in seconds of the trace.
const SECONDS: std::ops::Range<f64> = 60.0..7200.0;
const NODE_COUNT: usize = 6;
const GPUS_PER_NODE: u32 = 8;
const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];
const LONG: Duration = Duration::from_mins(90);
const ACCOUNTS_TIME: Duration = Duration::from_mins(2);

/// A job of the trace, in seconds of the clock.
struct Job {
    after: Duration,
    seconds: f64,
    gpus: u32,
}

/// `count` jobs, whose clock begins with the first.
fn jobs(count: usize) -> anyhow::Result<Vec<Job>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/philly/all_vc_10k.csv");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let row = |line: &str| -> Option<(f64, f64, u32)> {
        let cells: Vec<&str> = line.split(',').collect();
        let (submit, seconds): (f64, f64) = (cells.get(1)?.parse().ok()?, cells.get(2)?.parse().ok()?);
        let gpus: u32 = cells.get(3)?.parse().ok()?;
        (seconds >= SECONDS.start && gpus > 0).then_some((submit, seconds, gpus))
    };
    let mut rows: Vec<_> = text.lines().skip(1).filter_map(row).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rows = rows.get(FIRST..FIRST + count).context("the trace has fewer jobs")?;
    let origin = rows.first().map_or(0.0, |row| row.0);
    let scaled = |(submit, seconds, gpus): &(f64, f64, u32)| Job {
        after: Duration::from_secs_f64((submit - origin) / TIME_SCALE),
        seconds: seconds.min(SECONDS.end) / TIME_SCALE,
        gpus: (*gpus).min(GPUS_PER_NODE),
    };
    Ok(rows.iter().map(scaled).collect())
}

/// Backfill counts in minutes where nobody says otherwise, which is an hour here.
fn spec() -> ClusterSpec {
    ClusterSpec {
        pool_nodes: Vec::new(),
        whole_gpu_node_count: NODE_COUNT,
        gpus_per_node: GPUS_PER_NODE,
        accounting: true,
        job_submit: JobSubmit::Absent,
        spank: false,
        hooks: false,
        slurm_conf_extra: vec![
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2,bf_resolution=1"
                .to_owned(),
        ],
        ..ClusterSpec::default()
    }
}

/// Submits each when it came; how late the latest was.
fn submit(cluster: &Cluster, jobs: &[Job]) -> anyhow::Result<Duration> {
    let begun = now();
    let mut late = Duration::ZERO;
    for (job, user) in jobs.iter().zip(USERS.iter().cycle()) {
        std::thread::sleep(job.after.saturating_sub(begun.elapsed()));
        late = late.max(begun.elapsed().saturating_sub(job.after));
        let script = format!("sleep {:.2}", job.seconds);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some minutes")]
        let limit = format!("-t{}", (job.seconds / 30.0).ceil() as u32 + 1);
        let (gres, cpus) = (format!("--gres=gpu:{}", job.gpus), format!("-c{}", job.gpus));
        cluster.submit_as(
            user,
            &script,
            &[&gres, &cpus, "--mem=100", "-N1", &limit, "--output=/dev/null"],
        )?;
    }
    Ok(late)
}

/// What Slurm's accounts say of all of them, once they do.
fn accounts(cluster: &Cluster, count: usize) -> anyhow::Result<String> {
    let command = cluster.pillion_as("root", &["replay", "--print-sacct"])?.stdout()?;
    let text = wait_for("the accounts of the last job", ACCOUNTS_TIME, || {
        let text = cluster.shell_as("root", &command)?.stdout()?;
        let over =
            text.lines().filter(|line| line.contains("\u{1f}COMPLETED\u{1f}") && !is_step(line)).count();
        Ok(if over >= count { Look::Ready(text) } else { Look::NotYet(format!("{over} of {count}")) })
    })?;
    Ok(text)
}

fn is_step(line: &str) -> bool {
    line.split('\u{1f}').next().is_some_and(|job| job.contains('.'))
}

fn replay(cluster: &Cluster, sacct: &str) -> anyhow::Result<Value> {
    let path = cluster.home("root").join("sacct.txt");
    std::fs::write(&path, sacct)?;
    let spec = cluster.spec();
    let shape = format!(
        "{NODE_COUNT}x{GPUS_PER_NODE}:a100:{}:{}",
        spec.cpus_per_node,
        spec.memory_mib_per_node / 1024
    );
    let path = path.display().to_string();
    Ok(cluster.pillion_json(&["replay", &path, "--shape", &shape, "--gpu-memory", "a100=80"])?)
}

/// Runs the topic with so many jobs.
pub(crate) fn run(count: usize) -> anyhow::Result<()> {
    let jobs = jobs(count)?;
    let cluster = Cluster::start(spec())?;
    let late = submit(&cluster, &jobs)?;
    wait_for("the end of the queue", LONG, || {
        let open = open_count(&cluster)?;
        Ok(if open == 0 { Look::Ready(()) } else { Look::NotYet(format!("{open} jobs")) })
    })?;
    let report = replay(&cluster, &accounts(&cluster, count)?)?;
    let (queue, input) = (&report["queue"], &report["input"]);
    ensure!(input["jobs"] == count, "not all were replayed: {input}");
    println!(
        "### {count} jobs of a trace through real Slurm on {} GPUs, {TIME_SCALE} times as fast; submitted {:.1} s late at most\n",
        NODE_COUNT * GPUS_PER_NODE as usize,
        late.as_secs_f64()
    );
    println!(
        "| wait | in real Slurm, s | simulated, s | simulated / real | asked |\n|---|---:|---:|---:|---|"
    );
    for (name, key) in [("median", "median_seconds"), ("95th percentile", "p95_seconds")] {
        let of = |whose: &str| queue[whose][key].as_f64().with_context(|| format!("no {whose} {key}"));
        let (real, simulated) = (of("history")?, of("simulated")?);
        println!("| {name} | {real:.1} | {simulated:.1} | {:.3} | 0.9 to 1.1 |", simulated / real);
    }
    println!();
    Ok(())
}
