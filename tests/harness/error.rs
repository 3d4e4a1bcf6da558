//! What can go wrong in the harness, as one sentence each.

use std::path::{Path, PathBuf};

/// An error of the harness; the tests print it and fail.
#[derive(thiserror::Error)]
pub enum HarnessError {
    /// Started outside the namespace that `pillion-testbed enter` makes.
    #[error(
        "a cluster starts only inside the testbed; run `tests/run slurm`, or `tests/run shell` for a prompt in it"
    )]
    NotInTestbed,
    /// A file or folder could not be made, read or written.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was tried: "write", "make folder".
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A call to the kernel failed.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: String,
        /// Why not.
        #[source]
        source: rustix::io::Errno,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Its name or path.
        program: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("{command} ended with {status}: {output}")]
    Failed {
        /// The whole command.
        command: String,
        /// Its exit code or signal.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// Something that was waited for did not happen.
    #[error("after {seconds:.1} s still no {what}; {detail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: f64,
        /// What was seen instead.
        detail: String,
    },
    /// A program that should run has ended.
    #[error("{program} has ended ({status}); the end of its log:\n{log}")]
    DaemonEnded {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// What a caller asked for makes no sense, or is not installed.
    #[error("{0}")]
    Refused(String),
}

/// The whole chain as it is meant to be read: `unwrap` in a test prints this.
impl std::fmt::Debug for HarnessError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&pillion_core::report(self))
    }
}

/// The result of most calls here.
pub type Result<T, E = HarnessError> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the path.
pub fn io_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> HarnessError {
    let path = path.to_owned();
    move |source| HarnessError::Io { action, path, source }
}

/// Turns a kernel error into one that says what was tried.
pub(crate) fn system_error(action: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> HarnessError {
    let action = action.into();
    move |source| HarnessError::System { action, source }
}
