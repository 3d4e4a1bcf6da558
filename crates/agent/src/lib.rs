//! The agent of a node: one process, as root, that measures the node's devices, carries out shares and answers the SPANK
//! plugin. It decides nothing, and knows neither Slurm's queue nor the pairing nor the store.
//!
//! ```text
//!  slurmstepd ─ handoff_server ─┐  ┌─ share, mechanism ─► drivers
//!                     (Node)    ├──┤ devices (one thread)
//!  scheduler ◄─ uplink ─────────┘  └─ sampler: tracker, accumulator, progress
//!                 ▲                        │
//!                 └─────── journal ◄───────┘
//! ```

#![expect(
    missing_docs,
    reason = "a program and no boundary: besides it only its tests and the simulation see this library"
)]

pub mod accumulator;
mod assembly;
mod backend;
pub mod backoff;
pub mod begun;
pub mod cleanup;
mod closed;
pub mod config;
pub mod devices;
pub mod disk;
pub mod ending;
pub mod handoff_server;
pub mod health;
pub mod inventory;
pub mod journal;
mod journal_writer;
mod looks;
pub mod mechanism;
pub mod metrics;
pub mod mig_setup;
pub mod node;
pub mod observe;
pub mod outsider;
pub mod overuse;
mod poke;
pub mod procfs;
pub mod program;
pub mod progress;
mod run;
pub mod sampler;
pub mod setup;
pub mod share;
pub mod signs;
pub mod stderr_tail;
pub mod tracker;
pub mod uplink;

pub use poke::poke;
pub use run::run;

use anyhow::Context as _;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The machine's name up to its first dot, as Slurm names nodes.
pub fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Logs to standard error, at the levels of `RUST_LOG`, else `info`.
pub fn start_logging() {
    pillion_log::start("RUST_LOG", "info");
}

/// What is cancelled when the process is told to end.
///
/// # Errors
/// If signals cannot be listened for.
pub fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
    });
    Ok(stop)
}

/// Says what went wrong, on one line, and with which code the program ends.
pub fn failed(code: u8, error: &anyhow::Error) -> ExitCode {
    eprintln!("pillion-agent: {error:#}");
    ExitCode::from(code)
}
