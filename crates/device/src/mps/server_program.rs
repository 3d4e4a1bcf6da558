//! The program that a daemon starts its servers from, and whether a process runs it. Files are compared, not names: an update may
//! have put another file in its place while the daemon ran.

use super::process::{Process, SERVER_PROGRAM};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file, however it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at this path, or that it leads to.
    fn at(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The program that a daemon starts its servers from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerProgram {
    path: PathBuf,
    /// When the daemon was started: an update puts another one in its place.
    file: FileId,
}

impl ServerProgram {
    /// It lies beside the daemon's own program.
    pub(super) fn of(daemon: Process) -> Option<Self> {
        let path = daemon.program()?.with_file_name(SERVER_PROGRAM);
        Some(Self { file: FileId::at(&path)?, path })
    }

    /// Whether the process runs it, as it was or as it is now.
    pub(super) fn is_run_by(&self, process: Process) -> bool {
        let runs = FileId::at(&process.program_link());
        runs.is_some_and(|runs| runs == self.file || FileId::at(&self.path) == Some(runs))
    }
}
