//! MPS on the machine: who may set a daemon up, who is its client, and what becomes of clients when it goes.

use super::Machine;
use crate::simulated::client::{Client, ClientId, Phase};
use crate::simulated::driver::ClientError;
use crate::simulated::limits::Limits;
use crate::simulated::mps::Daemon;
use crate::{DeviceError, MpsSettings, MpsStatus};
use pillion_core::device::Mechanism;
use pillion_core::{Fraction, UserId};

impl Machine {
    /// Starts the MPS control daemon of a device for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::prepare`.
    pub fn start_mps(
        &mut self,
        caller: UserId,
        index: u32,
        settings: &MpsSettings,
    ) -> Result<(), DeviceError> {
        let device = self.managed(caller, index, Mechanism::Mps)?;
        if device.is_cut() {
            let reason = "MIG is on, and a daemon of the whole device would serve nobody".to_owned();
            return Err(DeviceError::Busy { index, reason });
        }
        match &device.mps {
            Some(running) if running.is_faulted() => {
                let reason = "its MPS server is in state FAULT until all its clients have left".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            Some(running) if running.settings.can_become(settings) => {
                if let Some(daemon) = &mut self.devices[index as usize].mps {
                    daemon.become_as(settings);
                }
                return Ok(());
            }
            Some(_) => {
                let reason = "an MPS control daemon runs there with other settings; stop it first".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            None => {}
        }
        self.put_daemon(index, Daemon::new(settings.clone(), None))
    }

    /// Lets process `pid` of `caller` be the MPS control daemon of a device.
    ///
    /// # Errors
    /// As `MpsControl::prepare`; [`DeviceError::Busy`] if there is one already.
    pub fn serve_mps(
        &mut self,
        caller: UserId,
        pid: u32,
        index: u32,
        settings: MpsSettings,
    ) -> Result<(), DeviceError> {
        if self.managed(caller, index, Mechanism::Mps)?.mps.is_some() {
            let reason = "it has an MPS control daemon".to_owned();
            return Err(DeviceError::Busy { index, reason });
        }
        self.put_daemon(index, Daemon::new(settings, Some(pid)))
    }

    fn put_daemon(&mut self, index: u32, daemon: Daemon) -> Result<(), DeviceError> {
        if daemon.settings.partitions {
            let reason = "simulated MPS has no static SM partitions".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        }
        let pipe_directory = &daemon.settings.pipe_directory;
        if self.devices.iter().any(|other| {
            other.mps.as_ref().is_some_and(|running| running.settings.pipe_directory == *pipe_directory)
        }) {
            let reason = format!("{} belongs to another device's daemon", pipe_directory.display());
            return Err(DeviceError::Refused { index, reason });
        }
        self.devices[index as usize].mps = Some(daemon);
        Ok(())
    }

    /// The process that played a device's control daemon is gone, and its server with it.
    pub fn mps_daemon_ended(&mut self, index: u32, pid: u32) {
        if self
            .devices
            .get(index as usize)
            .and_then(|device| device.mps.as_ref())
            .is_some_and(|daemon| daemon.served_by == Some(pid))
        {
            self.devices[index as usize].mps = None;
            self.fail_mps_clients(index, "the MPS control daemon is gone", |client| {
                matches!(client.phase, Phase::Waiting | Phase::Running)
            });
        }
    }

    /// The server of a device has died; the daemon begins another one for the next client.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps_server_died(&mut self, index: u32) -> Result<(), DeviceError> {
        if let Some(daemon) = self.mps_daemon(index)? {
            daemon.end_server();
        }
        self.fail_mps_clients(index, "the MPS server is gone", |client| client.phase == Phase::Running);
        Ok(())
    }

    fn mps_daemon(&mut self, index: u32) -> Result<Option<&mut Daemon>, DeviceError> {
        self.device(index)?;
        Ok(self.devices[index as usize].mps.as_mut())
    }

    /// What the next server holds its clients to.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn set_mps_defaults(
        &mut self,
        index: u32,
        cap: Option<Fraction>,
        memory_limit_bytes: Option<u64>,
    ) -> Result<(), DeviceError> {
        if let Some(daemon) = self.mps_daemon(index)? {
            daemon.set_defaults(Limits { cap, memory_bytes: memory_limit_bytes });
        }
        Ok(())
    }

    /// What the server that runs holds its next clients to.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn set_mps_server_limits(
        &mut self,
        index: u32,
        cap: Option<Fraction>,
        memory_limit_bytes: Option<u64>,
    ) -> Result<(), DeviceError> {
        if let Some(daemon) = self.mps_daemon(index)? {
            daemon.set_server_limits(Limits { cap, memory_bytes: memory_limit_bytes });
        }
        Ok(())
    }

    /// A client that waits no longer has a server of its user, and what that holds its clients to.
    pub(super) fn begin_mps_server(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_mps()) else { return };
        if let Some(daemon) = &mut self.devices[client.index as usize].mps {
            daemon.begin_server(client.uid);
            client.mps_limits = daemon.limits();
        }
    }

    /// Somebody left: perhaps the last whom a fault had ended.
    pub(super) fn settle_mps(&mut self, index: u32) {
        let clients = self.clients.values().filter(|client| client.index == index && client.is_mps());
        if let Some(daemon) = &mut self.devices[index as usize].mps {
            daemon.settle(clients);
        }
    }

    /// Stops the MPS control daemon of a device for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::release`.
    pub fn stop_mps(&mut self, caller: UserId, index: u32) -> Result<(), DeviceError> {
        self.managed(caller, index, Mechanism::Mps)?;
        let Some(daemon) = &self.devices[index as usize].mps else { return Ok(()) };
        let clients = self
            .on(index)
            .filter(|client| client.is_mps())
            .filter(|client| client.phase == Phase::Waiting || daemon.is_connected(client))
            .count();
        if clients > 0 {
            let reason = format!("its MPS daemon has {clients} clients");
            return Err(DeviceError::Busy { index, reason });
        }
        self.devices[index as usize].mps = None;
        Ok(())
    }

    /// The MPS control daemon of a device.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps(&self, index: u32) -> Result<Option<MpsStatus>, DeviceError> {
        Ok(self.device(index)?.mps_status(self.on(index)))
    }

    /// Ends one MPS client for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::terminate_client`.
    pub fn terminate_mps_client(&mut self, caller: UserId, index: u32, pid: u32) -> Result<(), DeviceError> {
        self.managed(caller, index, Mechanism::Mps)?;
        let ids: Vec<ClientId> = self
            .on(index)
            .filter(|client| client.is_mps() && client.pid == pid && client.phase != Phase::Failed)
            .map(|client| client.id)
            .collect();
        if ids.is_empty() {
            let reason = format!("process {pid} is no MPS client there");
            return Err(DeviceError::Refused { index, reason });
        }
        self.fail_all(index, &ids, &ClientError::Mps { reason: "this client was terminated".to_owned() });
        Ok(())
    }

    /// A fault: one MPS client crashes, its neighbours are told so, and the server blocks until all have left.
    ///
    /// # Errors
    /// As [`Machine::stop_mps`], [`DeviceError::Busy`] excepted.
    pub fn fault_mps(&mut self, caller: UserId, index: u32) -> Result<(), DeviceError> {
        self.managed(caller, index, Mechanism::Mps)?;
        if let Some(daemon) = &mut self.devices[index as usize].mps {
            daemon.fault();
        }
        self.end_mps_clients(index);
        Ok(())
    }

    /// Those who run end with a fault.
    pub(super) fn end_mps_clients(&mut self, index: u32) {
        let reason = "a fault on this device ended all its clients";
        self.fail_mps_clients(index, reason, |client| client.phase == Phase::Running);
    }

    fn fail_mps_clients(&mut self, index: u32, reason: &str, which: impl Fn(&Client) -> bool) {
        let clients = self.on(index).filter(|client| client.is_mps() && which(client));
        let ids: Vec<ClientId> = clients.map(|client| client.id).collect();
        self.fail_all(index, &ids, &ClientError::Mps { reason: reason.to_owned() });
    }
}
