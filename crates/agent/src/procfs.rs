//! What `/proc` says of a process: who its parent is, when it started, which job's cgroup holds it. Changes nothing but that it
//! can end one; knows nothing of devices or shares. The root is an argument, so that tests bring their own process tree.

use pillion_core::UserId;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// A process that no other can be mistaken for: pids are used again, but not within one clock tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// In the agent's pid namespace.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did.
    pub start_ticks: u64,
}

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    pub parent_pid: u32,
    /// When it started.
    pub start_ticks: u64,
    /// Dead and not yet waited for: where init does not reap, for ever. One whose first thread alone has ended is not.
    pub is_dead: bool,
}

/// What a job's directory in Slurm's own cgroups is called. Unique on a node while the job runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobGroup {
    /// `job_33`: the job's inner id.
    Number(u32),
    /// `s5K1KKYAYG5D00`: the job's SLUID, since Slurm 26.05 unless `CgroupJobIdPaths=yes`. Only Slurm knows whose it is;
    /// a task of the job that is in it tells us.
    Sluid(String),
}

impl JobGroup {
    /// Digits of a SLUID, after the `s`: Crockford's base 32.
    const SLUID_DIGITS: usize = 13;

    fn parse(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_prefix("job_") {
            return number.parse().ok().map(Self::Number);
        }
        let digits = name.strip_prefix('s')?;
        let is_sluid = digits.len() == Self::SLUID_DIGITS
            && digits.bytes().all(|byte| {
                byte.is_ascii_digit()
                    || byte.is_ascii_uppercase() && !matches!(byte, b'I' | b'L' | b'O' | b'U')
            });
        is_sluid.then(|| Self::Sluid(name.to_owned()))
    }
}

/// A control group of Slurm's that holds all processes of one job on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    /// With commas between them; empty: all of version 2.
    pub controllers: String,
    /// Beneath where the kernel shows control groups, and for version 1 those of the controller.
    pub directory: PathBuf,
}

/// What SIGTERM does to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermFate {
    /// It ends at once.
    Dies,
    /// It catches, ignores or blocks it, or nobody can say.
    GoesOn,
}

/// NVIDIA's MPS server: on a device for all its clients, which are there themselves.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";

/// What Slurm runs each step of a job beneath, and what Debian calls that program.
const SLURMSTEPD: [&str; 2] = ["slurmstepd", "slurmstepd-wlm"];
/// How much of a process's title is read.
const TITLE_LENGTH_MAX: u64 = 256;
/// The longest way up from a process that is walked.
pub const ANCESTORS_MAX: usize = 64;

/// A mounted `/proc`.
#[derive(Debug, Clone)]
pub struct ProcFs {
    root: PathBuf,
}

impl ProcFs {
    /// Whether this is an MPS server, by the file that it runs: one of that name that is the system's own. A name can be taken
    /// by anybody, for a process and for a file.
    pub fn is_mps_server(&self, pid: u32) -> bool {
        // The name first: a file may lie where nobody answers any more.
        if self.program(pid).is_none_or(|name| name != MPS_SERVER) {
            return false;
        }
        let file = std::fs::metadata(self.root.join(format!("{pid}/exe")));
        // Root's, or whose we are where we are not root.
        let owners = [0, rustix::process::geteuid().as_raw()];
        file.is_ok_and(|file| owners.contains(&file.uid()))
    }

    /// The name of the file that the process runs.
    pub fn program(&self, pid: u32) -> Option<String> {
        let path = std::fs::read_link(self.root.join(pid.to_string()).join("exe")).ok()?;
        let name = path.file_name()?.to_string_lossy();
        Some(name.trim_end_matches(" (deleted)").to_owned())
    }

    /// Whose process it is: who began it.
    pub fn uid(&self, pid: u32) -> Option<UserId> {
        let text = std::fs::read_to_string(self.root.join(format!("{pid}/status"))).ok()?;
        // The name above it may hold anything but an end of line.
        let numbers = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        numbers.split_ascii_whitespace().next()?.parse().ok().map(UserId)
    }

    /// Whether one of its parents is Slurm's own: a program of root's that is called so.
    pub fn is_beneath_slurmstepd(&self, pid: u32) -> bool {
        let mut pid = pid;
        for _ in 0..ANCESTORS_MAX {
            let Some(stat) = self.stat(pid).filter(|stat| stat.parent_pid > 1) else { return false };
            pid = stat.parent_pid;
            if self.is_slurmstepd(pid) {
                return true;
            }
        }
        false
    }

    /// Whether it is what Slurm runs a step beneath: a program of that name, begun by root.
    pub fn is_slurmstepd(&self, pid: u32) -> bool {
        let is_slurms = self.program(pid).is_some_and(|name| SLURMSTEPD.contains(&name.as_str()));
        is_slurms && self.uid(pid) == Some(UserId(0))
    }

    /// What a process shows as its first argument, which it may have written itself, cut to what matters.
    pub fn title(&self, pid: u32) -> Option<String> {
        let file = File::open(self.root.join(format!("{pid}/cmdline"))).ok()?;
        let mut bytes = Vec::new();
        file.take(TITLE_LENGTH_MAX).read_to_end(&mut bytes).ok()?;
        let first = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(first).into_owned())
    }

    /// All that run, or are not yet waited for.
    pub fn pids(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Where the kernel shows what the process writes its errors to.
    pub fn stderr_path(&self, pid: u32) -> PathBuf {
        self.root.join(format!("{pid}/fd/2"))
    }

    /// How the process opened what it writes its errors to: the flags of open(2).
    pub fn stderr_flags(&self, pid: u32) -> Option<u32> {
        let text = std::fs::read_to_string(self.root.join(format!("{pid}/fdinfo/2"))).ok()?;
        let octal = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(octal.trim(), 8).ok()
    }

    /// `/proc` at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The process with this pid now; `None` if there is none.
    pub fn stat(&self, pid: u32) -> Option<ProcessStat> {
        parse_stat(&std::fs::read(self.root.join(format!("{pid}/stat"))).ok()?)
    }

    /// The process with this pid now, unless it is dead.
    pub fn identify(&self, pid: u32) -> Option<ProcessId> {
        let stat = self.stat(pid).filter(|stat| !stat.is_dead)?;
        Some(ProcessId { pid, start_ticks: stat.start_ticks })
    }

    /// Whether this very process still runs.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.identify(process.pid) == Some(process)
    }

    /// Ends this very process at once, if it runs still.
    ///
    /// # Errors
    /// If that is not allowed.
    pub fn kill(&self, process: ProcessId) -> std::io::Result<()> {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return Ok(());
        };
        // Looked at only now: the handle is of whoever has the pid, and so is what is looked at.
        if !self.is_alive(process) {
            return Ok(());
        }
        match pidfd_send_signal(handle, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The job whose cgroup holds the process, as Slurm itself laid it out.
    pub fn job_group(&self, pid: u32) -> Option<JobGroup> {
        parse_job_group(&std::fs::read_to_string(self.root.join(format!("{pid}/cgroup"))).ok()?)
    }

    /// The numbers of the jobs that have a process here, where Slurm's control groups are named by them.
    pub fn job_numbers(&self) -> BTreeSet<u32> {
        let number = |pid| match self.job_group(pid)? {
            JobGroup::Number(number) => Some(number),
            JobGroup::Sluid(_) => None,
        };
        self.pids().into_iter().filter_map(number).collect()
    }

    /// The control groups of the job that holds the process.
    pub fn job_places(&self, pid: u32) -> Vec<JobPlace> {
        let text = std::fs::read_to_string(self.root.join(format!("{pid}/cgroup"))).unwrap_or_default();
        let places = text.lines().filter_map(parse_job_place);
        places
            .map(|(controllers, directory, _)| JobPlace { controllers, directory: directory.into() })
            .collect()
    }

    /// What SIGTERM does to the process now.
    pub fn term_fate(&self, pid: u32) -> TermFate {
        let text = std::fs::read_to_string(self.root.join(format!("{pid}/status"))).unwrap_or_default();
        parse_term_fate(&text)
    }

    /// What names this boot of the machine; empty where the kernel does not say.
    pub fn boot_id(&self) -> String {
        let text = std::fs::read_to_string(self.root.join("sys/kernel/random/boot_id"));
        text.map(|text| text.trim().to_owned()).unwrap_or_default()
    }
}

/// Reads `PID (comm) state ppid .. starttime ..`. The comm may hold blanks, brackets and bytes of any kind, so the fields
/// are counted from its *last* closing bracket.
fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    /// Fields after the comm: the state is the first.
    const THREADS_FIELD: usize = 17;
    const START_TICKS_FIELD: usize = 19;
    let end_of_comm = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end_of_comm + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let thread_count: u64 = fields.get(THREADS_FIELD)?.parse().ok()?;
    Some(ProcessStat {
        is_dead: matches!(*fields.first()?, "Z" | "X") && thread_count <= 1,
        parent_pid: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(START_TICKS_FIELD)?.parse().ok()?,
    })
}

/// Finds the job in `/proc/PID/cgroup`. Only Slurm's own scope at the top of the tree is believed: a user may make any
/// directory below his own cgroup, and call it `job_1`.
///
/// ```text
/// v1  4:memory:/slurm_n1/uid_1000/job_33/step_batch/task_0
/// v2  0::/system.slice/n1_slurmstepd.scope/job_33/step_0/user/task_0
/// v2  0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0
/// ```
fn parse_job_group(text: &str) -> Option<JobGroup> {
    text.lines().find_map(|line| parse_job_place(line).map(|(_, _, group)| group))
}

/// One line: the controllers, the job's own directory, and what that is called.
fn parse_job_place(line: &str) -> Option<(String, String, JobGroup)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let [first, second, third, ..] = *parts else { return None };
    let is_slurms = if first == "slurm" || first.starts_with("slurm_") {
        second.starts_with("uid_")
    } else {
        first == "system.slice" && second.ends_with("slurmstepd.scope")
    };
    let job = JobGroup::parse(third).filter(|_| is_slurms)?;
    Some((controllers.to_owned(), format!("{first}/{second}/{third}"), job))
}

/// Reads the masks of signals in `/proc/PID/status`; a thread that waits for a signal blocks it in all of them.
fn parse_term_fate(text: &str) -> TermFate {
    /// SIGTERM's place in a mask of signals, of which the first is 1.
    const TERM: u64 = 1 << 14;
    let mask = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let masks = [mask("SigBlk:"), mask("SigIgn:"), mask("SigCgt:")];
    let dies = masks.iter().all(|mask| mask.is_some_and(|mask| mask & TERM == 0));
    if dies { TermFate::Dies } else { TermFate::GoesOn }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comm_cannot_forge_fields() {
        let line = b"42 (a) R 1 (b\xff) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        let stat = parse_stat(line).expect("a stat line");
        assert_eq!(stat, ProcessStat { parent_pid: 7, start_ticks: 98765, is_dead: false });
        let zombie = b"42 (x) Z 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 5 0 0";
        assert!(parse_stat(zombie).expect("a stat line").is_dead);
        let headless = b"42 (x) Z 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 2 0 5 0 0";
        assert!(!parse_stat(headless).expect("a stat line").is_dead, "its other threads run");
        for wrong in
            [&b""[..], b"42", b"42 (x)", b"42 (x) S 7", b"42 (x) S -7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5"]
        {
            assert_eq!(parse_stat(wrong), None);
        }
    }

    #[test]
    fn we_are_alive_and_have_a_parent() {
        let proc = ProcFs::new("/proc");
        let own = proc.identify(std::process::id()).expect("we run");
        assert!(proc.is_alive(own));
        assert!(
            !proc.is_alive(ProcessId { start_ticks: own.start_ticks + 1, ..own }),
            "the pid was used again"
        );
        assert!(!proc.boot_id().is_empty());
    }

    #[test]
    fn only_the_very_process_is_ended() {
        let proc = ProcFs::new("/proc");
        #[expect(clippy::disallowed_methods, reason = "a test of processes runs one")]
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let process = proc.identify(child.id()).expect("it runs");
        proc.kill(ProcessId { start_ticks: process.start_ticks + 1, ..process }).expect("nobody");
        assert!(proc.is_alive(process), "one that had the pid before");
        proc.kill(process).expect("our own");
        assert!(!child.wait().expect("it has ended").success());
        proc.kill(process).expect("it has gone");
    }

    #[test]
    fn who_catches_blocks_or_ignores_sigterm_goes_on() {
        let status = |blocked: &str, ignored: &str, caught: &str| {
            format!("Name:\tpython\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let (none, term) = ("0000000000000000", "0000000000004000");
        assert_eq!(parse_term_fate(&status(none, "0000000001001000", "0000000000000002")), TermFate::Dies);
        for text in [status(term, none, none), status(none, term, none), status(none, none, term)] {
            assert_eq!(parse_term_fate(&text), TermFate::GoesOn);
        }
        assert_eq!(parse_term_fate(""), TermFate::GoesOn, "nobody can say");
        // While the first thread begins another, the one that this runs in, it blocks all signals.
        let dies = || ProcFs::new("/proc").term_fate(std::process::id()) == TermFate::Dies;
        let dies_soon = (0..10_000).any(|_| {
            std::thread::yield_now();
            dies()
        });
        assert!(dies_soon, "a test catches nothing");
    }

    #[test]
    fn a_job_is_held_where_slurm_put_all_of_it() {
        let place = |line: &str| parse_job_place(line).map(|(controllers, path, _)| (controllers, path));
        let expected = |controllers: &str, path: &str| Some((controllers.to_owned(), path.to_owned()));
        assert_eq!(
            place("4:freezer:/slurm_n1/uid_1000/job_7/step_0/task_0"),
            expected("freezer", "slurm_n1/uid_1000/job_7")
        );
        assert_eq!(
            place("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0"),
            expected("", "system.slice/slurmstepd.scope/job_12")
        );
        assert_eq!(place("0::/user.slice/slurmstepd.scope/job_12"), None);
        assert_eq!(place("0::/system.slice/slurmstepd.scope/../job_12"), None);
    }

    #[test]
    fn only_slurms_own_scope_names_a_job() {
        let number = |number| Some(JobGroup::Number(number));
        let sluid = |sluid: &str| Some(JobGroup::Sluid(sluid.to_owned()));
        for (text, job) in [
            (
                "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n",
                sluid("s5K1KKYAYG5D00"),
            ),
            ("4:memory:/slurm_n1/uid_1000/s5K1KKYAYG5D00/step_0\n", sluid("s5K1KKYAYG5D00")),
            ("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D0/step_0\n", None),
            ("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D0U/step_0\n", None),
            ("0::/system.slice/slurmstepd.scope/system/slurm\n", None),
            ("0::/user.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0\n", None),
            ("4:memory:/slurm/uid_1000/job_33/step_batch/task_0\n", number(33)),
            ("4:memory:/slurm_n1/uid_1000/job_33/step_0\n", number(33)),
            ("1:name=systemd:/\n4:freezer:/slurm_n1/uid_0/job_7\n", number(7)),
            ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", number(12)),
            ("0::/system.slice/n1_slurmstepd.scope/job_12/step_extern/user/task_special\n", number(12)),
            ("0::/user.slice/user-1000.slice/slurmstepd.scope/job_12/step_0\n", None),
            ("0::/user.slice/slurm/uid_0/job_12\n", None),
            ("0::/system.slice/evil.scope/job_12/step_0\n", None),
            ("4:memory:/slurm/job_33/step_batch\n", None),
            ("4:memory:/slurmish/uid_1/job_33\n", None),
            ("0::/system.slice/slurmstepd.scope/system\n", None),
            ("0::/system.slice/slurmstepd.scope/job_x/step_0\n", None),
            ("", None),
        ] {
            assert_eq!(parse_job_group(text), job, "{text}");
        }
    }
}
