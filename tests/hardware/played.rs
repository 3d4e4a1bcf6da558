//! What a device did while one job was on it, by the device model's own counters.

use crate::Cluster;
use pillion_core::device::DeviceProcess;
use pillion_device::Backend as _;
use pillion_device::simulated::{Counters, Simulated, Tenant, Totals};
use pillion_tests::wait::{Look, wait_for};
use std::time::Duration;

/// Follows the devices of one node.
pub(crate) struct Watch {
    devices: Simulated,
    count: u32,
}

/// From the first look that found a process to the last.
pub(crate) struct Played {
    first: Totals,
    last: Totals,
    is_nvidia: bool,
    pub(crate) memory_bytes_peak: f64,
    /// Over the whole run, idle seconds at its ends not counted.
    pub(crate) energy_joules: f64,
}

impl Watch {
    pub(crate) fn new(cluster: &Cluster, node: &str) -> Self {
        let mut devices = Simulated::new(cluster.root().join(format!("run/{node}/devices.sock")));
        let count = u32::try_from(devices.devices().unwrap().len()).unwrap();
        Self { devices, count }
    }

    fn look(&mut self, index: u32) -> (Vec<DeviceProcess>, Counters) {
        let processes = self.devices.processes(index).unwrap();
        (processes, self.devices.counters(index).unwrap())
    }

    /// What the meter of a device shows.
    pub(crate) fn energy_joules(mut self, index: u32) -> f64 {
        self.devices.counters(index).unwrap().totals.energy_joules
    }

    /// Waits until so many share one of the devices, and gives how each is treated, with the part of the device's units that
    /// its own counters show at work meanwhile.
    pub(crate) fn tenants(mut self, count: usize, deadline: Duration) -> (Vec<Tenant>, f64) {
        let index = wait_for("tenants of one device", deadline, || {
            let shared = (0..self.count).find(|index| self.devices.tenants(*index).unwrap().len() == count);
            Ok(shared.map_or_else(|| Look::NotYet("nobody shares".to_owned()), Look::Ready))
        })
        .unwrap();
        wait_for("a second in which nothing changes", deadline, || {
            let (tenants, before) = (self.devices.tenants(index).unwrap(), self.look(index).1.totals);
            std::thread::sleep(Duration::from_secs(1));
            let (again, after) = (self.devices.tenants(index).unwrap(), self.look(index).1.totals);
            let units = |totals: &Totals| totals.issue + totals.stall;
            let active = (units(&after) - units(&before)) / (after.seconds - before.seconds);
            let is_still = tenants == again && tenants.len() == count;
            Ok(if is_still { Look::Ready((tenants, active)) } else { Look::NotYet(format!("{again:?}")) })
        })
        .unwrap()
    }

    /// Waits for a process on any of the devices and follows it to its end.
    pub(crate) fn follow(mut self, deadline: Duration) -> Played {
        let index = wait_for("a process on a device", deadline, || {
            let busy = (0..self.count).find(|index| !self.look(*index).0.is_empty());
            Ok(busy.map_or_else(|| Look::NotYet("all are idle".to_owned()), Look::Ready))
        })
        .unwrap();
        let model = self.devices.devices().unwrap()[index as usize].model.clone();
        let (_, begun) = self.look(index);
        let (mut last, mut peak) = (begun, 0);
        wait_for("the end of the process", deadline, || {
            let (processes, counters) = self.look(index);
            if processes.is_empty() {
                return Ok(Look::Ready(()));
            }
            last = counters;
            peak = peak.max(processes.iter().filter_map(|process| process.memory_bytes).sum());
            Ok(Look::NotYet(format!("{} processes", processes.len())))
        })
        .unwrap();
        #[expect(clippy::cast_precision_loss, reason = "far fewer bytes than 2^53")]
        let memory_bytes_peak = peak as f64;
        Played {
            first: begun.totals,
            last: last.totals,
            is_nvidia: !model.starts_with("max-"),
            memory_bytes_peak,
            energy_joules: last.totals.energy_joules - begun.totals.energy_joules,
        }
    }
}

impl Played {
    /// The mean of what a profile calls so.
    pub(crate) fn mean(&self, metric: &str) -> f64 {
        let seconds = self.last.seconds - self.first.seconds;
        let mean = |of: fn(&Totals) -> f64| (of(&self.last) - of(&self.first)) / seconds;
        match metric {
            // On NVIDIA's an SM is active with threads resident, on Intel's an XVE when it issues.
            "sm_active_fraction" if self.is_nvidia => mean(|it| it.issue) + mean(|it| it.stall),
            "sm_active_fraction" => mean(|it| it.issue),
            "stall_fraction" => mean(|it| it.stall),
            "sm_occupancy_fraction" => mean(|it| it.occupancy),
            "memory_bandwidth_fraction" => mean(|it| it.memory),
            "power_watts_mean" => mean(|it| it.energy_joules),
            other => panic!("nobody counts {other}"),
        }
    }
}
