//! Machines with systemd as process 1: a root of Debian's own packages, namespaces, a network between them, and nothing of this
//! checkout in them but what is shared with them. Packages are installed there as anybody installs them.
//!
//! `boot` beside this file makes one; what it changes lies in memory, outlasts a loss of its power and is gone with the test.

use crate::error::{HarnessError, Result, io_error};
use crate::process::{Daemon, Program, log_tail};
use crate::wait::{Look, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long systemd may take to start what is enabled.
const BOOT_DEADLINE: Duration = Duration::from_mins(1);
/// How long the processes of a machine may take to be gone once it is killed.
const END_DEADLINE: Duration = Duration::from_secs(10);
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The first three numbers of every address.
const NETWORK: &str = "10.77.0";

/// What a machine is to be.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Its host name.
    pub name: String,
    /// The layer above the base: `controller` or `node`.
    pub kind: String,
    /// How many GPUs it has, as far as files go.
    pub gpu_count: usize,
    /// The folder of all layers.
    pub layers: PathBuf,
    /// What it finds at `/srv/pillion`.
    pub shared: PathBuf,
    /// Where it and its log may lie.
    pub folder: PathBuf,
}

/// One machine. Dropped, it ends as by a loss of power, and its disk with it.
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    boot: Daemon,
    /// Process 1, as this side numbers it.
    process_one: u32,
    disk: Disk,
}

/// What a machine writes, in memory.
#[derive(Debug)]
struct Disk(PathBuf);

impl Disk {
    fn empty(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(&path).map_err(io_error("make folder", &path))?;
        Program::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "tmpfs"]).arg(&path).stdout()?;
        Ok(Self(path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is still in use goes with its last user.
        let _ = Program::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

impl Machine {
    /// Boots it and waits until systemd has started what every host has.
    ///
    /// # Errors
    /// Where the kernel refuses a part of it, or it does not come up.
    pub fn boot(spec: MachineSpec) -> Result<Self> {
        let disk = Disk::empty(spec.folder.join(&spec.name))?;
        let (boot, process_one) = systemd(&spec, &disk.0)?;
        let machine = Self { spec, boot, process_one, disk };
        machine.wait_until_up()?;
        Ok(machine)
    }

    /// Its power goes, and comes again: every process of it is gone at once, what it has written is there, and its network is gone
    /// ([`connect`] makes it anew).
    ///
    /// # Errors
    /// As of [`Machine::boot`].
    pub fn loses_power(&mut self) -> Result<()> {
        self.end();
        (self.boot, self.process_one) = systemd(&self.spec, &self.disk.0)?;
        self.wait_until_up()
    }

    /// The last of what every host has. What else is enabled may wait for what is not there yet.
    fn wait_until_up(&self) -> Result<()> {
        wait_for(&format!("munged on {}", self.name()), BOOT_DEADLINE, || {
            let state = self.program("systemctl is-active munge.service").output()?;
            let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
            Ok(if state == "active" { Look::Ready(()) } else { Look::NotYet(state) })
        })
    }

    /// Its host name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Process 1, as this side numbers it.
    pub fn process_one(&self) -> u32 {
        self.process_one
    }

    /// A line of a shell, typed by root.
    pub fn program(&self, line: &str) -> Program {
        Program::new("nsenter")
            .args(["--target", &self.process_one.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"])
            .args(["bash", "-euo", "pipefail", "-c", &format!("cd /root\n{line}")])
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/root")
            .env("DEBIAN_FRONTEND", "noninteractive")
    }

    /// What a line printed that root typed.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn types(&self, line: &str) -> Result<String> {
        self.program(line).stdout()
    }

    /// What a line printed that somebody else typed, in his home.
    ///
    /// # Errors
    /// As [`Machine::types`].
    pub fn types_as(&self, user: &str, line: &str) -> Result<String> {
        self.program("exec runuser -l \"$PILLION_USER\" -c \"$PILLION_LINE\"")
            .env("PILLION_USER", user)
            .env("PILLION_LINE", line)
            .stdout()
    }

    /// Writes a file by hand.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn writes(&self, path: &str, text: &str) -> Result<()> {
        self.program("cat >\"$PILLION_PATH\"").env("PILLION_PATH", path).input(text).stdout().map(drop)
    }

    /// Changes a file by hand.
    ///
    /// # Errors
    /// Where it cannot be read or written, or does not hold what is to be replaced.
    pub fn edits(&self, path: &str, replacements: &[(&str, &str)]) -> Result<()> {
        let mut text = self.types(&format!("cat {path}"))?;
        for (from, to) in replacements {
            if !text.contains(from) {
                return Err(HarnessError::Refused(format!(
                    "{path} on {} does not hold '{from}'",
                    self.name()
                )));
            }
            text = text.replacen(from, to, 1);
        }
        self.writes(path, &text)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

impl Machine {
    /// Ends all that it is.
    fn end(&mut self) {
        self.boot.signal(rustix::process::Signal::KILL);
        let group = group_of(self.boot.pid());
        // With process 1 the kernel ends all that is in there; its control groups are left to be removed.
        let _ = wait_for("end of a machine", END_DEADLINE, || {
            let _ = self.boot.ended();
            let is_gone = group.as_deref().is_none_or(remove_groups);
            Ok(if is_gone { Look::Ready(()) } else { Look::NotYet("control groups in use".into()) })
        });
    }
}

/// Boots what is on a disk: the script that does, and its systemd.
fn systemd(spec: &MachineSpec, disk: &Path) -> Result<(Daemon, u32)> {
    let log = spec.folder.join(format!("{}.log", spec.name));
    let script = crate::daemons::checkout().join("tests/harness/machine/boot");
    let mut boot = Program::new(script)
        .env("PATH", SEARCH_PATH)
        .args([&spec.name, &spec.kind])
        .args([&spec.layers, disk])
        .arg(spec.gpu_count.to_string())
        .arg(&spec.shared)
        .daemon(&spec.name, &log)?;
    let process_one = wait_for(&format!("systemd on {}", spec.name), BOOT_DEADLINE, || {
        boot.check_running()?;
        Ok(systemd_of(boot.pid()).map_or_else(|| Look::NotYet(log_tail(&log, 500)), Look::Ready))
    })?;
    Ok((boot, process_one))
}

/// The control group that `boot` made.
fn group_of(boot: u32) -> Option<PathBuf> {
    let name = format!("pillion-machine-{boot}");
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .iter()
        .map(|root| Path::new(root).join(&name))
        .find(|it| it.exists())
}

/// Whether a control group and all below it are gone.
fn remove_groups(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    // What is in use is tried again.
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// The child of `unshare`, once it is systemd.
fn systemd_of(boot: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{boot}/task/{boot}/children")).ok()?;
    let child = children.split_whitespace().next()?.parse().ok()?;
    let program = fs::read_link(format!("/proc/{child}/exe")).ok()?;
    program.ends_with("usr/lib/systemd/systemd").then_some(child)
}

/// Joins machines by a bridge on the first of them, and gives each its address and the names of all; again, where the first has lost
/// its power, with which the links of all went.
///
/// # Errors
/// Where the kernel refuses a part of it.
pub fn connect(machines: &[&Machine]) -> Result<()> {
    let [first, others @ ..] = machines else { return Ok(()) };
    first.types(&format!(
        "ip link add pillion0 type bridge && ip address add {NETWORK}.1/24 dev pillion0 && ip link set pillion0 up"
    ))?;
    for index in 0..others.len() {
        join(machines, index)?;
    }
    let hosts = hosts_of(machines);
    for machine in machines {
        machine.types("ip link set lo up")?;
        machine.writes("/etc/hosts", &hosts)?;
    }
    Ok(())
}

/// The same for one that is not the first, which has lost its power.
///
/// # Errors
/// As of [`connect`], and where it is none of those.
pub fn connect_again(machines: &[&Machine], name: &str) -> Result<()> {
    let is_it = |machine: &&Machine| machine.name() == name;
    let index = machines.iter().skip(1).position(is_it);
    let index = index.ok_or_else(|| HarnessError::Refused(format!("{name} hangs on no bridge")))?;
    join(machines, index)
}

/// A link from the bridge of the first to the one that comes so many after it.
fn join(machines: &[&Machine], index: usize) -> Result<()> {
    let (first, other) = (machines[0], machines[index + 1]);
    // By this side's program, which sees the processes of both.
    let line = format!("ip link add port{index} type veth peer name eth0 netns {}", other.process_one);
    Program::new("nsenter")
        .arg(format!("--net=/proc/{}/ns/net", first.process_one))
        .args(["bash", "-ec", &line])
        .env("PATH", SEARCH_PATH)
        .stdout()?;
    first.types(&format!("ip link set port{index} master pillion0 up"))?;
    let address = index + 2;
    other
        .types(&format!(
            "ip address add {NETWORK}.{address}/24 dev eth0 && ip link set eth0 up && ip link set lo up"
        ))
        .map(drop)
}

/// `/etc/hosts` of all of them.
fn hosts_of(machines: &[&Machine]) -> String {
    let addresses = machines.iter().enumerate();
    let names: Vec<String> =
        addresses.map(|(index, it)| format!("{NETWORK}.{} {}", index + 1, it.name())).collect();
    format!("127.0.0.1 localhost\n{}\n", names.join("\n"))
}
