//! Hosts of a cluster that are installed one by one. All daemons of a testbed share one machine; a host is a mount namespace
//! in which `/etc`, `/usr` and `/var/lib` can be written without the others seeing it, and which has a `/run/pillion` and a
//! folder of Slurm's configuration of its own.

use crate::Cluster;
use crate::error::{HarnessError, Result, io_error, system_error};
use crate::process::Program;
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// What can be written, over what the testbed has there.
const WRITABLE: [&str; 3] = ["etc", "usr", "var/lib"];
/// Where Slurm looks for its configuration.
pub const SLURM_FOLDER: &str = "/etc/slurm";
/// The search path of a host: without the folder of the programs that were built.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One host.
#[derive(Debug)]
pub struct Host {
    name: String,
    namespace: OwnedFd,
    /// Where an installer's commands are run: a checkout with programs in `target/release`.
    checkout: PathBuf,
}

impl Host {
    /// A host on which nothing is installed but what the testbed has, with a copy of the cluster's configuration.
    ///
    /// # Errors
    /// Where the kernel refuses a part of it.
    pub fn new(cluster: &Cluster, name: &str) -> Result<Self> {
        let folder = cluster.layout().path(format!("host-{name}"));
        let conf = cluster.layout().path("conf");
        let checkout = cluster.layout().path("checkout");
        make_checkout(&checkout)?;
        let namespace = in_thread(|| {
            #[expect(deprecated, reason = "sound without FILES, which is not asked for")]
            rustix::thread::unshare(UnshareFlags::NEWNS).map_err(system_error("make a host's mounts"))?;
            furnish(&folder, &conf)?;
            let path = Path::new("/proc/thread-self/ns/mnt");
            fs::File::open(path).map(OwnedFd::from).map_err(io_error("open", path))
        })?;
        Ok(Self { name: name.to_owned(), namespace, checkout })
    }

    /// As the cluster calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does something there: what it opens and what it starts sees this host's files.
    ///
    /// # Errors
    /// Those of `work`, and where the host cannot be entered.
    pub fn on<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_thread(|| {
            #[expect(deprecated, reason = "sound without FILES, which is not asked for")]
            rustix::thread::unshare(UnshareFlags::FS).map_err(system_error("leave the testbed's folder"))?;
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount))
                .map_err(system_error(format!("enter the host {}", self.name)))?;
            work()
        })
    }

    /// A line that root types there, in a checkout whose `target/release` has the programs; what it printed.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn types(&self, cluster: &Cluster, line: &str) -> Result<String> {
        let program = self.program(cluster, "bash").args(["-euo", "pipefail", "-c", line]);
        self.on(|| program.stdout())
    }

    /// A program of this host, as its init system starts it.
    pub fn program(&self, cluster: &Cluster, name: &str) -> Program {
        Program::new(name)
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            // By this the cluster's processes are found when it ends.
            .env("PILLION_CLUSTER", cluster.root())
            .folder(&self.checkout)
    }

    /// Writes a file by hand.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn writes(&self, path: &str, text: &str) -> Result<()> {
        let path = Path::new(path);
        self.on(|| fs::write(path, text).map_err(io_error("write", path)))
    }

    /// Changes a file by hand.
    ///
    /// # Errors
    /// Where it cannot be read or written, or does not hold what is to be replaced.
    pub fn edits(&self, path: &str, replacements: &[(&str, &str)]) -> Result<()> {
        let path = Path::new(path);
        self.on(|| {
            let mut text = fs::read_to_string(path).map_err(io_error("read", path))?;
            for (from, to) in replacements {
                if !text.contains(from) {
                    let what = format!("{} does not hold '{from}'", path.display());
                    return Err(HarnessError::Refused(what));
                }
                text = text.replacen(from, to, 1);
            }
            fs::write(path, text).map_err(io_error("write", path))
        })
    }
}

/// The checkout with the programs where `cargo build --release` puts them.
fn make_checkout(folder: &Path) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let target = folder.join("target");
    fs::create_dir_all(&target).map_err(io_error("make folder", &target))?;
    let source = crate::daemons::checkout();
    let links = [
        (source.join("deploy"), folder.join("deploy")),
        (source.join("docs"), folder.join("docs")),
        (PathBuf::from(crate::testbed::BIN_DIR), target.join("release")),
    ];
    for (from, to) in links {
        std::os::unix::fs::symlink(from, &to).map_err(io_error("link", &to))?;
    }
    Ok(())
}

/// Mounts what a host has of its own, in the namespace of this thread.
fn furnish(folder: &Path, conf: &Path) -> Result<()> {
    let make = |path: &Path| fs::create_dir_all(path).map_err(io_error("make folder", path));
    for below in WRITABLE {
        let (upper, work) = (folder.join("upper").join(below), folder.join("work").join(below));
        make(&upper)?;
        make(&work)?;
        let target = Path::new("/").join(below);
        let options =
            format!("lowerdir={},upperdir={},workdir={}", target.display(), upper.display(), work.display());
        let options = std::ffi::CString::new(options).expect("paths of a testbed hold no zero byte");
        mount("overlay", &target, "overlay", MountFlags::empty(), options.as_c_str())
            .map_err(system_error(format!("make {} writable", target.display())))?;
    }
    // The names of people are mounts over files, which an overlay does not show.
    for name in ["passwd", "group", "hosts"] {
        let source = Path::new(crate::testbed::TESTBED_DIR).join("etc").join(name);
        let target = Path::new("/etc").join(name);
        fs::copy(&source, &target).map_err(io_error("write", &target))?;
    }
    let own = folder.join("slurm");
    copy_files(conf, &own)?;
    let slurm_conf = own.join("slurm.conf");
    let text = fs::read_to_string(&slurm_conf).map_err(io_error("read", &slurm_conf))?;
    fs::write(&slurm_conf, text.replace(&conf.display().to_string(), SLURM_FOLDER))
        .map_err(io_error("write", &slurm_conf))?;
    make(Path::new(SLURM_FOLDER))?;
    for target in [conf, Path::new(SLURM_FOLDER)] {
        mount_bind(&own, target).map_err(system_error(format!("put {} in place", target.display())))?;
    }
    // munged listens where every distribution has it, and where our defaults look.
    let (shown, own) = (Path::new("/run/munge"), folder.join("munge"));
    make(shown)?;
    make(&own)?;
    let socket = conf.with_file_name("munge").join("sock");
    std::os::unix::fs::symlink(&socket, own.join("munge.socket.2")).map_err(io_error("link", &socket))?;
    mount_bind(&own, shown).map_err(system_error("give a host its /run/munge"))?;
    let (shown, own) = (Path::new("/run/pillion"), folder.join("run"));
    make(shown)?;
    make(&own)?;
    mount_bind(&own, shown).map_err(system_error("give a host its /run/pillion"))
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(io_error("make folder", to))?;
    for entry in fs::read_dir(from).map_err(io_error("read", from))?.flatten() {
        let target = to.join(entry.file_name());
        fs::copy(entry.path(), &target).map_err(io_error("write", &target))?;
    }
    Ok(())
}

/// In a thread of its own, whose view of the file system ends with it.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
