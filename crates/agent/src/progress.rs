//! The progress files of jobs: made for them, read with suspicion.
//!
//! The file is the user's own and so may hold anything, be of any size, and change while it is read. The directory is
//! ours, so that it cannot be exchanged for a link or a pipe; should it be one all the same, it is not opened (`NOFOLLOW`),
//! not waited for (`NONBLOCK`) and not read unless it is a regular file of that user, under no other name. Where the site has the
//! unit for it, the directory is a small file system of its own: then no job can fill what others need, and no hard link
//! leads out of it. Knows nothing of what the numbers mean.

use pillion_core::{JobStart, UserId};
use rustix::fs::{self, FileType, Gid, Mode, OFlags, Uid};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How much of the file's end is looked at.
const TAIL_BYTES_MAX: usize = 4096;
/// Beyond this the file is emptied: it stands in memory on most nodes, and is not the user's to fill.
const KEPT_BYTES_MAX: u64 = 1 << 20;
/// What a counter may count: more than any job does, and far from where sums of doubles end.
const PROGRESS_MAX: f64 = 1e15;

/// The directory of progress files.
#[derive(Debug, Clone)]
pub struct ProgressFiles {
    directory: PathBuf,
}

impl ProgressFiles {
    /// Makes the directory, passable for all, writable for none but us.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(runtime_directory: &Path) -> io::Result<Self> {
        let directory = runtime_directory.join("progress");
        std::fs::create_dir_all(&directory)?;
        fs::chmod(&directory, Mode::from_raw_mode(0o711))?;
        Ok(Self { directory })
    }

    /// Whether it is a file system of its own, which bounds all that jobs can write there.
    pub fn is_bounded(&self) -> bool {
        is_mounted(&self.directory).unwrap_or(false)
    }

    /// Where a start's counter is.
    pub fn path(&self, start: JobStart) -> PathBuf {
        self.directory.join(start.to_string())
    }

    /// Makes the file of a start, owned by the job's user; one that is there already is kept.
    ///
    /// # Errors
    /// If it cannot be made, or is not a regular file of that user.
    pub fn make(&self, start: JobStart, uid: UserId, gid: u32) -> io::Result<PathBuf> {
        let path = self.path(start);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::open(&path, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => {
                fs::fchmod(&file, Mode::from_raw_mode(0o600))?;
                fs::fchown(&file, Some(Uid::from_raw(uid.0)), Some(Gid::from_raw(gid)))?;
            }
            Err(rustix::io::Errno::EXIST) => {
                self.open(start, uid).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::AlreadyExists, "it is there and not the job's")
                })?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(path)
    }

    /// The counter now: the last whole line, if it is a number from 0 up.
    pub fn read(&self, start: JobStart, uid: UserId) -> Option<f64> {
        let (file, size_bytes) = self.open(start, uid)?;
        let mut tail = [0_u8; TAIL_BYTES_MAX];
        let from = size_bytes.saturating_sub(TAIL_BYTES_MAX as u64);
        let count = rustix::io::pread(&file, &mut tail, from).ok()?;
        last_number(&tail[..count], from == 0)
    }

    /// Removes the file of a start that has ended, and empties it: it may have another name.
    pub fn remove(&self, start: JobStart) {
        let path = self.path(start);
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = fs::open(&path, flags, Mode::empty()) {
            let _ = fs::ftruncate(&file, 0);
        }
        let _ = std::fs::remove_file(path);
    }

    /// Opens the file if it is what it should be.
    fn open(&self, start: JobStart, uid: UserId) -> Option<(OwnedFd, u64)> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::open(self.path(start), flags, Mode::empty()).ok()?;
        let what = fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(what.st_mode) != FileType::RegularFile || what.st_uid != uid.0 {
            return None;
        }
        let kept_bytes = u64::try_from(what.st_blocks).unwrap_or(0) * 512;
        // Its user gave it another name, by which it would outlive the job: what is in it is not for us.
        let is_linked = what.st_nlink != 1;
        if kept_bytes > KEPT_BYTES_MAX || is_linked {
            let _ = fs::ftruncate(&file, 0);
        }
        if is_linked {
            return None;
        }
        Some((file, u64::try_from(what.st_size).unwrap_or(0)))
    }
}

/// The last line that has ended; or the only line of a file that is written over in place, without a line end.
fn last_number(tail: &[u8], is_whole_file: bool) -> Option<f64> {
    let ended = tail.iter().rposition(|byte| *byte == b'\n');
    let lines = match ended {
        Some(end) => &tail[..end],
        None if is_whole_file => tail,
        None => return None,
    };
    let start = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
    let text = std::str::from_utf8(&lines[start..]).ok()?;
    text.trim().parse::<f64>().ok().filter(|number| (0.0..=PROGRESS_MAX).contains(number))
}

/// Whether a directory is a file system of its own; `None`: it cannot be seen.
pub(crate) fn is_mounted(directory: &Path) -> Option<bool> {
    let device = |path: &Path| Some(fs::stat(path).ok()?.st_dev);
    Some(device(directory)? != device(directory.parent()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::SlurmJobId;
    use std::fs::File;
    use std::io::Write as _;

    const JOB: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 1 };

    fn own_uid() -> UserId {
        UserId(rustix::process::getuid().as_raw())
    }

    fn files() -> (tempfile::TempDir, ProgressFiles) {
        let directory = tempfile::tempdir().unwrap();
        let files = ProgressFiles::new(directory.path()).unwrap();
        (directory, files)
    }

    #[test]
    fn the_last_whole_line_counts() {
        for (text, number) in [
            ("1\n2\n3\n", Some(3.0)),
            ("1\n2\n3", Some(2.0)),
            ("7", Some(7.0)),
            (" 2.5e3 \n", Some(2500.0)),
            ("1\r\n2\r\n", Some(2.0)),
            ("0\n", Some(0.0)),
            ("", None),
            ("\n", None),
            ("5\nfast\n", None),
            ("-1\n", None),
            ("NaN\n", None),
            ("inf\n", None),
            ("1e999\n", None),
            ("2e307\n", None),
            ("1e15\n", Some(1e15)),
            ("5\n\0\0\0\n", None),
            ("5\n\u{664}\n", None),
        ] {
            assert_eq!(last_number(text.as_bytes(), true), number, "{text:?}");
        }
        assert_eq!(last_number(b"5\n\xff\xfe\n", true), None);
        assert_eq!(last_number(b"123", false), None, "the middle of a long line");
    }

    #[test]
    fn a_file_is_made_for_the_job_and_read_from_its_end() {
        let (_directory, files) = files();
        let path = files.make(JOB, own_uid(), rustix::process::getgid().as_raw()).unwrap();
        assert!(path.ends_with("progress/33+1"));
        assert_eq!(rustix::fs::stat(&path).unwrap().st_mode & 0o777, 0o600);
        assert_eq!(files.read(JOB, own_uid()), None, "nothing written yet");
        let mut file = File::options().append(true).open(&path).unwrap();
        for step in 0..20_000 {
            writeln!(file, "{step}").unwrap();
        }
        assert_eq!(files.read(JOB, own_uid()), Some(19_999.0));
        assert_eq!(files.make(JOB, own_uid(), 0).unwrap(), path, "a second task of the same start");
        assert_eq!(files.read(JOB, own_uid()), Some(19_999.0), "which keeps what is there");
        assert_eq!(files.read(JOB, UserId(own_uid().0 + 1)), None, "another user's file");
        files.remove(JOB);
        assert_eq!(files.read(JOB, own_uid()), None);
    }

    #[test]
    fn a_link_a_pipe_and_a_device_are_not_read() {
        let (directory, files) = files();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "5\n").unwrap();
        std::os::unix::fs::symlink(&elsewhere, files.path(JOB)).unwrap();
        assert_eq!(files.read(JOB, own_uid()), None, "a link");
        assert!(files.make(JOB, own_uid(), 0).is_err());
        files.remove(JOB);
        rustix::fs::mknodat(rustix::fs::CWD, files.path(JOB), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        assert_eq!(files.read(JOB, own_uid()), None, "a pipe, and nobody waits for its writer");
        files.remove(JOB);
        std::fs::create_dir(files.path(JOB)).unwrap();
        assert_eq!(files.read(JOB, own_uid()), None, "a directory");
    }

    #[test]
    fn a_file_that_its_user_gave_another_name_is_emptied_and_not_read() {
        let (directory, files) = files();
        let path = files.make(JOB, own_uid(), rustix::process::getgid().as_raw()).unwrap();
        std::fs::write(&path, "5\n").unwrap();
        let kept = directory.path().join("kept");
        std::fs::hard_link(&path, &kept).unwrap();
        assert_eq!(files.read(JOB, own_uid()), None);
        assert_eq!(kept.metadata().unwrap().len(), 0);
        std::fs::write(&kept, vec![b'x'; 100]).unwrap();
        files.remove(JOB);
        assert_eq!(kept.metadata().unwrap().len(), 0, "nothing of it outlives the job");
    }

    #[test]
    fn a_directory_of_its_parent_s_file_system_is_not_bounded() {
        let (_directory, files) = files();
        assert!(!files.is_bounded());
        assert!(ProgressFiles { directory: PathBuf::from("/proc") }.is_bounded());
        assert!(!ProgressFiles { directory: PathBuf::from("/nowhere/at/all") }.is_bounded());
    }

    #[test]
    fn a_terabyte_is_not_read_and_a_flood_is_cut() {
        let (_directory, files) = files();
        let path = files.make(JOB, own_uid(), rustix::process::getgid().as_raw()).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(files.read(JOB, own_uid()), None, "a terabyte of nothing");
        file.set_len(0).unwrap();
        std::fs::write(&path, vec![b'\n'; 3 << 20]).unwrap();
        assert_eq!(files.read(JOB, own_uid()), None);
        assert_eq!(path.metadata().unwrap().len(), 0, "emptied");
    }
}
