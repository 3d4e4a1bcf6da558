//! What of a node's instances is ours: on disk before anything is done, so that an agent that starts again, or an Epilog where
//! none runs, goes on from wherever the last one stopped. What is not in it is somebody else's.
//!
//! One at a time has it open, by a lock that ends with its process: the agent, or the Epilogs of a node without one.

use crate::disk;
use pillion_core::mig::Slot;
use pillion_core::{DeviceUuid, JobStart, UserId};
use pillion_device::mechanism::mig::{Instance, Layout};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Whom an instance is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// The start that has a share of it.
    pub start: JobStart,
    /// Its user, whose the way to the instance is.
    pub uid: UserId,
}

/// An instance as the driver named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Of its compute instance: what a job is told.
    pub uuid: DeviceUuid,
    /// Of its GPU instance.
    pub gpu_instance_id: u32,
}

/// One instance of ours, from before it is made until it is seen to be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ours {
    /// Its size and its place.
    pub slot: Slot,
    /// What it became; absent: it is about to be made.
    pub made: Option<Made>,
    /// Whether it is to go: a destroy may have taken its compute instance.
    pub is_leaving: bool,
    /// Whom it is for; absent: it is what an empty device rests in.
    pub tenant: Option<Tenant>,
}

impl Ours {
    /// This instance, if the device has it. What is about to be made is whatever lies where nothing lay; what was made is known by
    /// its UUID, or, without a compute instance, by its number.
    pub fn find<'a>(&self, layout: &'a Layout) -> Option<&'a Instance> {
        layout.instances.iter().filter(|instance| instance.slot == self.slot).find(|instance| {
            match (&self.made, instance.compute.as_slice()) {
                (None, compute) => compute.len() <= 1,
                (Some(made), []) => instance.gpu_instance_id == made.gpu_instance_id,
                (Some(made), [compute]) => compute.uuid == made.uuid,
                (Some(_), _) => false,
            }
        })
    }
}

/// What of one device is ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfDevice {
    /// Whether it was us who turned MIG on: then it is off again on an empty device.
    pub is_mode_ours: bool,
    /// Our instances.
    pub ours: Vec<Ours>,
}

impl OfDevice {
    /// The entry of a slot.
    pub fn at(&self, slot: Slot) -> Option<&Ours> {
        self.ours.iter().find(|ours| ours.slot == slot)
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut Ours> {
        self.ours.iter_mut().find(|ours| ours.slot == slot)
    }

    /// Whether there is nothing of ours.
    pub fn is_nothing(&self) -> bool {
        !self.is_mode_ours && self.ours.is_empty()
    }

    /// Those that the device has and we did not make.
    pub fn foreign<'a>(&self, layout: &'a Layout) -> Vec<&'a Instance> {
        let own: Vec<&Instance> = self.ours.iter().filter_map(|ours| ours.find(layout)).collect();
        layout.instances.iter().filter(|instance| !own.contains(instance)).collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// The machine's boot: no instance outlives it.
    boot_id: String,
    devices: Vec<(DeviceUuid, OfDevice)>,
}

/// The record, and the right to change it.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    written: Written,
    /// Whoever has the file open has the lock.
    _lock: File,
}

/// Where it lies in the agent's state directory.
pub fn path(state_directory: &Path) -> PathBuf {
    state_directory.join("mig.json")
}

/// Whether something of ours was written down there.
pub fn is_there(path: &Path) -> bool {
    path.exists()
}

/// Whether something is ours now, without the right to change it.
pub fn has_devices(path: &Path, boot_id: &str) -> bool {
    of_this_boot(path, boot_id).next().is_some()
}

/// What is written there of a device, without the right to change it.
pub fn peek(path: &Path, boot_id: &str, device: &DeviceUuid) -> OfDevice {
    of_this_boot(path, boot_id).find(|(uuid, _)| uuid == device).map(|(_, of)| of).unwrap_or_default()
}

fn of_this_boot(path: &Path, boot_id: &str) -> impl Iterator<Item = (DeviceUuid, OfDevice)> + use<> {
    let written: Written =
        std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let is_of_it = written.boot_id == boot_id;
    written.devices.into_iter().filter(move |_| is_of_it)
}

impl Record {
    /// Opens the record, waiting so long for whoever has it. What an earlier boot wrote is forgotten.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody has it all the while, or what the disk says.
    pub fn open(path: PathBuf, boot_id: &str, patience: Duration) -> io::Result<Self> {
        let lock = lock(&path.with_extension("lock"), patience)?;
        let mut written: Written = disk::read_or_default(&path);
        if written.boot_id != boot_id {
            written = Written { boot_id: boot_id.to_owned(), devices: Vec::new() };
        }
        Ok(Self { path, written, _lock: lock })
    }

    /// What of a device is ours.
    pub fn device(&self, device: &DeviceUuid) -> OfDevice {
        let known = self.written.devices.iter().find(|(uuid, _)| uuid == device);
        known.map(|(_, of)| of.clone()).unwrap_or_default()
    }

    /// The devices of which something is.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceUuid> {
        self.written.devices.iter().map(|(uuid, _)| uuid)
    }

    /// Writes down what of a device is ours from now on; through to the disk before it returns.
    ///
    /// # Errors
    /// What the disk says; then it is as it was.
    pub fn put(&mut self, device: &DeviceUuid, of_device: OfDevice) -> io::Result<()> {
        if self.device(device) == of_device {
            return Ok(());
        }
        let mut written = self.written.clone();
        written.devices.retain(|(uuid, _)| uuid != device);
        if !of_device.is_nothing() {
            written.devices.push((device.clone(), of_device));
        }
        disk::replace(&self.path, &written, true)?;
        self.written = written;
        Ok(())
    }
}

fn lock(path: &Path, patience: Duration) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    let until = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> OfDevice {
        let slot = "1g.10gb@6".parse().unwrap();
        OfDevice {
            is_mode_ours: true,
            ours: vec![Ours { slot, made: None, is_leaving: false, tenant: None }],
        }
    }

    #[test]
    fn what_was_written_is_there_after_a_crash_and_gone_after_a_boot() {
        let directory = tempfile::tempdir().unwrap();
        let file = path(directory.path());
        let device = DeviceUuid::new("GPU-3");
        let open = |boot: &str| Record::open(file.clone(), boot, Duration::from_millis(500));
        let mut record = open("boot 1").unwrap();
        record.put(&device, ours()).unwrap();
        assert_eq!(open("boot 1").unwrap_err().kind(), io::ErrorKind::WouldBlock, "one at a time");
        assert_eq!(peek(&file, "boot 1", &device), ours());
        assert_eq!(peek(&file, "boot 2", &device), OfDevice::default());
        drop(record);
        assert_eq!(open("boot 1").unwrap().device(&device), ours());
        let mut record = open("boot 2").unwrap();
        assert_eq!(record.device(&device), OfDevice::default());
        record.put(&device, ours()).unwrap();
        record.put(&device, OfDevice::default()).unwrap();
        assert_eq!(record.devices().count(), 0, "of a device without any nothing is kept");
    }

    #[test]
    fn what_cannot_be_written_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mig.json");
        let mut record = Record::open(file.clone(), "1", Duration::from_millis(500)).unwrap();
        std::fs::create_dir(file.with_extension("new")).unwrap();
        assert!(record.put(&DeviceUuid::new("GPU-3"), ours()).is_err());
        assert_eq!(record.device(&DeviceUuid::new("GPU-3")), OfDevice::default());
    }
}
