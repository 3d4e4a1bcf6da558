//! The files that lead to instances, as `/dev/nvidia-caps/*` do: plain files with real owners and modes beside the driver's socket, two
//! an instance. Who may read both may open it. They stay when the instance goes, for whoever has its number next.

use super::machine::Machine;
use super::mig::Way;
use pillion_core::UserId;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// The files of one node.
#[derive(Debug)]
pub(super) struct Capabilities {
    folder: PathBuf,
}

impl Capabilities {
    /// Of a driver that comes up: there is none yet.
    pub(super) fn new(socket: &Path) -> Self {
        let folder = socket.with_extension("caps");
        // What a driver before left; without it there is nothing to remove.
        let _ = std::fs::remove_dir_all(&folder);
        Self { folder }
    }

    /// The files of the GPU instance and of its compute instance.
    fn files(&self, index: u32, id: u32) -> [PathBuf; 2] {
        [format!("gpu{index}-gi{id}"), format!("gpu{index}-gi{id}-ci0")].map(|name| self.folder.join(name))
    }

    /// Makes those of instances whose number is new, and gives them the owner and the mode that they have in the driver.
    ///
    /// # Errors
    /// If that is not allowed.
    pub(super) fn write(&self, machine: &Machine, index: u32) -> io::Result<()> {
        for (id, way) in machine.instance_ways(index) {
            for file in self.files(index, id) {
                if !file.exists() {
                    std::fs::create_dir_all(&self.folder)?;
                    std::fs::write(&file, "")?;
                }
                let known = std::fs::metadata(&file)?;
                if known.uid() != way.uid.0 {
                    chown(&file, Some(way.uid.0), None)?;
                }
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(way.mode))?;
            }
        }
        Ok(())
    }

    /// Tells the driver what became of them meanwhile: of two that differ the stricter counts.
    pub(super) fn read(&self, machine: &mut Machine) {
        let indexes: Vec<u32> = machine.descriptions().into_iter().map(|device| device.index).collect();
        for index in indexes {
            for (id, known) in machine.instance_ways(index) {
                if let Some(way) = self.way(index, id).filter(|way| *way != known) {
                    machine.see_instance_way(index, id, way);
                }
            }
        }
    }

    fn way(&self, index: u32, id: u32) -> Option<Way> {
        let [whole, compute] = self.files(index, id);
        let (whole, compute) = (std::fs::metadata(whole).ok()?, std::fs::metadata(compute).ok()?);
        let is_one = whole.uid() == compute.uid();
        let both = whole.mode() & compute.mode() & 0o777;
        Some(Way { uid: UserId(whole.uid()), mode: if is_one { both } else { both & 0o077 } })
    }
}
