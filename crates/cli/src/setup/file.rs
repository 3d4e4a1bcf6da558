//! Files as whole: read, compared, and put in the place of another in one step that keeps its owner, mode and attributes.

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, llistxattr};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Attributes of a file are longer than this nowhere.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// How a file that is not there yet is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    pub mode: u32,
    /// Absent: that of whoever makes it.
    pub gid: Option<u32>,
}

/// What is in a file; `None` where there is none.
///
/// # Errors
/// What the system says.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts `bytes` where `expected` is, in one step: whoever reads meanwhile sees one or the other, whole. Owner, mode and
/// attributes stay. `None`: there is no such file, or is to be none.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where the file is not what is expected; what the system says.
pub(super) fn replace(
    path: &Path,
    expected: Option<&[u8]>,
    bytes: Option<&[u8]>,
    made: Made,
) -> io::Result<()> {
    let Some(bytes) = bytes else {
        is_as_expected(path, expected)?;
        std::fs::remove_file(path)?;
        return sync_folder(path);
    };
    let beside = beside(path)?;
    clear_beside(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = fill(&mut file, path, bytes, made).and_then(|()| is_as_expected(path, expected));
    if let Err(error) = written {
        std::fs::remove_file(&beside)?;
        return Err(error);
    }
    std::fs::rename(&beside, path)?;
    sync_folder(path)
}

fn fill(file: &mut File, path: &Path, bytes: &[u8], made: Made) -> io::Result<()> {
    file.write_all(bytes)?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => {
            fchown(&*file, Some(there.uid()), Some(there.gid()))?;
            file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
            keep_attributes(path, file)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fchown(&*file, None, made.gid)?;
            file.set_permissions(Permissions::from_mode(made.mode))?;
        }
        Err(error) => return Err(error),
    }
    file.sync_all()
}

/// Access lists and the labels of `SELinux` are attributes.
fn keep_attributes(from: &Path, to: &File) -> io::Result<()> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match llistxattr(from, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = lgetxattr(from, name, &mut value)?;
        fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// Between this and the rename lie some microseconds, in which nobody can be kept off a file of his own.
fn is_as_expected(path: &Path, expected: Option<&[u8]>) -> io::Result<()> {
    if read(path)?.as_deref() == expected {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        "it was changed meanwhile; look again, and run this once more",
    ))
}

/// Takes away what a run that was cut off left beside a file.
///
/// # Errors
/// What the system says.
pub(super) fn clear_beside(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(beside(path)?) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where the new one is written: in the same folder, for a rename is one step only there.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    Ok(path.with_file_name(format!(".{}.pillion-setup", name.to_string_lossy())))
}

/// Makes durable which names are in the folder of a file.
///
/// # Errors
/// What the system says.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
