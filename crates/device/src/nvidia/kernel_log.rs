//! Xids in the kernel's log: the driver prints there what its events leave out, the process.
//!
//! ```text
//! 4,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ...
//! ```
//!
//! One read of `/dev/kmsg` is one record: its priority and facility, number, time and flags, then the message (kernel,
//! Documentation/ABI/testing/dev-kmsg). The words are those of NVIDIA's "XID Errors", "Working with Xid Errors".

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Once;
use tracing::info;

/// Records that are read at one look, so that a kernel that tells much cannot hold us.
const RECORDS_MAX: usize = 512;
/// No record is longer (`CONSOLE_EXT_LOG_MAX` in the kernel); a shorter buffer would be refused.
const RECORD_BYTES_MAX: usize = 8192;
/// What is kept of the driver's words.
const WORDS_MAX: usize = 120;

/// Where a device is on the PCI bus; NVIDIA's devices have one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PciAddress {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
}

/// One Xid, as the kernel's log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XidLine {
    pub(super) address: PciAddress,
    pub(super) code: u64,
    /// The process, by the pid of the machine; `None`: the driver does not know it.
    pub(super) pid: Option<u32>,
    /// What follows the number, in the driver's words.
    pub(super) words: String,
}

/// The kernel's log from where it was opened on.
#[derive(Debug)]
pub(super) struct KernelLog {
    file: OwnedFd,
    /// A line whose end was not there yet.
    begun: Vec<u8>,
}

impl KernelLog {
    /// Opens it at its end: what happened before is not news. `None`, with a line in our own log, where it may not be read
    /// or is not there: Xids then come without their processes.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty()).and_then(|file| {
            match rustix::fs::seek(&file, SeekFrom::End(0)) {
                // A pipe has no past.
                Ok(_) | Err(Errno::SPIPE) => Ok(file),
                Err(error) => Err(error),
            }
        });
        match opened {
            Ok(file) => Some(Self { file, begun: Vec::new() }),
            Err(error) => {
                // Each device's thread opens it: one line for all of them.
                static TOLD: Once = Once::new();
                TOLD.call_once(|| info!(path = %path.display(), %error, "the kernel's log cannot be read: Xids name no process"));
                None
            }
        }
    }

    /// The Xids that were logged since the last look.
    pub(super) fn new_xids(&mut self) -> Vec<XidLine> {
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

    fn take(&mut self, bytes: &[u8], found: &mut Vec<XidLine>) {
        self.begun.extend_from_slice(bytes);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            found.extend(parse(&String::from_utf8_lossy(&line)));
        }
        if self.begun.len() > RECORD_BYTES_MAX {
            self.begun.clear();
        }
    }
}

/// The Xid of a record, if it is one. Only what the kernel itself said counts: root's programs may write there as well, and
/// their facility is another.
fn parse(record: &str) -> Option<XidLine> {
    let (prefix, message) = record.trim_end().split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    if priority >> 3 != 0 {
        return None;
    }
    let (place, told) = message.strip_prefix("NVRM: Xid (")?.split_once("): ")?;
    // With MIG on, the number of the GPU instance follows: `PCI:0000:3b:00 GPU-I:05`.
    let address = address(place.split_whitespace().next()?)?;
    let (code, words) = told.split_once(',').unwrap_or((told, ""));
    let field = |name| words.split(',').find_map(|part| part.trim().strip_prefix(name));
    Some(XidLine {
        address,
        code: code.trim().parse().ok()?,
        pid: field("pid=").and_then(|pid| pid.trim_matches('\'').parse().ok()).filter(|pid| *pid > 0),
        words: words.trim().chars().take(WORDS_MAX).collect(),
    })
}

/// `PCI:0000:3b:00`, also without the first word and with a function at the end.
fn address(text: &str) -> Option<PciAddress> {
    let text = text.strip_prefix("PCI:").unwrap_or(text);
    let (text, _) = text.split_once('.').unwrap_or((text, ""));
    let mut numbers = text.split(':').map(|number| u32::from_str_radix(number, 16).ok());
    let address = PciAddress { domain: numbers.next()??, bus: numbers.next()??, device: numbers.next()?? };
    numbers.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const ADDRESS: PciAddress = PciAddress { domain: 0, bus: 0x3b, device: 0 };

    fn told(message: &str) -> Option<(PciAddress, u64, Option<u32>)> {
        parse(&format!("4,1234,98765432,-;{message}\n")).map(|line| (line.address, line.code, line.pid))
    }

    #[test]
    fn each_form_of_the_line_is_understood() {
        for (message, code, pid) in [
            ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008", 31, Some(1234)),
            ("NVRM: Xid (PCI:0000:3b:00): 13, pid='1234', name=a, b, Graphics Exception", 13, Some(1234)),
            ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=77, name=x", 43, Some(77)),
            ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", 79, None),
            ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, None),
            ("NVRM: Xid (0000:3b:00.0): 48", 48, None),
            ("NVRM: Xid (PCI:0000:3b:00): 45, pid=0, name=", 45, None),
        ] {
            assert_eq!(told(message), Some((ADDRESS, code, pid)), "{message}");
        }
        let far = PciAddress { domain: 0x10, bus: 0xaf, device: 0x1f };
        assert_eq!(told("NVRM: Xid (PCI:0010:AF:1f): 8"), Some((far, 8, None)));
    }

    #[test]
    fn other_lines_are_no_xids() {
        for record in [
            "4,1,2,-;NVRM: GPU at PCI:0000:3b:00: GPU-1",
            "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): many",
            "4,1,2,-;NVRM: Xid (PCI:0000:3b): 31",
            "4,1,2,-;NVRM: Xid (PCI:0000:zz:00): 31",
            "4,1,2,-;usb: NVRM: Xid (PCI:0000:3b:00): 31",
            " SUBSYSTEM=pci",
            "NVRM: Xid (PCI:0000:3b:00): 31",
            "",
        ] {
            assert_eq!(parse(record), None, "{record}");
        }
        let of_a_program = "12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=init";
        assert_eq!(parse(of_a_program), None, "facility 1 is a program's");
    }

    #[test]
    fn only_what_is_new_is_told_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        std::fs::write(&path, "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=old\n").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        assert_eq!(log.new_xids(), []);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "6,2,3,-;audit\n4,3,4,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=2, ").unwrap();
        assert_eq!(log.new_xids(), [], "its end is not there yet");
        write!(file, "name=new\n SUBSYSTEM=pci\n").unwrap();
        let words = "pid=2, name=new".to_owned();
        assert_eq!(log.new_xids(), [XidLine { address: ADDRESS, code: 31, pid: Some(2), words }]);
        assert_eq!(log.new_xids(), []);
    }

    #[test]
    fn a_log_without_end_is_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        std::fs::write(&path, "").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        let flood = "x".repeat(RECORD_BYTES_MAX * (RECORDS_MAX + 1));
        std::fs::write(&path, format!("{flood}\n4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 31\n")).unwrap();
        assert_eq!(log.new_xids(), [], "the first look ends before the flood does");
        assert!(log.begun.len() <= RECORD_BYTES_MAX);
        assert_eq!(log.new_xids().len(), 1);
    }

    #[test]
    fn a_log_that_is_not_there_is_no_error() {
        assert!(KernelLog::open(Path::new("/nowhere/kmsg")).is_none());
    }
}
