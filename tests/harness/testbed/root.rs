//! The outer half of a testbed: makes the namespaces, builds the root out of bind mounts, and starts process 1.

use super::forward::Forwards;
use super::{BIN_DIR, FORWARDED_VARIABLE, HOST_NAME, TESTBED_DIR, USERS, home_of, users};
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use rustix::fs::{Gid, Mode, Uid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::process::{Signal, pivot_root, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;
use std::ffi::{CStr, OsString};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// An empty folder of the machine, over which the root is mounted; nothing is ever written into it.
const STAGE: &str = "/var/cache/pillion/stage";

/// How a testbed is to be.
#[derive(Debug, Clone)]
pub struct EnterOptions {
    /// The root: `/` or the folder of a Debian 13.
    pub root: PathBuf,
    /// Folders of the machine that appear inside under the same path and can be written.
    pub shared: Vec<PathBuf>,
    /// The folder of the programs that were built; appears as [`BIN_DIR`].
    pub programs: PathBuf,
    /// Written with the process numbers, as the machine sees them, of the outer process and of process 1.
    pub pid_file: Option<PathBuf>,
    /// End with the process that started this one.
    pub with_parent: bool,
    /// A network of its own, loopback only.
    pub private_network: bool,
    /// Ports of the machine's loopback that lead into that network, to the same port; others where these are taken.
    pub forwarded: Vec<u16>,
    /// What to run.
    pub command: Vec<OsString>,
}

/// Makes a testbed, runs the command in it and returns how process 1 ended.
///
/// # Errors
/// Where this is not root or the kernel refuses a part of it.
pub fn enter(options: &EnterOptions) -> Result<ExitStatus> {
    if !rustix::process::geteuid().is_root() {
        return Err(HarnessError::Refused("a testbed needs root: mount namespaces and several users".into()));
    }
    if super::is_inside() {
        return Err(HarnessError::Refused("this is already inside a testbed".into()));
    }
    if options.with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(system_error("follow the parent process"))?;
    }
    let folder = std::env::current_dir().map_err(io_error("find", Path::new(".")))?;
    let mut pid_file = options.pid_file.as_deref().map(create).transpose()?;
    let is_reached = !options.forwarded.is_empty();
    let mut forwards = is_reached.then(|| Forwards::open(&options.forwarded)).transpose()?;
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    if options.private_network {
        flags |= UnshareFlags::NEWNET;
    }
    #[expect(deprecated, reason = "sound without FILES, which is not asked for")]
    rustix::thread::unshare(flags).map_err(system_error("make namespaces"))?;
    forwards.as_mut().map_or(Ok(()), Forwards::lead_here)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(system_error("keep mounts private"))?;
    build(options)?;
    switch_root()?;

    let is_shared = options.shared.iter().any(|shared| folder.starts_with(shared));
    let mut program = Program::new(format!("{BIN_DIR}/pillion-testbed")).arg("init").inherit_environment();
    if options.private_network {
        program = program.arg("--private-network");
    }
    if let Some(forwards) = &forwards {
        let ports: Vec<String> = forwards.ports().iter().map(u16::to_string).collect();
        program = program.env(FORWARDED_VARIABLE, ports.join(","));
    }
    program = program.arg("--folder").arg(if is_shared { folder } else { PathBuf::from("/") });
    let mut process_one = program.arg("--").args(&options.command).spawn()?;
    if let Some(file) = &mut pid_file {
        let text = format!("{} {}\n", std::process::id(), process_one.id());
        file.write_all(text.as_bytes()).map_err(io_error("write", Path::new("the pid file")))?;
    }
    process_one.wait().map_err(io_error("wait for", Path::new("process 1 of the testbed")))
}

/// Builds the root under [`STAGE`], in this mount namespace only.
fn build(options: &EnterOptions) -> Result<()> {
    let stage = Path::new(STAGE);
    make_folder(stage)?;
    let of_machine = options.root == Path::new("/");
    // The machine's root brings its /dev and /sys along; the cached one has none.
    bind(&options.root, stage, of_machine)?;
    if !of_machine {
        bind(Path::new("/dev"), &stage.join("dev"), true)?;
        bind(Path::new("/sys"), &stage.join("sys"), true)?;
    }
    in_memory(&stage.join("run"), c"mode=755")?;
    in_memory(&stage.join("tmp"), c"mode=1777")?;
    // PostgreSQL leaves segments there when it is killed.
    in_memory(&stage.join("dev/shm"), c"mode=1777")?;
    for shared in &options.shared {
        let target = inside(shared);
        make_folder(&target)?;
        bind(shared, &target, true)?;
    }
    let programs = inside(Path::new(BIN_DIR));
    make_folder(&programs)?;
    bind(&options.programs, &programs, true)?;
    add_people()?;
    // After all of the above, so that nothing is written into the machine's root or the cached one from now on.
    mount_remount(stage, MountFlags::BIND | MountFlags::RDONLY, c"")
        .map_err(system_error("make the root read-only"))
}

/// Our people with their homes, and the names of this host.
fn add_people() -> Result<()> {
    let text_of = |name: &str| {
        let path = inside(Path::new(name));
        fs::read_to_string(&path).map_err(io_error("read", &path))
    };
    let (passwd, group) = users::with_people(&text_of("/etc/passwd")?, &text_of("/etc/group")?);
    for user in USERS.iter().chain(&["root"]) {
        make_folder(&inside(Path::new(&home_of(user))))?;
    }
    for user in USERS {
        let home = inside(Path::new(&home_of(user)));
        if let Some(identity) = users::find(&passwd, user) {
            let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
            rustix::fs::chown(&home, Some(uid), Some(gid))
                .map_err(system_error("give a home to its user"))?;
            rustix::fs::chmod(&home, Mode::RWXU).map_err(system_error("close a home to others"))?;
        }
    }
    let hosts = format!("127.0.0.1 localhost {HOST_NAME}\n");
    for (name, text) in [("passwd", passwd), ("group", group), ("hosts", hosts)] {
        let source = inside(Path::new(TESTBED_DIR)).join("etc").join(name);
        let target = inside(Path::new("/etc")).join(name);
        make_folder(&inside(Path::new(TESTBED_DIR)).join("etc"))?;
        fs::write(&source, text).map_err(io_error("write", &source))?;
        mount_bind(&source, &target).map_err(system_error(format!("put {} in place", target.display())))?;
    }
    Ok(())
}

/// Makes [`STAGE`] the root of this namespace, so that whoever joins it lands there.
fn switch_root() -> Result<()> {
    let what = || system_error("switch to the root of the testbed");
    rustix::process::chdir(STAGE).map_err(what())?;
    pivot_root(".", ".").map_err(what())?;
    unmount(".", UnmountFlags::DETACH).map_err(what())?;
    rustix::process::chdir("/").map_err(what())
}

/// Where a path of the inside lies before the root is switched.
fn inside(path: &Path) -> PathBuf {
    Path::new(STAGE).join(path.strip_prefix("/").unwrap_or(path))
}

fn bind(source: &Path, target: &Path, recursive: bool) -> Result<()> {
    let bound = if recursive { mount_bind_recursive(source, target) } else { mount_bind(source, target) };
    bound.map_err(system_error(format!("mount {} at {}", source.display(), target.display())))
}

fn in_memory(target: &Path, options: &'static CStr) -> Result<()> {
    mount("tmpfs", target, "tmpfs", MountFlags::NOSUID, options)
        .map_err(system_error(format!("mount memory at {}", target.display())))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(io_error("make folder", path))
}

fn create(path: &Path) -> Result<fs::File> {
    fs::File::create(path).map_err(io_error("write", path))
}
