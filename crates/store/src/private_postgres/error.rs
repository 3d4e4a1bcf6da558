//! Why there is no private Postgres, and what to do about it.

use std::io;
use std::path::PathBuf;

/// The longest directory in which a Unix socket can be made (107 bytes with its name).
pub(super) const DIRECTORY_LENGTH_MAX: usize = 107 - "/.s.PGSQL.5432.lock".len();

/// Why there is no private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePostgresError {
    /// Postgres refuses root.
    #[error("a private Postgres cannot run as root; run the scheduler as SlurmUser, or set database.url")]
    Root,
    #[error(
        "found no PostgreSQL server programs in {searched}; install the package postgresql, or set \
         database.binary_directory or database.url"
    )]
    NoPrograms {
        /// Where we looked.
        searched: String,
    },
    /// Programs of other versions than the data.
    #[error(
        "the data in {} were made by PostgreSQL {data}, and {found} is installed; install PostgreSQL {data}, run \
         pg_upgrade, or set database.url", directory.display()
    )]
    OtherVersion {
        /// Where the data are.
        directory: PathBuf,
        data: u32,
        /// What there is.
        found: String,
    },
    /// Another scheduler uses the directory.
    #[error("{} is in use by another scheduler; give each its own state_directory, or one database.url", .0.display())]
    InUse(PathBuf),
    /// The socket's path would be too long.
    #[error(
        "{} is too long for a Unix socket ({} bytes, at most {DIRECTORY_LENGTH_MAX} are allowed); choose a shorter \
         state_directory", .0.display(), .0.as_os_str().len()
    )]
    PathTooLong(PathBuf),
    /// A file of ours.
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A program did not do it.
    #[error("{program} failed: {output}")]
    Program {
        program: &'static str,
        /// The last thing that it said.
        output: String,
    },
    /// Processes of an earlier server are still there.
    #[error("processes of an earlier server still use {}", .0.display())]
    Orphans(PathBuf),
}

impl PrivatePostgresError {
    /// Whether the answer stays the same until somebody changes something.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::Root | Self::NoPrograms { .. } | Self::OtherVersion { .. } | Self::PathTooLong(_) => true,
            Self::File { source, .. } => pillion_core::exit::needs_somebody(source),
            Self::InUse(_) | Self::Program { .. } | Self::Orphans(_) => false,
        }
    }
}
