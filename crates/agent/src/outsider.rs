//! Processes on a device that are no job's: begun by another way (ssh, `systemd-run --user`, cron), or left over from a job that
//! is gone. Whoever shares the device would be slowed by them, and nobody could say why. They are told, and nothing is done to
//! them: what is not a job's is not ours to end.

use crate::procfs::ProcFs;
use pillion_core::device::DeviceProcess;
use pillion_core::{UserId, text};
use std::fmt;

/// How many are named; a user may have as many as he likes.
const NAMED_MAX: usize = 4;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outsider {
    pub pid: u32,
    pub uid: UserId,
}

impl Outsider {
    /// This process, which no start is known to have; `None` where it is a job's all the same, or the system's own.
    pub fn find(proc: &ProcFs, process: &DeviceProcess) -> Option<Self> {
        let pid = process.pid;
        // Nothing is known of one that ends in this moment. Root looks after the machine, and nobody could keep him from it.
        let uid = proc.uid(pid).filter(|uid| uid.0 != 0)?;
        // A job that began while no agent ran is in Slurm's own control group, or beneath its slurmstepd.
        let is_a_jobs = proc.job_group(pid).is_some() || proc.is_beneath_slurmstepd(pid);
        (!is_a_jobs && !proc.is_mps_server(pid)).then_some(Self { pid, uid })
    }
}

impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of uid {}", self.pid, self.uid.0)
    }
}

/// Who they are, for operators; `None` where there are none.
pub fn sentence(outsiders: &[Outsider]) -> Option<String> {
    text::named(outsiders, NAMED_MAX).map(|named| format!("process {named}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn run(root: &Path, pid: u32, parent: u32, uid: u32, cgroup: &str, program: &str) {
        let directory = root.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S {parent} 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0");
        std::fs::write(directory.join("stat"), stat).unwrap();
        std::fs::write(directory.join("status"), format!("Name:\tx\nUid:\t{uid}\t0\t0\t0\n")).unwrap();
        std::fs::write(directory.join("cgroup"), cgroup).unwrap();
        std::os::unix::fs::symlink(program, directory.join("exe")).unwrap();
    }

    #[test]
    fn who_is_in_no_jobs_control_group_is_an_outsider() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let (ssh, user) = (
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "0::/user.slice/user@1000.service/a/job_7\n",
        );
        let job = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n";
        run(root, 1, 0, 0, "0::/init.scope\n", "/sbin/init");
        run(root, 10, 1, 1000, ssh, "/usr/bin/python3");
        run(root, 11, 1, 1000, user, "/usr/bin/python3");
        run(root, 12, 1, 1000, job, "/usr/bin/python3");
        run(root, 13, 1, 0, "0::/system.slice/dcgm.service\n", "/usr/bin/nv-hostengine");
        // Where Slurm uses no control groups.
        run(root, 20, 1, 0, "0::/\n", "/usr/sbin/slurmstepd");
        run(root, 21, 20, 1000, "0::/\n", "/bin/bash");
        run(root, 22, 21, 1000, "0::/\n", "/usr/bin/python3");
        run(root, 23, 1, 0, "0::/\n", "/usr/sbin/slurmstepd-wlm");
        run(root, 24, 23, 1000, "0::/\n", "/usr/bin/python3");
        // A user's own program of that name, and one that calls itself an MPS server.
        run(root, 30, 1, 1000, ssh, "/home/alice/slurmstepd");
        run(root, 31, 30, 1000, ssh, "/home/alice/nvidia-cuda-mps-server");
        let find = |pid| {
            let process = DeviceProcess { pid, memory_bytes: Some(1) };
            Outsider::find(&proc, &process).map(|it| it.pid)
        };
        assert_eq!([10, 11, 30, 31].map(find), [Some(10), Some(11), Some(30), Some(31)]);
        assert_eq!([12, 13, 22, 24, 99].map(find), [None; 5]);
    }

    #[test]
    fn a_few_are_named_and_the_others_counted() {
        let outsiders: Vec<Outsider> = (1..=6).map(|pid| Outsider { pid, uid: UserId(1000) }).collect();
        assert_eq!(sentence(&[]), None);
        assert_eq!(sentence(&outsiders[..1]).as_deref(), Some("process 1 of uid 1000"));
        let all = sentence(&outsiders).unwrap();
        assert!(all.ends_with("4 of uid 1000 and 2 more"), "{all}");
    }
}
