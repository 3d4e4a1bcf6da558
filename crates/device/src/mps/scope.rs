//! A scope of its own for each daemon, where systemd is: a control group that is neither the agent's nor a job's. What the agent is
//! allowed of memory and tasks is then its own, and what becomes of its service does not touch a daemon.
//!
//! The daemon is begun as anywhere else and moved while it has no client yet, as Slurm has its own slurmstepd moved: by one call
//! over D-Bus (`StartTransientUnit` with a process's number). Where that fails it stays where it was begun.

use super::control::wait;
use super::identity::daemon_at;
use super::record::pipe_directories;
use super::wait::until;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// There where systemd is process 1 (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// systemd's own program to say something over D-Bus.
const PROGRAM: &str = "/usr/bin/busctl";
/// Where it says it.
const BUS: &str = "/run/dbus/system_bus_socket";
/// What the method takes: name, mode, properties, other units.
const SIGNATURE: &str = "ssa(sv)a(sa(sv))";

/// How daemons get scopes of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes {
    program: PathBuf,
    proc: PathBuf,
}

impl Scopes {
    /// systemd's; `None` where it does not run this machine.
    pub fn of_systemd() -> Option<Self> {
        Path::new(BOOTED).is_dir().then(|| Self::by(PROGRAM, "/proc"))
    }

    /// By another program, which is told what `busctl` would be, and what shows afterwards where a process is.
    pub fn by(program: impl Into<PathBuf>, proc: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), proc: proc.into() }
    }

    /// Why no daemon will get one; `None` where nothing is seen that stands in the way.
    pub fn obstacle(&self) -> Option<String> {
        let needed = [self.program.as_path(), Path::new(BUS)];
        needed.into_iter().find(|path| !path.exists()).map(|path| format!("there is no {}", path.display()))
    }

    /// Moves a daemon that was just begun into one. `name`: of its device.
    ///
    /// # Errors
    /// Why it stays where it is.
    pub(super) fn enclose(&self, name: &str, pid: u32) -> io::Result<()> {
        // Never one that there was before: a daemon's last server may still be in it.
        let scope = format!("pillion-mps-{}-{pid}.scope", unit_name(name));
        match self.ask(&scope, pid, true) {
            // It did not answer: no second time, for a job waits.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            // systemd before 253 knows no such property of a scope.
            Err(_) => self.ask(&scope, pid, false)?,
            Ok(()) => {}
        }
        // The call returns before it is carried out.
        let is_there = || {
            std::fs::read_to_string(self.proc.join(format!("{pid}/cgroup")))
                .is_ok_and(|it| it.contains(&scope))
        };
        if until(is_there) { Ok(()) } else { Err(io::Error::other(format!("it is not in {scope}"))) }
    }

    fn ask(&self, scope: &str, pid: u32, stays_without_a_server: bool) -> io::Result<()> {
        let pid = pid.to_string();
        let pids = ["PIDs", "au", "1", &pid];
        let mut properties = vec![
            ["Description", "s", "MPS control daemon of a GPU (pillion-agent)"].as_slice(),
            &pids,
            &["CollectMode", "s", "inactive-or-failed"],
            // It ends after the jobs do.
            &["Before", "as", "1", "slurmd.service"],
        ];
        if stays_without_a_server {
            // A server that runs out of memory does not take the daemon along.
            properties.push(&["OOMPolicy", "s", "continue"]);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "one call at the start of a daemon is no reason for a library of D-Bus"
        )]
        let mut command = Command::new(&self.program);
        command
            .args([
                "--system",
                "--timeout=1",
                "--quiet",
                "call",
                "org.freedesktop.systemd1",
                "/org/freedesktop/systemd1",
            ])
            .args(["org.freedesktop.systemd1.Manager", "StartTransientUnit", SIGNATURE, scope, "fail"])
            .arg(properties.len().to_string())
            .args(properties.concat())
            .arg("0")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = wait(&mut command.spawn()?, "busctl")?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{} says no: {status}", self.program.display())))
        }
    }
}

/// Moves a daemon that was just begun into a scope of its own, where that is wanted and can be; it serves either way.
pub(super) fn enclose(scopes: Option<&Scopes>, pipe_directory: &Path, pid: u32) {
    let Some(scopes) = scopes else { return };
    let name = pipe_directory.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    if let Err(error) = scopes.enclose(&name, pid) {
        tracing::warn!(pid, %error, "an MPS daemon stays in the agent's own control group");
    }
}

/// What may stand in the name of a unit (systemd.unit(5)); the rest is left out.
fn unit_name(name: &str) -> String {
    name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

/// The names of the devices beneath `directory` whose daemons are in our own control group.
pub fn unscoped(directory: &Path) -> Vec<String> {
    let group = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let Some(ours) = group("self") else { return Vec::new() };
    let is_here = |path: &Path| {
        daemon_at(path).is_some_and(|daemon| group(&daemon.pid.to_string()).as_ref() == Some(&ours))
    };
    let found = pipe_directories(directory).into_iter();
    found.filter(|(_, path)| is_here(path)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_unit_may_be_called_stands_in_its_name() {
        assert_eq!(unit_name("g0"), "g0");
        assert_eq!(unit_name("../a b-c.scope"), "abcscope");
    }

    #[test]
    fn what_is_missing_is_told() {
        let none = Scopes::by("/nowhere/busctl", "/proc");
        assert_eq!(none.obstacle().as_deref(), Some("there is no /nowhere/busctl"));
    }
}
