//! What setup did on this host, by which it is undone: for each file what was there, and all that setup made of it.

use super::file;
use crate::error::CliError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
const NAME: &str = "record.json";

/// What was done for one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub version: u32,
    pub files: Vec<Kept>,
    /// Units that setup enabled, and that were not before.
    pub units: Vec<String>,
    /// Partitions of the pool, each that was ever named.
    pub partitions: Vec<String>,
}

/// A file with its copies, which lie beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub path: PathBuf,
    /// The copy of what was there; absent: nothing was.
    pub before: Option<String>,
    /// Copies of what setup made of it, the last one last.
    pub afters: Vec<String>,
    /// Whether somebody else changed it between two runs: what was there before the first has not what he did.
    pub is_edited: bool,
}

impl Default for Record {
    fn default() -> Self {
        Self { version: VERSION, files: Vec::new(), units: Vec::new(), partitions: Vec::new() }
    }
}

impl Record {
    /// What the folder holds; nothing where setup never ran.
    ///
    /// # Errors
    /// [`CliError`] for one that cannot be read, or that a later release wrote.
    pub fn load(folder: &Path) -> Result<Self, CliError> {
        let path = folder.join(NAME);
        let Some(bytes) = file::read(&path).map_err(CliError::file("read", &path))? else {
            return Ok(Self::default());
        };
        let record: Self = serde_json::from_slice(&bytes)
            .map_err(|error| CliError::Data(format!("{} is no record of setup: {error}", path.display())))?;
        if record.version != VERSION {
            return Err(CliError::Data(format!(
                "{} is of a later release of Pillion (version {}): use that one",
                path.display(),
                record.version
            )));
        }
        Ok(record)
    }

    /// Where it lies, and as what.
    ///
    /// # Panics
    /// Never: it is made of texts and numbers.
    pub fn written(&self, folder: &Path) -> (PathBuf, Vec<u8>) {
        (folder.join(NAME), serde_json::to_vec_pretty(self).expect("texts and numbers"))
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.units.is_empty()
    }
}

/// Keeps a second setup off this host as long as what it gives is held; ends with the process, however that ends.
///
/// # Errors
/// [`CliError::Data`] where another is at work; [`CliError::File`] where the folder cannot be made.
pub fn lock(folder: &Path) -> Result<File, CliError> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(CliError::file("write", folder))?;
    let path = folder.join("lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = opened.map_err(CliError::file("write", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(CliError::Data(
            "another 'pillion setup' is at work on this host: wait until it has ended".to_owned(),
        )),
        Err(error) => Err(CliError::file("lock", &path)(error.into())),
    }
}
