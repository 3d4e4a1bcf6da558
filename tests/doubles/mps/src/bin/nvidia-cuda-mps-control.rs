//! `nvidia-cuda-mps-control`, doubled: `-f` is the daemon in the foreground; without an option, and with one that its release
//! does not know, it reads commands.

use mps_double::daemon::{self, Options};
use mps_double::{control, knows_multi_user, knows_partitions, pipe_directory};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut is_daemon, mut options) = (false, Options::default());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "-f" => is_daemon = true,
            "-multiuser-server" if knows_multi_user() => options.multi_user = true,
            "-S" if knows_partitions() => options.partitions = true,
            "-d" | "-h" | "--help" => {
                eprintln!("the double has no {argument}");
                return ExitCode::FAILURE;
            }
            _ => return ExitCode::from(control::converse(&pipe_directory())),
        }
    }
    if !is_daemon {
        return ExitCode::from(control::converse(&pipe_directory()));
    }
    match daemon::serve(options) {
        Ok(status) => ExitCode::from(status),
        Err(reason) => {
            // In the foreground it says all that it says on its standard output.
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}
