//! `pillion-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pillion_agent::program::main()
}
