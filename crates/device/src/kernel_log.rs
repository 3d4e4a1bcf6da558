//! The kernel's log, from where it was opened on: what a vendor's driver prints there and its library leaves out.
//!
//! One read of `/dev/kmsg` is one record: its priority and facility, number, time and flags, then the message (kernel,
//! Documentation/ABI/testing/dev-kmsg). Knows no vendor's words.

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where Linux tells its log.
pub const KERNEL_LOG: &str = "/dev/kmsg";

/// Records that are read at one sample, so that a kernel that tells much cannot hold us.
const RECORDS_MAX: usize = 512;
/// No record is longer (`CONSOLE_EXT_LOG_MAX` in the kernel); a shorter buffer would be refused.
const RECORD_BYTES_MAX: usize = 8192;

/// The kernel's log from where it was opened on.
#[derive(Debug)]
pub(crate) struct KernelLog {
    file: OwnedFd,
    /// A line whose end was not there yet.
    begun: Vec<u8>,
}

impl KernelLog {
    /// Opens it at its end: what happened before is not news.
    ///
    /// # Errors
    /// What the system said: it may not be read, or is not there.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        match rustix::fs::seek(&file, SeekFrom::End(0)) {
            // A pipe has no past.
            Ok(_) | Err(Errno::SPIPE) => Ok(Self { file, begun: Vec::new() }),
            Err(error) => Err(error.into()),
        }
    }

    /// What the kernel itself has said since the last sample, a message each.
    pub(crate) fn new_messages(&mut self) -> Vec<String> {
        let mut buffer = [0; RECORD_BYTES_MAX];
        let mut found = Vec::new();
        for _ in 0..RECORDS_MAX {
            match rustix::io::read(&self.file, &mut buffer) {
                Ok(0) => break,
                Ok(length) => self.take(&buffer[..length], &mut found),
                // Records were overwritten before we read them; the next is the oldest that is left.
                Err(Errno::PIPE | Errno::INTR) => {}
                // Nothing is new, or nothing more can be had now.
                Err(_) => break,
            }
        }
        found
    }

    fn take(&mut self, bytes: &[u8], found: &mut Vec<String>) {
        self.begun.extend_from_slice(bytes);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            found.extend(message(&String::from_utf8_lossy(&line)).map(str::to_owned));
        }
        if self.begun.len() > RECORD_BYTES_MAX {
            self.begun.clear();
        }
    }
}

/// The message of a record. Only what the kernel itself said counts: root's programs may write there as well, and their
/// facility is another.
fn message(record: &str) -> Option<&str> {
    let (prefix, message) = record.trim_end().split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    (priority >> 3 == 0).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn only_what_the_kernel_said_is_a_message() {
        assert_eq!(message("4,1234,98765432,-;it is hot\n"), Some("it is hot"));
        assert_eq!(message("12,1,2,-;it is hot"), None, "facility 1 is a program's");
        for record in [" SUBSYSTEM=pci", "it is hot", ""] {
            assert_eq!(message(record), None, "{record}");
        }
    }

    #[test]
    fn only_what_is_new_is_told_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        std::fs::write(&path, "4,1,2,-;old\n").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        assert!(log.new_messages().is_empty());
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "6,2,3,-;audit\n4,3,4,-;one, ").unwrap();
        assert_eq!(log.new_messages(), ["audit"], "the end of the other is not there yet");
        write!(file, "two\n SUBSYSTEM=pci\n").unwrap();
        assert_eq!(log.new_messages(), ["one, two"]);
        assert!(log.new_messages().is_empty());
    }

    #[test]
    fn a_log_without_end_is_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        std::fs::write(&path, "").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        let flood = "x".repeat(RECORD_BYTES_MAX * (RECORDS_MAX + 1));
        std::fs::write(&path, format!("{flood}\n4,1,2,-;news\n")).unwrap();
        assert!(log.new_messages().is_empty(), "the first sample ends before the flood does");
        assert!(log.begun.len() <= RECORD_BYTES_MAX);
        assert_eq!(log.new_messages(), ["news"]);
    }

    #[test]
    fn a_log_that_is_not_there_says_so() {
        assert!(KernelLog::open(Path::new("/nowhere/kmsg")).is_err());
    }
}
