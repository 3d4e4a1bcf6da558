//! dcgm-exporter or XPU Manager of a node with simulated devices, until it is stopped.

use clap::Parser;
use exporter_double::{Endpoint, Kind, Settings};
use pillion_device::simulated::SOCKET_VARIABLE;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
struct Arguments {
    /// Whose page.
    #[arg(long)]
    kind: Kind,
    /// Where it is asked.
    #[arg(long)]
    listen: SocketAddr,
    /// From one collection to the next.
    #[arg(long)]
    period_seconds: f64,
    /// While there is such a file another profiler has the counters.
    #[arg(long)]
    profiling_lock: Option<PathBuf>,
    /// A file that it writes when it listens.
    #[arg(long)]
    ready: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => loop {
            std::thread::park();
        },
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let Arguments { kind, listen, period_seconds, profiling_lock, ready } = arguments;
    let devices = std::env::var_os(SOCKET_VARIABLE).ok_or(format!("{SOCKET_VARIABLE} names no devices"))?;
    let period = Duration::try_from_secs_f64(period_seconds).map_err(|error| error.to_string())?;
    let endpoint =
        Endpoint::start(listen, Settings { kind, devices: devices.into(), period, profiling_lock })?;
    match ready {
        Some(path) => std::fs::write(path, endpoint.url()).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}
