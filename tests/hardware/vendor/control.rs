//! A control program with directories of its own: the real one or the double, run the same way.

use super::table::Said;
use pillion_device::simulated::{Machine, MachineConfig, serve};
use pillion_tests::daemons::built;
use pillion_tests::process::{Daemon, Identity, Program};
use pillion_tests::wait::wait_until;
use rustix::process::Signal;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;

const SOON: Duration = Duration::from_secs(20);
/// A user who has nothing to do with the daemon.
pub(crate) const STRANGER: Identity = Identity { uid: 65_534, gid: 65_534 };

/// A folder that every user may enter.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The simulated devices that the double stands on, in this process.
pub(crate) struct Driver {
    folder: tempfile::TempDir,
    pub(crate) device: String,
    /// It ends when this does.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    pub(crate) fn start() -> Self {
        let folder = folder();
        let config = MachineConfig::plain("n1", "h200", 1);
        let device = config.describe().unwrap()[0].uuid.to_string();
        let machine = Machine::new(&config).unwrap();
        let socket = folder.path().join("driver.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async move { drop(stopped.await) };
            runtime.block_on(serve(machine, &socket, stopped)).unwrap();
        });
        let driver = Self { folder, device, _stop: stop };
        wait_until("the driver", SOON, || Ok(driver.socket().exists())).unwrap();
        driver
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("driver.sock")
    }
}

/// A control program, its directories and its daemon.
pub(crate) struct Site {
    program: PathBuf,
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
    daemon: Option<Daemon>,
}

impl Site {
    /// NVIDIA's. Its servers end at once, for there is no driver; `slow_server`: one of the test's stands in for them, that
    /// takes long in coming up.
    pub(crate) fn real(parts: &Path, device: &str, slow_server: bool) -> Self {
        let mut site = Self::new(parts.join("nvidia-cuda-mps-control"), device);
        let mut path = format!("{}:/usr/bin:/bin", parts.display());
        if slow_server {
            let server = site.folder.path().join("nvidia-cuda-mps-server");
            std::fs::write(&server, "#!/bin/sh\nexec sleep 5\n").unwrap();
            std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o755)).unwrap();
            path = format!("{}:{path}", site.folder.path().display());
        }
        site.set("PATH", &path);
        site
    }

    /// The double, as the release of the real one.
    pub(crate) fn double(driver: &Driver) -> Self {
        let mut site = Self::new(built("nvidia-cuda-mps-control").unwrap(), &driver.device);
        site.set("PILLION_SIMULATED_DEVICE", &driver.socket().display().to_string());
        for name in ["MPS_DOUBLE_WITHOUT_MULTIUSER", "MPS_DOUBLE_WITHOUT_PARTITIONS"] {
            site.set(name, "1");
        }
        site.set("MPS_DOUBLE_INITIALIZING_MS", "60000");
        site
    }

    fn new(program: PathBuf, device: &str) -> Self {
        let mut site = Self { program, folder: folder(), environment: Vec::new(), daemon: None };
        for (name, directory) in [("CUDA_MPS_PIPE_DIRECTORY", "pipe"), ("CUDA_MPS_LOG_DIRECTORY", "log")] {
            let path = site.folder.path().join(directory);
            std::fs::create_dir(&path).unwrap();
            site.set(name, &path.display().to_string());
        }
        site.set("CUDA_VISIBLE_DEVICES", device);
        site
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn with_environment(&self, program: Program) -> Program {
        self.environment.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    pub(crate) fn pipe_directory(&self) -> PathBuf {
        self.folder.path().join("pipe")
    }

    /// Starts the daemon, and waits until it listens.
    pub(crate) fn start(&mut self) {
        let program = self.with_environment(Program::new(&self.program)).arg("-f");
        let log = self.folder.path().join("start.log");
        self.daemon = Some(program.daemon("nvidia-cuda-mps-control", &log).unwrap());
        wait_until("an answer", SOON, || Ok(self.run(&[], "get_server_list\n", None).status == Some(0)))
            .unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().pid()
    }

    /// How the daemon ends, by itself.
    pub(crate) fn ended(&mut self) -> Said {
        let mut ended = None;
        let daemon = self.daemon.as_mut().unwrap();
        wait_until("its end", SOON, || {
            ended = daemon.ended();
            Ok(ended.is_some())
        })
        .unwrap();
        Said { status: ended.and_then(|status| status.code()), ..Said::seen(String::new()) }
    }

    pub(crate) fn kill(&mut self) {
        self.daemon.as_mut().unwrap().stop(Signal::KILL, SOON).unwrap();
    }

    /// One command, as somebody.
    pub(crate) fn says(&self, line: &str, who: Option<Identity>) -> Said {
        self.run(&[], &format!("{line}\n"), who)
    }

    /// The program with options and nothing to read.
    pub(crate) fn with_options(&self, options: &[&str]) -> Said {
        self.run(options, "", None)
    }

    fn run(&self, options: &[&str], input: &str, who: Option<Identity>) -> Said {
        // A program that wrongly goes on is ended.
        let program =
            Program::new("/usr/bin/timeout").arg("10").arg(&self.program).args(options).input(input);
        let mut program = self.with_environment(program);
        if let Some(identity) = who {
            program = program.identity(identity);
        }
        let output = program.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What lies in its pipe directory: kinds and modes.
    pub(crate) fn files(&self) -> Said {
        let entries = std::fs::read_dir(self.pipe_directory()).unwrap();
        let mut files: Vec<String> = entries
            .map(|entry| {
                let entry = entry.unwrap();
                let metadata = std::fs::symlink_metadata(entry.path()).unwrap();
                let kind = match metadata.file_type() {
                    kind if kind.is_socket() => "socket",
                    kind if kind.is_fifo() => "fifo",
                    _ => "file",
                };
                let mode = metadata.permissions().mode() & 0o777;
                format!("{} {kind} {mode:o}", entry.file_name().to_string_lossy())
            })
            .collect();
        files.sort();
        Said::seen(files.join(", "))
    }
}
