//! Small files that are replaced whole: after a crash there is the old one or the new one, never half of either.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use tracing::warn;

/// Replaces `path` by `value` as JSON. `durable`: also across a loss of power.
///
/// # Errors
/// Whatever the disk says.
pub fn replace<T: Serialize>(path: &Path, value: &T, durable: bool) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    if durable {
        file.sync_all()?;
    }
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(directory) if durable => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

/// Reads what [`replace`] wrote; a file that cannot be read is warned of and set aside, for the agent must start.
pub fn read_or_default<T: DeserializeOwned + Default>(path: &Path) -> T {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return T::default(),
        Err(error) => {
            warn!(path = %path.display(), %error, "state cannot be read; starting without it");
            return T::default();
        }
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        let aside = path.with_extension("unreadable");
        warn!(path = %path.display(), aside = %aside.display(), %error, "state is no state; set aside");
        let _ = std::fs::rename(path, aside);
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_garbage_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert_eq!(read_or_default::<Vec<u32>>(&path), Vec::<u32>::new());
        replace(&path, &vec![1_u32, 2], true).unwrap();
        replace(&path, &vec![3_u32], false).unwrap();
        assert_eq!(read_or_default::<Vec<u32>>(&path), [3]);
        std::fs::write(&path, "[3").unwrap();
        assert_eq!(read_or_default::<Vec<u32>>(&path), Vec::<u32>::new());
        assert!(!path.exists() && directory.path().join("state.unreadable").exists());
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_no_state_and_one_beside_it_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        replace(&path, &vec![1_u32, 22, 333], true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            // Power went while the next one was written: the last one stands.
            std::fs::write(path.with_extension("new"), &whole[..length]).unwrap();
            assert_eq!(read_or_default::<Vec<u32>>(&path), [1, 22, 333], "{length}");
            // A file system that renames before it writes.
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read_or_default::<Vec<u32>>(&path), Vec::<u32>::new(), "{length}");
            replace(&path, &vec![1_u32, 22, 333], true).unwrap();
        }
    }
}
