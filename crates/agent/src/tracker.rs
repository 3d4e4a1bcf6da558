//! Whose process is this? Processes on a device are given to the start whose task's process tree, or cgroup, holds them.
//!
//! The roots of the trees come from the SPANK plugin's own connections (the kernel says who called), and where jobs are only
//! observed from Slurm's own processes (`observe::steps`); never from anything that a user can write. Knows nothing of devices or
//! shares.

use crate::observe::steps::{self, JobHere};
use crate::procfs::{ANCESTORS_MAX, JobGroup, ProcFs, ProcessId};
use pillion_core::{GresType, JobStart, SlurmJobId, UnixTime, UserId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A task that is about to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Which start it belongs to.
    pub start: JobStart,
    /// Slurm's own number for the job, as cgroups are named.
    pub inner_job_id: Option<u32>,
    pub uid: UserId,
    /// The devices that Slurm gave the job.
    pub gres_types: Vec<GresType>,
    /// The process that becomes the task.
    pub root: ProcessId,
    pub at: UnixTime,
}

/// A start with tasks on this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackedStart {
    pub start: JobStart,
    /// Slurm's own number for the job.
    pub inner_job_id: Option<u32>,
    pub uid: UserId,
    pub gres_types: BTreeSet<GresType>,
    /// The tasks that still run.
    pub roots: BTreeSet<ProcessId>,
    /// The cgroup in which its tasks were found.
    #[serde(default)]
    pub group: Option<JobGroup>,
    /// When its first task began.
    pub started_at: UnixTime,
}

impl TrackedStart {
    /// Whether one of its tasks runs still.
    pub fn has_task(&self, proc: &ProcFs) -> bool {
        self.roots.iter().any(|root| proc.is_alive(*root))
    }

    /// The number that Slurm's cgroups name the job by: an array's task has another than its id says.
    fn number(&self) -> Option<JobGroup> {
        let JobStart { job_id, .. } = self.start;
        let plain = job_id.task.is_none().then_some(job_id.id);
        self.inner_job_id.or(plain).map(JobGroup::Number)
    }
}

/// All starts with tasks on this node.
#[derive(Debug, Default)]
pub struct Tracker {
    starts: BTreeMap<JobStart, TrackedStart>,
    /// What was found out before: stays true when a process's parents have gone.
    known: HashMap<ProcessId, JobStart>,
}

impl Tracker {
    /// Takes up what an earlier agent tracked.
    pub fn restore(starts: impl IntoIterator<Item = TrackedStart>) -> Self {
        let starts: BTreeMap<_, _> = starts.into_iter().map(|tracked| (tracked.start, tracked)).collect();
        let known = starts
            .values()
            .flat_map(|tracked| {
                let start = tracked.start;
                tracked.roots.iter().map(move |root| (*root, start)).collect::<Vec<_>>()
            })
            .collect();
        Self { starts, known }
    }

    /// Remembers a task, and the cgroup that it is in.
    pub fn register(&mut self, proc: &ProcFs, registration: Registration) {
        let Registration { start, inner_job_id, uid, gres_types, root, at } = registration;
        let tracked = self.starts.entry(start).or_insert_with(|| TrackedStart {
            start,
            inner_job_id,
            uid,
            gres_types: BTreeSet::new(),
            roots: BTreeSet::new(),
            group: None,
            started_at: at,
        });
        if let Some(group) = proc.job_group(root.pid).filter(|_| proc.is_alive(root)) {
            tracked.group = Some(group);
        }
        tracked.gres_types.extend(gres_types);
        tracked.roots.insert(root);
        self.known.insert(root, start);
    }

    /// All starts that are tracked.
    pub fn starts(&self) -> impl Iterator<Item = &TrackedStart> {
        self.starts.values()
    }

    /// Whether this start is tracked.
    pub fn contains(&self, start: JobStart) -> bool {
        self.starts.contains_key(&start)
    }

    /// The start that a process belongs to, if it belongs to one; also where it has ended since its device named it, for as a
    /// stranger it would have shared the device with its own job.
    pub fn attribute(&mut self, proc: &ProcFs, pid: u32) -> Option<JobStart> {
        let Some(process) = proc.identify(pid) else { return self.of_ended(pid) };
        if let Some(start) = self.known.get(&process) {
            return Some(*start);
        }
        let start = self.of_ancestors(proc, process).or_else(|| self.of_cgroup(proc, pid))?;
        self.known.insert(process, start);
        Some(start)
    }

    /// The start that a process belongs to where nobody tells: that of the job which Slurm's own processes and control groups name,
    /// by Slurm's inner number, as if it were its first.
    pub fn find(&mut self, proc: &ProcFs, pid: u32, at: UnixTime) -> Option<JobStart> {
        if let Some(start) = self.attribute(proc, pid) {
            return Some(start);
        }
        let process = proc.identify(pid)?;
        let JobHere { number, mut steps, group } = steps::job_of(proc, pid)?;
        let start = JobStart { job_id: SlurmJobId::plain(number), restart_count: 0 };
        if steps.is_empty() {
            steps.insert(process);
        }
        self.known.insert(process, start);
        self.known.extend(steps.iter().map(|step| (*step, start)));
        let tracked = self.starts.entry(start).or_insert_with(|| TrackedStart {
            start,
            inner_job_id: Some(number),
            uid: proc.uid(pid).unwrap_or(UserId(0)),
            gres_types: BTreeSet::new(),
            roots: BTreeSet::new(),
            group: None,
            started_at: at,
        });
        tracked.group = group.or(tracked.group.take());
        tracked.roots.extend(steps);
        Some(start)
    }

    /// Looks again for Slurm's own processes of the jobs whose steps have all ended: a job goes from step to step.
    pub fn find_steps(&mut self, proc: &ProcFs) {
        for tracked in self.starts.values_mut() {
            if !tracked.roots.iter().any(|root| proc.is_alive(*root)) {
                let steps = steps::steps_of(proc, tracked.start.job_id.id);
                self.known.extend(steps.iter().map(|step| (*step, tracked.start)));
                tracked.roots.extend(steps);
            }
        }
    }

    /// Whose it was, of those that were known at the last look: the youngest, where a pid was used again.
    fn of_ended(&self, pid: u32) -> Option<JobStart> {
        let known = self.known.iter().filter(|(process, _)| process.pid == pid);
        known.max_by_key(|(process, _)| process.start_ticks).map(|(_, start)| *start)
    }

    /// Walks up the parents. A parent that started after its child is a pid used again: there the trail ends.
    fn of_ancestors(&self, proc: &ProcFs, process: ProcessId) -> Option<JobStart> {
        let (mut pid, mut start_ticks_max) = (process.pid, u64::MAX);
        for _ in 0..ANCESTORS_MAX {
            let stat = proc.stat(pid).filter(|stat| stat.start_ticks <= start_ticks_max)?;
            if let Some(start) = self.known.get(&ProcessId { pid, start_ticks: stat.start_ticks }) {
                return Some(*start);
            }
            (pid, start_ticks_max) = (stat.parent_pid, stat.start_ticks);
        }
        None
    }

    fn of_cgroup(&self, proc: &ProcFs, pid: u32) -> Option<JobStart> {
        let group = proc.job_group(pid)?;
        // A requeued job keeps its number: the last start is the one that runs.
        self.starts
            .values()
            .filter(|tracked| {
                [&tracked.group, &tracked.number()].into_iter().flatten().any(|own| *own == group)
            })
            .map(|tracked| tracked.start)
            .max_by_key(|start| start.restart_count)
    }

    /// Forgets tasks that have ended; gives the starts that have none left.
    pub fn without_tasks(&mut self, proc: &ProcFs) -> Vec<JobStart> {
        for tracked in self.starts.values_mut() {
            tracked.roots.retain(|root| proc.is_alive(*root));
        }
        self.starts.values().filter(|tracked| tracked.roots.is_empty()).map(|tracked| tracked.start).collect()
    }

    /// Forgets a start and all its processes.
    pub fn forget(&mut self, start: JobStart) -> Option<TrackedStart> {
        self.known.retain(|_, of| *of != start);
        self.starts.remove(&start)
    }

    /// Forgets processes that have ended, so that the memory of them does not grow without end.
    pub fn forget_dead(&mut self, proc: &ProcFs) {
        self.known.retain(|process, _| proc.is_alive(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::SlurmJobId;
    use std::path::Path;

    const JOB: JobStart = JobStart { job_id: SlurmJobId::array_task(33, 2), restart_count: 0 };

    fn run(root: &Path, pid: u32, parent: u32, start_ticks: u64, cgroup: &str) {
        let directory = root.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S {parent} 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0");
        std::fs::write(directory.join("stat"), stat).unwrap();
        std::fs::write(directory.join("cgroup"), cgroup).unwrap();
    }

    fn end(root: &Path, pid: u32) {
        std::fs::remove_dir_all(root.join(pid.to_string())).unwrap();
    }

    fn registration(pid: u32, start_ticks: u64) -> Registration {
        Registration {
            start: JOB,
            inner_job_id: Some(35),
            uid: UserId(1000),
            gres_types: vec![GresType::new("g1")],
            root: ProcessId { pid, start_ticks },
            at: UnixTime::from_epoch(100),
        }
    }

    /// Of the task 10, which init has begun.
    fn of_one_task(root: &Path, proc: &ProcFs) -> Tracker {
        run(root, 1, 0, 0, "");
        run(root, 10, 1, 50, "");
        let mut tracker = Tracker::default();
        tracker.register(proc, registration(10, 50));
        tracker
    }

    #[test]
    fn descendants_belong_to_the_task_also_when_their_parents_have_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        for (pid, parent, ticks) in [(1, 0, 0), (10, 1, 50), (11, 10, 60), (12, 11, 70), (20, 1, 55)] {
            run(root, pid, parent, ticks, "");
        }
        let mut tracker = Tracker::default();
        tracker.register(&proc, registration(10, 50));
        assert_eq!(tracker.attribute(&proc, 12), Some(JOB));
        assert_eq!(tracker.attribute(&proc, 20), None, "a stranger");
        assert_eq!(tracker.attribute(&proc, 99), None, "nobody");
        end(root, 11);
        run(root, 12, 1, 70, "");
        tracker.forget_dead(&proc);
        assert_eq!(tracker.attribute(&proc, 12), Some(JOB), "handed to init, but known");
        assert_eq!(tracker.without_tasks(&proc), []);
        end(root, 10);
        assert_eq!(tracker.without_tasks(&proc), [JOB]);
    }

    #[test]
    fn a_process_that_has_just_ended_is_still_its_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        for (pid, parent, ticks) in [(1, 0, 0), (10, 1, 50), (11, 10, 60)] {
            run(root, pid, parent, ticks, "");
        }
        let mut tracker = Tracker::default();
        tracker.register(&proc, registration(10, 50));
        assert_eq!(tracker.attribute(&proc, 11), Some(JOB));
        end(root, 11);
        assert_eq!(tracker.attribute(&proc, 11), Some(JOB), "its device named it before it ended");
        tracker.forget_dead(&proc);
        assert_eq!(tracker.attribute(&proc, 11), None, "at the next look that is long ago");
    }

    /// Its memory on the device is held, and its limit counts.
    #[test]
    fn a_process_whose_first_thread_has_ended_is_still_its_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let mut tracker = of_one_task(root, &proc);
        let stat = root.join("10/stat");
        let line = |threads| format!("10 (x) Z 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 50 0");
        std::fs::write(&stat, line(3)).unwrap();
        tracker.forget_dead(&proc);
        assert_eq!((tracker.attribute(&proc, 10), tracker.without_tasks(&proc)), (Some(JOB), vec![]));
        std::fs::write(&stat, line(1)).unwrap();
        tracker.forget_dead(&proc);
        assert_eq!(tracker.without_tasks(&proc), [JOB], "now all of it");
    }

    #[test]
    fn a_pid_used_again_inherits_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let mut tracker = of_one_task(root, &proc);
        run(root, 10, 1, 90, "");
        run(root, 11, 10, 95, "");
        assert_eq!(tracker.attribute(&proc, 10), None);
        assert_eq!(tracker.attribute(&proc, 11), None);
        // An orphan whose old parent's pid went to a process that is younger than itself.
        run(root, 30, 31, 60, "");
        run(root, 31, 1, 99, "");
        tracker.register(&proc, registration(31, 99));
        assert_eq!(tracker.attribute(&proc, 30), None);
    }

    #[test]
    fn a_daemon_is_found_by_its_cgroup_under_the_inner_id() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        run(root, 1, 0, 0, "");
        run(root, 40, 1, 60, "0::/system.slice/slurmstepd.scope/job_35/step_0/user/task_0\n");
        run(root, 41, 1, 60, "0::/system.slice/slurmstepd.scope/job_33/step_0/user/task_0\n");
        let mut tracker = Tracker::default();
        tracker.register(&proc, registration(10, 50));
        assert_eq!(tracker.attribute(&proc, 40), Some(JOB));
        assert_eq!(tracker.attribute(&proc, 41), None, "33 is the array, not this task");
        tracker.forget(JOB);
        assert_eq!(tracker.attribute(&proc, 40), None);
    }

    #[test]
    fn where_cgroups_have_sluids_a_task_tells_whose_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let scope = "0::/system.slice/slurmstepd.scope";
        run(root, 1, 0, 0, "");
        run(root, 10, 1, 50, &format!("{scope}/s5K1KKYAYG5D00/step_0/user/task_0\n"));
        run(root, 40, 1, 60, &format!("{scope}/s5K1KKYAYG5D00/step_extern/user/task_special\n"));
        run(root, 41, 1, 60, &format!("{scope}/s5K1KKYAYG5D01/step_0/user/task_0\n"));
        run(root, 42, 1, 60, "0::/user.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0\n");
        let mut tracker = Tracker::default();
        tracker.register(&proc, registration(10, 50));
        assert_eq!(tracker.attribute(&proc, 40), Some(JOB));
        assert_eq!(tracker.attribute(&proc, 41), None, "another job");
        assert_eq!(tracker.attribute(&proc, 42), None, "made by a user");
        // An agent that starts again knows it still, though the task has gone.
        let mut tracker = Tracker::restore(tracker.starts().cloned().collect::<Vec<_>>());
        end(root, 10);
        assert_eq!(tracker.attribute(&proc, 40), Some(JOB));
    }

    #[test]
    fn a_pid_that_another_has_now_names_no_cgroup() {
        let directory = tempfile::tempdir().unwrap();
        let (root, proc) = (directory.path(), ProcFs::new(directory.path()));
        let group = "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n";
        for (pid, ticks) in [(10, 90), (40, 95)] {
            run(root, pid, 1, ticks, group);
        }
        let mut tracker = Tracker::default();
        tracker.register(&proc, registration(10, 50));
        assert_eq!(tracker.attribute(&proc, 40), None);
    }
}
