//! The one place of the harness that starts programs.
//!
//! [`Program`] describes one run: as whom, in which folder, with which environment (always given whole, never inherited).
//! [`Daemon`] is one that keeps running; it is killed when dropped.

use crate::error::{HarnessError, Result, io_error};
use crate::wait::{Look, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// How much of a program's output an error shows.
const OUTPUT_SHOWN_BYTES: usize = 4000;

/// A Unix user and its first group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    name: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    inherits: bool,
    folder: PathBuf,
    identity: Option<Identity>,
    input: Vec<u8>,
}

impl Program {
    /// A program by name (found in `PATH` of this process) or path.
    pub fn new(name: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            inherits: false,
            folder: "/".into(),
            identity: None,
            input: Vec::new(),
        }
    }
    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }
    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
    /// Keeps this process's environment; otherwise the program sees only what [`Program::env`] gave.
    #[must_use]
    pub fn inherit_environment(mut self) -> Self {
        self.inherits = true;
        self
    }
    /// Where it runs; `/` unless said otherwise.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }
    /// Runs it as somebody else, without further groups.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }
    /// What it reads from its standard input; nothing unless said otherwise.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    #[expect(clippy::disallowed_methods, reason = "the one place of the harness that starts programs")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.name);
        command.args(&self.arguments).current_dir(&self.folder);
        if !self.inherits {
            command.env_clear();
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(Identity { uid, gid }) = self.identity {
            command.gid(gid).uid(uid);
        }
        command
    }

    fn shown(&self) -> String {
        let words = std::iter::once(&self.name).chain(&self.arguments);
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    fn spawn_error(&self) -> impl FnOnce(std::io::Error) -> HarnessError {
        let program = self.name.to_string_lossy().into_owned();
        move |source| HarnessError::Spawn { program, source }
    }

    /// Runs it to its end and returns what it printed, whatever its exit code.
    ///
    /// # Errors
    /// [`HarnessError::Spawn`] where it cannot be started.
    pub fn output(&self) -> Result<Output> {
        let mut command = self.command();
        let input = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(self.spawn_error())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input is no error here; its exit code tells.
            let _ = stdin.write_all(&self.input);
        }
        child.wait_with_output().map_err(self.spawn_error())
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// [`HarnessError::Failed`] where it ends with anything but 0.
    pub fn stdout(&self) -> Result<String> {
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let mut printed = String::from_utf8_lossy(&output.stderr).into_owned();
        printed.push_str(&String::from_utf8_lossy(&output.stdout));
        Err(HarnessError::Failed {
            command: self.shown(),
            status: describe(output.status),
            output: tail(&printed, OUTPUT_SHOWN_BYTES).trim().to_owned(),
        })
    }

    /// Runs it with this process's own input and output, and returns how it ended.
    ///
    /// # Errors
    /// [`HarnessError::Spawn`] where it cannot be started.
    pub fn status(&self) -> Result<ExitStatus> {
        self.command().status().map_err(self.spawn_error())
    }

    /// Starts it with this process's own input and output.
    ///
    /// # Errors
    /// [`HarnessError::Spawn`] where it cannot be started.
    pub fn spawn(&self) -> Result<Child> {
        self.command().spawn().map_err(self.spawn_error())
    }

    /// Starts it with its output going to the end of `log`.
    ///
    /// # Errors
    /// Where it cannot be started or the log cannot be opened.
    pub fn daemon(&self, name: &str, log: &Path) -> Result<Daemon> {
        let open = || File::options().create(true).append(true).open(log).map_err(io_error("open", log));
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?).process_group(0);
        let child = command.spawn().map_err(self.spawn_error())?;
        Ok(Daemon { name: name.to_owned(), child, log: log.to_owned(), ended: None })
    }
}

/// A program that keeps running. Killed and waited for when dropped.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Daemon {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// What it was called when it was started.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// An error with the end of its log, if it has ended.
    ///
    /// # Errors
    /// [`HarnessError::DaemonEnded`].
    pub fn check_running(&mut self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => Err(HarnessError::DaemonEnded {
                program: self.name.clone(),
                status: describe(status),
                log: log_tail(&self.log, OUTPUT_SHOWN_BYTES),
            }),
        }
    }

    /// Sends a signal; one that has ended is left alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may end between the look and the signal; it stays our zombie, so nobody else is hit.
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends a signal and waits for the end.
    ///
    /// # Errors
    /// [`HarnessError::Timeout`] if it is still there after `deadline`.
    pub fn stop(&mut self, signal: Signal, deadline: Duration) -> Result<ExitStatus> {
        self.signal(signal);
        let what = format!("end of {}", self.name);
        wait_for(&what, deadline, || {
            Ok(self.ended().map_or_else(|| Look::NotYet("it still runs".into()), Look::Ready))
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// `exit code 3` or `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// The last `bytes_max` bytes of a file, from the beginning of a line; empty where there is none.
pub fn log_tail(path: &Path, bytes_max: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    tail(&String::from_utf8_lossy(&bytes), bytes_max).to_owned()
}

fn tail(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let cut = text.ceil_char_boundary(text.len() - bytes_max);
    let rest = &text[cut..];
    rest.split_once('\n').map_or(rest, |(_, lines)| lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_command_its_code_and_what_it_said() {
        let error =
            Program::new("/bin/sh").args(["-c", "echo no such thing >&2; exit 3"]).stdout().unwrap_err();
        let message = error.to_string();
        assert!(message.contains("exit code 3: no such thing"), "{message}");
    }

    #[test]
    fn input_is_passed_and_the_environment_is_not() {
        let program =
            Program::new("/bin/sh").args(["-c", "cat; echo ${HOME:-none} $A"]).input("in ").env("A", "b");
        assert_eq!(program.stdout().unwrap(), "in none b\n");
    }

    #[test]
    fn a_dropped_daemon_is_gone() {
        let log = std::env::temp_dir().join(format!("pillion-harness-{}.log", std::process::id()));
        let mut daemon = Program::new("/bin/sleep").arg("600").daemon("sleep", &log).unwrap();
        let folder = format!("/proc/{}", daemon.pid());
        daemon.check_running().unwrap();
        assert!(Path::new(&folder).exists());
        drop(daemon);
        assert!(!Path::new(&folder).exists());
        std::fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_tail_begins_at_a_line() {
        assert_eq!(tail("one\ntwo\nthree\n", 9), "three\n");
        assert_eq!(tail("short", 9), "short");
        assert_eq!(tail("ää", 3), "ä");
    }
}
