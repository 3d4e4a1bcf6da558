//! What is wrong in a file: one sentence a mistake, with the line where it stands.

use std::fmt;
use std::path::PathBuf;

/// Something that is not allowed in a file, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where, from 1.
    pub line: usize,
    /// Which key; empty where the file is no TOML.
    pub key: String,
    /// What is wrong and what is allowed.
    pub sentence: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.sentence)
    }
}

/// Why a program does not start with a file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The path, as it was given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It holds something that is not allowed.
    #[error("{}", listed(path, mistakes))]
    Wrong {
        /// The path, as it was given.
        path: PathBuf,
        /// At least one.
        mistakes: Vec<Mistake>,
    },
}

fn listed(path: &std::path::Path, mistakes: &[Mistake]) -> String {
    let lines: Vec<String> =
        mistakes.iter().map(|mistake| format!("{}, {mistake}", path.display())).collect();
    lines.join("\n")
}

impl ConfigError {
    pub(crate) fn wrong(path: &std::path::Path, mistakes: Vec<Mistake>) -> Self {
        Self::Wrong { path: path.to_owned(), mistakes }
    }
}
