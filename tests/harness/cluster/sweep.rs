//! Finds and ends every process of a cluster, whoever started it: daemons, their children, steps, jobs.
//!
//! A process belongs to a cluster if its environment, its command line or its working folder names the cluster's folder.
//! `PostgreSQL` overwrites its environment, so one sign alone is not enough. Zombies show none of them, and count as gone.
//!
//! Every testbed has its clusters under the same path. So a process counts only where it is in the process namespace of who
//! looks: from the machine itself the processes of all testbeds are seen, and none of them belongs to it.

use crate::error::Result;
use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// How long the kernel may take to end what was killed.
const SWEEP_DEADLINE: Duration = Duration::from_secs(20);

/// A process that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its id.
    pub pid: i32,
    /// Its command line, with blanks between the arguments.
    pub command: String,
}

/// Every living process of the cluster in `root` in this testbed, except this one.
pub fn processes_of(root: &Path) -> Vec<Leftover> {
    let this = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| u32::try_from(*pid) != Ok(this)).filter_map(|pid| belongs(pid, root)).collect()
}

fn belongs(pid: i32, root: &Path) -> Option<Leftover> {
    let folder = Path::new("/proc").join(pid.to_string());
    let namespace = |of: &Path| fs::read_link(of.join("ns/pid")).ok();
    namespace(&folder).filter(|its| namespace(Path::new("/proc/self")).as_ref() == Some(its))?;
    let command = fs::read(folder.join("cmdline")).ok().filter(|bytes| !bytes.is_empty())?;
    let mentions = |bytes: &[u8]| holds_path(bytes, root.as_os_str().as_bytes());
    let is_ours = mentions(&command)
        || fs::read(folder.join("environ")).is_ok_and(|bytes| mentions(&bytes))
        || fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd.starts_with(root));
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    is_ours.then_some(Leftover { pid, command })
}

/// Whether the path occurs, not only as the beginning of a longer name (`c1` in `c12`).
fn holds_path(bytes: &[u8], path: &[u8]) -> bool {
    let is_end = |next: Option<&u8>| next.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    bytes
        .windows(path.len())
        .enumerate()
        .any(|(at, window)| window == path && is_end(bytes.get(at + path.len())))
}

/// Kills all of them, again and again until none is left: what is killed may just have started another.
///
/// # Errors
/// A timeout where some do not end.
pub fn sweep(root: &Path) -> Result<()> {
    wait_until("end of every process of the cluster", SWEEP_DEADLINE, || {
        let left = processes_of(root);
        for leftover in &left {
            if let Some(pid) = Pid::from_raw(leftover.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(left.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_is_another_cluster() {
        assert!(holds_path(b"A=1\0SLURM_CONF=/run/testbed/c1/conf/slurm.conf\0", b"/run/testbed/c1"));
        assert!(holds_path(b"/run/testbed/c1", b"/run/testbed/c1"));
        assert!(!holds_path(b"/run/testbed/c12/x", b"/run/testbed/c1"));
        assert!(!holds_path(b"", b"/run/testbed/c1"));
    }
}
