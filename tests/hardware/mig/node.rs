//! A machine with simulated devices, NVML's double beside it, and programs that have files of its devices open. What it is to do
//! wrong stands in its control file.

use pillion_device::nvidia::{MigFiles, Nvidia, NvidiaSettings};
use pillion_device::simulated::{Machine, MachineConfig, Simulated, serve};
use pillion_device::{Backend as _, DeviceError, MigControl as _};
use pillion_tests::daemons::built;
use pillion_tests::wait::wait_until;
use serde_json::{Map, Value};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long one call may take before it is given up.
const DEADLINE: Duration = Duration::from_secs(20);

/// One device of one model with MIG on, and all that stands around it.
pub(super) struct Node {
    folder: tempfile::TempDir,
    control: Map<String, Value>,
    stop: Option<oneshot::Sender<()>>,
    driver: Option<JoinHandle<()>>,
}

impl Node {
    pub(super) fn start(model: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(built("libnvidia_ml_double.so").unwrap(), folder.path().join("libnvidia-ml.so.1")).unwrap();
        let socket = folder.path().join("devices.sock");
        let machine = Machine::new(&MachineConfig::plain("n1", model, 1)).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let at = socket.clone();
        let driver = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(machine, &at, async { drop(stopped.await) })).unwrap();
        });
        wait_until("the simulated driver", DEADLINE, || Ok(Simulated::new(&socket).devices().is_ok()))
            .unwrap();
        let control = Map::new();
        let mut node = Self { folder, control, stop: Some(stop), driver: Some(driver) };
        node.set("socket", socket.to_str().unwrap().into());
        let files = node.files().to_str().unwrap().into();
        node.set("files", files);
        node.set("mig", vec![0].into());
        node
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// `/dev/nvidia0`.
    pub(super) fn device_file(&self) -> PathBuf {
        self.files().join("dev/nvidia0")
    }

    /// The file of the capability of an instance's compute instance, or of its own.
    pub(super) fn capability(&self, gpu_instance_id: u32, compute_instance_id: Option<u32>) -> PathBuf {
        let text = fs::read_to_string(self.files().join("driver/nvidia-caps/mig-minors")).unwrap();
        let ci = compute_instance_id.map(|id| format!("/ci{id}")).unwrap_or_default();
        let name = format!("gpu0/gi{gpu_instance_id}{ci}/access ");
        let minor = text.lines().find_map(|line| line.strip_prefix(name.as_str())).unwrap().to_owned();
        self.files().join(format!("dev/nvidia-caps/nvidia-cap{minor}"))
    }

    /// Sets one entry of the control file.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.control.insert(key.to_owned(), value);
        let path = self.folder.path().join("libnvidia-ml.so.1.json");
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&self.control).unwrap()).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// What an agent cuts the device with: a new one knows nothing of what another did.
    pub(super) fn cutter(&self) -> Nvidia {
        let mig_files = MigFiles { devices: self.files().join("dev"), drivers: self.files().join("driver") };
        let mut nvidia = Nvidia::new(
            NvidiaSettings {
                library: Some(self.folder.path().join("libnvidia-ml.so.1")),
                deadline: DEADLINE,
                mig_files,
                ..NvidiaSettings::default()
            },
            None,
        );
        nvidia.devices().unwrap();
        nvidia
    }

    /// Who may come in where: each file of a capability with its owner and its mode.
    pub(super) fn accesses(&self) -> Vec<(PathBuf, u32, u32)> {
        let listed = fs::read_dir(self.files().join("dev/nvidia-caps")).unwrap();
        let paths = listed.map(|entry| entry.unwrap().path());
        paths
            .map(|path| {
                let found = fs::metadata(&path).unwrap();
                (path, found.uid(), found.permissions().mode() & 0o7777)
            })
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
    }
}

/// A program that has a file open, ended with the test.
pub(super) struct Program(Child);

impl Program {
    #[expect(clippy::disallowed_methods, reason = "a tenant, or what reads a device's meters")]
    pub(super) fn with(file: &Path) -> Self {
        let file = fs::File::open(file).unwrap();
        Self(Command::new("sleep").arg("1000").stdin(file).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until the driver lets go of an instance, as an agent does.
pub(super) fn destroy_in_the_end(nvidia: &mut Nvidia, gpu_instance_id: u32) {
    wait_until("the instance to go", DEADLINE, || match nvidia.destroy(0, gpu_instance_id) {
        Ok(()) => Ok(true),
        Err(DeviceError::Busy { .. }) => Ok(false),
        Err(error) => panic!("{gpu_instance_id}: {error}"),
    })
    .unwrap();
}
