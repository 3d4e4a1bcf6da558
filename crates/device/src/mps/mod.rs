//! NVIDIA's Multi-Process Service as it is: one control daemon a place, each in directories of its own, controlled by
//! `nvidia-cuda-mps-control`. Knows processes and what that program prints; nothing of jobs, shares or NVML.
//!
//! ```text
//! DIR/NAME/pipe   where a daemon and its clients meet; its pid file, and our record of how it was started
//! DIR/NAME/log    start.log, what the daemon says; server.log
//! ```
//!
//! NAME is of a device, of an instance of one (MIG), whose daemon serves that instance alone, or of a set of devices, whose daemon
//! serves all of them. No two daemons serve one device, unless each serves an instance of its own.
//!
//! Daemons outlive the agent. The next one finds them beneath DIR and goes on with them.

mod access;
mod cleanup;
mod compute_mode;
mod control;
mod daemon;
mod directories;
mod identity;
mod limits;
mod parse;
mod partition;
mod process;
mod record;
mod scope;
mod server_program;
mod start;
mod state;
mod wait;

pub use access::make_private;
pub use cleanup::{Cleaned, cleanup};
pub use compute_mode::{ComputeMode, ComputeModes, ModeControl};
pub use control::control_binary_default;
pub use process::CONTROL_PROGRAM;
pub use scope::{Scopes, unscoped};

use crate::{DeviceError, MpsControl, MpsPlace, MpsSettings, MpsState, MpsStatus};
use control::Control;
use daemon::Daemon;
use directories::clear;
use pillion_core::device::{DeviceNotice, NoticeKind};
use pillion_core::{DeviceUuid, Fraction};
use record::{Record, Served, pipe_directories, read_record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// At every so manieth [`MpsDaemons::notices`] all daemons are asked how they are, which runs programs; at the others only
/// those of which a process is missing.
const NOTICES_PER_QUESTION: u32 = 5;

/// The control daemons of a node's devices.
pub struct MpsDaemons {
    control_binary: PathBuf,
    directory: PathBuf,
    modes: Option<ModeControl>,
    scopes: Option<Scopes>,
    devices: BTreeMap<u32, DeviceUuid>,
    daemons: BTreeMap<MpsPlace, Daemon>,
    /// Where trouble was told, and its end not yet.
    troubled: BTreeSet<MpsPlace>,
    notices: Vec<DeviceNotice>,
    rounds: u32,
}

impl std::fmt::Debug for MpsDaemons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MpsDaemons").field("daemons", &self.daemons).finish_non_exhaustive()
    }
}

impl MpsDaemons {
    /// Goes on with the daemons of an earlier agent beneath `directory`. That one of them has died meanwhile is told by the
    /// next [`MpsDaemons::notices`].
    ///
    /// `modes`: without them no compute mode is ever set. A device that a strict site cannot close is not shared.
    pub fn new(
        control_binary: PathBuf,
        directory: &Path,
        modes: Option<ModeControl>,
        devices: impl IntoIterator<Item = (u32, DeviceUuid)>,
    ) -> Self {
        let devices: BTreeMap<u32, DeviceUuid> = devices.into_iter().collect();
        let found = pipe_directories(directory).into_iter();
        let found = found.filter_map(|(_, path)| Daemon::adopt(&path).or_else(|| Daemon::mourn(&path)));
        let mut daemons = BTreeMap::new();
        for daemon in found {
            // Its devices may have other indexes now.
            if let Some(place) = daemon.record.place(&devices) {
                daemons.insert(place, daemon);
            }
        }
        let (mut troubled, mut notices) = (BTreeSet::new(), Vec::new());
        for (place, daemon) in &daemons {
            if let Some(trouble) = daemon.obituary() {
                troubled.insert(place.clone());
                notices.extend(of_each(place, &trouble));
            }
        }
        let directory = directory.to_owned();
        let scopes = None;
        Self { control_binary, directory, modes, scopes, devices, daemons, troubled, notices, rounds: 0 }
    }

    /// The same, with control groups of their own for daemons that are started from now on.
    #[must_use]
    pub fn with_scopes(self, scopes: Option<Scopes>) -> Self {
        Self { scopes, ..self }
    }

    /// These are there too.
    pub fn add_devices(&mut self, devices: impl IntoIterator<Item = (u32, DeviceUuid)>) {
        self.devices.extend(devices);
    }

    fn start(&mut self, place: &MpsPlace, record: Record) -> Result<(), DeviceError> {
        let (served, is_closed, index) = (record.served(), record.is_closed, place.index);
        let pipe_directory = record.settings.pipe_directory.clone();
        let control = Control { binary: &self.control_binary, index };
        let modes = &mut self.modes;
        // Of a device that is cut the others are not to be shut out.
        let close = || match modes.as_mut().filter(|_| is_closed) {
            Some(modes) => modes.close(served.iter()),
            None => Ok(()),
        };
        match Daemon::start(control, record, close, self.scopes.as_ref()) {
            Ok(daemon) => {
                self.daemons.insert(place.clone(), daemon);
                self.check(place)?;
                self.is_well(place, "the MPS daemon was started anew");
                Ok(())
            }
            Err(error) => {
                let opened = self.open(place, &served, is_closed);
                // What is written down goes only when it is undone.
                let cleared = opened
                    .map_err(|error| pillion_core::report(&error))
                    .and_then(|()| clear(&pipe_directory));
                if let Err(second) = cleared {
                    tracing::warn!(index, error = second, "what is left of an MPS daemon is not undone yet");
                }
                Err(error)
            }
        }
    }

    fn is_strict(&self) -> bool {
        self.modes.as_ref().is_some_and(|modes| modes.is_strict)
    }

    /// Opens devices that are about to have another daemon, where the site is not strict any more.
    fn reopen(&mut self, place: &MpsPlace, served: &Served, was_closed: bool) -> Result<(), DeviceError> {
        if was_closed && !self.is_strict() { self.open(place, served, true) } else { Ok(()) }
    }

    /// Opens devices again; a daemon in an instance never closed its.
    fn open(&mut self, place: &MpsPlace, served: &Served, is_closed: bool) -> Result<(), DeviceError> {
        match self.modes.as_mut().filter(|_| place.instance.is_none()) {
            Some(modes) => modes.open(served.iter(), is_closed),
            None => Ok(()),
        }
    }

    /// What a daemon left that died while no agent ran.
    fn rest(&self, served: &Served, place: &MpsPlace) -> Vec<Record> {
        let of_place = |record: &Record| record.instance == place.instance && record.served() == *served;
        self.records().filter(of_place).collect()
    }

    /// What is written down of daemons.
    fn records(&self) -> impl Iterator<Item = Record> {
        pipe_directories(&self.directory).into_iter().filter_map(|(_, path)| read_record(&path))
    }

    /// Whether no daemon of another place is in the way. What one left that nobody knows any more goes, unless somebody may still be
    /// its client.
    fn make_way(&self, place: &MpsPlace, served: &Served) -> Result<(), DeviceError> {
        let control = Control { binary: &self.control_binary, index: place.index };
        if let Some(other) = self.daemons.keys().find(|other| other.collides_with(place)) {
            let indexes: Vec<String> = other.indexes().map(|index| index.to_string()).collect();
            let indexes = indexes.join(", ");
            return Err(control.busy(format!("an MPS daemon serves device {indexes}; one device has one")));
        }
        for record in self.records() {
            let has_set = !record.beside.is_empty() || !served.beside.is_empty();
            let theirs = record.served();
            if has_set && theirs != *served && theirs.iter().any(|own| served.iter().any(|it| it == own)) {
                Daemon::make_room(control, &record.settings.pipe_directory)?;
            }
        }
        Ok(())
    }

    /// As [`Backend::notices`](crate::Backend::notices): faults, deaths and their ends, once each. To be called about once
    /// a second: it looks at processes each time, and now and then asks the daemons.
    pub fn notices(&mut self) -> Vec<DeviceNotice> {
        self.rounds = self.rounds.wrapping_add(1);
        let asks_all = self.rounds.is_multiple_of(NOTICES_PER_QUESTION);
        let due = self.daemons.iter().filter(|(_, daemon)| asks_all || daemon.is_disturbed());
        let due: Vec<MpsPlace> = due.map(|(place, _)| place.clone()).collect();
        for place in due {
            if let Err(error) = self.check(&place) {
                tracing::debug!(?place, error = %pillion_core::report(&error), "mps daemon does not say how it is");
            }
        }
        std::mem::take(&mut self.notices)
    }

    fn check(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        let control = Control { binary: &self.control_binary, index: place.index };
        let Some(daemon) = self.daemons.get_mut(place) else { return Ok(()) };
        match daemon.check(control)? {
            Some((NoticeKind::MpsClear, detail)) => self.is_well(place, &detail),
            Some(trouble) => {
                self.troubled.insert(place.clone());
                self.notices.extend(of_each(place, &trouble));
            }
            None => {}
        }
        Ok(())
    }

    /// A place is well again, if it was not; a device is when none of its other instances is in trouble.
    fn is_well(&mut self, place: &MpsPlace, detail: &str) {
        if !self.troubled.remove(place) {
            return;
        }
        let well = of_each(place, &(NoticeKind::MpsClear, detail.to_owned()));
        let is_troubled =
            |index| self.troubled.iter().any(|other| other.indexes().any(|theirs| theirs == index));
        let well: Vec<DeviceNotice> = well.filter(|notice| !is_troubled(notice.index)).collect();
        self.notices.extend(well);
    }

    fn device(&self, index: u32) -> Result<&DeviceUuid, DeviceError> {
        self.devices.get(&index).ok_or(DeviceError::NoSuchDevice { index })
    }

    /// The devices of a place, for a caller who may set MPS up.
    fn allowed(&self, place: &MpsPlace) -> Result<Served, DeviceError> {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            let reason = format!("only root may set up mps; this is uid {}", uid.as_raw());
            return Err(DeviceError::Refused { index: place.index, reason });
        }
        let beside = place.beside.iter().map(|index| self.device(*index).cloned());
        let beside = beside.collect::<Result<_, _>>()?;
        Ok(Served { device: self.device(place.index)?.clone(), beside })
    }
}

/// The same of each of a daemon's devices: whoever is on one of them meets all its clients.
fn of_each(
    place: &MpsPlace,
    (kind, detail): &(NoticeKind, String),
) -> impl Iterator<Item = DeviceNotice> + use<> {
    let (kind, detail) = (*kind, detail.clone());
    let indexes: Vec<u32> = place.indexes().collect();
    indexes.into_iter().map(move |index| DeviceNotice { index, kind, detail: detail.clone() })
}

impl MpsControl for MpsDaemons {
    /// [`DeviceError::NoLibrary`] if there is no control program, [`DeviceError::Unsupported`] if it does not know the
    /// multi-user mode.
    fn prepare(&mut self, place: &MpsPlace, settings: &MpsSettings) -> Result<(), DeviceError> {
        let index = place.index;
        let served = self.allowed(place)?;
        if settings.partitions && !place.beside.is_empty() {
            let reason = "static SM partitions are one device's, and this daemon serves several".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        }
        self.check(place)?;
        let binary = self.control_binary.clone();
        let control = Control { binary: &binary, index };
        if let Some(daemon) = self.daemons.get_mut(place) {
            match daemon.state {
                // It ends, if it has not yet: whoever comes now has a new one.
                _ if daemon.is_quitting() => {}
                MpsState::Fault => {
                    let reason = "its MPS server is in state FAULT until all its clients have left";
                    return Err(control.busy(reason.to_owned()));
                }
                MpsState::Died => {}
                _ if !daemon.record.settings.can_become(settings) => {
                    let reason = "an MPS daemon runs there with other settings; stop it first";
                    return Err(control.busy(reason.to_owned()));
                }
                _ => {
                    daemon.state = state::resume(daemon.state);
                    return daemon.become_as(control, settings);
                }
            }
            if let Some(pid) = daemon.holders().first() {
                let reason = format!("its MPS daemon ends or died, and client {pid} of it still runs");
                return Err(control.busy(reason));
            }
            if let Some(pid) = daemon.orphaned_server() {
                return Err(
                    control.busy(format!("MPS server {pid} outlives its daemon, perhaps with clients"))
                );
            }
            daemon.discard(control)?;
            let was_closed = daemon.record.is_closed;
            let pipe_directory = daemon.record.settings.pipe_directory.clone();
            self.reopen(place, &served, was_closed)?;
            // A server that outlived its daemon would keep the next one from coming up.
            clear(&pipe_directory).map_err(|error| control.busy(error))?;
            self.daemons.remove(place);
        }
        self.make_way(place, &served)?;
        let was_closed = self.rest(&served, place).iter().any(|record| record.is_closed);
        self.reopen(place, &served, was_closed)?;
        Daemon::make_room(control, &settings.pipe_directory)?;
        let is_closed = self.is_strict() && place.instance.is_none();
        self.start(place, Record { is_closed, ..Record::new(place, &served, settings.clone()) })
    }

    /// The compute mode of its devices is the default again. [`DeviceError::Busy`] also if the daemon or its server does not end.
    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        let index = place.index;
        let served = self.allowed(place)?;
        self.check(place)?;
        let Some(daemon) = self.daemons.get_mut(place) else {
            let rest = self.rest(&served, place);
            // Of one that another daemon has to itself nothing is opened.
            if !self.daemons.keys().any(|other| other.collides_with(place)) {
                self.open(place, &served, rest.iter().any(|record| record.is_closed))?;
            }
            let mut left = rest.iter().map(|record| clear(&record.settings.pipe_directory));
            let binary = &self.control_binary;
            return left.try_for_each(|it| it.map_err(|error| Control { binary, index }.busy(error)));
        };
        daemon.end(Control { binary: &self.control_binary, index })?;
        let is_closed = daemon.record.is_closed;
        // Before the record goes: what fails now is tried again.
        self.open(place, &served, is_closed)?;
        if let Some(daemon) = self.daemons.get(place) {
            daemon.clear_away(Control { binary: &self.control_binary, index })?;
        }
        self.daemons.remove(place);
        self.is_well(place, "what was left of the MPS daemon was cleared away");
        Ok(())
    }

    /// A daemon that died is there until it was cleared away. [`DeviceError::NoAnswer`] from one that runs and does not answer.
    fn status(&mut self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        self.device(place.index)?;
        self.check(place)?;
        let there = self.daemons.get(place).filter(|daemon| !daemon.has_quit());
        Ok(there.map(|daemon| MpsStatus {
            settings: daemon.record.settings.clone(),
            state: daemon.state,
            server_uid: daemon.server_uid(),
            client_pids: daemon.client_pids(),
        }))
    }

    fn terminate_client(&mut self, place: &MpsPlace, pid: u32) -> Result<(), DeviceError> {
        self.allowed(place)?;
        let control = Control { binary: &self.control_binary, index: place.index };
        match self.daemons.get(place) {
            Some(daemon) => daemon.terminate(control, pid),
            None => Err(control.refused(format!("process {pid} is no MPS client there"))),
        }
    }

    fn add_partition(
        &mut self,
        place: &MpsPlace,
        tenant: &str,
        cap: Fraction,
    ) -> Result<String, DeviceError> {
        self.allowed(place)?;
        let control = Control { binary: &self.control_binary, index: place.index };
        match self.daemons.get_mut(place) {
            Some(daemon) => daemon.add_partition(control, tenant, cap),
            None => Err(control.refused("no MPS daemon runs there".to_owned())),
        }
    }

    fn keep_partitions(&mut self, place: &MpsPlace, tenants: &BTreeSet<String>) -> Result<(), DeviceError> {
        self.allowed(place)?;
        let control = Control { binary: &self.control_binary, index: place.index };
        match self.daemons.get_mut(place).filter(|daemon| daemon.state != MpsState::Died) {
            Some(daemon) => daemon.keep_partitions(control, tenants),
            None => Ok(()),
        }
    }

    fn instances(&mut self, index: u32) -> Result<Vec<DeviceUuid>, DeviceError> {
        let device = self.device(index)?;
        let ran = self.daemons.keys().filter(|place| place.index == index);
        let ran = ran.filter_map(|place| place.instance.clone());
        let left = self.records().filter(|record| record.device == *device);
        let left = left.filter_map(|record| record.instance);
        Ok(ran.chain(left).collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Those of which all devices are there.
    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError> {
        let left = self.records().filter_map(|record| record.place(&self.devices));
        let all: BTreeSet<MpsPlace> = self.daemons.keys().cloned().chain(left).collect();
        Ok(all.into_iter().filter(|place| !place.beside.is_empty()).collect())
    }
}
