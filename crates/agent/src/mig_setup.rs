//! What cutting a node's devices by MIG stands on, for `pillion doctor`: that their files are left alone, that MIG is on or can be
//! turned on, that the fabric manager runs where there are `NVSwitches`, and which programs of the system have them open. Changes nothing.

use crate::mechanism::mig::MigPolicy;
use pillion_core::device::DeviceDescription;
use pillion_core::mig::Geometry;
use pillion_core::setup::{SetupFault, SetupFaultKind};
use pillion_core::text::{named, quoted};
use pillion_device::mechanism::mig::Holder;
use pillion_device::nvidia::{MigFiles, holders};
use std::path::{Path, PathBuf};

/// Users' numbers begin here (login.defs(5), `UID_MIN`): what is on a device below it belongs to the system.
const USER_ID_MIN: u32 = 1000;
/// How the kernel shortens `nvidia-cuda-mps-control` and `-server`, which the agent has started itself.
const MPS_PROGRAM: &str = "nvidia-cuda-mps";
/// And `nvidia-persistenced`: it holds every device, and is in the way only of what changes the mode.
const PERSISTENCE_PROGRAM: &str = "nvidia-persiste";
/// And `nv-fabricmanager`.
const FABRIC_PROGRAM: &str = "nv-fabricmanage";
/// The driver's files of `NVSwitches` begin so. There are none for those of NVLink 5 (B200), which are not on the node's own bus.
const SWITCH_FILES: &str = "nvidia-nvswitch";
/// How many programs are named.
const NAMED_MAX: usize = 4;

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigPlaces {
    /// The files of devices and capabilities.
    pub files: MigFiles,
    /// Where processes are looked up.
    pub processes: PathBuf,
    /// What the site wants.
    pub policy: MigPolicy,
}

impl MigPlaces {
    /// What is wrong there now with these devices.
    pub fn look(&self, devices: &[DeviceDescription]) -> Vec<SetupFault> {
        let could_be_cut = |device: &&DeviceDescription| Geometry::of_model(&device.model).is_some();
        let off = devices.iter().filter(|device| device.geometry.is_none()).filter(could_be_cut);
        let cut: Vec<&DeviceDescription> =
            devices.iter().filter(|device| device.geometry.is_some()).collect();
        let mut faults: Vec<SetupFault> = off.map(mode_off).collect();
        if let Some(why) = self.files.why_not_kept().filter(|_| !cut.is_empty()) {
            let detail = format!("no instance can be one user's alone: {why}");
            faults.push(SetupFault { kind: SetupFaultKind::MigFilesRemade, detail });
        }
        faults.extend(self.fabric_down().filter(|_| !cut.is_empty()));
        faults.extend(cut.into_iter().filter_map(|device| {
            let holders = holders(&self.files, device.index).unwrap_or_default();
            held(device, self.policy.may_toggle, holders.into_iter().filter(is_of_the_system))
        }));
        faults
    }

    /// A GPU whose MIG mode is turned over leaves the fabric and has to be taken in again.
    fn fabric_down(&self) -> Option<SetupFault> {
        let switch = names(&self.files.devices).find(|name| name.starts_with(SWITCH_FILES))?;
        let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
        let program =
            |pid: String| std::fs::read_to_string(self.processes.join(pid).join("comm")).unwrap_or_default();
        let mut programs = names(&self.processes).filter(is_number).map(program);
        if programs.any(|program| program.trim() == FABRIC_PROGRAM) {
            return None;
        }
        let detail = format!(
            "its GPUs hang on NVSwitches ({}), and nvidia-fabricmanager does not run",
            quoted(&self.files.devices.join(switch).display().to_string())
        );
        Some(SetupFault { kind: SetupFaultKind::FabricDown, detail })
    }
}

/// The names of what lies in a folder; nothing where it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn mode_off(device: &DeviceDescription) -> SetupFault {
    let DeviceDescription { gres_type, model, .. } = device;
    let detail =
        format!("{gres_type} ({}) is not cut: MIG is off there, or waits for a reset", quoted(model));
    SetupFault { kind: SetupFaultKind::MigOff, detail }
}

/// Whether a program runs as no user's.
const fn is_of_the_system(holder: &Holder) -> bool {
    holder.uid.0 < USER_ID_MIN
}

/// Those among them that may be in the way.
fn held(
    device: &DeviceDescription,
    toggles: bool,
    holders: impl Iterator<Item = Holder>,
) -> Option<SetupFault> {
    let is_in_the_way = |holder: &Holder| {
        !holder.program.starts_with(MPS_PROGRAM) && (toggles || holder.program != PERSISTENCE_PROGRAM)
    };
    let found = holders
        .filter(is_in_the_way)
        .map(|it| format!("{} (process {}) has {} open", quoted(&it.program), it.pid, quoted(&it.file)));
    let found = named(found, NAMED_MAX)?;
    let detail = format!("{} may not be cut: {found}", device.gres_type);
    Some(SetupFault { kind: SetupFaultKind::MigHeld, detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::UserId;
    use std::collections::BTreeSet;
    use std::fs;
    use std::process::{Child, Command};

    fn device(index: u32, model: &str, is_cut: bool) -> DeviceDescription {
        let geometry = Geometry::of_model(model).filter(|_| is_cut).cloned();
        DeviceDescription { model: model.to_owned(), geometry, ..pillion_test_kit::device(index) }
    }

    struct Node(tempfile::TempDir);

    impl Node {
        fn new(params: &str) -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            for folder in ["dev", "driver/nvidia", "proc/1", "proc/self"] {
                fs::create_dir_all(node.0.path().join(folder)).unwrap();
            }
            fs::write(node.0.path().join("driver/nvidia/params"), params).unwrap();
            fs::write(node.0.path().join("dev/nvidia0"), "").unwrap();
            node
        }
        fn places(&self, toggles: bool) -> MigPlaces {
            let files =
                MigFiles { devices: self.0.path().join("dev"), drivers: self.0.path().join("driver") };
            let policy = MigPolicy { is_enabled: true, may_toggle: toggles };
            MigPlaces { files, processes: self.0.path().join("proc"), policy }
        }
    }

    fn kinds(faults: &[SetupFault]) -> Vec<SetupFaultKind> {
        faults.iter().map(|fault| fault.kind).collect()
    }

    #[test]
    fn a_sound_node_has_no_fault() {
        let node = Node::new("ModifyDeviceFiles: 0\n");
        let devices = [device(0, "h100", true), device(1, "v100", false)];
        assert_eq!(node.places(true).look(&devices), []);
    }

    #[test]
    fn a_device_that_could_be_cut_and_is_not_is_told() {
        let node = Node::new("ModifyDeviceFiles: 1\n");
        let faults = node.places(true).look(&[device(3, "a100-40", false)]);
        assert_eq!(kinds(&faults), [SetupFaultKind::MigOff], "no file matters where nothing is cut");
        assert!(faults[0].detail.contains("(a100-40) is not cut"), "{faults:?}");
    }

    #[test]
    fn files_that_the_driver_makes_anew_are_told() {
        let node = Node::new("ModifyDeviceFiles: 1\n");
        let faults = node.places(true).look(&[device(0, "h100", true)]);
        assert_eq!(kinds(&faults), [SetupFaultKind::MigFilesRemade]);
        assert!(faults[0].detail.contains("NVreg_ModifyDeviceFiles=0"), "{faults:?}");
    }

    #[test]
    fn switches_without_a_fabric_manager_are_told() {
        let node = Node::new("ModifyDeviceFiles: 0\n");
        let write = |path: &str, text: &str| fs::write(node.0.path().join(path), text).unwrap();
        let look = |devices: &[DeviceDescription]| kinds(&node.places(true).look(devices));
        write("proc/1/comm", "systemd\n");
        let cut = [device(0, "h100", true)];
        assert_eq!(look(&cut), [], "no switch");
        write("dev/nvidia-nvswitchctl", "");
        assert_eq!(look(&cut), [SetupFaultKind::FabricDown]);
        assert_eq!(look(&[device(0, "v100", false)]), [], "nothing is cut");
        write("proc/1/comm", "nv-fabricmanage\n");
        assert_eq!(look(&cut), []);
    }

    /// A program with a device open, ended with the test.
    struct Program(Child);

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "another program, which holds a file")]
    fn a_program_that_has_the_device_open_is_named() {
        let node = Node::new("ModifyDeviceFiles: 0\n");
        let file = fs::File::open(node.0.path().join("dev/nvidia0")).unwrap();
        let program = Program(Command::new("sleep").arg("1000").stdin(file).spawn().unwrap());
        let faults = node.places(true).look(&[device(0, "h100", true)]);
        if rustix::process::geteuid().as_raw() < USER_ID_MIN {
            assert_eq!(kinds(&faults), [SetupFaultKind::MigHeld]);
            assert!(faults[0].detail.contains(&format!("sleep (process {})", program.0.id())), "{faults:?}");
        } else {
            assert_eq!(faults, [], "a user's programs are his jobs'");
        }
    }

    #[test]
    fn programs_of_ours_are_not_in_the_way_and_persistenced_only_of_the_mode() {
        let holder = |program: &str| Holder {
            pid: 7,
            uid: UserId(0),
            program: program.to_owned(),
            file: "/dev/nvidia0".to_owned(),
            gpu_instance_ids: BTreeSet::new(),
        };
        let told = |toggles, programs: &[&str]| {
            held(&device(0, "h100", true), toggles, programs.iter().map(|it| holder(it))).map(|it| it.detail)
        };
        assert_eq!(told(true, &[MPS_PROGRAM]), None);
        assert_eq!(told(false, &[PERSISTENCE_PROGRAM]), None);
        assert!(told(true, &[PERSISTENCE_PROGRAM]).is_some());
        let many = told(false, &["nv-hostengine", "b", "c", "d", "e", "f"]).unwrap();
        assert!(
            many.contains("nv-hostengine (process 7) has /dev/nvidia0 open, b")
                && many.ends_with(" and 2 more"),
            "{many}"
        );
    }
}
