//! Which programs have a device's files open, as the kernel shows it: whom the driver may mean when it says that somebody uses
//! it. Programs that NVML does not list hold an instance too, such as what reads its meters.
//!
//! A process may end at any moment, and another get its number: all that is read of one is read below one opening of its
//! directory, which is of that process and of no other.

use super::files::MigFiles;
use crate::mechanism::mig::Holder;
use pillion_core::UserId;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, major, minor, openat, readlinkat, statat,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A name longer than the kernel's is none of its.
const NAME_BYTES_MAX: usize = 16;

/// A file that is looked for.
#[derive(Debug)]
struct Wanted {
    path: PathBuf,
    /// The GPU instance that it leads to; `None`: it is the device's own.
    gpu_instance_id: Option<u32>,
    /// Its device number, by which it is known under another path too; `None`: it is not there, or no device file.
    device: Option<u64>,
}

impl Wanted {
    fn new(path: PathBuf, gpu_instance_id: Option<u32>) -> Self {
        let found = std::fs::symlink_metadata(&path).ok().filter(|it| it.file_type().is_char_device());
        Self { device: found.map(|it| it.rdev()), path, gpu_instance_id }
    }
}

/// All programs but this one that have the file of a device or of one of its instances open, by pid; the file of an instance
/// where there are both.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn holders(files: &MigFiles, index: u32) -> io::Result<Vec<Holder>> {
    let capabilities = files.capabilities()?.into_iter().filter(|it| it.device == index);
    let mut wanted: Vec<Wanted> =
        capabilities.map(|it| Wanted::new(files.capability(it.minor), Some(it.gpu_instance_id))).collect();
    wanted.push(Wanted::new(files.device(index), None));
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok()).filter(|pid| *pid != own);
        found.extend(pid.and_then(|pid| holder(pid, &wanted).ok().flatten()));
    }
    found.sort_by_key(|holder: &Holder| holder.pid);
    Ok(found)
}

/// One process; an error: it has ended, or nobody may see what it has open.
fn holder(pid: u32, wanted: &[Wanted]) -> io::Result<Option<Holder>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?;
    let open = openat(&process, "fd", flags, Mode::empty())?;
    let mut held: BTreeSet<usize> = BTreeSet::new();
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut entries = RawDir::new(open.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        held.extend(which(open.as_fd(), entry.file_name(), wanted));
    }
    let Some(first) = held.first() else { return Ok(None) };
    Ok(Some(Holder {
        pid,
        uid: UserId(fstat(&process)?.st_uid),
        program: program(process.as_fd())?,
        file: wanted[*first].path.display().to_string(),
        gpu_instance_ids: held.iter().filter_map(|place| wanted[*place].gpu_instance_id).collect(),
    }))
}

/// Which of those that are looked for an open file is.
fn which(open: BorrowedFd<'_>, name: &CStr, wanted: &[Wanted]) -> Option<usize> {
    let link = readlinkat(open, name, Vec::new()).ok()?;
    let link = Path::new(OsStr::from_bytes(link.as_bytes()));
    let is_named = |it: &Wanted| it.path == link;
    // In a container the same file may lie elsewhere. Only files of that name are looked at: others may be on a dead server.
    let is_alike = |it: &Wanted| it.device.is_some() && it.path.file_name() == link.file_name();
    wanted.iter().position(|it| is_named(it) || is_alike(it) && it.device == device(open, name))
}

/// The device number of an open file.
fn device(open: BorrowedFd<'_>, name: &CStr) -> Option<u64> {
    let found = statat(open, name, AtFlags::empty()).ok()?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    is_device.then(|| rustix::fs::makedev(major(found.st_rdev), minor(found.st_rdev)))
}

/// What the kernel calls it.
fn program(process: BorrowedFd<'_>) -> io::Result<String> {
    let file = openat(process, "comm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; NAME_BYTES_MAX];
    let length = rustix::io::read(&file, &mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Child, Command};

    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            for folder in ["dev/nvidia-caps", "driver/nvidia-caps"] {
                std::fs::create_dir_all(node.0.path().join(folder)).unwrap();
            }
            let minors = "gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu1/gi1/access 140\n";
            std::fs::write(node.0.path().join("driver/nvidia-caps/mig-minors"), minors).unwrap();
            for name in ["nvidia0", "nvidia1", "nvidia-caps/nvidia-cap13", "nvidia-caps/nvidia-cap140"] {
                std::fs::write(node.0.path().join("dev").join(name), "").unwrap();
            }
            node
        }
        fn files(&self) -> MigFiles {
            MigFiles { devices: self.0.path().join("dev"), drivers: self.0.path().join("driver") }
        }
    }

    /// A program with these files open, ended with the test.
    struct Program(Child);

    impl Program {
        #[expect(clippy::disallowed_methods, reason = "another program, which holds a file")]
        fn with(first: &Path, second: &Path) -> Self {
            let (first, second) = (File::open(first).unwrap(), File::open(second).unwrap());
            Self(Command::new("sleep").arg("1000").stdin(first).stdout(second).spawn().unwrap())
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_has_a_device_or_an_instance_of_it_open_is_named_once() {
        let node = Node::new();
        let files = node.files();
        let own = File::open(files.device(0)).unwrap();
        assert_eq!(holders(&files, 0).unwrap(), [], "not ourselves");
        let both = Program::with(&files.device(0), &files.capability(13));
        let other = Program::with(&files.device(1), &files.device(1));
        let named = |index: u32| -> Vec<(u32, String, String)> {
            holders(&files, index).unwrap().into_iter().map(|it| (it.pid, it.program, it.file)).collect()
        };
        let file = |path: PathBuf| path.display().to_string();
        assert_eq!(named(0), [(both.0.id(), "sleep".to_owned(), file(files.capability(13)))]);
        assert_eq!(named(1), [(other.0.id(), "sleep".to_owned(), file(files.device(1)))]);
        let whole = holders(&files, 0).unwrap().remove(0);
        assert_eq!(whole.gpu_instance_ids, [1].into());
        assert_eq!(whole.uid.0, rustix::process::geteuid().as_raw());
        drop(both);
        assert_eq!(named(0), []);
        drop(own);
    }

    #[test]
    fn a_device_is_known_under_another_path() {
        // Every machine has this device file; it is looked for as if it lay elsewhere.
        let wanted = [Wanted { path: "/elsewhere/null".into(), ..Wanted::new("/dev/null".into(), None) }];
        let program = Program::with(Path::new("/dev/null"), Path::new("/dev/null"));
        let found = holder(program.0.id(), &wanted).unwrap().unwrap();
        assert_eq!(found.file, "/elsewhere/null");
        let other = [Wanted { path: "/elsewhere/null".into(), ..Wanted::new("/dev/zero".into(), None) }];
        assert_eq!(holder(program.0.id(), &other).unwrap(), None);
    }

    #[test]
    fn a_process_that_ends_meanwhile_is_no_error() {
        let node = Node::new();
        let mut program = Program::with(&node.files().device(0), &node.files().device(0));
        let pid = program.0.id();
        program.0.kill().unwrap();
        program.0.wait().unwrap();
        assert!(holder(pid, &[]).is_err());
        assert_eq!(holders(&node.files(), 0).unwrap(), []);
    }
}
