//! Processes as `/proc` shows them: whether one that we knew still runs, and whether it is what it should be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

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

    /// Whether it runs `program` on this pipe directory. False where we may not look: then it is not ours.
    pub(super) fn serves(self, program: &str, pipe_directory: &Path) -> bool {
        let read = |file: &str| std::fs::read(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
        is_program(&read("cmdline"), program) && has_pipe_directory(&read("environ"), pipe_directory)
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

/// The servers of the daemon at `pipe_directory`.
pub(super) fn servers(pipe_directory: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_its = |process: &Process| process.serves(SERVER_PROGRAM, pipe_directory);
    pids.filter_map(Process::find).filter(is_its).collect()
}

/// When a process was started, from its `/proc/PID/stat` (proc(5)); `None` if it is a zombie or dead. Its name, in
/// parentheses, may hold anything.
fn running_since(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    // The state is field 3, the start is field 22.
    fields.nth(22 - 4)?.parse().ok()
}

/// `cmdline`: arguments that end with zero bytes.
fn is_program(cmdline: &[u8], program: &str) -> bool {
    let name = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    Path::new(OsStr::from_bytes(name)).file_name() == Some(OsStr::new(program))
}

/// `environ`: `NAME=VALUE`, each ended by a zero byte.
fn has_pipe_directory(environ: &[u8], pipe_directory: &Path) -> bool {
    let mut variables = environ.split(|byte| *byte == 0);
    let is_its = |value: &[u8]| Path::new(OsStr::from_bytes(value)) == pipe_directory;
    variables.any(|variable| variable.strip_prefix(b"CUDA_MPS_PIPE_DIRECTORY=").is_some_and(is_its))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let stat = |state: &str| {
            format!("42 (a) b (c)) {state} 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 0 0")
        };
        assert_eq!(running_since(&stat("S")), Some(987_654));
        assert_eq!(running_since(&stat("Z")), None);
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
    fn a_daemon_is_known_by_its_program_and_its_directory() {
        let control = b"/usr/bin/nvidia-cuda-mps-control\0-f\0";
        assert!(is_program(control, CONTROL_PROGRAM));
        assert!(!is_program(control, SERVER_PROGRAM));
        assert!(!is_program(b"/bin/cat\0nvidia-cuda-mps-control\0", CONTROL_PROGRAM));
        assert!(!is_program(b"", CONTROL_PROGRAM));
        let environ = b"PATH=/bin\0CUDA_MPS_PIPE_DIRECTORY=/run/mps/g0/pipe\0";
        assert!(has_pipe_directory(environ, Path::new("/run/mps/g0/pipe")));
        assert!(!has_pipe_directory(environ, Path::new("/run/mps/g1/pipe")));
        assert!(!has_pipe_directory(b"X_CUDA_MPS_PIPE_DIRECTORY=/p\0", Path::new("/p")));
    }
}
