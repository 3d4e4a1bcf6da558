//! All devices of one node, with their processes: deterministic, stepped by an explicit time. The driver process is a
//! thin shell around this; simulations and tests step it themselves.
//!
//! Time inside is real time. Work goes `time_scale` times faster than real; watts and joules are per real second.

use super::client::{AttachRequest, Client, ClientId, Phase, Progress, Tenant};
use super::config::{CcsScope, ConfigError, MachineConfig};
use super::contention::TENANTS_MAX;
use super::device::{Device, ccs_mode};
use super::driver::{Access, ClientError, Slot, resolve};
use super::hardware::by_name;
use super::limits::Limits;
use super::meter::{Counters, Totals, reading, reading_of_cut};
use super::noise::Noise;
use super::workload;
use crate::DeviceError;
use crate::mps::ComputeMode;
use pillion_core::UserId;
use pillion_core::device::{DeviceDescription, DeviceProcess, Mechanism, Reading};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod mig;
mod mps;

/// The simulated devices of one node.
#[derive(Debug)]
pub struct Machine {
    config: MachineConfig,
    devices: Vec<Device>,
    clients: BTreeMap<ClientId, Client>,
    next_client: u64,
    /// Real seconds since the machine came up.
    now: f64,
    noise: Noise,
}

impl Machine {
    /// A machine at rest.
    ///
    /// # Errors
    /// [`ConfigError`] says what is wrong with the description.
    pub fn new(config: &MachineConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            devices: config
                .describe()?
                .into_iter()
                .map(|description| {
                    let hardware = by_name(&description.model).expect("described from this very list");
                    let is_mig_on = config.devices[description.index as usize].mig;
                    Device::new(description, hardware, is_mig_on)
                })
                .collect(),
            clients: BTreeMap::new(),
            next_client: 1,
            now: 0.0,
            noise: Noise::new(config.seed, config.noise_fraction),
            config: config.clone(),
        })
    }

    /// How many times faster than real work goes.
    pub fn time_scale(&self) -> f64 {
        self.config.time_scale
    }

    /// The devices, by index.
    pub fn descriptions(&self) -> Vec<DeviceDescription> {
        self.devices.iter().map(|device| device.description.clone()).collect()
    }

    /// Lets real time pass. Whatever happens meanwhile (a process ends or grows) happens at its very moment.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by.as_secs_f64();
        while self.now < end {
            let next = self.clients.values().filter_map(|client| self.seconds_to_mark(client));
            let step = next.fold(end - self.now, f64::min);
            for device in &mut self.devices {
                let meter = self.noise.factor();
                device.totals.add(&device.activity, step, meter);
            }
            let mut reached = Vec::new();
            for client in self.clients.values_mut().filter(|client| client.phase == Phase::Running) {
                client.done_seconds += client.speed * client.luck * self.config.time_scale * step;
                if client.done_seconds >= client.next_mark_seconds() - 1e-9 {
                    reached.push(client.id);
                }
            }
            self.now = if step >= end - self.now { end } else { self.now + step };
            for id in reached {
                self.pass_mark(id);
            }
        }
    }

    fn seconds_to_mark(&self, client: &Client) -> Option<f64> {
        let speed = client.speed * client.luck * self.config.time_scale;
        let left = (client.next_mark_seconds() - client.done_seconds).max(0.0);
        (client.phase == Phase::Running && speed > 0.0).then(|| left / speed)
    }

    /// A client has reached the point where it grows, or its end.
    fn pass_mark(&mut self, id: ClientId) {
        let now = self.now;
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let index = client.index;
        if client.is_grown() {
            let client = self.clients.get_mut(&id).expect("found above");
            client.done_seconds = client.nominal_seconds;
            client.phase = Phase::Finished;
            client.speed = 0.0;
            client.units_fraction = 0.0;
            client.ended_at = Some(now);
        } else {
            let bytes = client.memory_bytes_next();
            let room = self.device_of(client).room(client, bytes, self.memory_of_others(client));
            let client = self.clients.get_mut(&id).expect("found above");
            client.steps_done += 1;
            match room {
                Ok(()) => client.memory_bytes = bytes,
                Err(error) => client.fail(error, now),
            }
        }
        self.change(index);
    }

    fn device_of(&self, client: &Client) -> &Device {
        &self.devices[client.index as usize]
    }

    fn memory_of_others(&self, client: &Client) -> u64 {
        let beside = self.on(client.index).filter(|other| other.instance == client.instance);
        beside.filter(|other| other.id != client.id).map(|other| other.memory_bytes).sum()
    }

    /// The clients of one device, in the order in which they came.
    fn on(&self, index: u32) -> impl Iterator<Item = &Client> {
        self.clients.values().filter(move |client| client.index == index)
    }

    /// Those devices whose CCS mode must be the same.
    fn agreeing(&self, index: u32) -> std::ops::Range<u32> {
        match self.config.ccs_scope {
            CcsScope::Tile => index..index + 1,
            CcsScope::Card => (index & !1)..(index & !1) + 2,
        }
    }

    /// Somebody came to, left or ended on a device: let in who waited, and divide anew.
    fn change(&mut self, index: u32) {
        self.settle_mps(index);
        let mut scope: BTreeSet<u32> = self.agreeing(index).collect();
        scope.extend(self.served_with(index));
        let waiting: Vec<ClientId> = self
            .clients
            .values()
            .filter(|client| scope.contains(&client.index) && client.phase == Phase::Waiting)
            .map(|client| client.id)
            .collect();
        for id in waiting {
            self.try_start(id);
        }
        for device in &mut self.devices {
            if scope.contains(&device.index()) {
                let index = device.index();
                device.settle(self.clients.values_mut().filter(|client| client.index == index));
            }
        }
    }

    fn try_start(&mut self, id: ClientId) {
        let client = &self.clients[&id];
        let device = self.device_of(client);
        let scope = self.agreeing(client.index);
        let peers = self.clients.values().filter(|other| scope.contains(&other.index));
        let served = self.daemon_devices((client.index, client.instance));
        let beside = served.iter().flat_map(|index| self.on(*index));
        if device.must_wait(client, beside, peers) {
            return;
        }
        self.begin_mps_server(id);
        let client = &self.clients[&id];
        let device = self.device_of(client);
        let bytes = client.memory_bytes_at_start();
        let room = device.room(client, bytes, self.memory_of_others(client));
        let now = self.now;
        let client = self.clients.get_mut(&id).expect("indexed above");
        match room {
            Ok(()) => {
                client.memory_bytes = bytes;
                client.phase = Phase::Running;
            }
            Err(error) => client.fail(error, now),
        }
    }

    /// A process opens a device. `pid` and `uid` are the kernel's word, not the process's.
    ///
    /// # Errors
    /// [`ClientError`]: what the driver library would say to the process.
    pub fn attach(
        &mut self,
        request: &AttachRequest,
        pid: u32,
        uid: UserId,
    ) -> Result<ClientId, ClientError> {
        let found = workload::find(&request.workload, request.batch_size);
        let workload = found.map_err(|unknown| ClientError::Invalid { reason: unknown.to_string() })?;
        let slots: Vec<Slot> = self.devices.iter().map(|device| device.slot(uid)).collect();
        let vendor = self.devices[0].hardware.vendor;
        let claim =
            resolve(vendor, (&request.environment, request.device), &slots, self.config.constrain_devices)?;
        let device = &self.devices[claim.index as usize];
        if let Some(reason) = &device.lost {
            return Err(ClientError::Lost { index: claim.index, reason: reason.clone() });
        }
        let access = match claim.access {
            Access::Ccs { .. } if !device.has_ccs() => Access::Plain,
            access => access,
        };
        device.lets_in((claim.instance, &access), self.on(claim.index))?;
        if self.on(claim.index).filter(|client| client.phase != Phase::Failed).count() >= TENANTS_MAX {
            return Err(ClientError::TooManyClients { index: claim.index, limit: TENANTS_MAX });
        }
        let placed = workload.on(&device.hardware);
        let nominal_seconds = request.seconds.unwrap_or(placed.seconds);
        if !(nominal_seconds > 0.0 && nominal_seconds < 1e9) {
            let reason =
                format!("{nominal_seconds} seconds of work; allowed is more than 0, below 1000000000");
            return Err(ClientError::Invalid { reason });
        }
        if let Some(steps) = request.memory_steps.filter(|steps| !(1..=1000).contains(steps)) {
            let reason = format!("{steps} steps of memory; allowed are 1 to 1000");
            return Err(ClientError::Invalid { reason });
        }
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let client = Client {
            id,
            pid,
            uid,
            index: claim.index,
            instance: claim.instance,
            access,
            placed,
            nominal_seconds,
            done_seconds: 0.0,
            attached_at: self.now,
            ended_at: None,
            phase: Phase::Waiting,
            error: None,
            memory_bytes_peak: request.memory_bytes.unwrap_or(workload.memory_bytes),
            memory_bytes: 0,
            context_bytes: device.hardware.context_bytes,
            steps: request.memory_steps.unwrap_or(1),
            steps_done: 0,
            speed: 0.0,
            units_fraction: 0.0,
            luck: self.noise.factor(),
            mps_limits: Limits::default(),
        };
        self.clients.insert(id, client);
        self.change(claim.index);
        // A process that fails to start was never there.
        if let Some(error) = self.clients[&id].error.clone() {
            self.clients.remove(&id);
            return Err(error);
        }
        Ok(id)
    }

    /// A process has closed its device, or is dead: its memory is free.
    pub fn detach(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        if self.config.killed_client_ends_mps && client.is_mps() && client.phase == Phase::Running {
            self.end_mps_clients(client.index, client.instance);
        }
        let division = self.devices[client.index as usize].division.as_mut();
        if let Some((division, instance)) = division.zip(client.instance) {
            division.was_left(instance, self.now);
        }
        self.change(client.index);
    }

    /// How far a process is; `None` after it was detached.
    pub fn progress(&self, id: ClientId) -> Option<Progress> {
        self.clients.get(&id).map(|client| client.progress(self.now, self.config.time_scale))
    }

    fn device(&self, index: u32) -> Result<&Device, DeviceError> {
        let device = self.devices.get(index as usize).ok_or(DeviceError::NoSuchDevice { index })?;
        match &device.lost {
            Some(reason) => Err(DeviceError::Gone { index, reason: reason.clone() }),
            None => Ok(device),
        }
    }

    /// Reads one device: means since the sample that `mark` remembers, which becomes this one.
    ///
    /// # Errors
    /// [`DeviceError::NoSuchDevice`] and [`DeviceError::Gone`].
    pub fn read(&mut self, index: u32, mark: &mut Option<Totals>) -> Result<Reading, DeviceError> {
        let memory_bytes = self.on(index).map(|client| client.memory_bytes).sum();
        self.device(index)?;
        let device = &self.devices[index as usize];
        let noise = &mut self.noise;
        let before = mark.replace(device.totals);
        let vendor = device.hardware.vendor;
        if device.is_cut() {
            return Ok(reading_of_cut(&device.totals, &device.activity, memory_bytes));
        }
        Ok(reading(vendor, &device.totals, before.as_ref(), &device.activity, memory_bytes, || {
            noise.factor()
        }))
    }

    /// What one device's counters show.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn counters(&self, index: u32) -> Result<Counters, DeviceError> {
        let device = self.device(index)?;
        let memory_bytes_used = self.on(index).map(|client| client.memory_bytes).sum();
        let power_watts = device.activity.used.power_watts;
        Ok(Counters { totals: device.totals, power_watts, memory_bytes_used })
    }

    /// The processes on one device that have a context there.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn processes(&self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.device(index)?;
        let present = self.on(index).filter(|client| client.is_present());
        Ok(present
            .map(|client| DeviceProcess { pid: client.pid, memory_bytes: Some(client.memory_bytes) })
            .collect())
    }

    /// How those processes are treated.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn tenants(&self, index: u32) -> Result<Vec<Tenant>, DeviceError> {
        let device = self.device(index)?;
        Ok(self.on(index).filter(|client| client.is_present()).map(|client| device.tenant(client)).collect())
    }

    fn fail_all(&mut self, index: u32, ids: &[ClientId], error: &ClientError) {
        let now = self.now;
        for id in ids {
            if let Some(client) = self.clients.get_mut(id) {
                client.fail(error.clone(), now);
            }
        }
        self.change(index);
    }

    /// The CCS mode in force on a device.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn ccs_mode(&self, index: u32) -> Result<Option<u8>, DeviceError> {
        self.device(index)?;
        let scope = self.agreeing(index);
        let running = self.clients.values().find(|client| {
            scope.contains(&client.index) && client.phase == Phase::Running && ccs_mode(client).is_some()
        });
        Ok(running.and_then(ccs_mode))
    }

    /// Checks a CCS mode for `caller`. The simulated driver is i915's: processes set it themselves.
    ///
    /// # Errors
    /// As `CcsControl::prepare`.
    pub fn set_ccs_mode(&mut self, caller: UserId, index: u32, mode: u8) -> Result<(), DeviceError> {
        self.managed(caller, index, Mechanism::Ccs)?;
        if !matches!(mode, 1 | 2 | 4) {
            let reason = format!("{mode} is no CCS mode; allowed are 1, 2 and 4");
            return Err(DeviceError::Refused { index, reason });
        }
        match self.ccs_mode(index)? {
            Some(other) if other != mode => {
                let reason = format!("a process runs in CCS mode {other}");
                Err(DeviceError::Busy { index, reason })
            }
            _ => Ok(()),
        }
    }

    /// Who may open a device.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn compute_mode(&self, index: u32) -> Result<ComputeMode, DeviceError> {
        Ok(self.device(index)?.compute_mode)
    }

    /// Sets it for `caller`; whoever is there stays.
    ///
    /// # Errors
    /// As `MpsControl::prepare`.
    pub fn set_compute_mode(
        &mut self,
        caller: UserId,
        index: u32,
        mode: ComputeMode,
    ) -> Result<(), DeviceError> {
        self.managed(caller, index, Mechanism::Mps)?;
        self.devices[index as usize].compute_mode = mode;
        Ok(())
    }

    /// A device that has the mechanism, for a caller who may set it up.
    fn managed(&self, caller: UserId, index: u32, mechanism: Mechanism) -> Result<&Device, DeviceError> {
        let device = self.device(index)?;
        if device.description.mechanism != mechanism {
            let reason = format!("it is shared by {}, not by {mechanism}", device.description.mechanism);
            return Err(DeviceError::Unsupported { index, reason });
        }
        if caller != UserId(0) {
            let reason = format!("only root may set up {mechanism}; this is uid {caller}");
            return Err(DeviceError::Refused { index, reason });
        }
        Ok(device)
    }

    /// A fault: the device falls off the bus, and its processes with it.
    ///
    /// # Errors
    /// As [`Machine::read`].
    pub fn lose_device(&mut self, index: u32, reason: &str) -> Result<(), DeviceError> {
        self.device(index)?;
        let ids: Vec<ClientId> = self.on(index).map(|client| client.id).collect();
        self.fail_all(index, &ids, &ClientError::Lost { index, reason: reason.to_owned() });
        self.devices[index as usize].lost = Some(reason.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod mig_tests;
#[cfg(test)]
mod set_tests;
#[cfg(test)]
mod tests;
