//! What it costs to learn and to plan where a thousand workloads have families, and how much memory that takes. Run it with
//! `cargo bench -p pillion-pairing --bench families`. Each size runs in a process of its own, since what is
//! measured of memory is the process's peak.
//!
//! Without arguments: the sizes of the table. With them: `WORKLOADS FAMILIES OBSERVATIONS JOBS DEVICES BUSY_OF_TEN`.

#[path = "generated/mod.rs"]
mod generated;

use generated::{Workloads, observations, profiles, view};
use pillion_pairing::model::{TrainOptions, train};
use pillion_pairing::{Policy, ProfileBook, UserPolicy, plan};
use std::time::Instant;

/// Workloads, families, observations, jobs, devices, and how many of ten devices run a job that may be joined.
const SIZES: [[u32; 6]; 7] = [
    [300, 0, 10_000, 10_000, 8000, 5],
    [300, 300, 2000, 10_000, 8000, 5],
    [300, 300, 10_000, 10_000, 8000, 5],
    [1000, 0, 10_000, 10_000, 8000, 5],
    [1000, 20, 10_000, 10_000, 8000, 5],
    [1000, 300, 10_000, 10_000, 8000, 5],
    [300, 0, 2000, 100_000, 100_000, 5],
];

/// The most memory that this process has had so far, in MiB; absent where the kernel does not tell.
fn memory_peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

fn peak() -> String {
    memory_peak_mib().map_or_else(|| "-".to_owned(), |mib| format!("{mib} MiB"))
}

/// One line of the table.
#[expect(clippy::disallowed_methods, reason = "what it costs is time")]
fn measure([workloads, families, observation_count, jobs, devices, busy_of_ten]: [u32; 6]) {
    let workloads = Workloads { count: workloads as usize, families: families as usize };
    let profiles = profiles(workloads);
    let observations = observations(workloads, &profiles, observation_count as usize);
    let view = view(workloads, jobs, devices, busy_of_ten);
    let before = peak();
    let from = Instant::now();
    let model = train(&ProfileBook::from(profiles), &observations, &TrainOptions::default());
    let (learnt, learnt_peak) = (from.elapsed().as_secs_f64(), peak());
    let from = Instant::now();
    let plan = plan(&view, &model, &Policy { users: UserPolicy::Any, ..Policy::default() });
    let planned = from.elapsed().as_secs_f64();
    println!(
        "| {} | {families} | {observation_count} | {jobs} | {devices} | {learnt:.2} s | {planned:.2} s | {before} | {learnt_peak} | {} | {} |",
        workloads.count,
        peak(),
        plan.pairings.len()
    );
}

/// Asks this program for one line.
#[expect(clippy::disallowed_methods, reason = "itself, for a peak of memory of its own")]
fn ask(size: [u32; 6]) {
    let program = std::env::current_exe().expect("it runs");
    let asked = std::process::Command::new(program).args(size.map(|number| number.to_string())).status();
    assert!(asked.expect("it can be run").success(), "{size:?} came to no end");
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if let Ok(size) = numbers.try_into() {
        return measure(size);
    }
    println!(
        "| workloads | families | observations | jobs | devices | learnt | planned | before | learnt, peak | planned, peak | pairings |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    SIZES.into_iter().for_each(ask);
}
