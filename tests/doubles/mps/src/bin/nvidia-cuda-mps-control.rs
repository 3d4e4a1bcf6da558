//! `nvidia-cuda-mps-control`, doubled: `-f` is the daemon in the foreground, without arguments it reads commands.

use mps_double::{control, daemon, pipe_directory, variable};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        return ExitCode::from(control::converse(&pipe_directory()));
    }
    let (mut is_daemon, mut multi_user, mut partitions) = (false, false, false);
    let knows_partitions = variable("MPS_DOUBLE_WITHOUT_PARTITIONS").is_none_or(|it| it == "silent");
    for argument in &arguments {
        match argument.as_str() {
            "-f" => is_daemon = true,
            "-multiuser-server" if variable("MPS_DOUBLE_WITHOUT_MULTIUSER").is_none() => multi_user = true,
            "-S" if knows_partitions => partitions = true,
            other => return refuse(&format!("Unknown option: {other}")),
        }
    }
    if !is_daemon {
        return refuse("its options are for the daemon");
    }
    match daemon::serve(multi_user, partitions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => refuse(&reason),
    }
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::FAILURE
}
