//! The demo's words: short, aligned, at most 120 columns. Knows no cluster.

pub(super) mod shadow;

use super::cast::{CAST, WORK_SECONDS, shown};
use super::totals::{Run, Totals};
use super::trials::{POLICY, Pair};
use pillion_core::SlurmJobId;
use std::fmt::Write as _;

/// What is shown of `pillion profile`.
pub(super) const PROFILE_COLUMNS: &str =
    "workload,model,duration,sm_active,stall,mem_bw,cache_bw,mem_peak,power";
/// What is shown of `pillion queue`.
pub(super) const QUEUE_COLUMNS: &str = "jobid,workload,reason";
/// What is shown of `pillion pairs`.
pub(super) const PAIRS_COLUMNS: &str =
    "decision,node,gres,mechanism,jobid,workload,role,cap,shards,predicted,measured";

/// What is shown of those who were tried.
pub(super) const TRIALS_COLUMNS: &str = "decision,gres,jobid,workload,role,job_state,predicted,measured";

/// The text two blanks further in.
fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut shown, line| {
        let _ = writeln!(shown, "{}", format!("  {line}").trim_end());
        shown
    })
}

fn heading(number: u32, text: &str) {
    println!("\n{number}. {text}");
}

fn command(user: &str, text: &str) {
    println!("  {user}$ {text}");
}

/// The stage.
pub(super) fn opening(status_json: &str, time_scale: f64) {
    let slurm = serde_json::from_str::<serde_json::Value>(status_json)
        .ok()
        .and_then(|status| status["slurm_version"].as_str().map(str::to_owned))
        .unwrap_or_default();
    println!(
        "\nReal Slurm {slurm}, real PostgreSQL, real scheduler, agents and plugin. Only the GPUs are simulated: work goes\n\
         {time_scale:.0} times faster than in life, so 1 s here stands for {:.0} min, and 1 kJ for {:.0} kJ.\n  \
         n1  4 x NVIDIA H200, shared by MPS          n2  4 tiles of Intel Max 1550, shared by CCS modes\n\
         Users alice and bob may share with each other: this site's policy is 'any' (the default is same-user).",
        time_scale / 60.0,
        time_scale
    );
    heading(
        1,
        &format!(
            "First runs: {} jobs that nobody has seen before. Each runs alone on a whole device, and is measured.",
            CAST.len()
        ),
    );
    println!("{}", shown(&CAST[1].script()));
    command("alice", "sbatch bert.sh                  # and so on, alice and bob; they take about 20 s");
}

/// What the first runs taught.
pub(super) fn profiles(table: &str) {
    command(
        "alice",
        &format!(
            "pillion profile                 # {WORK_SECONDS} s of work each; a workload is called as its job is"
        ),
    );
    print!("{}", indented(table));
}

/// The second time.
pub(super) fn second() {
    heading(
        2,
        "Second runs: the same jobs again, all at once. Who goes well together shares, where it pays.",
    );
}

/// While some wait.
pub(super) fn waiting(queue: &str) {
    command("root", "pillion queue                    # a moment later");
    print!("{}", indented(queue));
}

/// Who shared.
pub(super) fn pairs(table: &str) {
    command(
        "root",
        "pillion pairs -S now-1hour       # when all are over: speed against alone, predicted and measured",
    );
    print!("{}", indented(table));
}

/// One explanation.
pub(super) fn explanation(run: &Run, text: &str) {
    heading(
        3,
        "Why? Every decision can be asked for, days later too: users about their own jobs, operators about all.",
    );
    command("root", &format!("pillion explain {}", run.job));
    print!("{}", indented(&from_decision_on(text)));
}

/// Without what was answered while the job's own begin time had not come: that is this demo's doing.
fn from_decision_on(text: &str) -> String {
    let is_held = |block: &&str| !block.contains("held: cannot start now");
    text.split("\n\n").filter(is_held).collect::<Vec<_>>().join("\n")
}

/// Who did not share.
pub(super) fn left_alone<'r>(alone: impl Iterator<Item = (&'r Run, (String, String))>) {
    println!("  The others were left alone:");
    for (run, (_, text)) in alone {
        let text = text.rsplit_once(": ").map_or(text.as_str(), |(_, why)| why);
        println!(
            "  {:<5}  {:<22}  {} {}  {text}",
            run.job.to_string(),
            run.part.title(),
            run.decided.node,
            run.decided.device
        );
    }
}

/// What the jobs found.
pub(super) fn environments(runs: &[Run], wrong: &[Vec<String>], wrong_first: &[Vec<String>]) {
    heading(4, "Inside each job: what it found, against the decision (environment, node, device, shards).");
    println!(
        "  {:<5}  {:<22}  {:<4}  {:<3}  {:>6}  {:<4}  {:>4}  AS DECIDED  FOUND (CUDA_MPS_ left out)",
        "JOBID", "WORKLOAD", "NODE", "GPU", "SHARDS", "BY", "CAP"
    );
    for (run, wrong) in runs.iter().zip(wrong) {
        let verdict = if wrong.is_empty() { "yes".to_owned() } else { format!("NO: {}", wrong.join("; ")) };
        let cap = run.decided.cap_fraction.map_or("-".to_owned(), |cap| format!("{:.0} %", cap * 100.0));
        println!(
            "  {:<5}  {:<22}  {:<4}  {:<3}  {:>6}  {:<4}  {cap:>4}  {verdict:<10}  {}",
            run.job.to_string(),
            run.part.title(),
            run.decided.node,
            run.decided.device,
            run.decided.shards,
            run.decided.mechanism,
            found(run)
        );
    }
    let same = wrong_first.iter().filter(|wrong| wrong.is_empty()).count();
    println!("  First runs: {same} of {} found a whole device and no limit, as decided.", wrong_first.len());
}

/// The variables that tell.
fn found(run: &Run) -> String {
    let is_shown = |name: &str| match run.decided.mechanism.as_str() {
        "mps" => name.starts_with("CUDA_MPS_") && !name.ends_with("_DIRECTORY"),
        "ccs" => name == "ZE_AFFINITY_MASK" || name == "ZEX_NUMBER_OF_CCS",
        _ => name.starts_with("CUDA_MPS_") || name.starts_with("ZEX_"),
    };
    let shown = run.told.environment.iter().filter(|(name, _)| is_shown(name));
    let words: Vec<String> =
        shown.map(|(name, value)| format!("{}={value}", name.trim_start_matches("CUDA_MPS_"))).collect();
    if words.is_empty() { "no limit".to_owned() } else { words.join(" ") }
}

/// What it cost and what it saved.
pub(super) fn totals(second: Totals, all: Totals, runs: &[Run], time_scale: f64) {
    heading(5, "What it saved. Exclusive figures are measured: they are those of the first runs.");
    println!(
        "  {:<24} {:>21} {:>7}   {:>21} {:>7}",
        "", "GPU time, simulated", "SAVED", "energy, simulated", "SAVED"
    );
    for (name, sums) in [("second runs", second), ("both, learning included", all)] {
        let hours = |seconds: f64| seconds * time_scale / 3600.0;
        let kwh = |joules: f64| joules * time_scale / 3.6e6;
        println!(
            "  {name:<24} {:>21} {:>7}   {:>21} {:>7}",
            format!("{:.2} of {:.2} h", hours(sums.gpu_seconds), hours(sums.gpu_seconds_exclusive)),
            saved(sums.gpu_seconds, sums.gpu_seconds_exclusive),
            format!("{:.2} of {:.2} kWh", kwh(sums.energy_joules), kwh(sums.energy_joules_exclusive)),
            saved(sums.energy_joules, sums.energy_joules_exclusive),
        );
    }
    let promised = |run: &Run| run.decided.promise.unwrap_or(f64::INFINITY);
    if let Some(slowest) = runs.iter().max_by(|a, b| {
        let of = |run: &Run| run.slowdown_ratio() / promised(run);
        of(a).total_cmp(&of(b))
    }) {
        let kept = runs.iter().filter(|run| run.slowdown_ratio() <= promised(run)).count();
        println!(
            "  Promises kept: {kept} of {}. Nearest to its limit: {} took {:.2} times its time alone; promised was {:.2}.",
            runs.len(),
            slowest.part.title(),
            slowest.slowdown_ratio(),
            promised(slowest)
        );
    }
}

fn saved(used: f64, exclusive: f64) -> String {
    format!("{:.0} %", (1.0 - used / exclusive) * 100.0)
}

/// Jobs of several GPUs come.
pub(super) fn wide() {
    heading(
        6,
        "Jobs of several GPUs live in the same pool: each has its GPUs whole, and keeps its place in the queue.",
    );
    println!(
        "  alice asks for --gres=gpu:2, bob for one GPU, then bob for --gres=gpu:4: all there are on that node."
    );
}

/// The one that waits.
pub(super) fn wide_waits(queue: &str) {
    command(
        "root",
        "pillion queue                     # what falls free is kept for it, but for jobs that end before",
    );
    print!("{}", indented(queue));
}

/// What each found.
pub(super) fn wide_found(lines: &[String]) {
    for line in lines {
        println!("  {line}");
    }
}

/// What the site turns on.
pub(super) fn trials() {
    heading(
        7,
        "Trials: what no bound admits may be tried, where the site says so, and is taken apart where it breaks a promise.",
    );
    println!(
        "  [policy] {}\n  Two workloads each of alice and bob run alone once (half a minute); then they come together.",
        POLICY.join(", ")
    );
}

/// A pair that is tried.
pub(super) fn tried(pair: Pair, guest: SlurmJobId, line: &str) {
    command(
        "root",
        &format!(
            "pillion explain {guest}               # {}'s {} and {}",
            pair.user, pair.names[0], pair.names[1]
        ),
    );
    print!("{}", indented(line));
}

/// The guest that goes back.
pub(super) fn sent_back(pair: Pair, guest: SlurmJobId, detail: &str) {
    command(pair.user, &format!("pillion why {guest}                   # a minute later"));
    print!("{}", indented(detail));
}

/// How all of them fared.
pub(super) fn trials_end(pairs: &str) {
    command(
        "root",
        "pillion pairs                     # one pair held; of the other the guest ran alone to its end",
    );
    print!("{}", indented(pairs));
}
