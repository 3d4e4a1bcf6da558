//! Whose the way to an instance is: whoever opens the capability file of a GPU instance and that of a compute instance in it may
//! compute there (MIG user guide, "Device Nodes and Capabilities"). `/proc/driver/nvidia-caps/mig-minors` says which files of
//! `/dev/nvidia-caps` they are. The numbers of instances come again, and so do their files: with their owner of then.
//!
//! No file is made here. An owner may change the mode of his file, so a file is first taken to root, and closed, before it is
//! anybody's.

use crate::DeviceError;
use crate::mechanism::mig::{Access, CLOSED};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// Where the files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigFiles {
    /// Of devices and capabilities: `/dev`.
    pub devices: PathBuf,
    /// What drivers tell of themselves: `/proc/driver`.
    pub drivers: PathBuf,
}

impl Default for MigFiles {
    fn default() -> Self {
        Self { devices: "/dev".into(), drivers: "/proc/driver".into() }
    }
}

/// A capability of an instance, and the number of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capability {
    pub(super) device: u32,
    pub(super) gpu_instance_id: u32,
    /// `None`: it is the GPU instance's own.
    compute_instance_id: Option<u32>,
    pub(super) minor: u32,
}

/// How a file was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileBefore {
    path: PathBuf,
    minor: u32,
    owner_and_mode: (u32, u32),
}

impl MigFiles {
    /// `/dev/nvidiaN`, which every program on a device has open.
    pub(super) fn device(&self, index: u32) -> PathBuf {
        self.devices.join(format!("nvidia{index}"))
    }

    /// The file of a capability.
    pub(super) fn capability(&self, minor: u32) -> PathBuf {
        self.devices.join(format!("nvidia-caps/nvidia-cap{minor}"))
    }

    /// All capabilities of instances that there can be; none where the driver lists none.
    pub(super) fn capabilities(&self) -> io::Result<Vec<Capability>> {
        match fs::read_to_string(self.drivers.join("nvidia-caps/mig-minors")) {
            Ok(text) => Ok(parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn of_instance(&self, index: u32, gpu_instance_id: u32) -> Result<Vec<Capability>, DeviceError> {
        let all = self.capabilities().map_err(|error| {
            let path = self.drivers.join("nvidia-caps/mig-minors");
            DeviceError::NotReady { index, reason: format!("{} cannot be read: {error}", path.display()) }
        })?;
        let is_of_it = |it: &Capability| (it.device, it.gpu_instance_id) == (index, gpu_instance_id);
        Ok(all.into_iter().filter(is_of_it).collect())
    }

    /// Sets what there is of an instance's files, those of every compute instance that it can have; gives how they were.
    ///
    /// # Errors
    /// [`DeviceError::Refused`].
    pub(super) fn set_present(
        &self,
        index: u32,
        gpu_instance_id: u32,
        access: Access,
    ) -> Result<Vec<FileBefore>, DeviceError> {
        let mut before = Vec::new();
        for Capability { minor, .. } in self.of_instance(index, gpu_instance_id)? {
            let path = self.capability(minor);
            before.extend(
                set(&path, minor, access.owner_and_mode()).map_err(|error| not_set(index, &path, &error))?,
            );
        }
        Ok(before)
    }

    /// Gives the way into an instance, by these compute instances, to somebody.
    ///
    /// # Errors
    /// As [`MigControl::give`](crate::MigControl::give).
    pub(super) fn give(
        &self,
        index: u32,
        gpu_instance_id: u32,
        compute: &[u32],
        access: Access,
    ) -> Result<(), DeviceError> {
        if access != Access::Everybody {
            self.check_kept(index)?;
        }
        let all = self.of_instance(index, gpu_instance_id)?;
        let ways = [None].into_iter().chain(compute.iter().map(|id| Some(*id)));
        for way in ways {
            let found = all.iter().find(|it| it.compute_instance_id == way).ok_or_else(|| {
                let of = way.map(|id| format!(", compute instance {id}")).unwrap_or_default();
                let reason = format!("its driver lists no capability of GPU instance {gpu_instance_id}{of}");
                DeviceError::Unsupported { index, reason }
            })?;
            let path = self.capability(found.minor);
            let before = set(&path, found.minor, access.owner_and_mode());
            before.map_err(|error| not_set(index, &path, &error))?.ok_or_else(|| {
                let reason = format!("there is no {}, which udev or nvidia-modprobe makes", path.display());
                DeviceError::Unsupported { index, reason }
            })?;
        }
        Ok(())
    }

    /// A driver that makes its files anew opens them to everybody, at any time.
    fn check_kept(&self, index: u32) -> Result<(), DeviceError> {
        let why = self.why_not_kept();
        why.map_or(Ok(()), |reason| Err(DeviceError::Refused { index, reason }))
    }

    /// Why nobody can be given an instance for himself: the driver makes its files anew by itself, or does not say whether it does.
    pub fn why_not_kept(&self) -> Option<String> {
        let path = self.drivers.join("nvidia/params");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Some(format!("{} cannot be read: {error}", path.display())),
        };
        match keeps_files(&text) {
            Some(true) => None,
            Some(false) => Some(
                "its driver makes its device files anew by itself, open to everybody; it needs NVreg_ModifyDeviceFiles=0"
                    .to_owned(),
            ),
            None => Some(format!("{} does not tell ModifyDeviceFiles", path.display())),
        }
    }
}

/// Leaves files as they were.
///
/// # Errors
/// [`DeviceError::Refused`].
pub(super) fn restore(index: u32, before: &[FileBefore]) -> Result<(), DeviceError> {
    for FileBefore { path, minor, owner_and_mode } in before {
        set(path, *minor, *owner_and_mode).map_err(|error| not_set(index, path, &error))?;
    }
    Ok(())
}

fn not_set(index: u32, path: &Path, error: &io::Error) -> DeviceError {
    let reason = format!("{} cannot be given to anybody: {error}", path.display());
    DeviceError::Refused { index, reason }
}

/// Whether the driver leaves device files as they are (`/proc/driver/nvidia/params`, `ModifyDeviceFiles: 0`); `None`: it is not
/// told.
fn keeps_files(params: &str) -> Option<bool> {
    let value = params.lines().find_map(|line| line.strip_prefix("ModifyDeviceFiles:"))?;
    Some(value.trim() == "0")
}

/// Gives a file to its owner, and how it was; `None` if it is not there.
fn set(path: &Path, minor: u32, (uid, mode): (u32, u32)) -> io::Result<Option<FileBefore>> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let kind = found.file_type();
    if !(kind.is_file() || kind.is_char_device() && rustix::fs::minor(found.rdev()) == minor) {
        return Err(io::Error::other("it is not the file of its number"));
    }
    let before = (found.uid(), found.permissions().mode() & 0o7777);
    if before != (uid, mode) || found.gid() != 0 {
        lchown(path, Some(0), Some(0))?;
        fs::set_permissions(path, Permissions::from_mode(CLOSED))?;
        lchown(path, Some(uid), Some(0))?;
        if mode != CLOSED {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
    }
    Ok(Some(FileBefore { path: path.to_owned(), minor, owner_and_mode: before }))
}

/// Lines such as `gpu0/gi7/access 66` and `gpu0/gi7/ci0/access 67`; those of other capabilities are passed over.
fn parse(text: &str) -> Vec<Capability> {
    text.lines().filter_map(capability).collect()
}

fn capability(line: &str) -> Option<Capability> {
    let (path, minor) = line.trim().split_once(' ')?;
    let mut parts = path.strip_suffix("/access")?.split('/');
    let device = parts.next()?.strip_prefix("gpu")?.parse().ok()?;
    let gpu_instance_id = parts.next()?.strip_prefix("gi")?.parse().ok()?;
    let compute_instance_id = match parts.next() {
        Some(part) => Some(part.strip_prefix("ci")?.parse().ok()?),
        None => None,
    };
    let minor = minor.trim().parse().ok()?;
    let capability = Capability { device, gpu_instance_id, compute_instance_id, minor };
    parts.next().is_none().then_some(capability)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::UserId;
    use proptest::prelude::*;

    const MINORS: &str = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu0/gi0/ci1/access 5\n\
        gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu1/gi1/access 140\ngpu1/gi1/ci0/access 141\ngpu0/gi1/ci0/other 9\n\
        gpu0/gi1/ci0/x/access 9\ngpux/gi1/access 9\n";

    struct Node(tempfile::TempDir);

    impl Node {
        fn new(params: &str) -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            for folder in ["dev/nvidia-caps", "driver/nvidia-caps", "driver/nvidia"] {
                fs::create_dir_all(node.0.path().join(folder)).unwrap();
            }
            fs::write(node.0.path().join("driver/nvidia-caps/mig-minors"), MINORS).unwrap();
            fs::write(node.0.path().join("driver/nvidia/params"), params).unwrap();
            for minor in [3, 4, 5, 12, 13, 140] {
                let path = node.files().capability(minor);
                fs::write(&path, "").unwrap();
                fs::set_permissions(path, Permissions::from_mode(0o444)).unwrap();
            }
            node
        }
        fn files(&self) -> MigFiles {
            MigFiles { devices: self.0.path().join("dev"), drivers: self.0.path().join("driver") }
        }
        fn of(&self, minor: u32) -> (u32, u32) {
            let found = fs::metadata(self.files().capability(minor)).unwrap();
            (found.uid(), found.permissions().mode() & 0o7777)
        }
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!("SKIPPED: only root gives files away");
        }
        is_root
    }

    #[test]
    fn the_files_of_an_instance_are_found_by_its_numbers() {
        let all = parse(MINORS);
        assert_eq!(all.len(), 7, "{all:?}");
        let minors: Vec<u32> = all.iter().filter(|it| it.device == 1).map(|it| it.minor).collect();
        assert_eq!(minors, [140, 141]);
        let node = Node::new("");
        let of = |index, id| node.files().of_instance(index, id).unwrap().len();
        assert_eq!((of(0, 0), of(0, 1), of(1, 1), of(1, 0)), (3, 2, 2, 0));
        fs::remove_file(node.0.path().join("driver/nvidia-caps/mig-minors")).unwrap();
        assert_eq!(of(0, 0), 0, "a driver without MIG has no list");
    }

    proptest! {
        #[test]
        fn each_capability_is_read_back_as_it_is_written_whatever_stands_beside_it(
            device in 0..64_u32, gpu_instance_id in 0..64_u32, compute_instance_id in proptest::option::of(0..8_u32),
            minor in 0..100_000_u32, other in "\\PC{0,40}",
        ) {
            let ci = compute_instance_id.map(|id| format!("/ci{id}")).unwrap_or_default();
            let text = format!("{other}\ngpu{device}/gi{gpu_instance_id}{ci}/access {minor}\n{other}");
            let expected = Capability { device, gpu_instance_id, compute_instance_id, minor };
            prop_assert!(parse(&text).contains(&expected));
        }
    }

    #[test]
    fn a_driver_that_makes_its_files_anew_is_not_given_any() {
        assert_eq!(
            keeps_files("RegisterForACPIEvents: 1\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n"),
            Some(true)
        );
        assert_eq!(keeps_files("ModifyDeviceFiles: 1\n"), Some(false));
        assert_eq!(keeps_files("EnableMSI: 1\n"), None);
        for (params, says) in [("ModifyDeviceFiles: 1\n", "NVreg_ModifyDeviceFiles=0"), ("", "does not tell")]
        {
            let refused = Node::new(params).files().give(0, 1, &[0], Access::User(UserId(7))).unwrap_err();
            assert!(matches!(refused, DeviceError::Refused { index: 0, .. }), "{refused}");
            assert!(refused.to_string().contains(says), "{refused}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_not_made() {
        let node = Node::new("ModifyDeviceFiles: 0\n");
        let files = node.files();
        if is_root() {
            let absent = files.give(1, 1, &[0], Access::User(UserId(7))).unwrap_err();
            assert!(absent.to_string().contains("nvidia-cap141"), "{absent}");
            assert!(!files.capability(141).exists());
            files.set_present(1, 1, Access::Root).unwrap();
        }
        let unlisted = files.give(1, 9, &[0], Access::User(UserId(7))).unwrap_err();
        assert!(matches!(&unlisted, DeviceError::Unsupported { .. }), "{unlisted}");
    }

    #[test]
    fn a_file_is_one_users_alone_whatever_he_made_of_it_and_his_no_more_afterwards() {
        if !is_root() {
            return;
        }
        let node = Node::new("ModifyDeviceFiles: 0\n");
        let files = node.files();
        files.give(0, 0, &[0], Access::User(UserId(1001))).unwrap();
        assert_eq!(
            [3, 4, 5, 12].map(|minor| node.of(minor)),
            [(1001, 0o400), (1001, 0o400), (0, 0o444), (0, 0o444)]
        );
        // As its owner may.
        fs::set_permissions(files.capability(4), Permissions::from_mode(0o666)).unwrap();
        files.give(0, 0, &[0], Access::User(UserId(1001))).unwrap();
        assert_eq!(node.of(4), (1001, 0o400));
        fs::set_permissions(files.capability(4), Permissions::from_mode(0o666)).unwrap();
        files.give(0, 0, &[0], Access::User(UserId(1002))).unwrap();
        assert_eq!(node.of(4), (1002, 0o400));
        let before = files.set_present(0, 0, Access::Root).unwrap();
        assert_eq!([3, 4, 5].map(|minor| node.of(minor)), [(0, 0o400); 3], "of all that it can have");
        restore(0, &before).unwrap();
        assert_eq!([3, 4, 5].map(|minor| node.of(minor)), [(1002, 0o400), (1002, 0o400), (0, 0o444)]);
        files.set_present(0, 0, Access::Everybody).unwrap();
        assert_eq!([3, 4, 5].map(|minor| node.of(minor)), [(0, 0o444); 3]);
        fs::remove_file(files.capability(3)).unwrap();
        std::os::unix::fs::symlink("/nowhere", files.capability(3)).unwrap();
        let refused = files.set_present(0, 0, Access::Root).unwrap_err();
        assert!(matches!(refused, DeviceError::Refused { .. }), "no way to another file: {refused}");
    }
}
