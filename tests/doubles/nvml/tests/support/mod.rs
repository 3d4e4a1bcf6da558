//! A simulated driver of this very process, and a copy of the library that talks to it.

use pillion_core::device::DeviceDescription;
use pillion_device::Backend as _;
use pillion_device::simulated::{
    AttachRequest, Environment, JobConnection, JobError, Machine, MachineConfig, Simulated, serve,
};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A simulated driver, ended with the test.
pub(crate) struct Driver {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(crate) fn start(machine: Machine, socket: &Path) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let own = socket.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let until = async { drop(stopped.await) };
            runtime.block_on(serve(machine, &own, until)).unwrap();
        });
        eventually("the simulated driver answers", || Simulated::new(socket).devices().ok());
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A node with simulated devices, and a library of its own.
pub(crate) struct Node {
    pub(crate) driver: Option<Driver>,
    control: Map<String, Value>,
    directory: tempfile::TempDir,
}

impl Node {
    /// `count` devices of one model, without noise, in real time.
    pub(crate) fn start(model: &str, count: usize) -> Self {
        Self::of(Machine::new(&MachineConfig::plain("n1", model, count)).unwrap())
    }

    pub(crate) fn of(machine: Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(built_library(), directory.path().join("libnvidia-ml.so.1")).unwrap();
        let mut node = Self { driver: None, control: Map::new(), directory };
        node.driver = Some(Driver::start(machine, &node.socket()));
        let socket = node.socket().to_str().unwrap().into();
        node.set("socket", socket);
        node
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("device.sock")
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.directory.path().join("libnvidia-ml.so.1")
    }

    /// What the devices themselves say.
    pub(crate) fn simulated(&self) -> Simulated {
        Simulated::new(self.socket())
    }

    pub(crate) fn descriptions(&self) -> Vec<DeviceDescription> {
        self.simulated().devices().unwrap()
    }

    /// Sets one entry of the library's control file.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.control.insert(key.to_owned(), value);
        let path = self.directory.path().join("libnvidia-ml.so.1.json");
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&self.control).unwrap()).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Puts everlasting work on one device.
    pub(crate) fn load(&self, index: u32, workload: &str, environment: &[(&str, &str)]) -> JobConnection {
        self.try_load(index, workload, environment).unwrap()
    }

    /// The same where the driver may refuse it.
    pub(crate) fn try_load(
        &self,
        index: u32,
        workload: &str,
        environment: &[(&str, &str)],
    ) -> Result<JobConnection, JobError> {
        let mut environment: Environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment.entry("CUDA_VISIBLE_DEVICES".to_owned()).or_insert(index.to_string());
        let request = AttachRequest {
            workload: workload.to_owned(),
            seconds: Some(1e6),
            environment,
            ..AttachRequest::default()
        };
        JobConnection::open(self.socket(), request)
    }
}

/// The library that cargo built for these tests, beside them.
fn built_library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("libnvidia_ml_double.so")
}

/// Asks again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(5);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(pause);
    }
    panic!("{what}: not within {PATIENCE:?}");
}
