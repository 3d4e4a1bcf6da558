//! A small disk for a folder of a cluster, so that it can be filled without harm to anybody else.

use super::Cluster;
use crate::error::{Result, io_error, system_error};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

/// What a full disk is full of.
const FILLER: &str = "filler";

impl Cluster {
    /// Puts a disk of so many MiB, in memory, under a folder, which is made if need be. Before anybody works in it.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn small_disk(&mut self, folder: &str, size_mib: u32) -> Result<()> {
        let path = self.layout().path(folder);
        fs::create_dir_all(&path).map_err(io_error("make folder", &path))?;
        let options = CString::new(format!("size={size_mib}m,mode=755")).expect("it holds no zero byte");
        mount("tmpfs", &path, "tmpfs", MountFlags::NOSUID, options.as_c_str())
            .map_err(system_error(format!("mount memory at {}", path.display())))?;
        self.disks.push(path);
        Ok(())
    }

    /// Fills such a disk to its last block.
    ///
    /// # Errors
    /// Where it cannot be written, but for being full.
    pub fn fill_disk(&self, folder: &str) -> Result<()> {
        let path = self.layout().path(folder).join(FILLER);
        let mut file = File::create(&path).map_err(io_error("write", &path))?;
        for size in [1 << 20, 1 << 12, 1] {
            let block = vec![0_u8; size];
            loop {
                match file.write_all(&block) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(io_error("write", &path)(error)),
                }
            }
        }
        Ok(())
    }

    /// Gives it its room back, where nobody did before.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub fn empty_disk(&self, folder: &str) -> Result<()> {
        let path = self.layout().path(folder).join(FILLER);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Takes the disks away, last first.
    pub(super) fn remove_disks(&mut self) -> Result<()> {
        while let Some(path) = self.disks.pop() {
            unmount(&path, UnmountFlags::DETACH)
                .map_err(system_error(format!("take the disk at {} away", path.display())))?;
        }
        Ok(())
    }
}
