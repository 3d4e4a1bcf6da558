//! The doubles of vendors' libraries and programs on a node, as its agent is told of them. They stand on the node's simulated
//! devices, which jobs go on using as always.

use crate::cluster::Cluster;
use crate::cluster::spec::NodeBackend;
use crate::daemons::{built, user_environment};
use crate::error::{Result, io_error};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Where the first card of Level Zero's double is on the PCI bus; the others follow.
const FIRST_PCI_BUS: u32 = 0x18;

/// How often the exporters' doubles collect. The real ones take 15 to 30 s, in which a whole run of a test goes by.
const EXPORTER_PERIOD_SECONDS: &str = "0.2";

/// Through what the agent of a node reaches its devices.
pub(crate) fn backend(cluster: &Cluster, node: &str) -> NodeBackend {
    let pool = cluster.spec().pool_nodes.iter().find(|pool| pool.name == node);
    pool.map(|pool| pool.backend).unwrap_or_default()
}

/// What the configuration of a node's agent says besides, continuing its section `[mps]`.
pub(crate) fn agent_toml(cluster: &mut Cluster, node: &str) -> Result<String> {
    let library = library_toml(cluster, node)?;
    let Some(address) = exporter_address(cluster, node)? else { return Ok(library) };
    Ok(format!("{library}[exporter]\nurl = \"http://{address}/metrics\"\nkeep_seconds = 10.0\n"))
}

/// Where the exporter of a node listens, if it has one.
fn exporter_address(cluster: &mut Cluster, node: &str) -> Result<Option<SocketAddr>> {
    if backend(cluster, node).exporter_kind().is_none() {
        return Ok(None);
    }
    let port = cluster.port(&format!("exporter-{node}"))?;
    Ok(Some(SocketAddr::from(([127, 0, 0, 1], port))))
}

/// Starts the exporter beside a node's library, if it has one, and waits until it listens.
pub(crate) fn start_exporter(cluster: &mut Cluster, node: &str) -> Result<()> {
    let (Some(kind), Some(address)) =
        (backend(cluster, node).exporter_kind(), exporter_address(cluster, node)?)
    else {
        return Ok(());
    };
    let (variable, devices) = user_environment(cluster.root());
    let devices = devices.display().to_string().replace("%n", node);
    let ready = cluster.layout().path(format!("run/{node}/exporter"));
    let (double, listen) = (built("pillion-exporter-double")?, address.to_string());
    let program = cluster
        .program(&double.display().to_string())
        .args(["--kind", kind, "--listen", &listen, "--period-seconds", EXPORTER_PERIOD_SECONDS])
        .arg("--ready")
        .arg(&ready)
        .env(variable, devices);
    let name = format!("pillion-exporter-{node}");
    cluster.start_daemon(&name, &program)?;
    cluster.wait_for_file(&name, &ready)
}

fn library_toml(cluster: &Cluster, node: &str) -> Result<String> {
    let backend = backend(cluster, node);
    match backend {
        // A real GPU's driver is found where every agent looks for it.
        NodeBackend::Simulated | NodeBackend::SimulatedThroughTest | NodeBackend::NvidiaGpu => {
            Ok(String::new())
        }
        NodeBackend::Xpum => Ok("[intel]\nlibrary = \"/nowhere/libze_loader.so.1\"\n".to_owned()),
        NodeBackend::Nvidia | NodeBackend::NvidiaAndDcgm | NodeBackend::NvidiaWithoutDriver => {
            let library = match backend {
                NodeBackend::NvidiaWithoutDriver => vendors(cluster, node, "nvidia/libnvidia-ml.so.1")?,
                _ => built("libnvidia_ml_double.so")?,
            };
            let control = mps_control(cluster, node)?;
            let (library, control) = (library.display(), control.display());
            Ok(format!("control_binary = \"{control}\"\n[nvidia]\nlibrary = \"{library}\"\n"))
        }
        NodeBackend::Intel | NodeBackend::IntelAndXpum | NodeBackend::IntelWithoutDevice => {
            let burst_seconds = if backend == NodeBackend::IntelAndXpum { 0.0 } else { 1.0 };
            let library = match backend {
                NodeBackend::IntelWithoutDevice => vendors(cluster, node, "intel/libze_loader.so.1")?,
                _ => built("libpillion_double_level_zero.so")?,
            };
            let sysfs = sysfs(cluster, node)?;
            Ok(format!(
                "[intel]\nlibrary = \"{}\"\nsysfs_root = \"{}\"\nmetric_burst_seconds = {burst_seconds:?}\nmetric_period_seconds = 1.0\n",
                library.display(),
                sysfs.display()
            ))
        }
    }
}

/// A library of a vendor's own, behind a link that a test may lead elsewhere later.
fn vendors(cluster: &Cluster, node: &str, library: &str) -> Result<PathBuf> {
    let path = cluster.layout().path(format!("run/{node}/library"));
    link(&built(&format!("vendor/{library}"))?, &path)?;
    Ok(path)
}

/// Where a node's agent looks for libraries that others load, besides the system's folders.
pub(crate) fn library_folder(cluster: &Cluster, node: &str) -> Result<Option<PathBuf>> {
    let is_intels = backend(cluster, node) == NodeBackend::IntelWithoutDevice;
    is_intels.then(|| built("vendor/intel")).transpose()
}

/// The control program under its own name. Daemons get a clean environment, so that it says itself where the devices are.
fn mps_control(cluster: &Cluster, node: &str) -> Result<PathBuf> {
    let double = built("nvidia-cuda-mps-control")?;
    let (variable, devices) = user_environment(cluster.root());
    let devices = devices.display().to_string().replace("%n", node);
    let text = format!("#!/bin/sh\n{variable}={devices} exec {} \"$@\"\n", double.display());
    let path = cluster.layout().write(&format!("run/{node}/nvidia-cuda-mps-control"), text)?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).map_err(io_error("make executable", &path))?;
    Ok(path)
}

/// As sysfs shows cards under i915, where jobs choose the CCS mode.
fn sysfs(cluster: &Cluster, node: &str) -> Result<PathBuf> {
    let root = cluster.layout().path(format!("run/{node}/sys"));
    for card in 0..cluster.spec().gpus_per_node.div_ceil(2) {
        let device = root.join(format!("devices/0000:{:02x}:00.0", FIRST_PCI_BUS + card));
        let class = root.join(format!("class/drm/card{card}"));
        for directory in [&device, &class] {
            std::fs::create_dir_all(directory).map_err(io_error("make", directory))?;
        }
        link(Path::new("../../bus/pci/drivers/i915"), &device.join("driver"))?;
        link(&device, &class.join("device"))?;
    }
    Ok(root)
}

fn link(to: &Path, at: &Path) -> Result<()> {
    match symlink(to, at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(io_error("link", at)(error)),
        _ => Ok(()),
    }
}
