//! The order in which a cluster comes up.

use super::files::{self, Settings};
use super::spec::JobSubmit;
use super::{Cluster, DAEMON_DEADLINE, accounting};
use crate::daemons;
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use crate::testbed::{self, USERS};
use crate::wait::{Look, wait_for};
use rustix::fs::{CWD, FileType, Gid, Mode, Uid, chmod, chown, makedev, mknodat};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The device number of the fake GPU files: NVIDIA's major, far from any real card's minor, and never 1:3.
const DEVICE_MAJOR: u32 = 195;
const DEVICE_MINOR_FIRST: u32 = 100;

pub(super) fn start(cluster: &mut Cluster) -> Result<()> {
    make_devices(cluster)?;
    make_homes(cluster)?;
    munged(cluster)?;
    let accounting_port = cluster.spec.accounting.then(|| accounting::start(cluster)).transpose()?;
    configure(cluster, accounting_port)?;
    slurmctld(cluster)?;
    for node in cluster.spec.node_names() {
        slurmd(cluster, &node)?;
    }
    for node in cluster.spec.node_names() {
        cluster.wait_for_node(&node, "IDLE", DAEMON_DEADLINE)?;
    }
    Ok(())
}

fn make_devices(cluster: &Cluster) -> Result<()> {
    for index in 0..cluster.spec.gpus_per_node {
        let path = cluster.layout.device_file(index);
        let number = makedev(DEVICE_MAJOR, DEVICE_MINOR_FIRST + index);
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), number)
            .map_err(system_error(format!("make the device file {}", path.display())))?;
    }
    Ok(())
}

/// A home for each user, and Slurm's own folders for Slurm's user.
fn make_homes(cluster: &Cluster) -> Result<()> {
    for user in USERS {
        give_folder(&cluster.layout.path("home").join(user), user, 0o700)?;
    }
    for node in cluster.spec.node_names() {
        give_folder(&cluster.layout.path("spool").join(node), "root", 0o755)?;
    }
    for name in ["state", "log", "run"] {
        give_folder(&cluster.layout.path(name), "slurm", 0o755)?;
    }
    Ok(())
}

/// Makes a folder, if need be, and gives it to a user.
pub(super) fn give_folder(path: &Path, user: &str, mode: u32) -> Result<()> {
    fs::create_dir_all(path).map_err(io_error("make folder", path))?;
    give(path, user, mode)
}

/// Gives a file to a user.
pub(super) fn give(path: &Path, user: &str, mode: u32) -> Result<()> {
    let identity = testbed::identity_of(user)?;
    chown(path, Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)))
        .map_err(system_error(format!("give {} to {user}", path.display())))?;
    chmod(path, Mode::from_raw_mode(mode))
        .map_err(system_error(format!("set the mode of {}", path.display())))
}

fn munged(cluster: &mut Cluster) -> Result<()> {
    let mut key = [0_u8; 128];
    let random = Path::new("/dev/urandom");
    fs::File::open(random)
        .and_then(|mut file| file.read_exact(&mut key))
        .map_err(io_error("read", random))?;
    let key_file = cluster.layout.write("munge/key", key)?;
    give(&key_file, "root", 0o600)?;
    let folder = |name: &str| cluster.layout.path("munge").join(name).display().to_string();
    let program = cluster.program("munged").args([
        "--foreground".to_owned(),
        "--force".to_owned(),
        "--num-threads=4".to_owned(),
        format!("--key-file={}", folder("key")),
        format!("--socket={}", folder("sock")),
        format!("--pid-file={}", folder("pid")),
        format!("--log-file={}", folder("log")),
        format!("--seed-file={}", folder("seed")),
    ]);
    cluster.start_daemon("munged", &program)?;
    wait_for_path(cluster, "munged", &cluster.layout.munge_socket())
}

/// Waits for a file that a daemon makes when it is ready.
pub(super) fn wait_for_path(cluster: &mut Cluster, daemon: &str, path: &Path) -> Result<()> {
    let what = format!("{} of {daemon}", path.display());
    wait_for(&what, DAEMON_DEADLINE, || {
        cluster.daemon(daemon)?.check_running()?;
        Ok(if path.exists() { Look::Ready(()) } else { Look::NotYet("it is not there".into()) })
    })
}

fn configure(cluster: &mut Cluster, accounting_port: Option<u16>) -> Result<()> {
    let job_submit = job_submit_text(cluster)?;
    let mut node_ports = Vec::new();
    for node in cluster.spec.node_names() {
        node_ports.push(cluster.port(&format!("slurmd-{node}"))?);
    }
    let controller_port = cluster.port("slurmctld")?;
    let hooks = daemons::hooks(cluster)?;
    let has_job_submit = job_submit.is_some();
    let settings = Settings { controller_port, node_ports, accounting_port, hooks, has_job_submit };
    let layout = &cluster.layout;
    layout.write("conf/slurm.conf", files::slurm_conf(&cluster.spec, layout, &settings))?;
    layout.write("conf/gres.conf", files::gres_conf(&cluster.spec, layout))?;
    let slurm = cluster.program("slurmctld").arg("-V").stdout()?;
    layout.write("conf/cgroup.conf", files::cgroup_conf(cluster.spec.containment, &slurm))?;
    layout.write("conf/plugstack.conf", daemons::plugstack_conf(cluster)?)?;
    layout.write("env.sh", env_sh(cluster))?;
    if let Some(text) = job_submit {
        layout.write("conf/job_submit.lua", text)?;
    }
    Ok(())
}

/// For people at a prompt inside the testbed.
fn env_sh(cluster: &Cluster) -> String {
    let (devices, socket) = daemons::user_environment(cluster.root());
    let (scheduler, address) = daemons::scheduler_address(cluster.root());
    format!(
        "export SLURM_CONF={conf} {devices}={socket} {scheduler}={address}\n",
        conf = cluster.layout.slurm_conf().display(),
        socket = socket.display(),
    )
}

/// The text of `job_submit.lua`; what it loads is put in place.
fn job_submit_text(cluster: &Cluster) -> Result<Option<String>> {
    match &cluster.spec.job_submit {
        JobSubmit::Absent => Ok(None),
        JobSubmit::Text(text) => Ok(Some(text.clone())),
        JobSubmit::Pillion => daemons::job_submit_lua(cluster),
    }
}

pub(super) fn slurmctld(cluster: &mut Cluster) -> Result<()> {
    let program = cluster.program("slurmctld").args(["-D", "-i"]);
    cluster.start_daemon("slurmctld", &program)?;
    wait_for("answer of slurmctld", DAEMON_DEADLINE, || {
        cluster.daemon("slurmctld")?.check_running()?;
        let output = cluster.program("scontrol").arg("ping").output()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(if output.status.success() && said.contains("is UP") {
            Look::Ready(())
        } else {
            Look::NotYet(said)
        })
    })
}

pub(super) fn slurmd(cluster: &mut Cluster, node: &str) -> Result<()> {
    let mut program = cluster.program("slurmd").args(["-D", "-N", node]);
    if let Some(path) = &cluster.spec().slurmstepd {
        program = program.arg("-d").arg(path);
    }
    cluster.start_daemon(&format!("slurmd-{node}"), &program)
}

/// Finds a program that Debian keeps outside the search path.
pub(super) fn find_program(name: &str, folders: &[&str]) -> Result<PathBuf> {
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    found.ok_or_else(|| {
        HarnessError::Refused(format!("{name} is not installed; looked in {}", folders.join(", ")))
    })
}

/// A program run as a user of the system, such as `mysql`.
pub(super) fn as_system_user(program: Program, user: &str) -> Result<Program> {
    Ok(program.identity(testbed::identity_of(user)?))
}
