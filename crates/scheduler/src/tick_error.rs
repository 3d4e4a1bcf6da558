//! Why a tick could not be finished. Beside `context`, for what the context is made of fails with it, too.

use pillion_slurm::SlurmError;
use pillion_store::StoreError;
use std::path::PathBuf;

/// Why a tick could not be finished; the next one is the retry.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    /// Slurm did not answer or refused.
    #[error("cannot {action}")]
    Slurm {
        /// What we were doing.
        action: &'static str,
        source: SlurmError,
    },
    /// The store did not answer or refused.
    #[error("cannot use the store")]
    Store(#[from] StoreError),
    /// A model could not be trained or read: its thread ended badly.
    #[error("the model's thread ended badly")]
    Training { source: tokio::task::JoinError },
    /// A trained model cannot be stored: something in it is not a number.
    #[error("the trained model cannot be read back")]
    Model { source: serde_json::Error },
    /// A file of ours could not be written.
    #[error("cannot write {path}")]
    File { path: PathBuf, source: std::io::Error },
}

impl TickError {
    /// Whether it is about the row at hand alone: who goes on with the others does not meet it again.
    pub const fn is_of_one_row(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_of_one_row())
    }

    /// Wraps Slurm's error with what we were doing.
    pub fn slurm(action: &'static str) -> impl FnOnce(SlurmError) -> Self {
        move |source| Self::Slurm { action, source }
    }
}
