//! A testbed that is already up: finding it by its pid file, running a command in it, ending it.

use super::{PROCESS_NAME, home_of, identity_of, inside_environment};
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// How long the kernel may take to end everything in a testbed.
const DOWN_DEADLINE_SECONDS: i64 = 30;
/// Kept from the caller's environment; everything else is as inside.
const KEPT_VARIABLES: [&str; 3] = ["TERM", "SLURM_CONF", "LANG"];

/// A testbed that is up, by its processes as the machine numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Up {
    outer: Pid,
    process_one: Pid,
}

/// Reads a pid file and looks whether what it names is still a testbed: process numbers are used again.
pub fn find_up(pid_file: &Path) -> Option<Up> {
    let text = fs::read_to_string(pid_file).ok()?;
    let mut pids = text.split_whitespace().map(|word| word.parse().ok().and_then(Pid::from_raw));
    let (outer, process_one) = (pids.next()??, pids.next()??);
    let comm = fs::read_to_string(proc_file(outer, "comm")).ok()?;
    let status = fs::read_to_string(proc_file(process_one, "status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    (comm.trim() == PROCESS_NAME && parent == outer.as_raw_pid().to_string())
        .then_some(Up { outer, process_one })
}

fn proc_file(pid: Pid, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{name}", pid.as_raw_pid()))
}

/// Runs a command in a testbed as one of its users: root in the current folder where that exists inside, everybody else
/// in the user's home.
///
/// # Errors
/// Where the testbed is gone, there is no such user, or the command cannot be started.
pub fn join(up: Up, user: &str, command: &[OsString]) -> Result<ExitStatus> {
    let gone = |_| HarnessError::Refused("the testbed has just ended".into());
    let handle = pidfd_open(up.process_one, PidfdFlags::empty()).map_err(gone)?;
    let folder = std::env::current_dir().ok();
    let spaces = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    move_into_thread_name_spaces(handle.as_fd(), spaces).map_err(system_error("join the testbed"))?;
    let (name, arguments) =
        command.split_first().ok_or_else(|| HarnessError::Refused("no command given".into()))?;
    let here = folder.filter(|folder| user == "root" && folder.is_dir());
    let mut program = Program::new(name).args(arguments).folder(here.unwrap_or_else(|| home_of(user).into()));
    for kept in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(kept) {
            program = program.env(kept, value);
        }
    }
    for (variable, value) in inside_environment(user) {
        program = program.env(variable, value);
    }
    if user != "root" {
        program = program.identity(identity_of(user)?);
    }
    program.status()
}

/// Waits until a process is gone, and with it its forwards.
fn wait_for_the_end_of(process: &OwnedFd) -> Result<()> {
    let deadline = Timespec { tv_sec: DOWN_DEADLINE_SECONDS, tv_nsec: 0 };
    // A handle of a process can be read when that has ended (pidfd_open(2)).
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&deadline));
    if ended.map_err(system_error("wait for the end of the testbed"))? == 0 {
        let seconds = DOWN_DEADLINE_SECONDS;
        return Err(HarnessError::Refused(format!("the testbed has not ended after {seconds} s")));
    }
    Ok(())
}

/// Ends a testbed and everything in it, and removes the pid file. None being up is no error.
///
/// # Errors
/// A timeout where the kernel does not end it.
pub fn down(pid_file: &Path) -> Result<()> {
    if let Some(up) = find_up(pid_file) {
        // It may have ended since it was found; then there is nothing to wait for.
        let outer = pidfd_open(up.outer, PidfdFlags::empty());
        // The kernel ends everything inside with its process 1; the outer process then sees its child gone, and ends.
        let _ = kill_process(up.process_one, Signal::KILL);
        if let Ok(outer) = outer {
            wait_for_the_end_of(&outer)?;
        }
    }
    match fs::remove_file(pid_file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", pid_file)(error))
        }
        _ => Ok(()),
    }
}
