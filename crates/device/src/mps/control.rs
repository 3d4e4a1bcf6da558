//! NVIDIA's control program, run: as a daemon in the foreground, and with one command on its standard input. Every run is
//! bounded; a program that does not end is killed.

use super::process::CONTROL_PROGRAM;
use crate::{DeviceError, MpsSettings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// How long one command may take. `terminate_client` returns when the server has done it; `quit` when the daemon ends.
const COMMAND_DEADLINE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// How much of an answer is read: a device has a few dozen clients.
const ANSWER_LENGTH_MAX: u64 = 64 * 1024;
/// Where the program finds others, after its own directory: the server lies beside it.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// All that the program finds of our environment: where a site keeps its driver's libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// What a daemon says, in its log directory. In the foreground all of it comes here: a few lines for each question.
const START_LOG: &str = "start.log";
/// How long it may become: it lies in memory.
const LOG_LENGTH_MAX: u64 = 512 * 1024;

/// Where the control program is, and for which device it is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control<'a> {
    pub(super) binary: &'a Path,
    pub(super) index: u32,
}

impl Control<'_> {
    /// Starts the daemon of `serves`, the UUIDs of what its clients see, in a process group of its own: what ends ours does not end it.
    ///
    /// # Errors
    /// [`DeviceError::NoLibrary`] if there is no such program, [`DeviceError::Refused`] if it may not be run.
    pub(super) fn serve(self, serves: &str, settings: &MpsSettings) -> Result<Child, DeviceError> {
        let path = settings.log_directory.join(START_LOG);
        // Appended to, so that what is cut off leaves no hole.
        let emptied = File::create(&path);
        let log = emptied.and_then(|_| File::options().append(true).open(&path));
        let log = log.map_err(|error| self.refused(format!("its log cannot be written: {error}")))?;
        let errors = log.try_clone().map_err(|error| self.refused(error.to_string()))?;
        let mut command = self.command(&settings.pipe_directory);
        command.arg("-f");
        if settings.multi_user {
            command.arg("-multiuser-server");
        }
        if settings.partitions {
            command.arg("-S");
        }
        command
            .env("CUDA_VISIBLE_DEVICES", serves)
            .env("CUDA_MPS_LOG_DIRECTORY", &settings.log_directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        command.spawn().map_err(|error| self.not_run(&error))
    }

    /// What the daemon said before it ended by itself.
    pub(super) fn last_words(settings: &MpsSettings) -> String {
        let text = std::fs::read_to_string(settings.log_directory.join(START_LOG)).unwrap_or_default();
        text.lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or("it said nothing")
            .to_owned()
    }

    /// Begins a log anew that has become too long.
    pub(super) fn trim_log(settings: &MpsSettings) {
        let path = settings.log_directory.join(START_LOG);
        let is_long = std::fs::metadata(&path).is_ok_and(|log| log.len() > LOG_LENGTH_MAX);
        if is_long && let Err(error) = File::create(&path) {
            tracing::warn!(path = %path.display(), %error, "the log of an MPS daemon grows on");
        }
    }

    /// Says one command to the daemon at `pipe_directory`, and returns what it printed.
    ///
    /// # Errors
    /// As [`Control::serve`]; [`DeviceError::NoAnswer`] if it takes too long, [`DeviceError::Refused`] if it ends with a
    /// failure: it finds no daemon, or the daemon that was told to quit ended with one. What a daemon refuses it prints.
    pub(super) fn ask(self, pipe_directory: &Path, text: &str) -> Result<String, DeviceError> {
        let mut command = self.command(pipe_directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_run(&error))?;
        if let Some(mut input) = child.stdin.take() {
            // A program that has ended already says why below.
            let _ = input.write_all(format!("{text}\n").as_bytes());
        }
        let status = wait(&mut child, CONTROL_PROGRAM)
            .map_err(|source| DeviceError::NoAnswer { path: pipe_directory.to_owned(), source })?;
        let (answer, words) = (read(child.stdout.take()), read(child.stderr.take()));
        if status.success() {
            return Ok(answer);
        }
        let words = if words.trim().is_empty() { answer } else { words };
        Err(self.refused(format!("{CONTROL_PROGRAM} failed at '{text}': {}", words.trim())))
    }

    fn command(self, pipe_directory: &Path) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "MPS is controlled by a program, and there is no library"
        )]
        let mut command = Command::new(self.binary);
        command
            .env_clear()
            .env("PATH", search_path(self.binary))
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe_directory)
            .current_dir("/");
        if let Some(libraries) = std::env::var_os(LIBRARY_PATH) {
            command.env(LIBRARY_PATH, libraries);
        }
        command
    }

    fn not_run(self, error: &io::Error) -> DeviceError {
        let reason = format!("{}: {error}", self.binary.display());
        if error.kind() == io::ErrorKind::NotFound {
            DeviceError::NoLibrary { library: CONTROL_PROGRAM.to_owned(), reason }
        } else {
            self.refused(reason)
        }
    }

    pub(super) fn refused(self, reason: String) -> DeviceError {
        DeviceError::Refused { index: self.index, reason }
    }

    pub(super) fn busy(self, reason: String) -> DeviceError {
        DeviceError::Busy { index: self.index, reason }
    }
}

fn search_path(binary: &Path) -> OsString {
    match binary.parent().filter(|directory| directory.is_absolute()) {
        Some(directory) => {
            let mut path = directory.as_os_str().to_owned();
            path.push(":");
            path.push(PATH);
            path
        }
        None => PATH.into(),
    }
}

/// Waits for the end of `child`; when its time is over it is killed.
pub(super) fn wait(child: &mut Child, program: &str) -> io::Result<ExitStatus> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|pidfd| ends_in_time(&pidfd));
    if matches!(ended, Ok(true)) {
        return child.wait();
    }
    // It ended in this moment, or is killed: either way it is waited for.
    let _ = child.kill();
    child.wait()?;
    ended.and(Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} did not end in time"))))
}

fn ends_in_time(pidfd: &impl AsFd) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&COMMAND_DEADLINE)) {
            Ok(count) => return Ok(count > 0),
            // Signals are few, and each gives it the whole time again.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What is in the pipe of a program that has ended. A process that it left behind may hold it open: nothing more is
/// waited for.
fn read(pipe: Option<impl io::Read + AsFd>) -> String {
    let Some(pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    if rustix::fs::fcntl_setfl(pipe.as_fd(), rustix::fs::OFlags::NONBLOCK).is_ok() {
        // That there is nothing more comes as an error, after all that there is.
        let _ = pipe.take(ANSWER_LENGTH_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the program is looked for if the configuration says no path.
pub fn control_binary_default() -> PathBuf {
    Path::new("/usr/bin").join(CONTROL_PROGRAM)
}
