//! Processes as `/proc` shows them: whether one that we knew still runs, what it runs and whose it is.

use pillion_core::UserId;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The name of NVIDIA's control program, and of the daemon that it becomes.
pub const CONTROL_PROGRAM: &str = "nvidia-cuda-mps-control";
/// The name of the servers that a daemon starts.
pub(super) const SERVER_PROGRAM: &str = "nvidia-cuda-mps-server";

/// A process, told from another that got its number later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    started_ticks: u64,
}

impl Process {
    /// The process that has this number now; `None` if there is none, or it is dead and not yet buried.
    pub(super) fn find(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let started_ticks = running_since(&String::from_utf8_lossy(&stat))?;
        Some(Self { pid, started_ticks })
    }

    /// One that had this number and has ended.
    pub(super) fn ended(pid: u32) -> Self {
        // Nobody is started at the end of time.
        Self { pid, started_ticks: u64::MAX }
    }

    /// Whether it still runs.
    pub(super) fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// One that was known before, by its number and the time of its start.
    pub(super) fn known(pid: u32, started_ticks: u64) -> Self {
        Self { pid, started_ticks }
    }

    /// When it was started, in the kernel's ticks.
    pub(super) fn started_ticks(self) -> u64 {
        self.started_ticks
    }

    /// Where the kernel shows the file that it runs.
    pub(super) fn program_link(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.pid))
    }

    /// The file that it runs.
    pub(super) fn program(self) -> Option<PathBuf> {
        std::fs::read_link(self.program_link()).ok()
    }

    /// Its user, who began it. Not the owner of its directory: that is root for every process that forbids being dumped.
    pub(super) fn uid(self) -> Option<UserId> {
        real_uid(&std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?)
    }

    /// Whether it acts as root.
    pub(super) fn is_of_root(self) -> bool {
        self.uid() == Some(UserId(0))
    }

    /// Whose child it is, and with whom it stands.
    pub(super) fn family(self) -> Option<Family> {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).ok()?;
        family(&String::from_utf8_lossy(&stat))
    }

    /// Whether this is the pipe directory of its environment: worth as much as whoever started it.
    pub(super) fn has_pipe_directory(self, pipe_directory: &Path) -> bool {
        let environ = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        has_pipe_directory(&environ, pipe_directory)
    }

    /// Ends it at once.
    pub(super) fn kill(self) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_alive()) {
            // It ended by itself: as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// What the kernel says of the relations of a process: nothing that it chooses freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// Its parent, or who took it over.
    pub(super) parent: u32,
    /// The leader of its process group, who may be gone.
    pub(super) group: u32,
    /// The leader of its session, who may be gone.
    pub(super) session: u32,
}

/// All processes that run.
pub(super) fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Process::find)
}

/// The first number of `Uid:` in `/proc/PID/status`. The name above it may hold anything but an end of line.
fn real_uid(status: &str) -> Option<UserId> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    numbers.split_ascii_whitespace().next()?.parse().ok().map(UserId)
}

/// Fields 4 to 6 of `/proc/PID/stat`.
fn family(stat: &str) -> Option<Family> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(1).map(|field| field.parse().ok());
    Some(Family { parent: fields.next()??, group: fields.next()??, session: fields.next()?? })
}

/// When a process was started, from its `/proc/PID/stat` (proc(5)); `None` if it is a zombie or dead, with all its threads. Its
/// name, in parentheses, may hold anything.
fn running_since(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    // The state is field 3, the number of threads field 20, the start field 22.
    let thread_count: u64 = fields.nth(20 - 4)?.parse().ok()?;
    if matches!(state, "Z" | "X" | "x") && thread_count <= 1 {
        return None;
    }
    fields.nth(22 - 21)?.parse().ok()
}

/// `environ`: `NAME=VALUE`, each ended by a zero byte.
fn has_pipe_directory(environ: &[u8], pipe_directory: &Path) -> bool {
    let mut variables = environ.split(|byte| *byte == 0);
    variables.any(|variable| {
        variable
            .strip_prefix(b"CUDA_MPS_PIPE_DIRECTORY=")
            .is_some_and(|value| Path::new(OsStr::from_bytes(value)) == pipe_directory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let stat = |state: &str, threads: u32| {
            format!("42 (a) b (c)) {state} 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 987654 0 0")
        };
        assert_eq!(running_since(&stat("S", 1)), Some(987_654));
        assert_eq!(running_since(&stat("Z", 1)), None);
        assert_eq!(running_since(&stat("Z", 2)), Some(987_654), "its first thread alone has ended");
        assert_eq!(running_since("42 (a"), None);
        let me = Process::find(std::process::id()).expect("we run");
        assert!(me.is_alive());
        assert!(
            !Process { started_ticks: me.started_ticks + 1, ..me }.is_alive(),
            "the number was given anew"
        );
        assert_eq!(Process::find(u32::MAX), None);
    }

    #[test]
    fn relations_stand_behind_a_name_that_may_hold_anything() {
        let stat = "42 (a) S 1 2 3) S 7 8 9 0 -1 4194560 1";
        assert_eq!(family(stat), Some(Family { parent: 7, group: 8, session: 9 }));
        assert_eq!(family("42 (a) S 7 8"), None);
        assert_eq!(
            Process::find(std::process::id()).and_then(Process::family).map(|it| it.parent > 0),
            Some(true)
        );
    }

    #[test]
    fn whose_a_process_is_its_status_tells() {
        let status = "Name:\tUid: 0\\n\nUmask:\t0022\nUid:\t1000\t0\t0\t0\n";
        assert_eq!(real_uid(status), Some(UserId(1000)));
        assert_eq!(real_uid("Name:\tx\n"), None);
        let own = UserId(rustix::process::getuid().as_raw());
        assert_eq!(Process::find(std::process::id()).and_then(Process::uid), Some(own));
    }

    #[test]
    fn a_directory_is_found_in_an_environment() {
        let environ = b"PATH=/bin\0CUDA_MPS_PIPE_DIRECTORY=/run/mps/g0/pipe\0";
        assert!(has_pipe_directory(environ, Path::new("/run/mps/g0/pipe")));
        assert!(!has_pipe_directory(environ, Path::new("/run/mps/g1/pipe")));
        assert!(!has_pipe_directory(b"X_CUDA_MPS_PIPE_DIRECTORY=/p\0", Path::new("/p")));
    }
}
