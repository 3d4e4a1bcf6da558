//! Which process is a daemon of ours, and which is a server of one. Only the kernel is asked: a user may call his own process
//! whatever he likes, set any environment, and write into the pid file, which is NVIDIA's and open to all tenants.
//!
//! A daemon is the process that we started, by its number and the time of its start. Its servers are its children; those of a
//! daemon that is gone are still in the process group that it led, in our session, which no process from elsewhere can join
//! (setpgid(2)). They run NVIDIA's server program, as root or as one of the device's users.

use super::process::{CONTROL_PROGRAM, Process, SERVER_PROGRAM, processes};
use super::record::{Record, read_record};
use std::path::Path;

const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// The daemon that was started at this pipe directory, if it runs.
pub(super) fn daemon_at(pipe_directory: &Path) -> Option<Process> {
    let record = read_record(pipe_directory);
    let known = record.as_ref().and_then(Record::process);
    if let Some(process) = known {
        return Some(process).filter(|process| process.is_alive());
    }
    // Whoever started it was ended before it wrote the whole down, or did not write as much. No user's process runs as root.
    let of_file =
        std::fs::read_to_string(pipe_directory.join(PID_FILE)).ok().and_then(|text| text.trim().parse().ok());
    let pids = [record.and_then(|record| record.pid), of_file].into_iter().flatten();
    pids.filter_map(Process::find).find(|process| {
        process.is_of_root()
            && process.program().is_some_and(|program| program.ends_with(CONTROL_PROGRAM))
            && process.has_pipe_directory(pipe_directory)
    })
}

/// The servers of the daemon that was started at this pipe directory, if one was, whether it runs still or not.
pub(super) fn servers(pipe_directory: &Path) -> Vec<Process> {
    let Some(record) = read_record(pipe_directory) else { return Vec::new() };
    let Some(daemon_pid) = record.pid else { return Vec::new() };
    processes().filter(|process| is_server(*process, daemon_pid, &record)).collect()
}

fn is_server(process: Process, daemon_pid: u32, record: &Record) -> bool {
    let Some(family) = process.family() else { return false };
    let is_child = family.parent == daemon_pid && record.process().is_some_and(Process::is_alive);
    let is_of_group =
        family.group == daemon_pid && record.session.is_none_or(|session| session == family.session);
    let runs_it = match &record.server_program {
        Some(program) => program.is_run_by(process),
        None => process.program().is_some_and(|program| program.ends_with(SERVER_PROGRAM)),
    };
    let users = &record.settings.users;
    let is_of_user = process.uid().is_some_and(|uid| uid.0 == 0 || users.is_empty() || users.contains(&uid));
    process.pid != daemon_pid && (is_child || is_of_group) && runs_it && is_of_user
}
