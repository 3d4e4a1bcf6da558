//! The GPU, cut by the code that the agent uses. What was made, and how the mode was, stands in a file while it is so: a run that
//! is ended leaves nothing that cannot be undone.

use crate::bench::Bench;
use crate::kernels::Workload;
use crate::programs::{now, until};
use crate::tenant::{Client, Tenant};
use pillion_core::UserId;
use pillion_core::mig::{Geometry, MigProfile, Slot};
use pillion_device::mechanism::mig::{Access, Instance, Layout, MigMode};
use pillion_device::nvidia::{Nvidia, NvidiaSettings};
use pillion_device::{Backend as _, DeviceError, MigControl as _};
use serde::{Deserialize, Serialize};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one call may take: a change of mode, too.
const DEADLINE: Duration = Duration::from_mins(1);
/// How long an instance may refuse to go once nobody is in it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The name of the file.
const LEFT_FILE: &str = "mig.json";

/// What a run has made and not yet taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    index: u32,
    /// Whether MIG was on before.
    was_on: bool,
    instances: Vec<u32>,
}

/// A GPU that is cut.
pub struct Cutter {
    nvidia: Nvidia,
    left: Left,
    file: PathBuf,
    control: PathBuf,
    work: PathBuf,
}

fn told(error: &DeviceError) -> String {
    pillion_core::report(error)
}

impl Cutter {
    /// Opens the GPU with this UUID, if nobody's work is on it.
    ///
    /// # Errors
    /// A sentence: why it is not cut.
    pub fn open(library: Option<PathBuf>, uuid: &str, control: &Path, work: &Path) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root cuts a GPU".to_owned());
        }
        let mut nvidia = nvidia(library);
        let devices = nvidia.devices().map_err(|error| told(&error))?;
        let found = devices.into_iter().find(|device| device.uuid.as_str() == uuid);
        let index = found.ok_or("our backend does not find the GPU that nvidia-smi names")?.index;
        let layout = nvidia.layout(index).map_err(|error| told(&error))?;
        if let Some(instance) = layout.instances.first() {
            return Err(format!("somebody has cut it already: there is a {}", instance.slot));
        }
        if let Some(process) = nvidia.processes(index).map_err(|error| told(&error))?.first() {
            return Err(format!("process {} is on it", process.pid));
        }
        let left = match layout.mode {
            MigMode::Pending => return Err("its MIG mode is to change at a reset".to_owned()),
            mode => Left { index, was_on: mode == MigMode::On, instances: Vec::new() },
        };
        let file = work.join(LEFT_FILE);
        let cutter = Self { nvidia, left, file, control: control.to_owned(), work: work.to_owned() };
        cutter.write()?;
        Ok(cutter)
    }

    fn write(&self) -> Result<(), String> {
        let text = serde_json::to_vec(&self.left).map_err(|error| error.to_string())?;
        std::fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.file.display()))
    }

    /// Whether MIG was on before.
    pub fn was_on(&self) -> bool {
        self.left.was_on
    }

    /// What its driver says that it can be cut into.
    ///
    /// # Errors
    /// A sentence.
    pub fn geometry(&mut self) -> Result<Geometry, String> {
        self.nvidia.geometry(self.left.index).map_err(|error| told(&error))
    }

    /// How it is divided.
    ///
    /// # Errors
    /// A sentence.
    pub fn layout(&mut self) -> Result<Layout, String> {
        self.nvidia.layout(self.left.index).map_err(|error| told(&error))
    }

    /// Whether our own readings come, as the agent's do.
    ///
    /// # Errors
    /// A sentence: what kept them.
    pub fn reads(&mut self) -> Result<(), String> {
        self.nvidia.read(self.left.index).map(drop).map_err(|error| told(&error))
    }

    /// Turns MIG on or off; how long that took, in seconds.
    ///
    /// # Errors
    /// A sentence: why it is not, and who has the GPU open.
    pub fn set_mode(&mut self, is_on: bool) -> Result<f64, String> {
        let begun = now();
        let set = self.nvidia.set_mode(self.left.index, is_on);
        let seconds = begun.elapsed().as_secs_f64();
        set.map(|()| seconds).map_err(|error| format!("{}; {}", told(&error), self.holders()))
    }

    /// MIG is on, as the sections after the first need it.
    ///
    /// # Errors
    /// As [`Cutter::set_mode`].
    pub fn turn_on(&mut self) -> Result<(), String> {
        self.set_mode(true).map(drop)
    }

    /// Who has it open besides us.
    pub fn holders(&mut self) -> String {
        match self.nvidia.holders(self.left.index) {
            Ok(holders) if holders.is_empty() => "nobody else has it open".to_owned(),
            Ok(holders) => {
                let named = holders.iter().map(|it| format!("{} has {} open", it.program, it.file));
                named.collect::<Vec<_>>().join(", ")
            }
            Err(error) => told(&error),
        }
    }

    /// Makes an instance.
    ///
    /// # Errors
    /// A sentence.
    pub fn make(&mut self, slot: Slot) -> Result<Instance, String> {
        let made =
            self.nvidia.make(self.left.index, slot).map_err(|error| format!("{slot}: {}", told(&error)))?;
        self.left.instances.push(made.gpu_instance_id);
        self.write()?;
        Ok(made)
    }

    /// Opens the way to an instance to all, so that a client needs no files of its own. Where they are not there yet, the first
    /// client has them made.
    ///
    /// # Errors
    /// A sentence.
    pub fn open_to_all(&mut self, instance: &Instance) -> Result<(), String> {
        match self.nvidia.give(self.left.index, &[(instance.clone(), Access::Everybody)]) {
            Ok(()) | Err(DeviceError::Unsupported { .. }) => Ok(()),
            Err(error) => Err(told(&error)),
        }
    }

    /// Leaves the way to an instance to one user: as the agent does, or by hand where the agent would not, for the driver makes its
    /// files anew. Whether that is a wall all the same is what is to be found out.
    ///
    /// # Errors
    /// A sentence.
    pub fn give(&mut self, instance: &Instance, to: u32) -> Result<(), String> {
        match self.nvidia.give(self.left.index, &[(instance.clone(), Access::User(UserId(to)))]) {
            Err(DeviceError::Refused { .. }) => by_hand(self.left.index, instance, to),
            given => given.map_err(|error| told(&error)),
        }
    }

    /// Asks once for an instance to be taken away; false while its driver says that somebody uses it.
    ///
    /// # Errors
    /// A sentence.
    pub fn destroy_once(&mut self, instance: &Instance) -> Result<bool, String> {
        match self.nvidia.destroy(self.left.index, instance.gpu_instance_id) {
            Ok(()) => {
                self.left.instances.retain(|id| *id != instance.gpu_instance_id);
                self.write()?;
                Ok(true)
            }
            Err(DeviceError::Busy { .. }) => Ok(false),
            Err(error) => Err(told(&error)),
        }
    }

    /// Takes an instance away, in the end; how often it was refused before.
    ///
    /// # Errors
    /// A sentence: it does not go, and who has the GPU open.
    pub fn destroy(&mut self, instance: &Instance) -> Result<usize, String> {
        let (mut refusals, mut failed) = (0, None);
        let is_gone = until(PATIENCE, || match self.destroy_once(instance) {
            Ok(true) => true,
            Ok(false) => {
                refusals += 1;
                false
            }
            Err(reason) => {
                failed = Some(reason);
                true
            }
        });
        match failed {
            Some(reason) => Err(reason),
            None if is_gone => Ok(refusals),
            None => Err(format!("a {} does not go; {}", instance.slot, self.holders())),
        }
    }

    /// A client in an instance, by the name that CUDA knows.
    pub fn client(&self, instance: &Instance, workload: Workload) -> Client {
        let uuid = instance.compute.first().map(|compute| compute.uuid.to_string()).unwrap_or_default();
        let nobody = self.work.join("nobody").display().to_string();
        let variables = [("CUDA_VISIBLE_DEVICES", uuid), ("CUDA_MPS_PIPE_DIRECTORY", nobody)];
        Client::new(workload, variables.map(|(name, value)| (name.to_owned(), value)).to_vec())
    }

    /// A bench for MPS inside of an instance.
    ///
    /// # Errors
    /// A sentence: CUDA has no name for it.
    pub fn mps(&self, instance: &Instance) -> Result<Bench, String> {
        let compute = instance.compute.first().ok_or("the instance has no compute instance")?;
        Ok(Bench::new(self.control.clone(), self.work.clone(), compute.uuid.as_str()))
    }

    /// Where programs for other users may lie.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Takes away all that is ours. The mode stays.
    ///
    /// # Errors
    /// A sentence: what is left.
    pub fn sweep(&mut self) -> Result<(), String> {
        let mut ours: Vec<Instance> = self.layout()?.instances;
        ours.retain(|instance| self.left.instances.contains(&instance.gpu_instance_id));
        for instance in ours {
            self.destroy(&instance)?;
        }
        self.left.instances.clear();
        self.write()
    }

    /// As it was before.
    ///
    /// # Errors
    /// A sentence: what is not.
    pub fn undo(&mut self) -> Result<(), String> {
        self.sweep()?;
        let was_on = self.left.was_on;
        self.set_mode(was_on)?;
        std::fs::remove_file(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

/// Gives a user the files of an instance's capabilities, as the driver lists them.
fn by_hand(index: u32, instance: &Instance, to: u32) -> Result<(), String> {
    let list = "/proc/driver/nvidia-caps/mig-minors";
    let text = std::fs::read_to_string(list).map_err(|error| format!("{list}: {error}"))?;
    for minor in minors(&text, index, instance) {
        let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
        let set = std::os::unix::fs::lchown(&path, Some(to), Some(0))
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o400)));
        set.map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// The numbers of an instance's files: its own, and those of its compute instances.
fn minors(text: &str, index: u32, instance: &Instance) -> Vec<u32> {
    let own = format!("gpu{index}/gi{}/", instance.gpu_instance_id);
    let parts = instance.compute.iter().map(|compute| format!("{own}ci{}/", compute.id));
    let names: Vec<String> =
        [own.clone()].into_iter().chain(parts).map(|it| format!("{it}access ")).collect();
    let is_its =
        |line: &str| names.iter().find_map(|name| line.strip_prefix(name.as_str())?.trim().parse().ok());
    text.lines().filter_map(is_its).collect()
}

fn nvidia(library: Option<PathBuf>) -> Nvidia {
    Nvidia::new(NvidiaSettings { library, deadline: DEADLINE, ..NvidiaSettings::default() }, None)
}

/// Undoes what an earlier run of this work directory left, if it left anything.
///
/// # Errors
/// A sentence: what is not as it was.
pub fn undo(library: Option<PathBuf>, work: &Path) -> Result<(), String> {
    let file = work.join(LEFT_FILE);
    let Ok(text) = std::fs::read(&file) else { return Ok(()) };
    let left: Left = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut nvidia = nvidia(library);
    nvidia.devices().map_err(|error| told(&error))?;
    let mut cutter = Cutter { nvidia, left, file, control: PathBuf::new(), work: work.to_owned() };
    cutter.undo()
}

/// The plain sizes of a device, each where it starts first; the smallest first.
pub fn plain(geometry: &Geometry) -> Vec<Slot> {
    let mut slots: Vec<Slot> = geometry
        .plain()
        .filter_map(|size| Some(Slot { profile: size.profile, start: *size.starts.first()? }))
        .collect();
    slots.reverse();
    slots
}

/// The plain size with so many compute slices.
///
/// # Errors
/// A sentence: there is none.
pub fn with_slices(geometry: &Geometry, compute_slices: u8) -> Result<MigProfile, String> {
    let found = geometry.plain().find(|size| size.profile.compute_slices() == compute_slices);
    found.map(|size| size.profile).ok_or_else(|| format!("it has no instance of {compute_slices} slices"))
}

/// Starts a client, lets it run for a while, and gives its speed.
///
/// # Errors
/// A sentence.
pub fn speed(client: &Client, time: Duration) -> Result<f64, String> {
    let mut tenant = Tenant::start(client)?;
    let speed = tenant.speed(time);
    tenant.leave();
    speed
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::DeviceUuid;
    use pillion_device::mechanism::mig::ComputeInstance;

    #[test]
    fn sizes_are_taken_where_they_start_first() {
        let geometry = Geometry::of_model("h200").unwrap();
        let slots: Vec<String> = plain(geometry).iter().map(Slot::to_string).collect();
        assert_eq!(slots, ["1g.18gb@0", "2g.35gb@0", "3g.71gb@0", "4g.71gb@0", "7g.141gb@0"]);
        assert_eq!(with_slices(geometry, 3).unwrap().to_string(), "3g.71gb");
        assert!(with_slices(geometry, 5).is_err());
    }

    #[test]
    fn the_files_of_an_instance_are_those_of_its_numbers() {
        let compute = ComputeInstance { id: 1, uuid: DeviceUuid::new("MIG-1") };
        let slot = "1g.18gb@0".parse().unwrap();
        let instance = Instance { slot, gpu_instance_id: 7, compute: vec![compute], pids: vec![] };
        let text = "gpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu0/gi7/ci1/access 68\ngpu1/gi7/access 201\ngpu0/gi71/access 9\n";
        assert_eq!(minors(text, 0, &instance), [66, 68]);
    }

    #[test]
    fn a_run_that_left_nothing_needs_no_driver_to_be_undone() {
        let work = tempfile::tempdir().unwrap();
        assert_eq!(undo(Some("/nowhere/libnvidia-ml.so.1".into()), work.path()), Ok(()));
        let left = Left { index: 0, was_on: false, instances: vec![3] };
        std::fs::write(work.path().join(LEFT_FILE), serde_json::to_vec(&left).unwrap()).unwrap();
        let error = undo(Some("/nowhere/libnvidia-ml.so.1".into()), work.path()).unwrap_err();
        assert!(error.contains("/nowhere/libnvidia-ml.so.1"), "{error}");
    }
}
