//! `pillion keygen`: the secret of `auth.method = "key"`, made on the controller and copied to every node. With `--rotate` the old
//! key is taken beside the new one for a day, in which the file has to reach every node.

use crate::args::{Global, KeygenArgs};
use crate::config::Config;
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use pillion_auth::{KEY_OVERLAP, new_key, new_key_file};
use pillion_core::UnixTime;
use serde::Serialize;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Made {
    file: String,
    rotated: bool,
}

/// Makes a key, and says what to do with it.
///
/// # Errors
/// [`CliError::Usage`] where the file is there and is not to be rotated, or the other way round; [`CliError::File`],
/// [`CliError::Data`].
pub fn run(args: &KeygenArgs, global: &Global, now: UnixTime) -> Result<Answer, CliError> {
    let path = match &args.file {
        Some(file) => file.clone(),
        None => Config::auth(global.config.as_deref())?.key_path,
    };
    write(&path, args.rotate, now)?;
    let file = path.display().to_string();
    let mut lines = vec![format!("{file}: a new key")];
    if args.rotate {
        let hours = KEY_OVERLAP.as_secs() / 3600;
        lines.push(format!(
            "the key before it is taken for {hours} hours more: copy the file to every node by then"
        ));
    } else {
        lines.push("copy it to every node, where root alone may read it".to_owned());
        lines.push("here it is read by the scheduler: give it to that user (chown slurm)".to_owned());
    }
    let mut table = Table::new(&["FILE", "ROTATED"]);
    table.push(vec![file.clone(), args.rotate.to_string()]);
    let body = json::render(&Made { file, rotated: args.rotate });
    Ok(Answer { blocks: lines.into_iter().map(Block::Line).collect(), parsable: table, json: body })
}

fn write(path: &Path, rotates: bool, now: UnixTime) -> Result<(), CliError> {
    let before = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(CliError::file("read", path)(error)),
    };
    let shown = path.display();
    match (&before, rotates) {
        (Some(_), false) => {
            return Err(CliError::Usage(format!(
                "{shown} is there already; '--rotate' puts a new key in front of its key"
            )));
        }
        (None, true) => {
            return Err(CliError::Usage(format!("there is no {shown} to rotate; leave out '--rotate'")));
        }
        _ => {}
    }
    let new = new_key().ok_or_else(|| Error::other("the system gives no random numbers"));
    let new = new.map_err(CliError::file("write", path))?;
    let text = new_key_file(&new, before.as_deref(), now)
        .ok_or_else(|| CliError::Data(format!("{shown} is no file of keys; move it away")))?;
    replace(path, &text).map_err(CliError::file("write", path))
}

/// Puts a file in place whole, with the owner and the mode of the one before it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh: PathBuf = path.with_file_name(name);
    // Left behind by one that was ended in the middle.
    let _ = std::fs::remove_file(&fresh);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    if let Ok(before) = std::fs::metadata(path) {
        fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(Permissions::from_mode(before.mode() & 0o640))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_auth::Keys;

    #[test]
    fn a_key_is_made_once_and_rotated_after_that() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth.key");
        let at = UnixTime::from_epoch;
        assert!(matches!(write(&path, true, at(1000)), Err(CliError::Usage(_))));
        write(&path, false, at(1000)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(write(&path, false, at(1000)), Err(CliError::Usage(_))));
        let text = || std::fs::read_to_string(&path).unwrap();
        let old = Keys::parse(&text(), at(1000)).unwrap().code("payload");

        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write(&path, true, at(2000)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let keys = |now| Keys::parse(&text(), at(now)).unwrap();
        assert!(keys(2001).code("payload") != old && keys(2001).made_with("payload", &old).is_some());
        assert!(keys(2000 + KEY_OVERLAP.as_secs()).made_with("payload", &old).is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");

        std::fs::write(&path, "somebody's notes\n").unwrap();
        assert!(matches!(write(&path, true, at(3000)), Err(CliError::Data(_))));
        assert_eq!(text(), "somebody's notes\n");
    }
}
