//! Xids in the kernel's log: the driver prints there what its events leave out, the process.
//!
//! ```text
//! NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ...
//! ```
//!
//! The words are those of NVIDIA's "XID Errors", "Working with Xid Errors".

use crate::kernel_log::KernelLog;
use std::path::Path;
use std::sync::Once;
use tracing::info;

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

/// Opens the kernel's log. `None`, with a line in our own log, where it may not be read or is not there: Xids then come without
/// their processes.
pub(super) fn open(path: &Path) -> Option<KernelLog> {
    let opened = KernelLog::open(path);
    if let Err(error) = &opened {
        // Each device's thread opens it: one line for all of them.
        static TOLD: Once = Once::new();
        TOLD.call_once(
            || info!(path = %path.display(), %error, "the kernel's log cannot be read: Xids name no process"),
        );
    }
    opened.ok()
}

/// The Xids that were logged since the last sample.
pub(super) fn new_xids(log: &mut KernelLog) -> Vec<XidLine> {
    log.new_messages().iter().filter_map(|message| parse(message)).collect()
}

/// The Xid of a message, if it is one.
fn parse(message: &str) -> Option<XidLine> {
    let (place, told) = message.strip_prefix("NVRM: Xid (")?.split_once("): ")?;
    // With MIG on, the number of the GPU instance follows: `PCI:0000:3b:00 GPU-I:05`.
    let address = address(place.split_whitespace().next()?)?;
    let (code, words) = told.split_once(',').unwrap_or((told, ""));
    let pid = words.split(',').find_map(|part| part.trim().strip_prefix("pid="));
    Some(XidLine {
        address,
        code: code.trim().parse().ok()?,
        pid: pid.and_then(|pid| pid.trim_matches('\'').parse().ok()).filter(|pid| *pid > 0),
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

    const ADDRESS: PciAddress = PciAddress { domain: 0, bus: 0x3b, device: 0 };

    fn told(message: &str) -> Option<(PciAddress, u64, Option<u32>)> {
        parse(message).map(|line| (line.address, line.code, line.pid))
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
        for message in [
            "NVRM: GPU at PCI:0000:3b:00: GPU-1",
            "NVRM: Xid (PCI:0000:3b:00): many",
            "NVRM: Xid (PCI:0000:3b): 31",
            "NVRM: Xid (PCI:0000:zz:00): 31",
            "usb: NVRM: Xid (PCI:0000:3b:00): 31",
            "",
        ] {
            assert_eq!(parse(message), None, "{message}");
        }
    }

    #[test]
    fn a_log_that_is_not_there_is_no_error() {
        assert!(open(Path::new("/nowhere/kmsg")).is_none());
    }
}
