//! What is written down of a daemon, in its pipe directory: for the next agent, and for the node's Epilog.

use super::process::Process;
use super::server_program::ServerProgram;
use crate::{MpsPlace, MpsSettings};
use pillion_core::DeviceUuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const RECORD_FILE: &str = "pillion.json";

/// The devices that a daemon serves: one, or several in the order in which its clients see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) device: DeviceUuid,
    pub(super) beside: Vec<DeviceUuid>,
}

impl Served {
    pub(super) fn iter(&self) -> impl Iterator<Item = &DeviceUuid> {
        std::iter::once(&self.device).chain(&self.beside)
    }
}

/// How a daemon was started: what a later agent cannot ask it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) index: u32,
    pub(super) device: DeviceUuid,
    /// The instance of it that it serves; absent: it serves the device.
    #[serde(default)]
    pub(super) instance: Option<DeviceUuid>,
    /// The other devices that it serves, in the order in which its clients see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) beside: Vec<DeviceUuid>,
    pub(super) settings: MpsSettings,
    /// The static SM partition of each tenant, by its whole name. They live as long as the daemon.
    #[serde(default)]
    pub(super) partitions: BTreeMap<String, String>,
    /// Its process, from when it was started.
    #[serde(default)]
    pub(super) pid: Option<u32>,
    /// When that process was started, in the kernel's ticks: no other has both.
    #[serde(default)]
    pub(super) started_ticks: Option<u64>,
    /// The session that it and its servers are in.
    #[serde(default)]
    pub(super) session: Option<u32>,
    /// What its servers run.
    #[serde(default)]
    pub(super) server_program: Option<ServerProgram>,
    /// It was told to end: that it is gone is no death.
    #[serde(default)]
    pub(super) is_quitting: bool,
    /// Its device was closed to all but its MPS server: whoever ends it opens the device, strict or not.
    #[serde(default)]
    pub(super) is_closed: bool,
}

impl Record {
    /// Of a daemon that is to be started.
    pub(super) fn new(place: &MpsPlace, served: &Served, settings: MpsSettings) -> Self {
        Self {
            index: place.index,
            device: served.device.clone(),
            instance: place.instance.clone(),
            beside: served.beside.clone(),
            settings,
            partitions: BTreeMap::new(),
            pid: None,
            started_ticks: None,
            session: None,
            server_program: None,
            is_quitting: false,
            is_closed: false,
        }
    }

    /// Its devices.
    pub(super) fn served(&self) -> Served {
        Served { device: self.device.clone(), beside: self.beside.clone() }
    }

    /// What it serves, where its devices have these numbers now; `None`: one of them is not there.
    pub(super) fn place(&self, devices: &BTreeMap<u32, DeviceUuid>) -> Option<MpsPlace> {
        let index_of = |device| devices.iter().find(|(_, own)| *own == device).map(|(index, _)| *index);
        let beside = self.beside.iter().map(index_of).collect::<Option<Vec<u32>>>()?;
        Some(MpsPlace { index: index_of(&self.device)?, instance: self.instance.clone(), beside })
    }

    pub(super) fn device_count(&self) -> usize {
        1 + self.beside.len()
    }

    /// What its clients see, by names that no other has.
    pub(super) fn serves(&self) -> String {
        match &self.instance {
            Some(instance) => instance.to_string(),
            None => self.served().iter().map(DeviceUuid::as_str).collect::<Vec<_>>().join(","),
        }
    }

    /// Its process, where that was written down whole.
    pub(super) fn process(&self) -> Option<Process> {
        Some(Process::known(self.pid?, self.started_ticks?))
    }

    /// This is its process.
    pub(super) fn take_process(&mut self, process: Process) {
        self.pid = Some(process.pid);
        self.started_ticks = Some(process.started_ticks());
        self.session = process.family().map(|family| family.session);
        self.server_program = ServerProgram::of(process);
    }
}

/// What is written down in this pipe directory, if anything whole is.
pub(super) fn read_record(pipe_directory: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(pipe_directory.join(RECORD_FILE)).ok()?).ok()
}

/// Writes it down.
///
/// # Errors
/// Whatever the file system says.
pub(super) fn write(record: &Record) -> std::io::Result<()> {
    let path = record.settings.pipe_directory.join(RECORD_FILE);
    let new = path.with_extension("new");
    // It names who shares the device: no tenant's business.
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    // Whole, or as it was before.
    std::fs::rename(new, path)
}

/// The pipe directories beneath `directory`, each with the name of its device's directory.
pub(super) fn pipe_directories(directory: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let pipe_directory = entry.path().join("pipe");
            pipe_directory
                .is_dir()
                .then(|| (entry.file_name().to_string_lossy().into_owned(), pipe_directory))
        })
        .collect();
    found.sort();
    found
}
