//! What can go wrong in a command, and with which status it ends. Each message is one sentence that says what to do.

use crate::exit::{self, ExitStatus};
use std::path::{Path, PathBuf};

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line parses and still makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file, or an answer of the scheduler, is not what it should be.
    #[error("{0}")]
    Data(String),
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// Nobody answers there.
    #[error(
        "cannot reach the scheduler at {address} ({why}); see that it runs (systemctl status pillion-scheduler), or name \
         another address with --scheduler or PILLION_SCHEDULER"
    )]
    Unreachable {
        address: String,
        /// What the connection said.
        why: String,
    },
    /// Who is at the other end, or who we are, cannot be proven now.
    #[error("you and the scheduler cannot prove to each other who you are now: {0}; try again later")]
    Unproven(String),
    /// It is there and cannot answer now.
    #[error("the scheduler cannot answer now ({0}); try again later")]
    TryLater(String),
    /// Slurm's programs got no answer in time; what they asked for may happen yet.
    #[error("Slurm cannot answer now ({0}); try again later")]
    SlurmBusy(String),
    /// What was done before nobody can say any more.
    #[error("{0}")]
    Unknowable(String),
    /// It answered no.
    #[error("the scheduler refused: {0}")]
    Refused(String),
    /// Slurm did not answer.
    #[error("cannot read from Slurm; see that slurmctld runs and that scontrol works here")]
    Slurm(#[source] pillion_slurm::SlurmError),
    /// The answer could not be printed.
    #[error("cannot print the answer")]
    Print(#[source] std::io::Error),
}

impl CliError {
    /// Of a file, once its error is there: `.map_err(CliError::file("read", path))`. `action`: `read` or `write`.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// How the program ends after it.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::Data(_) | Self::File { .. } => exit::DATA,
            Self::Unreachable { .. } => exit::UNREACHABLE,
            Self::TryLater(_) | Self::Unproven(_) | Self::SlurmBusy(_) | Self::Slurm(_) => exit::TRY_LATER,
            Self::Refused(_) | Self::Unknowable(_) | Self::Print(_) => exit::PROBLEM,
        }
    }
}
