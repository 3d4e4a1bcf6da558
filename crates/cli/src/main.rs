//! `pillion`: arguments in, exit status out; everything else is in the library.

use clap::Parser as _;
use pillion_cli::{Args, exit};
use pillion_core::SystemClock;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // A closed pipe behind `--help` is no failure.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { exit::OK.into() };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("pillion: cannot start: {error}");
            return exit::PROBLEM.into();
        }
    };
    runtime.block_on(pillion_cli::run(args, &SystemClock)).into()
}
