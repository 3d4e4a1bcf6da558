//! `pillion-gpu-checks`: arguments and the order of the sections. `tests/gpu` runs it.

use clap::{Parser, Subcommand};
use gpu_checks::client;
use gpu_checks::kernels::Workload;
use gpu_checks::mig::{self, bench::undo};
use gpu_checks::report::Verdict;
use gpu_checks::sections::{Failure, ReportArguments, report, report_groups, report_own};
use std::path::PathBuf;
use std::process::ExitCode;

/// Nothing is there to be measured.
const SKIPPED: u8 = 2;
/// Something is there, and nothing of it could be measured.
const NOTHING: u8 = 3;

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
    /// Run programs of one's own on the first GPU, alone and together, and write a report
    Programs {
        #[command(flatten)]
        report: ReportArguments,
        /// Lines of NAME FAMILY COMMAND
        #[arg(long)]
        programs: PathBuf,
    },
    /// Run programs of one's own on the first GPU, more than two at a time, and write a report
    Groups {
        #[command(flatten)]
        report: ReportArguments,
        /// Lines of NAME FAMILY COMMAND
        #[arg(long)]
        programs: PathBuf,
    },
    /// Cut the first GPU by MIG, measure that, and write a report
    Mig(ReportArguments),
    /// Take away what a run of `mig` that was ended has left
    Undo {
        /// The folder that it had for its files
        #[arg(long)]
        work: PathBuf,
        /// The NVML to load, if not the driver's
        #[arg(long)]
        library: Option<PathBuf>,
    },
    /// Run one workload until the input ends: what the checks start
    Client {
        /// What is run
        #[arg(long, value_enum)]
        workload: Workload,
        /// Device memory that it holds besides
        #[arg(long, default_value_t = 0)]
        held_bytes: usize,
        /// How long at most
        #[arg(long)]
        seconds: f64,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Client { workload, held_bytes, seconds } => {
            ExitCode::from(if client::run(workload, held_bytes, seconds) { 0 } else { 3 })
        }
        Task::Undo { work, library } => match undo(library, &work) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("error: not all of the GPU is as it was: {reason}");
                ExitCode::FAILURE
            }
        },
        Task::Report(arguments) => told(report(&arguments)),
        Task::Programs { report, programs } => told(report_own(&report, &programs)),
        Task::Groups { report, programs } => told(report_groups(&report, &programs)),
        Task::Mig(arguments) => told(mig::report(&arguments)),
    }
}

fn told(outcome: Result<Verdict, Failure>) -> ExitCode {
    match outcome {
        Ok(Verdict::Well) => ExitCode::SUCCESS,
        Ok(Verdict::Apart(apart, failed)) => {
            eprintln!(
                "{apart} values are not as they should be, {failed} sections failed; the report says which"
            );
            ExitCode::FAILURE
        }
        Ok(Verdict::Nothing) => {
            eprintln!("nothing was measured; the report says why");
            ExitCode::from(NOTHING)
        }
        Err(Failure::Skipped(reason)) => {
            println!("skipped: {reason}");
            ExitCode::from(SKIPPED)
        }
        Err(Failure::Broken(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
