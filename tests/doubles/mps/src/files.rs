//! What lies in a pipe directory: the same files with the same modes as the real daemon has there, and the same ones left
//! behind. After `quit` the sockets and the lock stay; after a death all of them do.

use crate::control::SOCKET;
use crate::daemon::milliseconds;
use crate::variable;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

const PID: &str = "nvidia-cuda-mps-control.pid";
/// Servers and clients write into it.
const LOG: &str = "log";

/// The files of a daemon that runs.
pub(crate) struct Files {
    pipe_directory: PathBuf,
    /// Held for life: one daemon a pipe directory.
    _lock: File,
    /// Nobody speaks to it here.
    _privileged: UnixListener,
}

impl Files {
    /// Makes them, over whatever another daemon left; and the socket that is listened on.
    pub(crate) fn take(pipe_directory: &Path, log_directory: &Path) -> Result<(Self, UnixListener), String> {
        for directory in [pipe_directory, log_directory] {
            std::fs::create_dir_all(directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let path = |name: &str| pipe_directory.join(name);
        let lock = File::create(path("control_lock")).map_err(|error| error.to_string())?;
        lock.try_lock().map_err(|_| "An instance of this daemon is already running".to_owned())?;
        for_all(&path("control_lock"), 0o666)?;
        write_pid_file(&path(PID))?;
        without(&path(LOG))?;
        mknodat(CWD, path(LOG), FileType::Fifo, Mode::from_raw_mode(0o777), 0)
            .map_err(|error| error.to_string())?;
        for_all(&path(LOG), 0o777)?;
        let privileged = listen(&path("control_privileged"), 0o755)?;
        std::thread::sleep(milliseconds("MPS_DOUBLE_DEAF_MS"));
        let listener = listen(&path(SOCKET), 0o666)?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok((
            Self { pipe_directory: pipe_directory.to_owned(), _lock: lock, _privileged: privileged },
            listener,
        ))
    }

    /// What does not stay after `quit`.
    pub(crate) fn leave(self) {
        for name in [PID, LOG] {
            // Whoever took the directory away has them too.
            let _ = std::fs::remove_file(self.pipe_directory.join(name));
        }
    }
}

fn write_pid_file(path: &Path) -> Result<(), String> {
    if variable("MPS_DOUBLE_WITHOUT_PID_FILE").is_some() {
        return Ok(());
    }
    std::fs::write(path, std::process::id().to_string()).map_err(|error| error.to_string())?;
    for_all(path, 0o666)
}

fn listen(path: &Path, mode: u32) -> Result<UnixListener, String> {
    without(path)?;
    let listener = UnixListener::bind(path).map_err(|error| error.to_string())?;
    for_all(path, mode)?;
    Ok(listener)
}

fn without(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Whatever the umask is.
fn for_all(path: &Path, mode: u32) -> Result<(), String> {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| error.to_string())
}
