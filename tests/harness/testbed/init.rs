//! Process 1 of a testbed: finishes what only the inside can do, runs the command, and reaps what nobody waits for.

use super::{HOST_NAME, inside_environment, loopback};
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};
use std::ffi::OsString;
use std::path::Path;

/// What the outer process passes on.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// The network is private, so loopback is down.
    pub private_network: bool,
    /// Where the command runs.
    pub folder: std::path::PathBuf,
    /// The command.
    pub command: Vec<OsString>,
}

/// Runs the command and returns its exit code (128 + signal where one ended it). When the caller then exits, the kernel
/// kills whatever is still running here.
///
/// # Errors
/// Where the inside cannot be made ready or the command cannot be started.
pub fn init(options: &InitOptions) -> Result<i32> {
    if std::process::id() != 1 {
        return Err(HarnessError::Refused(
            "`init` is started by `pillion-testbed enter`, never by hand".into(),
        ));
    }
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(system_error("follow the parent process"))?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .map_err(system_error("mount /proc"))?;
    rustix::system::sethostname(HOST_NAME.as_bytes()).map_err(system_error("set the host name"))?;
    if options.private_network {
        loopback::bring_up()?;
    }
    let (name, arguments) =
        options.command.split_first().ok_or_else(|| HarnessError::Refused("no command given".into()))?;
    let mut program = Program::new(name).args(arguments).folder(&options.folder).inherit_environment();
    for (variable, value) in inside_environment("root") {
        program = program.env(variable, value);
    }
    let command = program.spawn()?;
    reap_until(command.id())
}

/// Waits for any child, ours or orphaned, until the command itself ends.
fn reap_until(command: u32) -> Result<i32> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_pid()) == Ok(command) => {
                return Ok(status
                    .exit_status()
                    .unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io_error("wait in", Path::new("/proc"))(errno.into())),
        }
    }
}
