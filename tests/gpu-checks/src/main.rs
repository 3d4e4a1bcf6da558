//! `pillion-gpu-checks`: arguments and the order of the sections. `tests/gpu` runs it.

use clap::{Parser, Subcommand};
use gpu_checks::bench::Bench;
use gpu_checks::forms::Transcript;
use gpu_checks::kernels::Kernel;
use gpu_checks::programs::now;
use gpu_checks::report::{Measured, Section, apart, file_name, render, table, without_names};
use gpu_checks::smi::Smi;
use gpu_checks::{caps, client, forms, kills, values};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Nothing is there to be measured.
const SKIPPED: u8 = 2;

/// Measures a real NVIDIA GPU and writes a report.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks on the first GPU and write a report
    Report(ReportArguments),
    /// Run one kernel until the input ends: what the checks start
    Client {
        /// What it is bound by
        #[arg(long, value_enum)]
        kernel: Kernel,
        /// How long at most
        #[arg(long)]
        seconds: f64,
    },
}

#[derive(clap::Args)]
struct ReportArguments {
    /// Where the report goes
    #[arg(long)]
    out: PathBuf,
    /// Where pipes and logs go meanwhile; a short path
    #[arg(long)]
    work: PathBuf,
    /// Today, for the report
    #[arg(long)]
    date: String,
    /// The command that is to stand in the report
    #[arg(long)]
    command: String,
    /// The control program of MPS
    #[arg(long, default_value = "/usr/bin/nvidia-cuda-mps-control")]
    control: PathBuf,
    /// How often each way of ending a client is tried
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// No section is begun after so many seconds
    #[arg(long, default_value_t = 400.0)]
    seconds: f64,
}

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Client { kernel, seconds } => ExitCode::from(if client::run(kernel, seconds) { 0 } else { 3 }),
        Task::Report(arguments) => match report(&arguments) {
            Ok(0) => ExitCode::SUCCESS,
            Ok(apart) => {
                eprintln!("{apart} values are not as they should be; the report says which");
                ExitCode::FAILURE
            }
            Err(Failure::Skipped(reason)) => {
                println!("skipped: {reason}");
                ExitCode::from(SKIPPED)
            }
            Err(Failure::Broken(reason)) => {
                eprintln!("error: {reason}");
                ExitCode::FAILURE
            }
        },
    }
}

enum Failure {
    Skipped(String),
    Broken(String),
}

/// Runs everything. Returns how many values are not as they should be.
fn report(arguments: &ReportArguments) -> Result<usize, Failure> {
    let uuids = Smi::uuids().map_err(Failure::Skipped)?;
    let uuid =
        uuids.into_iter().next().ok_or_else(|| Failure::Skipped("nvidia-smi names no GPU".to_owned()))?;
    let smi = Smi { uuid };
    let text = |field: &str| smi.text(field).unwrap_or_else(|| "not told".to_owned());
    let (model, before) = (text("name"), smi.settings());
    let facts = [
        ("date", arguments.date.clone()),
        ("command", arguments.command.clone()),
        ("GPU", model.clone()),
        ("driver", text("driver_version")),
        ("MIG mode", text("mig.mode.current")),
        ("compute mode", text("compute_mode")),
        ("compute capability", text("compute_cap")),
    ];
    for (what, value) in &facts {
        println!("{what}: {value}");
    }
    let mut transcript = Transcript::default();
    let mut sections = measured(arguments, &smi, &mut transcript);
    sections.push(Section::of("Settings", Ok(unchanged(&before, &smi.settings()))));
    let names = names(arguments);
    let name = file_name(&arguments.date, &model);
    let files = [
        (format!("{name}.md"), render(&facts, &sections)),
        (format!("{name}-mps-forms.txt"), transcript.text().to_owned()),
    ];
    for (file, text) in files {
        write(&arguments.out.join(&file), &without_names(&text, &names)).map_err(Failure::Broken)?;
        println!("written: {file}");
    }
    Ok(apart(&sections))
}

fn measured(arguments: &ReportArguments, smi: &Smi, transcript: &mut Transcript) -> Vec<Section> {
    let run = Run { begun: now(), seconds: arguments.seconds };
    let mut bench = Bench::new(arguments.control.clone(), arguments.work.clone(), &smi.uuid);
    let environment = bench.without_mps();
    let mps = mps_is_possible(smi, &arguments.control);
    let mut sections = vec![run.section("Readings", || values::measure(smi, &environment))];
    let mut with_mps = |title, section: &mut dyn FnMut(&mut Bench) -> Measured| {
        sections.push(run.section(title, || mps.clone().and_then(|()| section(&mut bench))));
    };
    with_mps("MPS: printed forms", &mut |bench| forms::record(bench, transcript));
    with_mps("MPS: one client under a cap", &mut caps::alone);
    with_mps("MPS: two clients under caps", &mut caps::together);
    with_mps("MPS: deaths of server and daemon", &mut kills::deaths);
    let has_time = || run.has_time();
    with_mps("MPS: a client ends", &mut |bench| kills::neighbours(bench, arguments.kills, &has_time));
    sections
}

/// Whether MPS can be tried at all; a sentence if not.
fn mps_is_possible(smi: &Smi, control: &Path) -> Result<(), String> {
    if !control.exists() {
        return Err("there is no nvidia-cuda-mps-control".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root sets up MPS as the agent does".to_owned());
    }
    if smi.text("mig.mode.current").is_some_and(|mode| mode == "Enabled") {
        return Err("MIG is on, and is left as it is".to_owned());
    }
    match smi.text("compute_mode") {
        Some(mode) if mode == "Prohibited" => Err("the compute mode prohibits programs".to_owned()),
        _ => Ok(()),
    }
}

/// The time that there is.
struct Run {
    begun: Instant,
    seconds: f64,
}

impl Run {
    fn has_time(&self) -> bool {
        self.begun.elapsed() < Duration::from_secs_f64(self.seconds)
    }

    fn section(&self, title: &'static str, section: impl FnOnce() -> Measured) -> Section {
        let result = if self.has_time() { section() } else { Err("no time was left".to_owned()) };
        let seconds = self.begun.elapsed().as_secs();
        match &result {
            Ok((_, 0)) => println!("{seconds:4} s  done  {title}"),
            Ok((_, apart)) => println!("{seconds:4} s  APART {title}: {apart} values"),
            Err(reason) => println!("{seconds:4} s  none  {title}: {reason}"),
        }
        Section::of(title, result)
    }
}

/// The GPU's settings before and after.
fn unchanged(before: &[(&str, String)], after: &[(&str, String)]) -> (String, usize) {
    let pairs: Vec<_> = before.iter().zip(after).collect();
    let rows = pairs.iter().map(|((what, before), (_, after))| {
        vec![
            (*what).to_owned(),
            before.clone(),
            if before == after { "the same" } else { "CHANGED" }.to_owned(),
        ]
    });
    let changed = pairs.iter().filter(|(before, after)| before.1 != after.1).count();
    (table(&["setting", "before", "after"], rows), changed)
}

/// What must not stand in a report.
fn names(arguments: &ReportArguments) -> Vec<String> {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    let paths = [&arguments.work, &arguments.out].map(|path| path.display().to_string());
    [host].into_iter().chain(paths).collect()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
