//! MPS on the machine: who may set a daemon up, on a device, in an instance of one or on several, who is its client, and what becomes
//! of clients when it goes.

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

/// The limits of one of a daemon's devices after the other.
fn each_limit(cap: Option<Fraction>, memory_limits_bytes: &[Option<u64>]) -> impl FnMut() -> Limits {
    let mut each = memory_limits_bytes.iter();
    move || Limits { cap, memory_bytes: each.next().copied().flatten() }
}

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
        let instance = self.may_serve(caller, place)?;
        match self.devices[index as usize].daemons.get(&instance) {
            Some(running) if running.is_faulted() => {
                let reason = "its MPS server is in state FAULT until all its clients have left".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            Some(running) if running.settings.can_become(settings) => {
                return self.each_daemon(place, |daemon| daemon.become_as(settings));
            }
            Some(_) => {
                let reason = "an MPS control daemon runs there with other settings; stop it first".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            None => {}
        }
        self.put_daemon(place, instance, &Daemon::new(settings.clone(), place, None))
    }

    /// Whether `caller` may have a daemon serve this place, and which instance that is.
    fn may_serve(&self, caller: UserId, place: &MpsPlace) -> Result<Option<u32>, DeviceError> {
        for index in place.indexes() {
            self.managed(caller, index, Mechanism::Mps)?;
        }
        let instance = self.served(place)?;
        for index in place.indexes() {
            let device = self.device(index)?;
            if index != place.index && device.is_cut() {
                let reason = "MIG is on, and a daemon of several devices would not serve it".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
            if device.daemons.get(&instance).is_some_and(|daemon| !daemon.is_of(place)) {
                let reason = "an MPS control daemon serves it with other devices; stop it first".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
        }
        Ok(instance)
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
        for index in place.indexes() {
            self.managed(caller, index, Mechanism::Mps)?;
        }
        // One of the whole device starts whatever its mode, and finds out when a client comes.
        let instance = match &place.instance {
            None => None,
            Some(_) => self.served(place)?,
        };
        for index in place.indexes() {
            if self.devices[index as usize].daemons.contains_key(&instance) {
                let reason = "it has an MPS control daemon".to_owned();
                return Err(DeviceError::Busy { index, reason });
            }
        }
        let daemon = Daemon::new(settings, place, Some(pid));
        self.put_daemon(place, instance, &daemon)
    }

    fn put_daemon(
        &mut self,
        place: &MpsPlace,
        instance: Option<u32>,
        daemon: &Daemon,
    ) -> Result<(), DeviceError> {
        let index = place.index;
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
        for own in place.indexes() {
            self.devices[own as usize].daemons.insert(instance, daemon.clone());
        }
        Ok(())
    }

    /// Whom the daemon of a device, or of its instance, serves besides: that device alone where there is none.
    pub(super) fn daemon_devices(&self, (index, instance): (u32, Option<u32>)) -> Vec<u32> {
        let daemon = self.devices.get(index as usize).and_then(|device| device.daemons.get(&instance));
        daemon.map_or_else(|| vec![index], |daemon| daemon.devices.clone())
    }

    /// The devices that a daemon of this one serves.
    pub(super) fn served_with(&self, index: u32) -> Vec<u32> {
        self.devices[index as usize].daemons.values().flat_map(|daemon| daemon.devices.clone()).collect()
    }

    /// The sets of devices that have an MPS control daemon.
    pub fn mps_sets(&self) -> Vec<MpsPlace> {
        let all = self.devices.iter().filter_map(|device| Some((device.index(), device.daemons.get(&None)?)));
        let first = all.filter(|(index, daemon)| daemon.devices.first() == Some(index));
        let sets = first.filter(|(_, daemon)| daemon.devices.len() > 1);
        sets.map(|(index, daemon)| MpsPlace::set(index, daemon.devices[1..].to_vec())).collect()
    }

    /// The process that played a control daemon is gone, and its server with it.
    pub fn mps_daemon_ended(&mut self, place: &MpsPlace, pid: u32) {
        let Ok(instance) = self.seat(place) else { return };
        for index in place.indexes() {
            let Some(device) = self.devices.get_mut(index as usize) else { continue };
            if device.daemons.get(&instance).is_some_and(|daemon| daemon.served_by == Some(pid)) {
                device.daemons.remove(&instance);
                let was_client = |client: &Client| matches!(client.phase, Phase::Waiting | Phase::Running);
                self.fail_mps_clients((index, instance), "the MPS control daemon is gone", was_client);
            }
        }
    }

    /// The server of a place has died; the daemon begins another one for the next client.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps_server_died(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        self.each_daemon(place, Daemon::end_server)?;
        let was_client = |client: &Client| client.phase == Phase::Running;
        for index in place.indexes() {
            self.fail_mps_clients((index, instance), "the MPS server is gone", was_client);
        }
        Ok(())
    }

    /// Does this to the daemon of a place, wherever it stands.
    fn each_daemon(&mut self, place: &MpsPlace, mut act: impl FnMut(&mut Daemon)) -> Result<(), DeviceError> {
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        for index in place.indexes() {
            self.device(index)?;
        }
        for index in place.indexes() {
            let daemon = self.devices[index as usize].daemons.get_mut(&instance);
            if let Some(daemon) = daemon.filter(|daemon| daemon.is_of(place)) {
                act(daemon);
            }
        }
        Ok(())
    }

    /// What the next server holds its clients to, with a limit for each of its devices that has one.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn set_mps_defaults(
        &mut self,
        place: &MpsPlace,
        cap: Option<Fraction>,
        memory_limits_bytes: &[Option<u64>],
    ) -> Result<(), DeviceError> {
        let mut limits = each_limit(cap, memory_limits_bytes);
        self.each_daemon(place, |daemon| daemon.set_defaults(limits()))
    }

    /// The same of the next clients of the server that runs.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn set_mps_server_limits(
        &mut self,
        place: &MpsPlace,
        cap: Option<Fraction>,
        memory_limits_bytes: &[Option<u64>],
    ) -> Result<(), DeviceError> {
        let mut limits = each_limit(cap, memory_limits_bytes);
        self.each_daemon(place, |daemon| daemon.set_server_limits(limits()))
    }

    /// A client that waits no longer has a server of its user, and what that holds its clients to.
    pub(super) fn begin_mps_server(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id).filter(|client| client.is_mps()) else { return };
        let (uid, own, instance) = (client.uid, client.index, client.instance);
        for index in self.daemon_devices((own, instance)) {
            if let Some(daemon) = self.devices[index as usize].daemons.get_mut(&instance) {
                daemon.begin_server(uid);
            }
        }
        let limits = self.devices[own as usize].daemons.get(&instance).map(Daemon::limits);
        if let Some((client, limits)) = self.clients.get_mut(&id).zip(limits) {
            client.mps_limits = limits;
        }
    }

    /// Somebody left: perhaps the last whom a fault had ended.
    pub(super) fn settle_mps(&mut self, index: u32) {
        let instances: Vec<Option<u32>> = self.devices[index as usize].daemons.keys().copied().collect();
        for instance in instances {
            let served = self.daemon_devices((index, instance));
            let is_its = |client: &&Client| {
                client.is_mps() && client.instance == instance && served.contains(&client.index)
            };
            for own in &served {
                if let Some(daemon) = self.devices[*own as usize].daemons.get_mut(&instance) {
                    daemon.settle(self.clients.values().filter(is_its));
                }
            }
        }
    }

    /// The clients of the daemon of a place.
    fn mps_clients(&self, place: &MpsPlace, instance: Option<u32>) -> impl Iterator<Item = &Client> {
        let on_them = place.indexes().flat_map(|index| self.on(index)).collect::<Vec<_>>();
        on_them.into_iter().filter(move |client| client.is_mps() && client.instance == instance)
    }

    /// Stops the MPS control daemon of a place for `caller`.
    ///
    /// # Errors
    /// As `MpsControl::release`.
    pub fn stop_mps(&mut self, caller: UserId, place: &MpsPlace) -> Result<(), DeviceError> {
        let index = place.index;
        self.managed(caller, index, Mechanism::Mps)?;
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        let daemon = self.devices[index as usize].daemons.get(&instance);
        let Some(daemon) = daemon.filter(|daemon| daemon.is_of(place)) else { return Ok(()) };
        let clients = self
            .mps_clients(place, instance)
            .filter(|client| client.phase == Phase::Waiting || daemon.is_connected(client))
            .count();
        if clients > 0 {
            let reason = format!("its MPS daemon has {clients} clients");
            return Err(DeviceError::Busy { index, reason });
        }
        for own in place.indexes() {
            self.devices[own as usize].daemons.remove(&instance);
        }
        Ok(())
    }

    /// The MPS control daemon of a place.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn mps(&self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        let device = self.device(place.index)?;
        let Ok(instance) = self.seat(place) else { return Ok(None) };
        let daemon = device.daemons.get(&instance).filter(|daemon| daemon.is_of(place));
        Ok(daemon.map(|daemon| daemon.status(self.mps_clients(place, instance))))
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
        let mut ended: Vec<(u32, ClientId)> = Vec::new();
        if let Ok(instance) = self.seat(place) {
            let own = self.mps_clients(place, instance).filter(|client| client.pid == pid);
            let own = own.filter(|client| client.phase != Phase::Failed);
            ended.extend(own.map(|client| (client.index, client.id)));
        }
        if ended.is_empty() {
            let reason = format!("process {pid} is no MPS client there");
            return Err(DeviceError::Refused { index, reason });
        }
        for (index, id) in ended {
            let reason = "this client was terminated".to_owned();
            self.fail_all(index, &[id], &ClientError::Mps { reason });
        }
        Ok(())
    }

    /// A fault: one MPS client crashes, its neighbours are told so, and the server blocks until all have left.
    ///
    /// # Errors
    /// As [`Machine::stop_mps`], [`DeviceError::Busy`] excepted.
    pub fn fault_mps(&mut self, caller: UserId, place: &MpsPlace) -> Result<(), DeviceError> {
        self.managed(caller, place.index, Mechanism::Mps)?;
        let Ok(instance) = self.seat(place) else { return Ok(()) };
        self.each_daemon(place, Daemon::fault)?;
        self.end_mps_clients(place.index, instance);
        Ok(())
    }

    /// Those who run there end with a fault: of a daemon of several devices all, for a client of more than one joins them in it.
    pub(super) fn end_mps_clients(&mut self, index: u32, instance: Option<u32>) {
        let reason = "a fault on this device ended all its clients";
        for index in self.daemon_devices((index, instance)) {
            self.fail_mps_clients((index, instance), reason, |client| client.phase == Phase::Running);
        }
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
