//! What the guides use of systemd, on a [`Host`]: units are read from `/etc/systemd/system` and started as they say. There is no
//! systemd in a testbed. What is not known is refused, so that a guide cannot name a unit or a verb that does not exist.

use crate::Cluster;
use crate::error::{HarnessError, Result, io_error};
use crate::host::Host;
use crate::process::Program;
use crate::testbed::identity_of;
use rustix::process::Signal;
use std::fs;
use std::path::Path;

const UNIT_FOLDER: &str = "/etc/systemd/system";

/// One unit: section, name, value, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unit {
    lines: Vec<(String, String, String)>,
}

impl Unit {
    fn parse(name: &str, text: &str) -> Result<Self> {
        let refuse = |line: &str| HarnessError::Refused(format!("{name}: cannot read '{line}'"));
        let (mut section, mut lines) = (None, Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(inner) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = Some(inner.to_owned());
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| refuse(line))?;
            let section = section.clone().ok_or_else(|| refuse(line))?;
            lines.push((section, key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(Self { lines })
    }

    fn all<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
        let is_it = move |line: &&(String, String, String)| line.0 == section && line.1 == key;
        self.lines.iter().filter(is_it).map(|line| line.2.as_str())
    }

    fn get<'a>(&'a self, section: &'a str, key: &'a str) -> Option<&'a str> {
        self.all(section, key).last()
    }
}

/// What root's `systemctl WORDS` does on a host.
///
/// # Errors
/// Where a unit is missing, cannot be read or does not start, and for words that are not known.
pub fn systemctl(cluster: &mut Cluster, host: &Host, words: &[&str]) -> Result<()> {
    match words {
        ["daemon-reload"] => host.on(check_units),
        ["enable", "--now", units @ ..] if !units.is_empty() => {
            units.iter().try_for_each(|unit| enable(cluster, host, unit))
        }
        ["restart", "slurmctld"] => {
            cluster.stop_slurmctld(Signal::TERM)?;
            host.on(|| cluster.start_slurmctld())
        }
        ["restart", "slurmd"] => {
            cluster.stop_slurmd(host.name(), Signal::TERM)?;
            host.on(|| cluster.start_slurmd(host.name()))
        }
        ["restart", unit] => {
            let name = service_name(unit);
            cluster.stop_daemon(&daemon_name(&name, host), Signal::TERM)?;
            start(cluster, host, &name)
        }
        ["stop", unit] => {
            let name = service_name(unit);
            cluster.stop_daemon(&daemon_name(&name, host), Signal::TERM)?;
            let unit = host.on(|| read(&name))?;
            if unit.get("Service", "RuntimeDirectoryPreserve") == Some("yes") {
                return Ok(());
            }
            unit.all("Service", "RuntimeDirectory")
                .try_for_each(|folder| host.types(cluster, &format!("rm -rf /run/{folder}")).map(drop))
        }
        _ => Err(HarnessError::Refused(format!("systemctl {} is not known here", words.join(" ")))),
    }
}

/// The name under which the cluster knows a service of a host.
pub fn daemon_name(unit: &str, host: &Host) -> String {
    format!("{}@{}", service_name(unit).trim_end_matches(".service"), host.name())
}

fn service_name(unit: &str) -> String {
    if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") }
}

fn check_units() -> Result<()> {
    let folder = Path::new(UNIT_FOLDER);
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("pillion") {
            read(&name)?;
        }
    }
    Ok(())
}

fn read(name: &str) -> Result<Unit> {
    let path = Path::new(UNIT_FOLDER).join(name);
    Unit::parse(name, &fs::read_to_string(&path).map_err(io_error("read", &path))?)
}

fn enable(cluster: &mut Cluster, host: &Host, unit: &str) -> Result<()> {
    let name = service_name(unit);
    let read = host.on(|| read(&name))?;
    if read.all("Install", "WantedBy").next().is_none() {
        return Err(HarnessError::Refused(format!("{name} has no WantedBy= and cannot be enabled")));
    }
    let Some(stem) = name.strip_suffix(".timer") else { return start(cluster, host, &name) };
    // Its service, once.
    let service = read.get("Timer", "Unit").map_or_else(|| format!("{stem}.service"), str::to_owned);
    let program = prepare(cluster, host, &service)?;
    host.on(|| program.stdout()).map(drop)
}

fn start(cluster: &mut Cluster, host: &Host, name: &str) -> Result<()> {
    let program = prepare(cluster, host, name)?;
    host.on(|| cluster.start_daemon(&daemon_name(name, host), &program))
}

/// Each file is there, and one at least of those that are marked by `|` (systemd.unit(5), Conditions).
fn is_wanted(unit: &Unit) -> bool {
    let (any, all): (Vec<&str>, Vec<&str>) =
        unit.all("Unit", "ConditionPathExists").partition(|path| path.starts_with('|'));
    let is_there = |path: &str| Path::new(path.trim_start_matches('|')).exists();
    all.into_iter().all(is_there) && (any.is_empty() || any.into_iter().any(is_there))
}

/// Makes a folder as systemd does (systemd.exec(5), `RuntimeDirectory=`): what is above it is root's, and where it has another
/// owner, so gets all that is in it.
fn folder_line(path: &str, mode: &str, user: &str) -> String {
    format!(
        "install -d $(dirname {path}) && mkdir -p {path} && chmod {mode} {path} && \
         if [ $(stat -c %U {path}) != {user} ]; then chown -R {user}: {path}; fi"
    )
}

/// Makes the folders of a service, runs what comes before its program, which is returned.
fn prepare(cluster: &Cluster, host: &Host, name: &str) -> Result<Program> {
    let unit = host.on(|| read(name))?;
    let user = unit.get("Service", "User").unwrap_or("root");
    if !host.on(|| Ok(is_wanted(&unit)))? {
        return Err(HarnessError::Refused(format!("{name}: its ConditionPathExists= does not hold")));
    }
    for (key, parent) in [("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")] {
        for folder in unit.all("Service", key) {
            let mode_key = format!("{key}Mode");
            let mode = unit.get("Service", &mode_key).unwrap_or("0755");
            host.types(cluster, &folder_line(&format!("{parent}/{folder}"), mode, user))?;
        }
    }
    for command in unit.all("Service", "ExecStartPre") {
        let line = command.trim_start_matches(['-', '+']);
        let may_fail = command[..command.len() - line.len()].contains('-');
        host.types(cluster, &if may_fail { format!("{line} || true") } else { line.to_owned() })?;
    }
    let command = unit.get("Service", "ExecStart").unwrap_or_default();
    let mut words = command.split_whitespace();
    let path = words.next().filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(|| HarnessError::Refused(format!("{name} has no ExecStart= with a path")))?;
    let program = match unit.get("Service", "UMask") {
        Some(mask) => {
            let shell = format!("umask {mask}; exec \"$0\" \"$@\"");
            host.program(cluster, "/bin/sh").args(["-c", &shell, path]).args(words).folder("/")
        }
        None => host.program(cluster, path).args(words).folder("/"),
    };
    Ok(if user == "root" { program } else { program.identity(identity_of(user)?) })
}
