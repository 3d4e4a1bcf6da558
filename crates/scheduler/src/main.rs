//! `pillion-scheduler`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pillion_scheduler::program::main()
}
