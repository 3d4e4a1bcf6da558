use super::*;
use pillion_core::SlurmJobId;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const JOB: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };
const TASK: ProcessId = ProcessId { pid: 10, start_ticks: 50 };

/// Whoever runs the tests, whose files they make.
fn owner() -> UserId {
    UserId(rustix::process::geteuid().as_raw())
}

/// A `/proc` with one process, whose standard error is `stderr`.
struct Played {
    directory: tempfile::TempDir,
}

impl Played {
    fn new(program: &str, stderr: &Path) -> Self {
        let played = Self { directory: tempfile::tempdir().unwrap() };
        played.process(TASK.pid, program, stderr);
        played
    }

    fn process(&self, pid: u32, program: &str, stderr: &Path) {
        let own = self.directory.path().join(pid.to_string());
        std::fs::create_dir_all(own.join("fd")).unwrap();
        let ticks = TASK.start_ticks;
        let stat = format!("{pid} (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0");
        std::fs::write(own.join("stat"), stat).unwrap();
        symlink(format!("/usr/bin/{program}"), own.join("exe")).unwrap();
        symlink(stderr, own.join("fd/2")).unwrap();
        std::fs::create_dir_all(own.join("fdinfo")).unwrap();
        self.opened(pid, "0102001");
    }

    /// How the process opened its standard error, in octal as the kernel writes it.
    fn opened(&self, pid: u32, flags: &str) {
        let text = format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\nino:\t7\n");
        std::fs::write(self.directory.path().join(format!("{pid}/fdinfo/2")), text).unwrap();
    }

    fn files(&self) -> Files {
        Files { proc: ProcFs::new(self.directory.path()), of: BTreeMap::new() }
    }
}

fn log_with(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slurm-33.out");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn the_words_of_device_libraries_are_sure() {
    for words in [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: CUDA error: CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation: out of memory",
        "torch.cuda.OutOfMemoryError: HIP out of memory.",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "Native API failed. PI_ERROR_OUT_OF_RESOURCES",
    ] {
        assert_eq!(classify(&format!("epoch 3\n{words}\n  at line 7\n")), StderrWords::Sure, "{words}");
    }
}

#[test]
fn vague_words_are_vague_and_those_of_the_host_are_none() {
    assert_eq!(classify("fatal: Out of memory\n"), StderrWords::Vague);
    for words in [
        "java.lang.OutOfMemoryError: Java heap space",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Out of memory",
        "Out of memory: Killed process 42 (python)",
        "fork: Cannot allocate memory; out of memory",
        "UR_RESULT_ERROR_OUT_OF_HOST_MEMORY out of memory",
        "KeyError: 'labels'",
        "",
    ] {
        assert_eq!(classify(words), StderrWords::Silent, "{words}");
    }
}

#[test]
fn the_end_is_read_after_the_task_has_gone_and_its_file_was_renamed() {
    let (directory, path) = log_with("");
    let played = Played::new("bash", &path);
    let mut files = played.files();
    assert_eq!(files.open(JOB, owner(), TASK), Some(()));
    assert_eq!(files.open(JOB, owner(), TASK), None, "once is enough");
    append(&path, &"epoch\n".repeat(5000));
    append(&path, "CUDA out of memory\n");
    std::fs::rename(&path, directory.path().join("other")).unwrap();
    std::fs::remove_dir_all(played.directory.path().join("10")).unwrap();
    assert_eq!(files.close(JOB), Some(StderrWords::Sure));
    assert_eq!(files.close(JOB), None, "it was closed");
}

#[test]
fn what_an_earlier_start_wrote_is_not_this_ones() {
    let (_directory, path) = log_with("CUDA out of memory\n");
    let played = Played::new("bash", &path);
    let mut files = played.files();
    files.open(JOB, owner(), TASK).unwrap();
    append(&path, "KeyError\n");
    assert_eq!(files.close(JOB), Some(StderrWords::Silent));
    files.open(JOB, owner(), TASK).unwrap();
    std::fs::write(&path, "Out of memory").unwrap();
    assert_eq!(files.close(JOB), Some(StderrWords::Vague), "begun anew");
}

#[test]
fn only_a_tasks_own_regular_file_is_opened() {
    let (directory, path) = log_with("CUDA out of memory");
    assert_eq!(
        Played::new("slurmstepd", &path).files().open(JOB, owner(), TASK),
        None,
        "not the user's program yet"
    );
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for other in [pipe.as_path(), Path::new("/dev/null"), directory.path(), Path::new("/nowhere")] {
        assert_eq!(Played::new("bash", other).files().open(JOB, owner(), TASK), None, "{}", other.display());
    }
    let reused = ProcessId { start_ticks: 99, ..TASK };
    assert_eq!(
        Played::new("bash", &path).files().open(JOB, owner(), reused),
        None,
        "somebody else's pid now"
    );
}

#[test]
fn a_file_of_somebody_else_or_that_the_task_cannot_write_is_not_opened() {
    let (_directory, path) = log_with("CUDA out of memory");
    let played = Played::new("bash", &path);
    let mut files = played.files();
    let other = UserId(owner().0 + 1);
    assert_eq!(files.open(JOB, other, TASK), None, "the file is not of the job's user");
    // O_PATH, which takes no right to the file, alone and with O_WRONLY; O_RDONLY; nothing.
    for flags in ["012000000", "012000001", "0100000", ""] {
        played.opened(TASK.pid, flags);
        assert_eq!(files.open(JOB, owner(), TASK), None, "{flags}");
    }
    for flags in ["0100001", "0102002"] {
        played.opened(TASK.pid, flags);
        assert_eq!(files.open(JOB, owner(), TASK), Some(()), "{flags}");
        files.close(JOB);
    }
}

#[test]
fn the_kernel_says_how_a_descriptor_was_opened() {
    let (_directory, path) = log_with("");
    let own = std::process::id();
    let log = OpenOptions::new().append(true).open(&path).unwrap();
    let named = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for (descriptor, is_writable) in [(log.as_raw_fd(), true), (named.as_raw_fd(), false)] {
        let played = tempfile::tempdir().unwrap();
        let infos = played.path().join(format!("{own}/fdinfo"));
        std::fs::create_dir_all(&infos).unwrap();
        symlink(format!("/proc/{own}/fdinfo/{descriptor}"), infos.join("2")).unwrap();
        let flags = ProcFs::new(played.path()).stderr_flags(own).unwrap();
        assert_eq!(may_write(flags), is_writable, "{flags:o}");
    }
}

#[test]
fn a_close_is_never_left_out() {
    let (_directory, path) = log_with("");
    let played = Played::new("bash", &path);
    let (mut tails, inbox) = StderrTails::without_thread();
    for _ in 0..OPENS_MAX + 10 {
        tails.open(JOB, owner(), TASK);
    }
    // Somebody else's answer is late, so this one is not waited for.
    let (_hangs, late) = sync_channel(1);
    tails.late = Some(late);
    assert_eq!(tails.close(JOB), None);
    let (opens, mut files) = (Arc::clone(&tails.opens), played.files());
    assert_eq!(opens.load(Ordering::Relaxed), OPENS_MAX);
    files.open(JOB, owner(), TASK).unwrap();
    let (waiting, again) = channel();
    let orders: Vec<Order> = inbox.try_iter().collect();
    assert_eq!(orders.len(), OPENS_MAX + 1);
    let is_close = |order: &Order| matches!(order, Order::Close(JOB, _));
    assert!(orders.last().is_some_and(is_close), "it comes after all that was asked before");
    for order in orders {
        waiting.send(order).unwrap();
    }
    drop(waiting);
    serve(files, &again, &opens);
    assert_eq!(opens.load(Ordering::Relaxed), 0);
}

#[test]
fn descriptors_are_bounded() {
    let (directory, path) = log_with("");
    let played = Played::new("bash", &path);
    let mut files = played.files();
    for pid in 100..110 {
        let own = directory.path().join(pid.to_string());
        File::create(&own).unwrap();
        played.process(pid, "python3", &own);
        files.open(JOB, owner(), ProcessId { pid, ..TASK });
    }
    assert_eq!(files.of[&JOB].len(), FILES_OF_START_MAX);
    for id in 1..100 {
        files.open(JobStart { job_id: SlurmJobId::plain(id), ..JOB }, owner(), TASK);
    }
    assert_eq!(files.of.values().map(Vec::len).sum::<usize>(), FILES_MAX);
}

#[test]
fn the_thread_answers_in_order() {
    let (_directory, path) = log_with("");
    let played = Played::new("bash", &path);
    let mut tails = StderrTails::new(ProcFs::new(played.directory.path()));
    assert_eq!(tails.close(JOB), None, "nothing is open");
    tails.open(JOB, owner(), TASK);
    assert_eq!(tails.close(JOB), Some(StderrWords::Silent));
}
