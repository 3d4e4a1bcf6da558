//! Who reaches a pipe directory. NVIDIA's sockets in it are open to everybody, whatever the umask, so the way to them decides:
//! the directory is root's, and each tenant's user has an entry of his own in its access list. He may pass and list it and
//! change nothing in it; nobody else gets in. A group would not do: users of one device need have none in common.

use pillion_core::UserId;
use rustix::fs::XattrFlags;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Where the kernel keeps an access list (acl(5)), as `linux/posix_acl_xattr.h` lays it out.
const ACCESS_LIST: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const READ_AND_PASS: u16 = 5;
const ALL: u16 = 7;

/// Makes a pipe directory that nobody but root reaches yet; one that is there stays as it is.
///
/// # Errors
/// Whatever the file system says.
pub fn make_private(pipe_directory: &Path) -> io::Result<()> {
    if let Some(parent) = pipe_directory.parent() {
        make_passable(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(pipe_directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && pipe_directory.is_dir() => Ok(()),
        made => made,
    }
}

/// Makes the way to a pipe directory, whatever the umask is; what is there stays as it is.
fn make_passable(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_passable(parent)?;
    }
    std::fs::create_dir(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o711))
}

/// Lets these users in, and nobody else but root.
///
/// # Errors
/// Whatever the file system says: also if it has no access lists. Then nobody is let in.
pub(super) fn let_in(pipe_directory: &Path, users: &BTreeSet<UserId>) -> io::Result<()> {
    // First: an access list adds to it.
    std::fs::set_permissions(pipe_directory, std::fs::Permissions::from_mode(0o700))?;
    rustix::fs::setxattr(pipe_directory, ACCESS_LIST, &access_list(users), XattrFlags::empty())?;
    Ok(())
}

/// Entries of tag, permissions and id: the owner, the users by ascending id, the group, the mask, all others.
fn access_list(users: &BTreeSet<UserId>) -> Vec<u8> {
    let named = users.iter().map(|user| (0x02, READ_AND_PASS, user.0));
    let entries = [(0x01, ALL, NO_ID)].into_iter().chain(named);
    let entries = entries.chain([(0x04, 0, NO_ID), (0x10, READ_AND_PASS, NO_ID), (0x20, 0, NO_ID)]);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        let tag: u16 = tag;
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_open_to_its_users_and_to_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("g0/pipe");
        make_private(&pipe).unwrap();
        make_private(&pipe).expect("it is there");
        let mode = || pipe.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        let of_way = directory.path().join("g0").metadata().unwrap().permissions().mode();
        assert_eq!(of_way & 0o777, 0o711);
        // What an earlier release made.
        std::fs::set_permissions(&pipe, std::fs::Permissions::from_mode(0o755)).unwrap();
        let_in(&pipe, &BTreeSet::from([UserId(1001), UserId(1000)])).unwrap();
        assert_eq!(mode(), 0o750, "the mask, which shows as the group's");
        let mut list = vec![0; 100];
        let length = rustix::fs::getxattr(&pipe, ACCESS_LIST, &mut list).unwrap();
        assert_eq!(list[..length], access_list(&BTreeSet::from([UserId(1000), UserId(1001)])));
        let_in(&pipe, &BTreeSet::new()).unwrap();
        let length = rustix::fs::getxattr(&pipe, ACCESS_LIST, &mut list).unwrap();
        assert_eq!(list[..length], access_list(&BTreeSet::new()), "who has left is out");
    }
}
