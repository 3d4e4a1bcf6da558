use super::*;
use pillion_core::SlurmJobId;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const JOB: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };
const TASK: ProcessId = ProcessId { pid: 10, start_ticks: 50 };

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
    assert_eq!(files.open(JOB, TASK), Some(()));
    assert_eq!(files.open(JOB, TASK), None, "once is enough");
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
    files.open(JOB, TASK).unwrap();
    append(&path, "KeyError\n");
    assert_eq!(files.close(JOB), Some(StderrWords::Silent));
    files.open(JOB, TASK).unwrap();
    std::fs::write(&path, "Out of memory").unwrap();
    assert_eq!(files.close(JOB), Some(StderrWords::Vague), "begun anew");
}

#[test]
fn only_a_tasks_own_regular_file_is_opened() {
    let (directory, path) = log_with("CUDA out of memory");
    assert_eq!(Played::new("slurmstepd", &path).files().open(JOB, TASK), None, "not the user's program yet");
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for other in [pipe.as_path(), Path::new("/dev/null"), directory.path(), Path::new("/nowhere")] {
        assert_eq!(Played::new("bash", other).files().open(JOB, TASK), None, "{}", other.display());
    }
    let reused = ProcessId { start_ticks: 99, ..TASK };
    assert_eq!(Played::new("bash", &path).files().open(JOB, reused), None, "somebody else's pid now");
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
        files.open(JOB, ProcessId { pid, ..TASK });
    }
    assert_eq!(files.of[&JOB].len(), FILES_OF_START_MAX);
    for id in 1..100 {
        files.open(JobStart { job_id: SlurmJobId::plain(id), ..JOB }, TASK);
    }
    assert_eq!(files.of.values().map(Vec::len).sum::<usize>(), FILES_MAX);
}

#[test]
fn the_thread_answers_in_order() {
    let (_directory, path) = log_with("");
    let played = Played::new("bash", &path);
    let mut tails = StderrTails::new(ProcFs::new(played.directory.path()));
    assert_eq!(tails.close(JOB), None, "nothing is open");
    tails.open(JOB, TASK);
    assert_eq!(tails.close(JOB), Some(StderrWords::Silent));
}
