//! The command line of Pillion. Commands fetch, `output` prints; what is decided is decided elsewhere.
//!
//! ```text
//! args ─► commands/* ─► client (gRPC, 5 s)   ─► view (the wire ends here) ─┐
//!                   ─► pillion-pairing (files)                             ├─► Answer ─► output/{table,json,parsable}
//!                   ─► doctor (facts ─► checks)  rescue (Slurm only)       ┘
//! ```
//!
//! It never sees Postgres. `rescue` sees neither the scheduler nor Postgres: it is what is left when they are gone.

#![expect(
    missing_docs,
    reason = "a program and no boundary: besides it only its tests and the simulation see this library"
)]

pub mod address;
pub mod args;
pub mod canary;
pub mod characterize;
pub mod client;
pub mod commands;
pub mod config;
pub mod doctor;
pub mod error;
pub mod exit;
pub mod format;
pub mod names;
pub mod output;
pub mod plot;
pub mod program;
pub mod setup;
pub mod slurm_conf;
pub mod top;

pub use args::Args;
pub use error::CliError;

use exit::ExitStatus;
use output::Output;
use pillion_core::Clock;

/// Runs one command line, prints its answer, and says how to end.
pub async fn run(args: Args, clock: &dyn Clock) -> ExitStatus {
    let output =
        Output::new(args.global.format(), !args.global.noheader).with_columns(args.global.columns.clone());
    match commands::run(&args, clock, &output).await {
        Ok(status) => status,
        Err(error) => {
            eprintln!("pillion: {}", format::clean(&pillion_core::report(&error)));
            error.exit_status()
        }
    }
}
