//! The figures of docs/benchmarks.md, measured on private clusters of real Slurm. `tests/bench` runs it in a testbed.
//!
//! Each topic measures its variants in turn, round after round, so that whatever else the machine does hits all of them
//! alike; ratios within one run are what counts. Nothing here asserts on time. What is asserted is that the right thing was
//! measured: that a decision was or was not in a job's environment, that a job ran where it was sent.

mod bound;
mod decision;
mod launch;
mod peers;
mod queue;
mod replayed;
mod stats;
mod submit;
mod update;

use anyhow::{Context as _, bail};
use std::process::ExitCode;

/// How many rounds a topic makes where none is named.
const ROUNDS: usize = 200;

const USAGE: &str = "usage: pillion-bench TOPIC [ROUNDS]; the topics are update-to-start, submit, launch, queue, queue-mixed, peers, bound, decision and replay-slurm";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (topic, rounds) = match arguments {
        [topic] => (topic, ROUNDS),
        [topic, rounds] => {
            let rounds = rounds.parse().ok().filter(|rounds| (1..=100_000).contains(rounds));
            (topic, rounds.context("ROUNDS is a number from 1 to 100000")?)
        }
        _ => bail!(USAGE),
    };
    match topic.as_str() {
        "update-to-start" => update::run(rounds),
        "submit" => submit::run(rounds),
        "launch" => launch::run(rounds),
        "queue" => queue::run(rounds),
        "queue-mixed" => queue::run_mixed(rounds),
        "peers" => peers::run(rounds),
        "bound" => peers::print_bound(rounds),
        "decision" => decision::run(),
        "replay-slurm" => replayed::run(rounds),
        other => bail!("there is no topic '{other}'; {USAGE}"),
    }
}
