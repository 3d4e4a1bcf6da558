//! `pillion-demo`: starts a cluster inside a testbed and tells the demo's story on it. `deploy/demo` runs it.

use clap::Parser;
use pillion_tests::demo::{self, DemoOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// A private cluster with real jobs that share simulated GPUs. Runs inside `pillion-testbed enter`.
#[derive(Parser)]
struct Arguments {
    /// Folder for results and, with --keep, for wrappers.
    #[arg(long, default_value = "/run/testbed/demo")]
    output: PathBuf,
    /// Leave the cluster up.
    #[arg(long)]
    keep: bool,
    /// Only the Slurm cluster, without any program of Pillion; implies --keep.
    #[arg(long)]
    cluster_only: bool,
    /// The other demo: a cluster of whole GPUs that stays as it is, in the shadow.
    #[arg(long, conflicts_with_all = ["keep", "cluster_only"])]
    observe: bool,
    /// No demo: every query of every dashboard, asked of the Prometheus at this address.
    #[arg(long, value_name = "ADDRESS", exclusive = true)]
    dashboards: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let Arguments { output, keep, cluster_only, observe, dashboards } = Arguments::parse();
    let done = match dashboards {
        Some(prometheus) => demo::dashboards::show(prometheus),
        None => demo::run(&DemoOptions { output, keep: keep || cluster_only, cluster_only, observe }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", pillion_core::report(&error));
            ExitCode::FAILURE
        }
    }
}
