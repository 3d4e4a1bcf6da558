//! Looks over a process tree and devices of our own making.

use super::*;
use crate::procfs::ProcessId;
use pillion_core::device::Reading;
use pillion_core::metric::Metric;
use pillion_core::report::JobSummary;
use pillion_core::{SlurmJobId, UserId};
use std::path::{Path, PathBuf};

const JOB: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };

struct Node {
    directory: tempfile::TempDir,
    sampler: Sampler,
    at: f64,
}

fn device(index: u32) -> DeviceDescription {
    DeviceDescription { memory_bytes: 1 << 37, ..pillion_test_kit::device(index) }
}

fn tools(directory: &Path) -> SamplerTools {
    SamplerTools {
        devices: vec![device(0), device(1)],
        proc: ProcFs::new(directory.join("proc")),
        attribution: Attribution::Told(ProgressFiles::new(directory).unwrap()),
        period_seconds: 1.0,
    }
}

fn run(directory: &Path, pid: u32, parent: u32) {
    let process = directory.join(format!("proc/{pid}"));
    std::fs::create_dir_all(&process).unwrap();
    let stat = format!("{pid} (x) S {parent} 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0");
    std::fs::write(process.join("stat"), stat).unwrap();
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(tools(directory.path()), SamplerState::default());
        Self { directory, sampler, at: 1000.0 }
    }

    fn begin_task(&mut self, pid: u32) {
        run(self.directory.path(), pid, 1);
        self.sampler.register(Registration {
            start: JOB,
            inner_job_id: None,
            uid: UserId(rustix::process::getuid().as_raw()),
            gres_types: vec![GresType::new("g0")],
            root: ProcessId { pid, start_ticks: u64::from(pid) },
            at: UnixTime::from_seconds(self.at),
        });
    }

    /// A process that runs this file of ours.
    fn runs_file(&self, pid: u32, file: &str) -> PathBuf {
        let path = self.directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        run(self.directory.path(), pid, 1);
        std::os::unix::fs::symlink(&path, self.directory.path().join(format!("proc/{pid}/exe"))).unwrap();
        path
    }

    fn end_process(&self, pid: u32) {
        std::fs::remove_dir_all(self.directory.path().join(format!("proc/{pid}"))).unwrap();
    }

    /// A second later, with these pids on device 0.
    fn sample(&mut self, pids: &[u32]) -> Sampled {
        let processes: Vec<_> = pids.iter().map(|pid| (*pid, Some(7))).collect();
        self.sample_at(&processes)
    }

    /// The same, with what the driver says of the memory of each.
    fn sample_at(&mut self, processes: &[(u32, Option<u64>)]) -> Sampled {
        self.at += 1.0;
        let process = |(pid, memory_bytes): &(u32, Option<u64>)| DeviceProcess {
            pid: *pid,
            memory_bytes: *memory_bytes,
        };
        let busy = if processes.is_empty() { 0.0 } else { 1.0 };
        let state =
            |processes| DeviceState { reading: Reading::from([(Metric::SmActiveFraction, busy)]), processes };
        let quiet = DeviceState { reading: Reading::default(), processes: Vec::new() };
        let states = vec![(0, Ok(state(processes.iter().map(process).collect()))), (1, Ok(quiet))];
        self.sampler.sample(UnixTime::from_seconds(self.at), states)
    }
}

fn samples(sampled: &Sampled) -> Vec<&DeviceSample> {
    fn of(report: &ReportBody) -> &[DeviceSample] {
        if let ReportBody::Samples(samples) = report { &samples.samples } else { &[] }
    }
    sampled.reports.iter().flat_map(of).collect()
}

fn summaries(sampled: &Sampled) -> Vec<&JobSummary> {
    fn of(report: &ReportBody) -> Option<&JobSummary> {
        if let ReportBody::JobSummary(summary) = report { Some(summary) } else { None }
    }
    sampled.reports.iter().filter_map(of).collect()
}

/// Begun by ssh, beside a job; and a part of the job that has left its parents and its control group, but was seen in time.
#[test]
fn who_is_on_a_device_and_is_no_jobs_is_told_of_that_device() {
    let mut node = Node::new();
    node.begin_task(10);
    run(node.directory.path(), 11, 10);
    run(node.directory.path(), 20, 1);
    for pid in [11, 20] {
        let status = node.directory.path().join(format!("proc/{pid}/status"));
        std::fs::write(status, "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n").unwrap();
    }
    node.sample(&[10, 11]);
    run(node.directory.path(), 11, 1);
    let outsiders = node.sample(&[10, 11, 20]).outsiders;
    assert_eq!(outsiders[&0], [Outsider { pid: 20, uid: UserId(1000) }]);
    assert_eq!(outsiders[&1], []);
}

#[test]
fn memory_that_cannot_be_read_is_neither_nothing_nor_a_part_of_it() {
    let mut node = Node::new();
    node.begin_task(10);
    run(node.directory.path(), 11, 10);
    let told = |sampled: &Sampled| samples(sampled)[0].tenants[0].memory_bytes;
    assert_eq!(told(&node.sample_at(&[(10, None)])), None);
    assert_eq!(told(&node.sample_at(&[(10, Some(7)), (11, None)])), None, "a part is not the sum");
    assert_eq!(told(&node.sample_at(&[(10, Some(7)), (11, Some(0))])), Some(7), "0 bytes are a value");
}

#[test]
fn of_several_processes_it_is_told_what_all_held_and_what_any_one_did() {
    let mut node = Node::new();
    node.begin_task(10);
    run(node.directory.path(), 11, 10);
    node.sample_at(&[(10, Some(5)), (11, Some(2))]);
    node.sample_at(&[(10, Some(3)), (11, Some(6))]);
    node.sample_at(&[(10, Some(9)), (11, None)]);
    node.end_process(10);
    node.end_process(11);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    let summary = summaries(&sampled)[0];
    let found = (summary.process_count_peak, summary.memory_bytes_peak, summary.process_memory_bytes_peak);
    assert_eq!(found, (2, Some(9), Some(6)), "of the looks at which that of each could be read");
}

#[test]
fn a_start_is_over_when_its_task_and_its_processes_have_been_gone_twice() {
    let mut node = Node::new();
    node.begin_task(10);
    run(node.directory.path(), 11, 10);
    let sampled = node.sample(&[11]);
    let sample = samples(&sampled)[0];
    assert_eq!(sample.tenants.len(), 1);
    assert_eq!((sample.tenants[0].job_id, sample.tenants[0].memory_bytes), (JOB.job_id, Some(7)));
    node.sample(&[11]);
    assert!(node.sample(&[]).ended.is_empty(), "its task still runs");
    assert!(node.sample(&[]).ended.is_empty());
    node.end_process(10);
    assert!(node.sample(&[11]).ended.is_empty(), "a process of it is still on the device");
    node.end_process(11);
    assert!(node.sample(&[]).ended.is_empty(), "once may be chance");
    let gone_at = node.at;
    let sampled = node.sample(&[]);
    assert_eq!(sampled.ended, [JOB]);
    let summaries = summaries(&sampled);
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries[0].started_at.epoch(), 1000);
    assert!((summaries[0].ended_at.seconds() - gone_at).abs() < 1e-9);
    assert!(node.sampler.is_idle());
}

/// The driver names the processes of a device first, and whose each is, is looked up after that.
#[test]
fn a_process_that_ends_while_its_device_is_looked_at_is_nobodys_neighbour() {
    let mut node = Node::new();
    node.begin_task(10);
    run(node.directory.path(), 11, 10);
    node.sample(&[10, 11]);
    node.end_process(11);
    node.sample(&[10, 11]);
    node.end_process(10);
    node.sample(&[10]);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    let summary = summaries(&sampled)[0];
    assert!(summary.shared_seconds.abs() < 1e-9, "{summary:?}");
}

#[test]
fn an_mps_server_is_nobodys_neighbour() {
    let mut node = Node::new();
    node.begin_task(10);
    let mallory = node.runs_file(21, "home/nvidia-cuda-mps-server");
    node.runs_file(20, "usr/nvidia-cuda-mps-server");
    node.runs_file(22, "usr/nvidia-cuda-mps-server2");
    // Only root can give a file to somebody; else another name has to do.
    let is_his = std::os::unix::fs::chown(mallory, Some(4243), None).is_ok();
    for _ in 0..3 {
        node.sample(&[10, 20]);
    }
    node.sample(&[10, if is_his { 21 } else { 22 }]);
    node.end_process(10);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    let summary = summaries(&sampled)[0];
    assert_eq!(summary.solo_sample_count, 2, "beside the server it is alone");
    assert!(summary.shared_seconds > 0.0, "another's program is somebody, whatever it is called");
}

#[test]
fn a_new_task_keeps_the_start_alive() {
    let mut node = Node::new();
    node.begin_task(10);
    node.end_process(10);
    node.sample(&[]);
    node.begin_task(12);
    assert!(node.sample(&[]).ended.is_empty());
    node.end_process(12);
    node.sample(&[]);
    assert_eq!(node.sample(&[]).ended, [JOB]);
}

#[test]
fn quiet_devices_are_told_of_every_ten_seconds() {
    let mut node = Node::new();
    let told: Vec<usize> = (0..21).map(|_| samples(&node.sample(&[])).len()).collect();
    let mut expected = vec![0; 21];
    for at in [0, 10, 20] {
        expected[at] = 2;
    }
    assert_eq!(told, expected);
    run(node.directory.path(), 50, 1);
    assert_eq!(samples(&node.sample(&[50])).len(), 1, "somebody's process: only that device");
    assert_eq!(samples(&node.sample(&[])).len(), 1, "once more when it falls quiet");
    assert_eq!(samples(&node.sample(&[])).len(), 0);
}

#[test]
fn progress_reaches_the_sample_and_the_summary() {
    let mut node = Node::new();
    node.begin_task(10);
    let uid = UserId(rustix::process::getuid().as_raw());
    let files = ProgressFiles::new(node.directory.path()).unwrap();
    let path = files.make(JOB, uid, rustix::process::getgid().as_raw()).unwrap();
    for step in ["5\n", "15\n", "25\n"] {
        std::fs::write(&path, step).unwrap();
        let sampled = node.sample(&[10]);
        assert_eq!(samples(&sampled)[0].tenants[0].progress, step.trim().parse().ok());
    }
    node.end_process(10);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    assert_eq!(summaries(&sampled)[0].solo.progress, Some(20.0));
    assert!(!path.exists(), "the file goes with the start");
}

#[test]
fn a_restarted_agent_goes_on_with_the_same_runs() {
    let mut node = Node::new();
    std::fs::create_dir_all(node.directory.path().join("proc/sys/kernel/random")).unwrap();
    let boot_id = node.directory.path().join("proc/sys/kernel/random/boot_id");
    std::fs::write(&boot_id, "boot-1\n").unwrap();
    node.sampler = Sampler::new(tools(node.directory.path()), SamplerState::default());
    node.begin_task(10);
    for _ in 0..3 {
        node.sample(&[10]);
    }
    let text = serde_json::to_string(&node.sampler.state()).unwrap();
    let restored = || serde_json::from_str::<SamplerState>(&text).unwrap();
    node.sampler = Sampler::new(tools(node.directory.path()), restored());
    assert!(node.sample(&[10]).ended.is_empty());
    node.end_process(10);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    assert_eq!(summaries(&sampled)[0].solo_sample_count, 3, "two before and one after");

    // After a reboot, another process may have the very same pid and tick.
    run(node.directory.path(), 10, 1);
    std::fs::write(&boot_id, "boot-2\n").unwrap();
    node.sampler = Sampler::new(tools(node.directory.path()), restored());
    node.at += 600.0;
    node.sample(&[]);
    let sampled = node.sample(&[]);
    assert_eq!(summaries(&sampled)[0].ended_at.epoch(), 1003, "when it was last seen");
}

#[test]
fn a_device_that_fails_hides_nothing_of_the_others() {
    let mut node = Node::new();
    let gone = || Err(DeviceError::Gone { index: 0, reason: "fell off the bus".into() });
    let state = DeviceState { reading: Reading::default(), processes: Vec::new() };
    let sampled = node.sampler.sample(UnixTime::from_epoch(1001), vec![(0, gone()), (1, Ok(state))]);
    assert_eq!(samples(&sampled)[0].gres_type, GresType::new("g1"));
}

#[test]
fn a_summary_tells_the_signs_of_a_failure() {
    let mut node = Node::new();
    let log = node.directory.path().join("slurm-33.out");
    std::fs::write(&log, "a long line of an earlier start, longer than what follows\n").unwrap();
    node.begin_task(10);
    let process = node.directory.path().join("proc/10");
    std::fs::create_dir(process.join("fd")).unwrap();
    std::os::unix::fs::symlink(&log, process.join("fd/2")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3.11", process.join("exe")).unwrap();
    std::fs::create_dir(process.join("fdinfo")).unwrap();
    std::fs::write(process.join("fdinfo/2"), "flags:\t0102001\n").unwrap();
    node.sample(&[10]);
    let notice =
        |index, pid| DeviceNotice { index, kind: NoticeKind::Xid { code: 79, pid }, detail: String::new() };
    let now = UnixTime::from_seconds(node.at);
    node.sampler.noticed(now, &notice(0, Some(10)));
    node.sampler.noticed(now, &notice(1, None));
    // The file is opened by a thread of its own, which only names it before.
    let is_read = |fd: &std::ffi::OsStr| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd)).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
        flags.is_some_and(|flags| flags & rustix::fs::OFlags::PATH.bits() == 0)
    };
    let opened = || {
        let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        own.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == log))
            .any(|fd| is_read(&fd.file_name()))
    };
    while !opened() {
        std::thread::yield_now();
    }
    // Written over from its beginning: it counts however long the file was when it was opened.
    std::fs::write(&log, "CUDA out of memory").unwrap();
    node.end_process(10);
    node.sample(&[]);
    let sampled = node.sample(&[]);
    let signs = summaries(&sampled)[0].signs.clone().unwrap();
    assert_eq!(signs.stderr, Some(pillion_core::fault::StderrWords::Sure));
    assert_eq!(signs.xids.iter().map(|xid| (xid.code, xid.is_own)).collect::<Vec<_>>(), [(79, Some(true))]);
    assert_eq!(signs.memory[0].process_bytes_max, Some(7));
    assert_eq!(signs.memory[0].bytes, 1 << 37);
}

/// A step of a job as Slurm runs it, and a process of the job beneath it.
fn run_step(directory: &Path, pid: u32, job: u32, child: u32) {
    run(directory, pid, 1);
    let process = directory.join(format!("proc/{pid}"));
    std::fs::write(process.join("status"), "Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n").unwrap();
    std::fs::write(process.join("cmdline"), format!("slurmstepd: [{job}.{pid}]\0")).unwrap();
    std::os::unix::fs::symlink("/usr/sbin/slurmstepd", process.join("exe")).unwrap();
    run(directory, child, pid);
}

#[test]
fn an_observed_job_goes_on_from_step_to_step_and_is_summed_up_once() {
    let mut node = Node::new();
    let directory = node.directory.path().to_owned();
    let observing = SamplerTools { attribution: Attribution::Observed, ..tools(&directory) };
    node.sampler = Sampler::new(observing, SamplerState::default());
    run_step(&directory, 10, 33, 11);
    run_step(&directory, 20, 34, 21);
    node.sample(&[11]);
    node.sample(&[11]);
    // Another job beside it, by the site's own means.
    node.sample(&[11, 21]);
    node.end_process(11);
    node.end_process(10);
    // The next step has begun, on the processor alone so far.
    run_step(&directory, 12, 33, 13);
    for _ in 0..4 {
        assert!(node.sample(&[21]).ended.is_empty(), "its job goes on");
    }
    node.sample(&[13, 21]);
    for pid in [12, 13, 20, 21] {
        node.end_process(pid);
    }
    node.sample(&[]);
    let reports = node.sample(&[]).reports;
    let runs: Vec<&JobSummary> = reports
        .iter()
        .filter_map(|report| if let ReportBody::ObservedRun(run) = report { Some(&**run) } else { None })
        .collect();
    let other = JobStart { job_id: SlurmJobId::plain(34), restart_count: 0 };
    assert_eq!(runs.iter().map(|run| run.start).collect::<Vec<_>>(), [JOB, other]);
    assert_eq!((runs[0].solo_sample_count, &runs[0].neighbours), (1, &vec![other]));
    assert!(runs[0].shared_seconds >= 2.0 && runs[0].ended_at.seconds() - runs[0].started_at.seconds() > 7.0);
    assert!(node.sampler.is_idle());
}
