//! One simulated device: who may run on it, who waits, and what it does with those who run.

use super::client::{Client, Phase, Tenant};
use super::contention::{Seat, Settled, Use, evaluate};
use super::driver::{Access, ClientError, Pipe, Slot};
use super::hardware::Hardware;
use super::meter::{Activity, Totals};
use super::mig::{Division, slice};
use super::mps::Daemon;
use crate::mps::ComputeMode;
use pillion_core::device::DeviceDescription;
use pillion_core::{Fraction, UserId};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One device of a simulated machine.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) description: DeviceDescription,
    pub(super) hardware: Hardware,
    /// Its MPS control daemons: that of the device, or those of its instances by the numbers of these.
    pub(super) daemons: BTreeMap<Option<u32>, Daemon>,
    /// Absent where it has no MIG.
    pub(super) division: Option<Division>,
    /// Programs that have it open without being on it.
    pub(super) holders: Vec<u32>,
    pub(super) compute_mode: ComputeMode,
    pub(super) lost: Option<String>,
    pub(super) totals: Totals,
    pub(super) activity: Activity,
}

impl Device {
    pub(super) fn new(description: DeviceDescription, hardware: Hardware, is_mig_on: bool) -> Self {
        let mut device = Self {
            division: Division::new(description.index, hardware.name, is_mig_on),
            holders: Vec::new(),
            description,
            hardware,
            daemons: BTreeMap::new(),
            compute_mode: ComputeMode::Default,
            lost: None,
            totals: Totals::default(),
            activity: Activity::default(),
        };
        device.settle(std::iter::empty());
        device
    }

    pub(super) fn index(&self) -> u32 {
        self.description.index
    }

    /// Whether it is one CUDA device, or its instances are.
    pub(super) fn is_cut(&self) -> bool {
        self.division.as_ref().is_some_and(Division::is_on)
    }

    /// What a process has of it: the device, or its instance as a device.
    fn hardware_of(&self, instance: Option<u32>) -> Cow<'_, Hardware> {
        let division = instance.and(self.division.as_ref());
        let size = division.and_then(|division| {
            let made = division.by_id(instance?)?;
            Some(slice(&self.hardware, division.geometry(), division.geometry().size(made.slot.profile)?))
        });
        size.map_or(Cow::Borrowed(&self.hardware), Cow::Owned)
    }

    /// The compute slices of an instance.
    fn slices_of(&self, instance: Option<u32>) -> Option<u8> {
        Some(self.division.as_ref()?.by_id(instance?)?.slot.profile.compute_slices())
    }

    /// As the driver library of a user's process sees it: of its instances those that he may open.
    pub(super) fn slot(&self, uid: UserId) -> Slot {
        let instances = self.division.as_ref().filter(|division| division.is_on()).map(|division| {
            let open = division
                .made
                .iter()
                .filter(|made| division.ways.get(&made.gpu_instance_id).is_some_and(|way| way.lets_in(uid)));
            open.filter_map(|made| Some((made.uuid.clone()?, made.gpu_instance_id))).collect()
        });
        Slot {
            instances,
            index: self.index(),
            uuid: self.description.uuid.clone(),
            mps_pipes: self.daemons.iter().map(|(instance, daemon)| self.pipe(*instance, daemon)).collect(),
        }
    }

    fn pipe(&self, instance: Option<u32>, daemon: &Daemon) -> Pipe {
        let order = daemon.devices.iter().position(|index| *index == self.index()).unwrap_or_default();
        Pipe { instance, directory: daemon.settings.pipe_directory.clone(), order }
    }

    /// Whether a new process may open it in this way at all. `others`: the processes of this device.
    ///
    /// # Errors
    /// [`ClientError::Mps`] while a fault blocks the MPS server; [`ClientError::Unavailable`] where the device is open to
    /// one process, and that is another. All of an MPS server's clients are one: the server (MPS guide, "Exclusive-mode
    /// restrictions are applied to the MPS server, not MPS clients").
    pub(super) fn lets_in<'a>(
        &self,
        (instance, access): (Option<u32>, &Access),
        mut others: impl Iterator<Item = &'a Client>,
    ) -> Result<(), ClientError> {
        let is_client = matches!(access, Access::Mps { .. });
        let daemon = self.daemons.get(&instance);
        let has_server = daemon.is_some_and(Daemon::has_server);
        let is_held = others.any(|other| other.is_present() && !(is_client && other.is_mps()));
        if self.compute_mode == ComputeMode::ExclusiveProcess && (is_held || (has_server && !is_client)) {
            return Err(ClientError::Unavailable { index: self.index() });
        }
        if is_client && daemon.is_some_and(Daemon::is_faulted) {
            let reason =
                "the server is not ready: it waits until the clients of a fault have left".to_owned();
            return Err(ClientError::Mps { reason });
        }
        Ok(())
    }

    /// Takes `bytes` in all for one client.
    ///
    /// # Errors
    /// [`ClientError::OutOfMemory`] if the device, or the client's limit, does not hold it.
    pub(super) fn room(&self, client: &Client, bytes: u64, used_by_others: u64) -> Result<(), ClientError> {
        let limit = client.memory_bytes_max().unwrap_or(u64::MAX);
        let total_bytes = self.hardware_of(client.instance).memory_bytes;
        let free = total_bytes.saturating_sub(used_by_others).min(limit);
        if bytes <= free {
            return Ok(());
        }
        Err(ClientError::OutOfMemory {
            index: self.index(),
            asked_bytes: bytes - client.memory_bytes,
            total_bytes,
            free_bytes: free.saturating_sub(client.memory_bytes),
        })
    }

    /// How one of its clients is treated.
    pub(super) fn tenant(&self, client: &Client) -> Tenant {
        Tenant {
            pid: client.pid,
            is_mps: client.is_mps(),
            units_fraction_max: self.units_max(client) / self.hardware.units(),
            units_fraction: client.units_fraction,
            memory_bytes_max: client.memory_bytes_max(),
            memory_bytes: client.memory_bytes,
        }
    }

    /// The most units of a client: its own percentage and its daemon's, rounded down to what the hardware can part.
    fn units_max(&self, client: &Client) -> f64 {
        let all = self.hardware_of(client.instance).unit_count;
        let Access::Mps { cap, .. } = client.access else {
            return f64::from(all);
        };
        let daemon = client.mps_limits.cap.map_or(1.0, Fraction::value);
        let step = f64::from(self.hardware.unit_granularity);
        let units = f64::from(all) * cap.unwrap_or(1.0).min(daemon);
        ((units / step + 1e-9).floor() * step).max(step)
    }

    /// Divides the device among those of `clients` that run, and notes what it does. `clients`: those of this device,
    /// in the order in which they came. Those of one instance meet each other and nobody else.
    pub(super) fn settle<'a>(&mut self, clients: impl Iterator<Item = &'a mut Client>) {
        let mut groups: BTreeMap<Option<u32>, Vec<&mut Client>> = BTreeMap::new();
        for client in clients.filter(|client| client.phase == Phase::Running) {
            groups.entry(client.instance).or_default().push(client);
        }
        let idle = Use { power_watts: self.hardware.power.idle_watts, clock: 1.0, ..Use::default() };
        let mut activity = Activity { used: idle, ..Activity::default() };
        for (instance, mut running) in groups {
            let part = self.settle_together(instance, &mut running);
            if instance.is_none() {
                activity = part;
            } else {
                activity.add_part(&part, self.hardware_of(instance).units() / self.hardware.units());
            }
        }
        self.activity = activity;
    }

    /// Divides the device, or one of its instances, among those who run there. Returns what that does.
    fn settle_together(&self, instance: Option<u32>, running: &mut [&mut Client]) -> Activity {
        let hardware = self.hardware_of(instance);
        let engine_count = running.iter().find_map(|client| ccs_mode(client)).map_or(1, usize::from);
        let seats: Vec<Seat> = running
            .iter()
            .enumerate()
            .map(|(order, client)| Seat {
                cycle: client.placed.cycle.clone(),
                engine: order % engine_count,
                // MPS clients share one context; everybody else has his own.
                context: if client.is_mps() { 0 } else { order + 1 },
                units_max: self.units_max(client),
            })
            .collect();
        let Settled { shares, used } = evaluate(&hardware, engine_count, &seats);
        // Alone in an instance of a size in which the workload was measured, it goes as fast as it was measured.
        let slices = self.slices_of(instance).filter(|_| running.len() == 1);
        let of_units = hardware.units() / self.hardware.units();
        let mut activity = Activity { used, ..Activity::default() };
        for (client, share) in running.iter_mut().zip(shares) {
            let placed = &client.placed;
            activity.occupancy += (share.issue + share.stall) * placed.occupancy_fraction;
            activity.fp32 += share.issue * placed.fp32_fraction;
            activity.pcie_rx_bytes_per_second += share.cycles_per_second * placed.pcie_rx_bytes;
            activity.pcie_tx_bytes_per_second += share.cycles_per_second * placed.pcie_tx_bytes;
            client.units_fraction = (share.issue + share.stall) * of_units;
            let measured = slices.and_then(|slices| placed.slice_speeds.get(&slices).copied());
            client.speed =
                measured.unwrap_or_else(|| (share.cycles_per_second * placed.cycle_seconds).min(1.0));
        }
        activity
    }

    /// Why a client that came last may not start yet, if so. `others`: the clients of this device, and of those that its MPS daemon
    /// serves besides (`mode_peers` for CCS: of all devices that must agree with it).
    pub(super) fn must_wait<'a>(
        &self,
        client: &Client,
        others: impl Iterator<Item = &'a Client>,
        mode_peers: impl Iterator<Item = &'a Client>,
    ) -> bool {
        match client.access {
            Access::Plain => false,
            Access::Mps { .. } => {
                // A daemon that is gone serves nobody who waited for it.
                let Some(daemon) = self.daemons.get(&client.instance) else { return true };
                let mut others = others.filter(|other| {
                    other.is_mps() && other.is_present() && other.instance == client.instance
                });
                daemon.is_faulted()
                    || !daemon.settings.multi_user && others.any(|other| other.uid != client.uid)
            }
            Access::Ccs { mode } => {
                let mut running = mode_peers.filter(|other| other.phase == Phase::Running);
                running.any(|other| ccs_mode(other).is_some_and(|theirs| theirs != mode))
            }
        }
    }

    /// Whether CCS modes are what tenants of this device agree on.
    pub(super) fn has_ccs(&self) -> bool {
        self.description.mechanism.has_modes()
    }
}

/// The mode that a client wants.
pub(super) fn ccs_mode(client: &Client) -> Option<u8> {
    match client.access {
        Access::Ccs { mode } => Some(mode),
        Access::Plain | Access::Mps { .. } => None,
    }
}
