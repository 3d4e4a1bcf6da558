//! One control daemon: started or found, asked how it is, stopped. Its directories and a record of how it was started lie
//! where the next agent finds them.

use super::control::Control;
use super::identity::{daemon_at, servers};
use super::parse::{self, ServerStatus, garbled};
use super::partition;
use super::process::Process;
use super::record::{Record, read_record, write};
use super::scope::{Scopes, enclose};
use super::start;
use super::state::{self, Finding, Sight};
use super::wait::until;
use super::{access, directories, limits};
use crate::{DeviceError, MpsSettings, MpsState};
use pillion_core::device::NoticeKind;
use pillion_core::{Fraction, UserId};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Child;

/// A control daemon that was started, by us or by an agent before us.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) record: Record,
    pub(super) state: MpsState,
    process: Process,
    /// It is our child: somebody must bury it.
    child: Option<Child>,
    sight: Sight,
    servers: Vec<Process>,
    clients: Vec<Process>,
    /// It died before its clients could be asked for.
    has_unknown_clients: bool,
    /// It lives and did not answer the last question: it is not asked oftener than need be.
    is_not_responding: bool,
}

impl Daemon {
    /// Makes room for a daemon at `pipe_directory`.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while another one is there, or a server of one, perhaps with clients.
    pub(super) fn make_room(control: Control<'_>, pipe_directory: &Path) -> Result<(), DeviceError> {
        if let Some(server) = servers(pipe_directory).first() {
            let reason = format!("MPS server {} outlives its daemon, perhaps with clients", server.pid);
            return Err(control.busy(reason));
        }
        directories::clear(pipe_directory).map_err(|error| control.busy(error))
    }

    /// Starts it, and waits until it answers. `close`: what is done to its device before, once it is written down. `scopes`: how it
    /// gets a control group of its own; where it gets none it serves all the same.
    ///
    /// # Errors
    /// As `MpsControl::prepare`; then it does not run, and its directory is there still: what is written down in it may
    /// have to be undone.
    pub(super) fn start(
        control: Control<'_>,
        mut record: Record,
        close: impl FnOnce() -> Result<(), DeviceError>,
        scopes: Option<&Scopes>,
    ) -> Result<Self, DeviceError> {
        let settings = &record.settings;
        directories::make(control, settings)?;
        // Before the daemon: one without a record would be found by nobody.
        write_down(control, &record)?;
        close()?;
        let mut child = control.serve(&record.serves(), settings)?;
        record.pid = Some(child.id());
        let begun = write_down(control, &record).and_then(|()| {
            enclose(scopes, &record.settings.pipe_directory, child.id());
            start::begin(control, &record, &mut child)
        });
        let written = begun.and_then(|process| {
            record.take_process(process);
            write_down(control, &record).map(|()| process)
        });
        match written {
            Ok(process) => Ok(Self::new(record, process, Some(child))),
            Err(error) => {
                // Nobody is its client yet. A daemon that cannot be buried has ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn new(record: Record, process: Process, child: Option<Child>) -> Self {
        Self {
            record,
            state: MpsState::Starting,
            process,
            child,
            sight: Sight::default(),
            servers: Vec::new(),
            clients: Vec::new(),
            has_unknown_clients: false,
            is_not_responding: false,
        }
    }

    /// The daemon whose pipe directory this is, if it was ours and runs.
    pub(super) fn adopt(pipe_directory: &Path) -> Option<Self> {
        let process = daemon_at(pipe_directory)?;
        read_record(pipe_directory).map(|record| Self::new(record, process, None))
    }

    /// The daemon that ran there and is gone, which nobody had told to end: it died while no agent looked.
    pub(super) fn mourn(pipe_directory: &Path) -> Option<Self> {
        let record = read_record(pipe_directory).filter(|record| !record.is_quitting)?;
        let process = Process::ended(record.pid?);
        Some(Self { state: MpsState::Died, has_unknown_clients: true, ..Self::new(record, process, None) })
    }

    /// What is to be told of one that died while no agent looked.
    pub(super) fn obituary(&self) -> Option<(NoticeKind, String)> {
        let detail = || state::detail(Finding::DaemonLost, self.process.pid, &self.sight);
        self.has_unknown_clients.then(|| (NoticeKind::MpsDied, detail()))
    }

    /// A server that outlives it, whose clients nobody knows.
    pub(super) fn orphaned_server(&self) -> Option<u32> {
        let found = self.has_unknown_clients.then(|| servers(self.pipe_directory()));
        found?.first().map(|server| server.pid)
    }

    /// Changes what can be changed of it while it runs.
    ///
    /// # Errors
    /// As `MpsControl::prepare`; then it is told again the next time.
    pub(super) fn become_as(
        &mut self,
        control: Control<'_>,
        settings: &MpsSettings,
    ) -> Result<(), DeviceError> {
        if self.record.settings == *settings {
            return Ok(());
        }
        access::let_in(&settings.pipe_directory, &settings.users)
            .map_err(|error| control.refused(format!("its pipe directory cannot be shut: {error}")))?;
        limits::set_all(control, settings, self.record.device_count())?;
        self.record.settings = settings.clone();
        write(&self.record)
            .map_err(|error| control.refused(format!("cannot write down how it runs: {error}")))
    }

    fn pipe_directory(&self) -> &Path {
        &self.record.settings.pipe_directory
    }

    /// Whether its processes alone show that something has happened: it costs next to nothing.
    pub(super) fn is_disturbed(&self) -> bool {
        if self.has_quit() || self.state == MpsState::Died {
            return false;
        }
        !self.process.is_alive()
            || !self.is_not_responding && self.servers.iter().any(|server| !server.is_alive())
    }

    /// Whether it was told to end, and is to be waited for.
    pub(super) fn is_quitting(&self) -> bool {
        self.record.is_quitting
    }

    /// Whether it has ended as it was told, which took nobody's server away; its directories may be there still.
    pub(super) fn has_quit(&self) -> bool {
        self.is_quitting() && self.state != MpsState::Died && !self.process.is_alive()
    }

    /// Asks it how it is. `Some`: what is worth telling of each of its devices.
    ///
    /// # Errors
    /// [`DeviceError::NoAnswer`] and the like, from a daemon that lives and does not answer; its state stays as it was.
    pub(super) fn check(
        &mut self,
        control: Control<'_>,
    ) -> Result<Option<(NoticeKind, String)>, DeviceError> {
        if self.state == MpsState::Died {
            return Ok(None);
        }
        if !self.process.is_alive() {
            self.bury();
            let is_loss = !self.is_quitting();
            return Ok(is_loss.then(|| self.step(Finding::DaemonLost)).flatten());
        }
        Control::trim_log(&self.record.settings);
        let seen = self.see(control);
        self.is_not_responding = seen.is_err();
        let now = seen?;
        let orphans: Vec<u32> = self
            .clients
            .iter()
            .filter(|client| !now.client_pids.contains(&client.pid) && client.is_alive())
            .map(|client| client.pid)
            .collect();
        let finding = state::find(&self.sight, &now, &orphans);
        if finding != Finding::ServerLost {
            self.clients = now.client_pids.iter().filter_map(|pid| Process::find(*pid)).collect();
            self.servers = now.servers.iter().filter_map(|(pid, _)| Process::find(*pid)).collect();
            self.sight = now;
        }
        Ok(self.step(finding))
    }

    fn see(&self, control: Control<'_>) -> Result<Sight, DeviceError> {
        let ask = |text: &str| control.ask(self.pipe_directory(), text);
        let mut sight = Sight::default();
        for pid in parse::servers(&ask("get_server_list")?).map_err(|it| garbled(&it))? {
            let status = parse::server_status(pid, &ask(&format!("get_server_status {pid}"))?);
            let clients = parse::server_clients(pid, &ask(&format!("get_client_list {pid}"))?);
            // One that ends between the questions is as good as gone before them.
            let both = status.map_err(|it| garbled(&it))?.zip(clients.map_err(|it| garbled(&it))?);
            if let Some((status, client_pids)) = both {
                sight.servers.push((pid, status));
                // Whether one that uses several devices is named once is not documented.
                for client in client_pids {
                    if !sight.client_pids.contains(&client) {
                        sight.client_pids.push(client);
                    }
                }
            }
        }
        Ok(sight)
    }

    fn step(&mut self, finding: Finding) -> Option<(NoticeKind, String)> {
        let (next, kind) = state::observe(self.state, finding);
        self.state = next;
        kind.map(|kind| (kind, state::detail(finding, self.process.pid, &self.sight)))
    }

    /// The clients of the last sample.
    pub(super) fn client_pids(&self) -> Vec<u32> {
        self.sight.client_pids.clone()
    }

    /// Whose the server of the last sample is.
    pub(super) fn server_uid(&self) -> Option<UserId> {
        self.servers.last()?.uid()
    }

    fn has_server(&self, pid: u32) -> bool {
        self.servers.iter().any(|server| server.pid == pid)
    }

    /// Lets one client go in the clean way.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if it is no client, or the server says no.
    pub(super) fn terminate(&self, control: Control<'_>, pid: u32) -> Result<(), DeviceError> {
        let rows = parse::clients(&control.ask(self.pipe_directory(), "ps")?).map_err(|it| garbled(&it))?;
        // A name may look like a row of another: a server that was seen goes before any other.
        let own = rows.iter().filter(|row| row.pid == pid);
        let Some(row) = own.max_by_key(|row| self.has_server(row.server_pid)) else {
            return Err(control.refused(format!("process {pid} is no MPS client there")));
        };
        let answer =
            control.ask(self.pipe_directory(), &format!("terminate_client {} {pid}", row.server_pid))?;
        parse::terminated(&answer).map_err(|error| control.refused(error.to_string()))
    }

    /// Gives `tenant` as many chunks as `cap` is of all, as far as they are free, or what it has already. Returns the
    /// partition's name.
    ///
    /// # Errors
    /// As `MpsControl::add_partition`.
    pub(super) fn add_partition(
        &mut self,
        control: Control<'_>,
        tenant: &str,
        cap: Fraction,
    ) -> Result<String, DeviceError> {
        if let Some(name) = self.record.partitions.get(tenant) {
            return Ok(name.clone());
        }
        if !self.record.settings.partitions {
            let reason = "its MPS daemon runs without static SM partitions".to_owned();
            return Err(DeviceError::Unsupported { index: control.index, reason });
        }
        let before = self.partition_table(control)?;
        let count = partition::chunks(cap, &before);
        let count =
            count.ok_or_else(|| control.busy(format!("all {} chunks of it are taken", before.used)))?;
        let answer =
            control.ask(self.pipe_directory(), &format!("sm_partition add {} {count}", self.record.device));
        let name = answer.and_then(|answer| {
            let name = partition::created(&self.record.device, &answer);
            name.map_err(|error| control.refused(error.to_string()))
        });
        let name = name.inspect_err(|_| self.remove_unnamed(control, &before))?;
        self.record.partitions.insert(tenant.to_owned(), name.clone());
        if let Err(error) = write(&self.record) {
            // One that the next agent does not know of would be kept for ever.
            self.remove_partition(control, tenant)?;
            return Err(control.refused(format!("cannot write down a partition: {error}")));
        }
        Ok(name)
    }

    /// Removes what a failed `sm_partition add` may have made all the same: it would be kept for ever.
    fn remove_unnamed(&self, control: Control<'_>, before: &partition::Table) {
        let device = &self.record.device;
        let removed = self.partition_table(control).and_then(|after| {
            for partition in after.new_since(before) {
                control.ask(self.pipe_directory(), &format!("sm_partition rm {device} {partition}"))?;
            }
            self.partition_table(control)
        });
        match removed {
            Ok(after) if after.free >= before.free => {}
            Ok(after) => {
                let lost = before.free - after.free;
                tracing::warn!(%device, "a failed sm_partition add keeps {lost} chunks until the MPS daemon stops");
            }
            Err(error) => {
                let error = pillion_core::report(&error);
                tracing::warn!(%device, error, "what a failed sm_partition add made may stay until the MPS daemon stops");
            }
        }
    }

    /// Removes the partitions of all but `tenants`.
    ///
    /// # Errors
    /// As `MpsControl::keep_partitions`.
    pub(super) fn keep_partitions(
        &mut self,
        control: Control<'_>,
        tenants: &BTreeSet<String>,
    ) -> Result<(), DeviceError> {
        let left: Vec<String> =
            self.record.partitions.keys().filter(|tenant| !tenants.contains(*tenant)).cloned().collect();
        for tenant in left {
            self.remove_partition(control, &tenant)?;
            write(&self.record)
                .map_err(|error| control.refused(format!("cannot write down the partitions: {error}")))?;
        }
        Ok(())
    }

    fn remove_partition(&mut self, control: Control<'_>, tenant: &str) -> Result<(), DeviceError> {
        let device = &self.record.device;
        let Some(name) = self.record.partitions.get(tenant) else { return Ok(()) };
        // The UUID ends at the first slash; the rest may hold more of them.
        let partition = name.split_once('/').map_or(name.as_str(), |(_, partition)| partition).to_owned();
        let command = format!("sm_partition rm {device} {partition}");
        let answer = control.ask(self.pipe_directory(), &command);
        // What is printed of a refusal is not documented: the table tells.
        if self.partition_table(control)?.holds(&partition) {
            let said = answer.unwrap_or_else(|error| pillion_core::report(&error));
            return Err(control.busy(format!("the SM partition of {tenant} stays: {}", said.trim())));
        }
        self.record.partitions.remove(tenant);
        Ok(())
    }

    fn partition_table(&self, control: Control<'_>) -> Result<partition::Table, DeviceError> {
        partition::table(&control.ask(self.pipe_directory(), "lspart")?).map_err(|it| garbled(&it))
    }

    /// Who keeps it from being ended: its clients; those of a daemon that died, as long as they run.
    pub(super) fn holders(&self) -> Vec<u32> {
        if self.state == MpsState::Died {
            self.clients.iter().filter(|client| client.is_alive()).map(|client| client.pid).collect()
        } else {
            self.client_pids()
        }
    }

    /// Whether its server still comes up: it does so for a client, which is named only once it has.
    fn awaits_client(&self) -> bool {
        self.state != MpsState::Died
            && self.sight.servers.iter().any(|(_, status)| *status == ServerStatus::Initializing)
    }

    /// Whether somebody keeps it from being ended, named or not yet.
    pub(super) fn is_held(&self) -> bool {
        !self.holders().is_empty() || self.awaits_client()
    }

    /// Ends it, if nobody is its client. Its directories stay, until they are [taken away](Self::clear_away).
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while it has clients, or clients of a daemon that died still run; or if it does not end.
    pub(super) fn end(&mut self, control: Control<'_>) -> Result<(), DeviceError> {
        let holders = self.holders();
        if !holders.is_empty() {
            self.state = state::drain(self.state);
            return Err(control.busy(format!("its MPS daemon has {} clients: {holders:?}", holders.len())));
        }
        if self.awaits_client() {
            self.state = state::drain(self.state);
            return Err(control.busy("its MPS server comes up for a client".to_owned()));
        }
        self.discard(control)
    }

    /// Takes away what is left of one that has ended.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if a server of it does not end.
    pub(super) fn clear_away(&self, control: Control<'_>) -> Result<(), DeviceError> {
        directories::clear(self.pipe_directory()).map_err(|error| control.busy(error))?;
        let log_directory = &self.record.settings.log_directory;
        // The log of one that died is kept for whoever asks why.
        let removed = (self.state != MpsState::Died).then(|| std::fs::remove_dir_all(log_directory));
        if let Some(Err(error)) = removed {
            // The device is free all the same.
            tracing::warn!(path = %log_directory.display(), %error, "the log of an MPS daemon stays");
        }
        Ok(())
    }

    /// Ends the control daemon, if it still runs.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if it does not end.
    pub(super) fn discard(&mut self, control: Control<'_>) -> Result<(), DeviceError> {
        if self.process.is_alive() {
            // Before it is told: it may take longer than we wait.
            self.record.is_quitting = true;
            if let Err(error) = write(&self.record) {
                tracing::warn!(device = %self.record.device, %error, "that an MPS daemon is to end is not written down");
            }
            let said = match control.ask(self.pipe_directory(), "quit") {
                Ok(words) => words,
                // That is the daemon's own exit status: one of its servers had died.
                Err(DeviceError::Refused { reason, .. }) => reason,
                Err(error) => return Err(error),
            };
            if !until(|| !self.process.is_alive()) {
                let words = format!("MPS daemon {} does not end: {}", self.process.pid, said.trim());
                return Err(control.busy(words.trim_end_matches([':', ' ']).to_owned()));
            }
        }
        self.bury();
        Ok(())
    }

    fn bury(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It has ended, or somebody else's `wait` had it.
            let _ = child.wait();
        }
    }
}

fn write_down(control: Control<'_>, record: &Record) -> Result<(), DeviceError> {
    write(record).map_err(|error| control.refused(format!("cannot write down how it runs: {error}")))
}
