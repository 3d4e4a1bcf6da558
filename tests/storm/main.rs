//! A storm of starts on real Slurm with users' changes and faults: `tests/run storm`. What it draws and how it is judged is in
//! `tests/harness/storm`; here it is carried out, inside a testbed.
//!
//! ```text
//!   lanes    a thread a user for what he submits, one for what he does to it, one for root
//!   faults   breaks and mends; looks at nodes and daemons all the while; this thread, which owns the cluster
//!   collect  afterwards: what Slurm, the jobs and Pillion say of each start
//! ```

mod collect;
mod faults;
mod lanes;
mod world;

use pillion_tests::error::Result;
use pillion_tests::storm::facts::Facts;
use pillion_tests::storm::judge::Verdict;
use pillion_tests::storm::options::{self, Options};
use pillion_tests::storm::{draw, judge, report};
use pillion_tests::wait::now;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use world::World;

/// Exit codes: no harm; a harm was found; the storm could not be made, or not be judged.
const HARMLESS: u8 = 0;
const HARMED: u8 = 1;
const NOT_MADE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match options::parse(&words) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("error: {sentence}");
            return ExitCode::from(NOT_MADE);
        }
    };
    let judged = match &options.judge {
        Some(file) => judge_again(file),
        None => run(&options),
    };
    match judged {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {}", pillion_core::report(&error));
            ExitCode::from(NOT_MADE)
        }
    }
}

/// Makes the storm and returns the exit code.
fn run(options: &Options) -> Result<u8> {
    let plan = draw::draw(options);
    let Options { starts, minutes, seed, faults, .. } = options;
    let again = format!(
        "--starts={starts} --minutes={minutes} --seed={seed} --faults={}",
        if *faults { "yes" } else { "no" }
    );
    say(&format!(
        "{again}: {} submissions, {} acts, {} faults",
        plan.orders.len(),
        plan.acts.len(),
        plan.faults.len()
    ));
    let mut world = World::start(options)?;
    say(&format!(
        "the cluster stands, known workloads were run; the sequence: {}",
        world.path("sequence.log").display()
    ));
    let begun = now();
    let facts = world.storm(&plan, begun)?;
    match facts.to_json() {
        Ok(text) => write(&world.path("facts.json"), &text)?,
        Err(error) => say(&format!("the facts cannot be kept: {error}")),
    }
    let verdict = judge::judge(&facts);
    let stories = world.path("stories.log");
    write(&stories, &report::stories(&facts, &verdict))?;
    let table = report::table(&facts, &verdict, &stories.display().to_string());
    write(&world.path("table.log"), &table)?;
    println!("{table}");
    say(&format!("again: tests/run storm {again}"));
    world.end()?;
    Ok(code_of(&facts, &verdict))
}

/// Judges what is kept of a storm.
fn judge_again(file: &Path) -> Result<u8> {
    let text = std::fs::read_to_string(file).map_err(pillion_tests::error::io_error("read", file))?;
    let facts = match Facts::from_json(text) {
        Ok(facts) => facts,
        Err(error) => {
            eprintln!("error: {} holds no facts of a storm of this state: {error}", file.display());
            return Ok(NOT_MADE);
        }
    };
    let verdict = judge::judge(&facts);
    println!("{}", report::table(&facts, &verdict, "in stories.log, as judged at the time"));
    Ok(code_of(&facts, &verdict))
}

fn code_of(facts: &Facts, verdict: &Verdict) -> u8 {
    // Without them nobody was held against what was decided: who shares, and with which environment.
    if facts.decisions.is_empty() && verdict.harms.is_empty() {
        say("no verdict: the decisions could not be read");
        return NOT_MADE;
    }
    if verdict.harms.is_empty() { HARMLESS } else { HARMED }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(pillion_tests::error::io_error("write", path))
}

/// A line for whoever waits.
fn say(line: &str) {
    println!("storm: {line}");
    // Into a pipe, lines would wait for each other.
    let _ = std::io::stdout().flush();
}
