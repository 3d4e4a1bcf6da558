//! The directories of a daemon: made before it starts, and taken away when it is gone.

use super::access;
use super::control::Control;
use super::identity::{daemon_at, servers};
use super::wait::until;
use crate::{DeviceError, MpsSettings};
use std::path::Path;

/// Makes the directories of a daemon that is to be started, and lets its users in.
///
/// # Errors
/// [`DeviceError::Refused`] with what the file system says.
pub(super) fn make(control: Control<'_>, settings: &MpsSettings) -> Result<(), DeviceError> {
    let MpsSettings { pipe_directory, log_directory, users, .. } = settings;
    std::fs::create_dir_all(log_directory).map_err(|error| not_made(control, log_directory, &error))?;
    access::make_private(pipe_directory)
        .and_then(|()| access::let_in(pipe_directory, users))
        .map_err(|error| not_made(control, pipe_directory, &error))
}

fn not_made(control: Control<'_>, path: &Path, error: &std::io::Error) -> DeviceError {
    control.refused(format!("cannot make {}: {error}", path.display()))
}

/// Takes a pipe directory away whose daemon is gone, with the servers that it left behind: nobody is their client.
///
/// # Errors
/// While the daemon, or a server of it, does not end; or what the file system says.
pub(super) fn clear(pipe_directory: &Path) -> Result<(), String> {
    if let Some(process) = daemon_at(pipe_directory) {
        return Err(format!("MPS daemon {} runs at {}", process.pid, pipe_directory.display()));
    }
    let mut rest = servers(pipe_directory);
    // They end by themselves in a moment; one that does not is of no use to anybody.
    if !rest.is_empty() && !until(|| rest.iter().all(|server| !server.is_alive())) {
        for server in &rest {
            server.kill();
        }
        rest.retain(|server| !until(|| !server.is_alive()));
        if let Some(server) = rest.first() {
            return Err(format!("MPS server {} does not end", server.pid));
        }
    }
    match std::fs::remove_dir_all(pipe_directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", pipe_directory.display()))
        }
        _ => Ok(()),
    }
}
