//! Exit statuses, after `sysexits.h` where it has a word. Scripts may match them.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus(u8);

/// Done, and nothing is wrong.
pub const OK: ExitStatus = ExitStatus(0);
/// Done, and something is wrong: doctor found a failure, a job is not known, the scheduler refused.
pub const PROBLEM: ExitStatus = ExitStatus(1);
/// The command line makes no sense.
pub const USAGE: ExitStatus = ExitStatus(64);
/// A file or an answer makes no sense.
pub const DATA: ExitStatus = ExitStatus(65);
/// The scheduler cannot be reached.
pub const UNREACHABLE: ExitStatus = ExitStatus(69);
/// It may work when tried again later.
pub const TRY_LATER: ExitStatus = ExitStatus(75);

impl ExitStatus {
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.0)
    }
}
