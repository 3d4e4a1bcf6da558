//! A program that opens a device, as its environment says, and holds it until its standard input ends. It answers each line
//! with how far it is, as JSON, and begins with one.

use pillion_device::simulated::{AttachRequest, JobConnection, VARIABLES};
use std::io::BufRead as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let variable = |name: &str| Some((name.to_owned(), mps_double::variable(name)?));
    let request = AttachRequest {
        workload: "gemm-hog".to_owned(),
        seconds: Some(1e8),
        memory_bytes: Some(1 << 30),
        environment: VARIABLES.into_iter().filter_map(variable).collect(),
        ..AttachRequest::default()
    };
    match hold(request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn hold(request: AttachRequest) -> Result<(), String> {
    let mut job = JobConnection::open(mps_double::driver_socket(), request).map_err(|it| it.to_string())?;
    let mut tell = || {
        let progress = job.progress().map_err(|error| error.to_string())?;
        println!("{}", serde_json::to_string(&progress).map_err(|error| error.to_string())?);
        Ok::<(), String>(())
    };
    tell()?;
    for _ in std::io::stdin().lock().lines() {
        tell()?;
    }
    Ok(())
}
