//! Where a campaign is remembered, so that it can be followed again: one JSON file a script (of a canary: a node) in the user's own folder
//! (`$XDG_STATE_HOME`, else `~/.local/state`), one folder a kind of campaign, after the XDG base directory specification. One at a time follows it.

use crate::error::CliError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file's name is not longer than this on any file system that matters.
const NAME_BYTES_MAX: usize = 200;

/// The record of one script, held by this process alone.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    lock: File,
}

/// The lock is taken back by name: closing the file does it only once every copy is closed, and a process that another
/// thread is just starting holds one until it runs its program.
impl Drop for Record {
    fn drop(&mut self) {
        // Who cannot take it back closes it, at the latest with the process.
        let _ = self.lock.unlock();
    }
}

/// The folder of campaigns of a kind, by the environment; `None` where it names no home.
pub fn folder(state_home: Option<&str>, home: Option<&str>, kind: &str) -> Option<PathBuf> {
    let state = absolute(state_home).map(Path::to_owned);
    let state = state.or_else(|| Some(absolute(home)?.join(".local/state")));
    state.map(|state| state.join("pillion").join(kind))
}

/// The specification has paths that are not absolute ignored.
fn absolute(text: Option<&str>) -> Option<&Path> {
    text.map(Path::new).filter(|path| path.is_absolute())
}

fn path(folder: &Path, script: &str) -> PathBuf {
    folder.join(format!("{}.json", name_of(script)))
}

/// `/home/alice/train.sh` as one name, as editors do it: `%home%alice%train.sh`.
fn name_of(script: &str) -> String {
    let name = script.replace('/', "%");
    let cut = name.len().saturating_sub(NAME_BYTES_MAX);
    let from = (cut..=name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name[from..].to_owned()
}

impl Record {
    /// Whether there is one.
    pub fn exists(folder: &Path, script: &str) -> bool {
        path(folder, script).exists()
    }

    /// Opens the record of a script, or of what else a campaign is about, and what it remembers.
    ///
    /// # Errors
    /// [`CliError::TryLater`] where another process follows the same script; [`CliError::File`]; [`CliError::Data`] for a
    /// file that is none of ours.
    pub fn open<C: DeserializeOwned>(folder: &Path, script: &str) -> Result<(Self, Option<C>), CliError> {
        fs::create_dir_all(folder).map_err(CliError::file("write", folder))?;
        let path = path(folder, script);
        let lock_path = path.with_extension("lock");
        let lock = File::create(&lock_path).map_err(CliError::file("write", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = format!("another process of yours follows {script}");
                return Err(CliError::TryLater(why));
            }
            Err(TryLockError::Error(source)) => return Err(CliError::file("write", &lock_path)(source)),
        }
        let known = match fs::read(&path) {
            Ok(bytes) => {
                let campaign = serde_json::from_slice::<C>(&bytes).map_err(|error| {
                    CliError::Data(format!(
                        "{} cannot be read ({error}); remove it to begin the campaign anew",
                        path.display()
                    ))
                })?;
                Some(campaign)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(CliError::file("read", &path)(source)),
        };
        Ok((Self { path, lock }, known))
    }

    /// Remembers it: whole, or as it was before.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub fn save<C: Serialize>(&self, campaign: &C) -> Result<(), CliError> {
        let text = crate::output::json::render(campaign);
        let draft = self.path.with_extension("new");
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&draft, &self.path)).map_err(CliError::file("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::super::campaign::{Campaign, Run, Subject};
    use super::*;
    use pillion_core::{CapStep, SlurmJobId, UnixTime};

    fn campaign() -> Campaign {
        let text = "#!/bin/sh\n".to_owned();
        let (arguments, options) = (vec!["a b".to_owned()], Vec::new());
        let run = Run {
            cap: CapStep::WHOLE,
            job_id: SlurmJobId::plain(7),
            submitted_at: UnixTime::from_epoch(9),
            outcome: None,
        };
        let subject = Subject { script: "/home/alice/x.sh".to_owned(), text, arguments, options };
        Campaign { subject, runs: vec![run], intent: None }
    }

    #[test]
    fn what_was_remembered_is_there_again_and_one_at_a_time_follows_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/er");
        let (record, known) = Record::open::<Campaign>(&place, "/home/alice/x.sh").unwrap();
        assert_eq!(known, None);
        record.save(&campaign()).unwrap();
        let error = Record::open::<Campaign>(&place, "/home/alice/x.sh").unwrap_err();
        assert!(error.to_string().contains("another process of yours follows"), "{error}");
        // As a process that is just being started would.
        let inherited = record.lock.try_clone().unwrap();
        drop(record);
        let (_record, known) = Record::open(&place, "/home/alice/x.sh").unwrap();
        assert_eq!(known, Some(campaign()));
        drop(inherited);
        fs::write(place.join("%home%alice%y.sh.json"), "{}").unwrap();
        let error = Record::open::<Campaign>(&place, "/home/alice/y.sh").unwrap_err();
        assert!(error.to_string().contains("remove it to begin"), "{error}");
    }

    #[test]
    fn it_lies_in_the_users_own_folder() {
        let at = |state, home| folder(state, home, "characterize").map(|path| path.display().to_string());
        assert_eq!(at(Some("/s"), Some("/h")).as_deref(), Some("/s/pillion/characterize"));
        assert_eq!(at(Some("s"), Some("/h")).as_deref(), Some("/h/.local/state/pillion/characterize"));
        assert_eq!(at(None, None), None);
        let long = name_of(&format!("/{}/x.sh", "ä".repeat(300)));
        assert!(long.len() <= NAME_BYTES_MAX && long.ends_with("%x.sh"));
    }
}
