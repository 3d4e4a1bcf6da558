//! What the agent costs its node: 8 devices with two tenants each that write counters, and a scheduler that listens.
//!
//! `cargo test --release -p pillion-agent --test agent -- --ignored --nocapture cost`

use crate::node::TestNode;
use crate::scheduler::{FakeScheduler, eventually};
use crate::{has_tenant, share, start};
use pillion_core::GresType;
use pillion_core::device::Mechanism;
use pillion_core::share::Share;
use std::time::Duration;

const MEASURED_SECONDS: u64 = 60;
const CPU_FRACTION_MAX: f64 = 0.01;
const RSS_BYTES_MAX: u64 = 30_000_000;

/// CPU time so far, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // USER_HZ, the same on every Linux that Slurm runs on.
    ticks / 100.0
}

/// A number of `/proc/PID/FILE`, by its name.
fn number(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "takes a minute, and means something in release only"]
async fn cost() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::large("h200", scheduler.port());
    let agent = node.start_agent();
    scheduler.hello().await;
    let mut tasks = Vec::new();
    for device in 0..8 {
        for job in [1 + device * 2, 2 + device * 2] {
            let gres_type = GresType::new(format!("g{device}"));
            scheduler.prepare(Share { gres_types: gres_type.into(), ..share(job, Mechanism::Mps) }).await;
            assert_eq!(scheduler.result(start(job)).await.error, None);
            tasks.push(node.start_task(job, device, Some("yes")));
        }
    }
    for job in 1..=16 {
        scheduler.report(move |body| has_tenant(body, job).then_some(())).await;
    }
    let (pid, reports) = (agent.pid(), scheduler.received().len());
    let (cpu, written) = (cpu_seconds(pid), number(pid, "io", "write_bytes:"));
    tokio::time::sleep(Duration::from_secs(MEASURED_SECONDS)).await;
    let cpu_fraction = (cpu_seconds(pid) - cpu) / 60.0;
    let written_bytes_per_second = (number(pid, "io", "write_bytes:") - written) / MEASURED_SECONDS;
    let rss_bytes_max = number(pid, "status", "VmHWM:") * 1024;
    println!("cpu of one core: {:.2} %", cpu_fraction * 100.0);
    println!("resident memory, at most: {:.1} MB", f64::from(u32::try_from(rss_bytes_max).unwrap()) / 1e6);
    println!("written to disk: {written_bytes_per_second} bytes a second");
    println!("reports: {} in {MEASURED_SECONDS} s", scheduler.received().len() - reports);
    for task in &mut tasks {
        task.end();
    }
    eventually("all to be over", || !node.path("jobs/16").exists()).await;
    assert!(cpu_fraction < CPU_FRACTION_MAX, "{cpu_fraction}");
    assert!(rss_bytes_max < RSS_BYTES_MAX, "{rss_bytes_max}");
}
