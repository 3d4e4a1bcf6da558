//! A node with two cards of two tiles, and Pillion's backend in a process of its own: Level Zero is initialised once a
//! process, and one way only.
//!
//! The test's own process plays the node: it serves the simulated devices and keeps two programs on the first card. The
//! same test then runs once more in a child, which finds the scene in its environment, and there is the backend.

use pillion_core::SystemClock;
use pillion_device::Backend as _;
use pillion_device::intel::{Intel, Settings};
use pillion_device::simulated::{
    AttachRequest, Counters, JobConnection, Machine, MachineConfig, SOCKET_VARIABLE, Simulated, serve,
};
use pillion_double_level_zero::{FAULTS_VARIABLE, Faults};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Says that this is the child, and where the scene is.
const SCENE_VARIABLE: &str = "PILLION_DOUBLE_SCENE";
/// Who plays the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The double, of a specification that has `zesInit`; the kernel driver is xe.
    Modern,
    /// The system's own loader, of Debian's libze1, with the double as its driver; the kernel driver is i915.
    Legacy,
}

/// What is on the first card: a program that computes, on tile 0, and one that reads memory, on tile 1.
const LOADS: [(&str, u64); 2] = [("gemm-hog", 8 << 30), ("spmv-bandwidth", 12 << 30)];

/// The scene as the child sees it.
pub(crate) struct Scene {
    directory: PathBuf,
    socket: PathBuf,
    pub(crate) way: Way,
    /// Whoever is on tiles 0 and 1.
    pub(crate) load_pid: u32,
}

/// Runs `body` in a process of its own. `name`: that of the test that calls.
pub(crate) fn play(name: &str, way: Way, body: impl FnOnce(&Scene)) {
    if let Some(directory) = std::env::var_os(SCENE_VARIABLE) {
        let load_pid = std::os::unix::process::parent_id();
        let directory = PathBuf::from(directory);
        return body(&Scene { socket: socket(&directory), directory, way, load_pid });
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = socket(directory.path());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let node = std::thread::spawn({
        let socket = socket.clone();
        move || serve_devices(&socket, stopped)
    });
    wait_for("the simulated devices", || Simulated::new(&socket).devices().is_ok());
    let loads: Vec<JobConnection> = (0..2).map(|tile| load(&socket, tile)).collect();
    lay_out(directory.path(), way);
    let output = child(name, way, directory.path(), &socket).output().unwrap();
    drop(loads);
    stop.send(()).unwrap();
    node.join().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("devices.sock")
}

fn serve_devices(socket: &Path, stopped: tokio::sync::oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let machine = Machine::new(&MachineConfig::plain("n1", "max-1550", 4)).unwrap();
    runtime.block_on(serve(machine, socket, async { stopped.await.unwrap() })).unwrap();
}

fn load(socket: &Path, tile: u32) -> JobConnection {
    let (workload, memory_bytes) = LOADS[tile as usize];
    let request = AttachRequest {
        workload: workload.to_owned(),
        seconds: Some(1e8),
        memory_bytes: Some(memory_bytes),
        environment: [("ZE_AFFINITY_MASK".to_owned(), tile.to_string())].into(),
        ..AttachRequest::default()
    };
    JobConnection::open(socket, request).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test of processes runs processes")]
fn child(name: &str, way: Way, directory: &Path, socket: &Path) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([name, "--exact", "--nocapture"])
        .env_clear()
        .env(SCENE_VARIABLE, directory)
        .env(SOCKET_VARIABLE, socket)
        .env(FAULTS_VARIABLE, directory.join("faults.json"))
        // What the shell that starts an agent may have set for programs; the agent sees all cards nevertheless.
        .env("ZE_AFFINITY_MASK", "1.1")
        .env("ZE_FLAT_DEVICE_HIERARCHY", "FLAT");
    if way == Way::Legacy {
        child.env("ZE_ENABLE_ALT_DRIVERS", double());
    }
    child
}

/// The library, which cargo builds beside its tests.
pub(crate) fn double() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = beside.join("libpillion_double_level_zero.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Trees like sysfs and procfs.
fn lay_out(directory: &Path, way: Way) {
    let driver = if way == Way::Modern { "xe" } else { "i915" };
    for card in 0..2 {
        let device = directory.join("sys/devices/pci0000:00").join(format!("0000:{:02x}:00.0", 0x18 + card));
        std::fs::create_dir_all(device.join("drm").join(format!("renderD{}", 128 + card))).unwrap();
        for tile in 0..2 {
            let engine = device.join(format!("tile{tile}/gt{tile}"));
            std::fs::create_dir_all(&engine).unwrap();
            std::fs::write(engine.join("num_cslices"), "4\n").unwrap();
            std::fs::write(engine.join("ccs_mode"), "1\n").unwrap();
        }
        symlink(format!("../../../bus/pci/drivers/{driver}"), device.join("driver")).unwrap();
        let class = directory.join(format!("sys/class/drm/card{card}"));
        std::fs::create_dir_all(&class).unwrap();
        symlink(&device, class.join("device")).unwrap();
    }
    // The programs' process, as if each tile had one of its own.
    let process = directory.join("proc").join(std::process::id().to_string());
    std::fs::create_dir_all(&process).unwrap();
    std::fs::write(process.join("environ"), "ZE_AFFINITY_MASK=0\0").unwrap();
    std::fs::create_dir_all(directory.join("proc/self/fd")).unwrap();
}

/// Waits until it is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("30 seconds without {what}");
}

impl Scene {
    /// The backend's settings for this scene.
    pub(crate) fn settings(&self) -> Settings {
        let library = (self.way == Way::Modern).then(|| double().to_str().unwrap().to_owned());
        Settings {
            library,
            sysfs_root: self.directory.join("sys"),
            proc_root: self.directory.join("proc"),
            ..Settings::default()
        }
    }

    /// The backend.
    pub(crate) fn intel(&self) -> Intel {
        Intel::new(self.settings(), Arc::new(SystemClock))
    }

    /// A backend that has found its devices.
    pub(crate) fn opened(&self) -> Intel {
        let mut intel = self.intel();
        match intel.devices() {
            Ok(devices) => assert_eq!(devices.len(), 4),
            Err(error) if self.way == Way::Legacy => panic!("{error} (install libze1, as tests/run does)"),
            Err(error) => panic!("{error}"),
        }
        intel
    }

    /// What the device model itself counts.
    pub(crate) fn truth(&self, index: u32) -> Counters {
        Simulated::new(&self.socket).counters(index).unwrap()
    }

    /// From now on this goes wrong.
    pub(crate) fn faults(&self, faults: &Faults) {
        // In one step: the double may be reading.
        let (new, file) = (self.directory.join("faults.new"), self.directory.join("faults.json"));
        std::fs::write(&new, serde_json::to_vec(faults).unwrap()).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// From now on these functions answer so.
    pub(crate) fn answers(&self, answers: &[(&str, u32)]) {
        let answers = answers.iter().map(|(name, result)| ((*name).to_owned(), *result)).collect();
        self.faults(&Faults { answers, ..Faults::default() });
    }

    /// A file of this process, as procfs shows it.
    pub(crate) fn open_file(&self, number: u32) -> PathBuf {
        self.directory.join(format!("proc/self/fd/{number}"))
    }
}
