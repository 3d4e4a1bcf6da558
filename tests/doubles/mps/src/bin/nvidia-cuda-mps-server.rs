//! `nvidia-cuda-mps-server`, doubled: a process that is there for as long as its control daemon wants it. The simulated
//! device does a server's work.

use std::io::Read as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().count() > 1 || mps_double::variable("CUDA_MPS_PIPE_DIRECTORY").is_none() {
        eprintln!("it is started by nvidia-cuda-mps-control only");
        return ExitCode::FAILURE;
    }
    if let Some(status) = mps_double::variable("MPS_DOUBLE_SERVER_STATUS") {
        return ExitCode::from(status.parse::<u8>().unwrap_or(1));
    }
    // A pipe that breaks is one that ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
