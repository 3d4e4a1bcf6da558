//! `pillion-load`: one workload of the catalogue on a simulated device, as a Slurm job would run it. It has only what
//! its environment gives it, and works at the speed that the device gives it there and then.

use anyhow::Context as _;
use clap::Parser;
use pillion_device::simulated::{
    AttachRequest, ClientError, Environment, JobConnection, JobError, Phase, Progress, SOCKET_VARIABLE,
    VARIABLES, socket_path, workload,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs a named workload on a simulated device.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The workload; see --list
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// How long it is to run if alone, in seconds of the simulated machine; its usual length otherwise
    #[arg(long)]
    seconds: Option<f64>,
    /// The batch size, for workloads that have several
    #[arg(long)]
    batch_size: Option<u32>,
    /// Its greatest device memory, as 8G or 512M; its usual one otherwise
    #[arg(long, value_parser = parse_memory)]
    memory: Option<u64>,
    /// In how many steps it comes to that, spread over all of its work: 1 to 1000. Otherwise in one, early on
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    memory_steps: Option<u32>,
    /// Which of the devices that it sees it takes, as its environment numbers them
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Also write the result line to this file
    #[arg(long)]
    result: Option<PathBuf>,
    /// List the workloads and stop
    #[arg(long)]
    list: bool,
}

/// What is printed at the end.
#[derive(Serialize)]
struct Outcome<'a> {
    workload: &'a str,
    batch_size: Option<u32>,
    nominal_seconds: f64,
    elapsed_seconds: f64,
    time_scale: f64,
    speed_fraction_mean: f64,
    environment: &'a Environment,
}

/// How often the progress counter is written, at least.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.list { list() } else { run(&arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pillion-load: {}", explain(&error));
            ExitCode::FAILURE
        }
    }
}

/// The words that a framework would use, so that whoever greps for them finds them.
fn explain(error: &anyhow::Error) -> String {
    let client = error.chain().find_map(|cause| match cause.downcast_ref::<JobError>() {
        Some(JobError::Client(client)) => Some(client),
        _ => cause.downcast_ref::<ClientError>(),
    });
    match client {
        #[expect(clippy::cast_precision_loss, reason = "printed with two digits")]
        Some(ClientError::OutOfMemory { index, asked_bytes, total_bytes, free_bytes }) => {
            let gib = |bytes: &u64| *bytes as f64 / f64::from(1 << 30);
            format!(
                "CUDA out of memory. Tried to allocate {:.2} GiB. GPU {index} has a total capacity of {:.2} GiB of which {:.2} GiB is free.",
                gib(asked_bytes),
                gib(total_bytes),
                gib(free_bytes)
            )
        }
        _ => format!("{error:#}"),
    }
}

/// Prints the catalogue. A reader who has seen enough (`| head`) is no error.
fn list() -> anyhow::Result<()> {
    let mut text = String::new();
    for entry in workload::catalogue() {
        let batch = entry.batch_size.map_or(String::new(), |size| format!(" --batch-size {size}"));
        let name = format!("{:?}{batch}", entry.name);
        let (device, about) = (entry.reference.name, &entry.description);
        writeln!(text, "{name:38} {:5.0} s on {device:8}  {about}", entry.seconds)?;
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("printing the workloads"),
        _ => Ok(()),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let said = || format!("'{text}' is not an amount of memory; write 8G or 512M");
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => return Err(said()),
    };
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)).ok_or_else(said)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let environment: Environment =
        VARIABLES.iter().filter_map(|name| variable(name).map(|value| ((*name).to_owned(), value))).collect();
    let socket = socket_path(variable(SOCKET_VARIABLE).as_deref(), variable("SLURMD_NODENAME").as_deref());
    let request = AttachRequest {
        workload: arguments.name.clone().unwrap_or_default(),
        batch_size: arguments.batch_size,
        seconds: arguments.seconds,
        memory_bytes: arguments.memory,
        memory_steps: arguments.memory_steps,
        environment: environment.clone(),
        device: arguments.device,
    };
    let mut counter = variable("PILLION_PROGRESS").map(|path| open_counter(&path)).transpose()?;
    let mut job = JobConnection::open(socket, request)?;
    let end = work(&mut job, counter.as_mut())?;
    // Off the device before anything is said about it.
    drop(job);
    let outcome = Outcome {
        workload: arguments.name.as_deref().unwrap_or_default(),
        batch_size: arguments.batch_size,
        nominal_seconds: end.nominal_seconds,
        elapsed_seconds: end.elapsed_seconds,
        time_scale: end.time_scale,
        speed_fraction_mean: end.nominal_seconds / (end.elapsed_seconds * end.time_scale),
        environment: &environment,
    };
    let line = serde_json::to_string(&outcome)?;
    println!("{line}");
    if let Some(path) = &arguments.result {
        std::fs::write(path, line + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn open_counter(path: &str) -> anyhow::Result<File> {
    OpenOptions::new().append(true).create(true).open(path).with_context(|| format!("opening {path}"))
}

/// Waits for the work to be done, and counts meanwhile.
fn work(job: &mut JobConnection, mut counter: Option<&mut File>) -> anyhow::Result<Progress> {
    loop {
        let progress = job.progress()?;
        if let Some(file) = counter.as_deref_mut() {
            writeln!(file, "{:.3}", progress.done_seconds).context("writing the progress counter")?;
        }
        match progress.phase {
            Phase::Finished => return Ok(progress),
            Phase::Failed => {
                return Err(progress
                    .error
                    .map_or_else(|| anyhow::anyhow!("thrown off the device"), Into::into));
            }
            Phase::Waiting | Phase::Running => {}
        }
        let left = progress.left_seconds.map_or(PROGRESS_PERIOD, Duration::from_secs_f64);
        std::thread::sleep(left.clamp(Duration::from_millis(1), PROGRESS_PERIOD));
    }
}
