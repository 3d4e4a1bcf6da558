//! MPS on the machine: who may set a daemon up, on a device or in an instance of one, who is its client, and what becomes of clients
//! when it goes.

use super::Machine;
use crate::simulated::client::{Client, ClientId, Phase};
use crate::simulated::driver::ClientError;
use crate::simulated::limits::Limits;
use crate::simulated::mps::Daemon;
use crate::{DeviceError, MpsPlace, MpsSettings, MpsStatus};
use pillion_core::device::Mechanism;
use pillion_core::{DeviceUuid, Fraction, UserId};

/// There is no such instance.
#[derive(Debug, Clone, Copy)]
struct NotThere;

impl Machine {
    /// Starts the MPS control daemon of a place for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::prepare`.
    pub fn start_mps(
        &mut self,
        caller: UserId,
        place: &MpsPlace,
        settings: &MpsSettings,
    ) -> Result<(), DeviceError> {
        let index = place.index;
        self.managed(caller, index, Mechanism::Mps)?;
        let instance = self.served(place)?;
        match self.devices[index as usize].daemons.get(&instance) {
            Some(running) if running.is_faulted() => {
                let reason = "its MPS server is in state FAULT until all its clients have left".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            Some(running) if running.settings.can_become(settings) => {
                if let Some(daemon) = self.devices[index as usize].daemons.get_mut(&instance) {
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
        self.put_daemon(index, instance, Daemon::new(settings.clone(), None))
    }

    /// What a daemon at this place would serve: the number of the GPU instance, or the whole device.
    fn served(&self, place: &MpsPlace) -> Result<Option<u32>, DeviceError> {
        let (index, device) = (place.index, self.device(place.index)?);
        let Some(name) = &place.instance else {
            if device.is_cut() {
                let reason = "MIG is on, and a daemon of the whole device would serve nobody".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            return Ok(None);
        };
        self.instance_named(index, name).map(Some).ok_or_else(|| {
            let reason = format!("it has no instance {name}");
            DeviceError::Refused { index, reason }
        })
    }

    fn instance_named(&self, index: u32, name: &DeviceUuid) -> Option<u32> {
        let division = self.devices.get(index as usize)?.division.as_ref()?;
        let made = division.made.iter().find(|made| made.uuid.as_ref() == Some(name))?;
        Some(made.gpu_instance_id)
    }

    /// Where the daemon of a place stands, if the place is there.
    fn seat(&self, place: &MpsPlace) -> Result<Option<u32>, NotThere> {
        match &place.instance {
            None => Ok(None),
            Some(name) => self.instance_named(place.index, name).map(Some).ok_or(NotThere),
        }
    }

    /// The instances of a device that have an MPS control daemon.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps_instances(&self, index: u32) -> Result<Vec<DeviceUuid>, DeviceError> {
        let device = self.device(index)?;
        let numbers = device.daemons.keys().flatten();
        let made = numbers.filter_map(|id| device.division.as_ref()?.by_id(*id));
        Ok(made.filter_map(|made| made.uuid.clone()).collect())
    }

    /// Lets process `pid` of `caller` be the MPS control daemon of a place.
    ///
    /// # Errors
    /// As `MpsControl::prepare`; [`DeviceError::Busy`] if there is one already.
    pub fn serve_mps(
        &mut self,
        caller: UserId,
        pid: u32,
        place: &MpsPlace,
        settings: MpsSettings,
    ) -> Result<(), DeviceError> {
        let index = place.index;
        self.managed(caller, index, Mechanism::Mps)?;
        // One of the whole device starts whatever its mode, and finds out when a client comes.
        let instance = match &place.instance {
            None => None,
            Some(_) => self.served(place)?,
        };
        if self.devices[index as usize].daemons.contains_key(&instance) {
            let reason = "it has an MPS control daemon".to_owned();
            return Err(DeviceError::Busy { index, reason });
        }
        self.put_daemon(index, instance, Daemon::new(settings, Some(pid)))
    }

    fn put_daemon(&mut self, index: u32, instance: Option<u32>, daemon: Daemon) -> Result<(), DeviceError> {
        if daemon.settings.partitions {
            let reason = "simulated MPS has no static SM partitions".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        }
        let pipe_directory = &daemon.settings.pipe_directory;
        let mut running = self.devices.iter().flat_map(|other| other.daemons.values());
        if running.any(|running| running.settings.pipe_directory == *pipe_directory) {
            let reason = format!("{} belongs to another daemon", pipe_directory.display());
            return Err(DeviceError::Refused { index, reason });
        }
        self.devices[index as usize].daemons.insert(instance, daemon);
        Ok(())
    }

    /// The process that played a control daemon is gone, and its server with it.
    pub fn mps_daemon_ended(&mut self, place: &MpsPlace, pid: u32) {
        let Ok(instance) = self.seat(place) else { return };
        let Some(device) = self.devices.get_mut(place.index as usize) else { return };
        if device.daemons.get(&instance).is_some_and(|daemon| daemon.served_by == Some(pid)) {
            device.daemons.remove(&instance);
            let was_client = |client: &Client| matches!(client.phase, Phase::Waiting | Phase::Running);
            self.fail_mps_clients((place.index, instance), "the MPS control daemon is gone", was_client);
        }
    }

    /// The server of a place has died; the daemon begins another one for the next client.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps_server_died(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        if let Some(daemon) = self.mps_daemon(place)? {
            daemon.end_server();
        }
        let was_client = |client: &Client| client.phase == Phase::Running;
        self.fail_mps_clients((place.index, instance), "the MPS server is gone", was_client);
        Ok(())
    }

    fn mps_daemon(&mut self, place: &MpsPlace) -> Result<Option<&mut Daemon>, DeviceError> {
        self.device(place.index)?;
        let Ok(instance) = self.seat(place) else { return Ok(None) };
        Ok(self.devices[place.index as usize].daemons.get_mut(&instance))
    }

    /// What the next server holds its clients to.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn set_mps_defaults(
        &mut self,
        place: &MpsPlace,
        cap: Option<Fraction>,
        memory_limit_bytes: Option<u64>,
    ) -> Result<(), DeviceError> {
        if let Some(daemon) = self.mps_daemon(place)? {
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
        place: &MpsPlace,
        cap: Option<Fraction>,
        memory_limit_bytes: Option<u64>,
    ) -> Result<(), DeviceError> {
        if let Some(daemon) = self.mps_daemon(place)? {
            daemon.set_server_limits(Limits { cap, memory_bytes: memory_limit_bytes });
        }
        Ok(())
    }

    /// A client that waits no longer has a server of its user, and what that holds its clients to.
    pub(super) fn begin_mps_server(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_mps()) else { return };
        if let Some(daemon) = self.devices[client.index as usize].daemons.get_mut(&client.instance) {
            daemon.begin_server(client.uid);
            client.mps_limits = daemon.limits();
        }
    }

    /// Somebody left: perhaps the last whom a fault had ended.
    pub(super) fn settle_mps(&mut self, index: u32) {
        for (instance, daemon) in &mut self.devices[index as usize].daemons {
            let clients = self.clients.values().filter(|client| client.index == index && client.is_mps());
            daemon.settle(clients.filter(|client| client.instance == *instance));
        }
    }

    /// Stops the MPS control daemon of a place for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::release`.
    pub fn stop_mps(&mut self, caller: UserId, place: &MpsPlace) -> Result<(), DeviceError> {
        let index = place.index;
        self.managed(caller, index, Mechanism::Mps)?;
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        let Some(daemon) = self.devices[index as usize].daemons.get(&instance) else { return Ok(()) };
        let clients = self
            .on(index)
            .filter(|client| client.is_mps() && client.instance == instance)
            .filter(|client| client.phase == Phase::Waiting || daemon.is_connected(client))
            .count();
        if clients > 0 {
            let reason = format!("its MPS daemon has {clients} clients");
            return Err(DeviceError::Busy { index, reason });
        }
        self.devices[index as usize].daemons.remove(&instance);
        Ok(())
    }

    /// The MPS control daemon of a place.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps(&self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        let device = self.device(place.index)?;
        Ok(self.seat(place).ok().and_then(|instance| device.mps_status(instance, self.on(place.index))))
    }

    /// Ends one MPS client for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::terminate_client`.
    pub fn terminate_mps_client(
        &mut self,
        caller: UserId,
        place: &MpsPlace,
        pid: u32,
    ) -> Result<(), DeviceError> {
        let index = place.index;
        self.managed(caller, index, Mechanism::Mps)?;
        let seat = self.seat(place);
        let ids: Vec<ClientId> = self
            .on(index)
            .filter(|client| client.is_mps() && client.pid == pid && client.phase != Phase::Failed)
            .filter(|client| seat.is_ok_and(|seat| seat == client.instance))
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
    pub fn fault_mps(&mut self, caller: UserId, place: &MpsPlace) -> Result<(), DeviceError> {
        self.managed(caller, place.index, Mechanism::Mps)?;
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        if let Some(daemon) = self.mps_daemon(place)? {
            daemon.fault();
        }
        self.end_mps_clients(place.index, instance);
        Ok(())
    }

    /// Those who run there end with a fault.
    pub(super) fn end_mps_clients(&mut self, index: u32, instance: Option<u32>) {
        let reason = "a fault on this device ended all its clients";
        self.fail_mps_clients((index, instance), reason, |client| client.phase == Phase::Running);
    }

    fn fail_mps_clients(
        &mut self,
        (index, instance): (u32, Option<u32>),
        reason: &str,
        which: impl Fn(&Client) -> bool,
    ) {
        let own = self.on(index).filter(|client| client.instance == instance);
        let clients = own.filter(|client| client.is_mps() && which(client));
        let ids: Vec<ClientId> = clients.map(|client| client.id).collect();
        self.fail_all(index, &ids, &ClientError::Mps { reason: reason.to_owned() });
    }
}
