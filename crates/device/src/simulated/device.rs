//! One simulated device: who may run on it, who waits, and what it does with those who run.

use super::client::{Client, Phase, Tenant};
use super::contention::{Seat, Settled, Use, evaluate};
use super::driver::{Access, ClientError, Slot};
use super::hardware::Hardware;
use super::meter::{Activity, Totals};
use super::mps::Daemon;
use crate::MpsStatus;
use crate::mps::ComputeMode;
use pillion_core::Fraction;
use pillion_core::device::DeviceDescription;

/// One device of a simulated machine.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) description: DeviceDescription,
    pub(super) hardware: Hardware,
    pub(super) mps: Option<Daemon>,
    pub(super) compute_mode: ComputeMode,
    pub(super) lost: Option<String>,
    pub(super) totals: Totals,
    pub(super) activity: Activity,
}

impl Device {
    pub(super) fn new(description: DeviceDescription, hardware: Hardware) -> Self {
        let mut device = Self {
            description,
            hardware,
            mps: None,
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

    /// As the driver library sees it.
    pub(super) fn slot(&self) -> Slot {
        Slot {
            index: self.index(),
            uuid: self.description.uuid.clone(),
            mps_pipe: self.mps.as_ref().map(|daemon| daemon.settings.pipe_directory.clone()),
        }
    }

    /// The state of its MPS daemon. `clients`: those of this device.
    pub(super) fn mps_status<'a>(&self, clients: impl Iterator<Item = &'a Client>) -> Option<MpsStatus> {
        self.mps.as_ref().map(|daemon| daemon.status(clients.filter(|client| client.is_mps())))
    }

    /// Whether a new process may open it in this way at all. `others`: the processes of this device.
    ///
    /// # Errors
    /// [`ClientError::Mps`] while a fault blocks the MPS server; [`ClientError::Unavailable`] where the device is open to
    /// one process, and that is another. All of an MPS server's clients are one: the server (MPS guide, "Exclusive-mode
    /// restrictions are applied to the MPS server, not MPS clients").
    pub(super) fn lets_in<'a>(
        &self,
        access: &Access,
        mut others: impl Iterator<Item = &'a Client>,
    ) -> Result<(), ClientError> {
        let is_client = matches!(access, Access::Mps { .. });
        let has_server = self.mps.as_ref().is_some_and(Daemon::has_server);
        let is_held = others.any(|other| other.is_present() && !(is_client && other.is_mps()));
        if self.compute_mode == ComputeMode::ExclusiveProcess && (is_held || (has_server && !is_client)) {
            return Err(ClientError::Unavailable { index: self.index() });
        }
        if is_client && self.mps.as_ref().is_some_and(Daemon::is_faulted) {
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
        let free = self.hardware.memory_bytes.saturating_sub(used_by_others).min(limit);
        if bytes <= free {
            return Ok(());
        }
        Err(ClientError::OutOfMemory {
            index: self.index(),
            asked_bytes: bytes - client.memory_bytes,
            total_bytes: self.hardware.memory_bytes,
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
        let all = self.hardware.unit_count;
        let Access::Mps { cap, .. } = client.access else {
            return f64::from(all);
        };
        let daemon = client.mps_limits.cap.map_or(1.0, Fraction::value);
        let step = f64::from(self.hardware.unit_granularity);
        let units = f64::from(all) * cap.unwrap_or(1.0).min(daemon);
        ((units / step + 1e-9).floor() * step).max(step)
    }

    /// Divides the device among those of `clients` that run, and notes what it does. `clients`: those of this device,
    /// in the order in which they came.
    pub(super) fn settle<'a>(&mut self, clients: impl Iterator<Item = &'a mut Client>) {
        let mut running: Vec<&mut Client> = clients.filter(|client| client.phase == Phase::Running).collect();
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
        let Settled { shares, used } = if seats.is_empty() {
            let used = Use { power_watts: self.hardware.power.idle_watts, clock: 1.0, ..Use::default() };
            Settled { shares: Vec::new(), used }
        } else {
            evaluate(&self.hardware, engine_count, &seats)
        };
        self.activity = Activity { used, ..Activity::default() };
        for (client, share) in running.iter_mut().zip(shares) {
            let placed = &client.placed;
            self.activity.occupancy += (share.issue + share.stall) * placed.occupancy_fraction;
            self.activity.fp32 += share.issue * placed.fp32_fraction;
            self.activity.pcie_rx_bytes_per_second += share.cycles_per_second * placed.pcie_rx_bytes;
            self.activity.pcie_tx_bytes_per_second += share.cycles_per_second * placed.pcie_tx_bytes;
            client.units_fraction = share.issue + share.stall;
            client.speed = (share.cycles_per_second * placed.cycle_seconds).min(1.0);
        }
    }

    /// Why a client that came last may not start yet, if so. `others`: the clients of this device (`mode_peers` for CCS:
    /// of all devices that must agree with it).
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
                let Some(daemon) = &self.mps else { return true };
                let mut others = others.filter(|other| other.is_mps() && other.is_present());
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
