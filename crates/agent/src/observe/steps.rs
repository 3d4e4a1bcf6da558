//! Which job's a process is on a node where nobody tells: by Slurm's own control group, or by the process of Slurm's own that it
//! runs beneath. Never by anything that a user can write: environments, names of processes and of programs, and control groups
//! that he made himself are not read.
//!
//! Both name the job by Slurm's inner number, and neither tells which start of it this is: the scheduler knows.
//!
//! ```text
//! root  slurmstepd: [1156.batch]        one a step; root's, and so is its title
//! alice   └─ bash slurm_script
//! alice        └─ python train.py       on a device: job 1156's
//! ```

use crate::procfs::{ANCESTORS_MAX, JobGroup, ProcFs, ProcessId};
use std::collections::BTreeSet;

/// A job on this node, as Slurm's own processes show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHere {
    /// Slurm's inner number.
    pub number: u32,
    /// Its steps' processes of Slurm's own, which live as long as their step; empty where it is known by a control group alone.
    pub steps: BTreeSet<ProcessId>,
    /// The control group of it.
    pub group: Option<JobGroup>,
}

/// The job that a process belongs to. Slurm's control group goes first: who was put into it (by `pam_slurm_adopt`) runs beneath
/// sshd. `None`: no job's, or nobody can say.
pub fn job_of(proc: &ProcFs, pid: u32) -> Option<JobHere> {
    let group = proc.job_group(pid);
    let number = match &group {
        Some(JobGroup::Number(number)) => Some(*number),
        Some(JobGroup::Sluid(_)) | None => above(proc, pid),
    };
    if group.is_none() && number.is_none() {
        return None;
    }
    let here = all_steps(proc);
    // One that left its parents behind is named by whoever of Slurm's own is in the same control group.
    let number = number.or_else(|| {
        let beside = here.iter().find(|step| group.is_some() && step.group == group);
        beside.map(|step| step.number)
    })?;
    Some(JobHere { number, steps: of(number, here), group })
}

/// The processes of Slurm's own of this job's steps.
pub fn steps_of(proc: &ProcFs, number: u32) -> BTreeSet<ProcessId> {
    of(number, all_steps(proc))
}

/// A process of Slurm's own, one a step.
struct Step {
    process: ProcessId,
    number: u32,
    group: Option<JobGroup>,
}

fn of(number: u32, steps: Vec<Step>) -> BTreeSet<ProcessId> {
    let own = steps.into_iter().filter(|step| step.number == number);
    own.map(|step| step.process).collect()
}

fn all_steps(proc: &ProcFs) -> Vec<Step> {
    let steps = proc.pids().into_iter().filter_map(|pid| {
        let number = number_of(proc, pid)?;
        Some(Step { process: proc.identify(pid)?, number, group: proc.job_group(pid) })
    });
    steps.collect()
}

/// The job of the nearest process of Slurm's own above this one.
fn above(proc: &ProcFs, pid: u32) -> Option<u32> {
    let (mut pid, mut start_ticks_max) = (pid, u64::MAX);
    for _ in 0..ANCESTORS_MAX {
        // A parent that started after its child is a pid used again: there the trail ends.
        let stat = proc.stat(pid).filter(|stat| stat.start_ticks <= start_ticks_max)?;
        if let Some(number) = number_of(proc, pid) {
            return Some(number);
        }
        (pid, start_ticks_max) = (stat.parent_pid, stat.start_ticks);
    }
    None
}

/// The job whose step this process of Slurm's own runs.
fn number_of(proc: &ProcFs, pid: u32) -> Option<u32> {
    // Of no other process: what one shows as its arguments lies in its memory, and whoever reads it may have to wait for that.
    if !proc.is_slurmstepd(pid) {
        return None;
    }
    parse_title(&proc.title(pid)?)
}

/// `slurmstepd: [1156.batch]`, `[1156.0]`, `[1156+1.0]` of a component of a heterogeneous job, whose own number it is not: nobody
/// can say whose that is.
fn parse_title(title: &str) -> Option<u32> {
    let (number, _) = title.strip_prefix("slurmstepd: [")?.split_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|number| is_number && *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const STEPD: &str = "/usr/sbin/slurmstepd";

    struct Process<'a> {
        pid: u32,
        parent: u32,
        uid: u32,
        cgroup: &'a str,
        program: &'a str,
        title: &'a str,
    }

    fn run(root: &Path, process: &Process<'_>) {
        let Process { pid, parent, uid, cgroup, program, title } = *process;
        let directory = root.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S {parent} 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0");
        std::fs::write(directory.join("stat"), stat).unwrap();
        let status = format!("Name:\tslurmstepd\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        std::fs::write(directory.join("status"), status).unwrap();
        std::fs::write(directory.join("cgroup"), cgroup).unwrap();
        std::fs::write(directory.join("cmdline"), format!("{title}\0\0\0")).unwrap();
        std::os::unix::fs::symlink(program, directory.join("exe")).unwrap();
    }

    fn slurms(pid: u32, title: &str) -> Process<'_> {
        Process { pid, parent: 1, uid: 0, cgroup: "0::/\n", program: STEPD, title }
    }

    fn users(pid: u32, parent: u32) -> Process<'static> {
        Process { pid, parent, uid: 1000, cgroup: "0::/\n", program: "/usr/bin/python3", title: "python3" }
    }

    #[test]
    fn a_process_is_the_jobs_whose_step_it_runs_beneath() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        run(root, &Process { pid: 1, parent: 0, ..users(1, 0) });
        run(root, &slurms(10, "slurmstepd: [77.batch]"));
        run(
            root,
            &Process { program: "/usr/sbin/slurmstepd-wlm (deleted)", ..slurms(12, "slurmstepd: [77.0]") },
        );
        run(root, &slurms(14, "slurmstepd: [78.extern]"));
        for process in [users(20, 10), users(21, 20), users(22, 1), users(23, 12)] {
            run(root, &process);
        }
        let number = |pid| job_of(&proc, pid).map(|job| job.number);
        assert_eq!([20, 21, 23].map(number), [Some(77); 3]);
        assert_eq!([22, 99].map(number), [None; 2], "of no step; nobody");
        let steps = job_of(&proc, 21).unwrap().steps;
        assert_eq!(steps.iter().map(|step| step.pid).collect::<Vec<_>>(), [10, 12]);
    }

    /// Reading them would not return.
    #[test]
    fn nobody_elses_arguments_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        run(root, &users(1, 0));
        run(root, &users(20, 1));
        let arguments = root.join("20/cmdline");
        std::fs::remove_file(&arguments).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &arguments, rustix::fs::Mode::RUSR).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send((all_steps(&proc).len(), above(&proc, 20))));
        assert_eq!(is_done.recv_timeout(std::time::Duration::from_secs(20)), Ok((0, None)));
    }

    #[test]
    fn what_a_user_calls_himself_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        run(root, &users(1, 0));
        run(root, &slurms(10, "slurmstepd: [77.batch]"));
        // A program of that name and title, which is a user's; root's own, which is not Slurm's.
        run(
            root,
            &Process {
                uid: 1000,
                program: "/home/u/slurmstepd",
                title: "slurmstepd: [78.batch]",
                ..users(20, 10)
            },
        );
        run(root, &users(21, 20));
        run(root, &Process { uid: 0, program: "/bin/sh", title: "slurmstepd: [78.batch]", ..users(30, 1) });
        run(root, &users(31, 30));
        // A control group that he made for himself.
        run(root, &Process { cgroup: "0::/user.slice/slurmstepd.scope/job_78/step_0\n", ..users(40, 1) });
        let number = |pid| job_of(&proc, pid).map(|job| job.number);
        assert_eq!(number(21), Some(77), "his own job's, whatever he runs in between");
        assert_eq!([31, 40].map(number), [None; 2]);
        for wrong in [
            "",
            "slurmstepd: [.0]",
            "slurmstepd: [+7.0]",
            "slurmstepd: [7+1.0]",
            "slurmstepd: [0.0]",
            "slurmstepd: [7",
        ] {
            assert_eq!(parse_title(wrong), None, "{wrong}");
        }
        assert_eq!(parse_title("slurmstepd: [99999999999.0]"), None);
    }

    #[test]
    fn slurms_control_groups_name_the_job_of_whoever_left_his_parents() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let (v1, v2) = (
            "4:memory:/slurm_n1/uid_1000/job_33/step_batch/task_0\n",
            "0::/system.slice/n1_slurmstepd.scope/job_34/step_0/user/task_0\n",
        );
        let sluid = "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00";
        let (beside, beneath) = (format!("{sluid}/step_0/slurm\n"), format!("{sluid}/step_0/user/task_0\n"));
        run(root, &users(1, 0));
        run(root, &Process { cgroup: v1, ..users(20, 1) });
        run(root, &Process { cgroup: v2, ..users(21, 1) });
        run(root, &Process { cgroup: &beside, ..slurms(10, "slurmstepd: [35.0]") });
        run(root, &Process { cgroup: &beneath, ..users(22, 10) });
        run(root, &Process { cgroup: &beneath, ..users(23, 1) });
        let other = "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D01/step_0/user\n";
        run(root, &Process { cgroup: other, ..users(24, 1) });
        let number = |pid| job_of(&proc, pid).map(|job| job.number);
        assert_eq!([20, 21, 22, 23].map(number), [Some(33), Some(34), Some(35), Some(35)]);
        assert_eq!(number(24), None, "whose it is, only Slurm knows");
        assert_eq!(job_of(&proc, 23).unwrap().steps.len(), 1);
    }

    #[test]
    fn a_containers_processes_are_its_jobs_wherever_the_container_put_them() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let step = "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0";
        let (inside, below) = (format!("0::{step}\n"), format!("0::{step}/container/init\n"));
        run(root, &users(1, 0));
        run(root, &slurms(10, "slurmstepd: [77.0]"));
        // enroot with pyxis, Apptainer as a user: in the step's control group, whatever namespaces they have. What runs as root in there
        // runs as its user here, or as one of his subordinate ids.
        run(root, &Process { cgroup: &inside, program: "/usr/bin/starter", ..users(20, 10) });
        run(root, &Process { cgroup: &inside, uid: 100_000, ..users(21, 20) });
        run(root, &Process { cgroup: &below, ..users(22, 21) });
        // Apptainer with limits, as root or through systemd: in a control group of its own, and beneath the step all the same.
        let own = [
            "0::/user.slice/user-1000.slice/user@1000.service/user.slice/apptainer-20.scope\n",
            "0::/system.slice/apptainer-20.scope\n",
            "4:memory:/apptainer/20\n0::/\n",
        ];
        for (pid, cgroup) in (30..).zip(own) {
            run(root, &Process { cgroup, ..users(pid, 20) });
        }
        // An instance that was left behind, which is nobody's child any more: by the step's control group.
        run(root, &Process { cgroup: &inside, ..users(40, 1) });
        let number = |pid| job_of(&proc, pid).map(|job| job.number);
        for pid in [20, 21, 22, 30, 31, 32, 40] {
            assert_eq!(number(pid), Some(77), "{pid}");
        }
        // Left behind with a control group of its own, and what a daemon runs for somebody: nobody can say whose that is.
        run(root, &Process { cgroup: own[0], ..users(50, 1) });
        run(root, &Process { uid: 0, program: "/usr/bin/containerd-shim", ..users(51, 1) });
        run(root, &Process { cgroup: "0::/system.slice/docker-4f2e.scope\n", ..users(52, 51) });
        assert_eq!([50, 52].map(number), [None; 2]);
    }
}
