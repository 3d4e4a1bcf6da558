//! Where everything of one cluster lies, and which ports it has.

use crate::error::{HarnessError, Result, io_error};
use crate::testbed::TESTBED_DIR;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Ports are taken from below the range from which the kernel serves outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Unix socket paths end at 108 bytes; the folder must leave room for the longest name in it.
const PATH_LENGTH_MAX: usize = 60;

/// The folders of one cluster.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Claims a free folder `c1`, `c2`, .. in the testbed.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub(super) fn claim() -> Result<Self> {
        let base = Path::new(TESTBED_DIR);
        for number in 1_u32.. {
            let root = base.join(format!("c{number}"));
            match fs::create_dir(&root) {
                Ok(()) => {
                    debug_assert!(root.as_os_str().len() < PATH_LENGTH_MAX);
                    let layout = Self { root };
                    for name in ["conf", "log", "munge", "state", "spool", "dev", "home", "run"] {
                        let folder = layout.path(name);
                        fs::create_dir(&folder).map_err(io_error("make folder", &folder))?;
                    }
                    return Ok(layout);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("make folder", &root)(error)),
            }
        }
        Err(HarnessError::Refused("no folder is free for another cluster".into()))
    }

    /// The folder of all of it.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Something in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }
    /// `slurm.conf`; clients need nothing else.
    pub fn slurm_conf(&self) -> PathBuf {
        self.path("conf/slurm.conf")
    }
    /// The socket of `munged`.
    pub fn munge_socket(&self) -> PathBuf {
        self.path("munge/sock")
    }
    /// A log by name.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path("log").join(format!("{name}.log"))
    }
    /// The device file of a GPU.
    pub fn device_file(&self, index: u32) -> PathBuf {
        self.path("dev").join(format!("nvidia{index}"))
    }

    /// Writes a file below it.
    ///
    /// # Errors
    /// Where that fails.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).map_err(io_error("write", &path))?;
        Ok(path)
    }
}

/// Ports that belong to this cluster until it ends, by name.
#[derive(Debug)]
pub struct Ports {
    taken: BTreeMap<String, u16>,
}

impl Ports {
    /// With some that nobody needs to look for.
    pub(super) fn given(ports: BTreeMap<String, u16>) -> Self {
        Self { taken: ports }
    }

    /// The port for `name`: the same at every call.
    ///
    /// # Errors
    /// Where none is free.
    pub fn get(&mut self, name: &str) -> Result<u16> {
        if let Some(port) = self.taken.get(name) {
            return Ok(*port);
        }
        let claims = Path::new(TESTBED_DIR).join("ports");
        fs::create_dir_all(&claims).map_err(io_error("make folder", &claims))?;
        for port in PORTS {
            // The claim keeps other test processes of this testbed away, the bind finds strangers.
            let claimed = fs::File::create_new(claims.join(port.to_string())).is_ok();
            if claimed && TcpListener::bind(("0.0.0.0", port)).is_ok() {
                self.taken.insert(name.to_owned(), port);
                return Ok(port);
            }
        }
        Err(HarnessError::Refused(format!("no port is free between {} and {}", PORTS.start, PORTS.end)))
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for port in self.taken.values() {
            let _ = fs::remove_file(Path::new(TESTBED_DIR).join("ports").join(port.to_string()));
        }
    }
}
