//! What was seen at the last sample, and what has happened since the agent started; filled where it happens.

use pillion_core::device::{Mechanism, Reading};
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::{GresType, UnixTime};
use pillion_device::DeviceState;
use pillion_metrics::Durations;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceSeen {
    /// What it did; `None`: it could not be read.
    pub reading: Option<Reading>,
    /// Processes on it.
    pub processes: u64,
    /// Managed jobs on it.
    pub tenants: u64,
    /// What is wrong with it.
    pub faults: Vec<FaultKind>,
    /// Looks at which it could not be read.
    pub read_errors: u64,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// When the devices were looked at.
    pub sampled_at: Option<UnixTime>,
    /// How long samples took.
    pub sample: Durations,
    /// Devices by what Slurm calls them.
    pub devices: BTreeMap<GresType, DeviceSeen>,
    /// Shares by mechanism and whether they were prepared.
    pub setups: BTreeMap<(Mechanism, bool), u64>,
    /// Tasks by whether there was a decision.
    pub tasks: BTreeMap<bool, u64>,
    /// Streams to the scheduler that ended.
    pub uplink_failures: u64,
}

/// It, shared by the parts of the agent. The lock is held for a copy or an addition.
#[derive(Debug, Default)]
pub struct Figures(Mutex<Seen>);

impl Figures {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// A sample begins to be told: it took so long to read all devices.
    pub(crate) fn sampled(&self, at: UnixTime, took: Duration) {
        let mut seen = self.lock();
        seen.sampled_at = Some(at);
        seen.sample.add(took);
    }

    /// What one device said; `None`: it could not be read.
    pub(crate) fn read(&self, gres_type: &GresType, state: Option<&DeviceState>) {
        let mut seen = self.lock();
        let device = seen.devices.entry(gres_type.clone()).or_default();
        device.reading = state.map(|state| state.reading.clone());
        device.processes = state.map_or(0, |state| state.processes.len() as u64);
        device.read_errors += u64::from(state.is_none());
    }

    /// How many managed jobs are on which device; none on the others.
    pub(crate) fn tenants(&self, tenants: &BTreeMap<GresType, u64>) {
        for (gres_type, device) in &mut self.lock().devices {
            device.tenants = tenants.get(gres_type).copied().unwrap_or(0);
        }
    }

    /// What is wrong with the devices.
    pub(crate) fn conditions(&self, conditions: &[DeviceCondition]) {
        let mut seen = self.lock();
        for condition in conditions {
            let faults = condition.faults.iter().map(|fault| fault.kind).collect();
            seen.devices.entry(condition.gres_type.clone()).or_default().faults = faults;
        }
    }

    /// A share was asked for.
    pub(crate) fn set_up(&self, mechanism: Mechanism, is_prepared: bool) {
        *self.lock().setups.entry((mechanism, is_prepared)).or_default() += 1;
    }

    /// A task asked what it is to do.
    pub(crate) fn task(&self, is_decided: bool) {
        *self.lock().tasks.entry(is_decided).or_default() += 1;
    }

    /// A stream to the scheduler ended, or could not be opened.
    pub(crate) fn uplink_failed(&self) {
        self.lock().uplink_failures += 1;
    }
}
