//! NVIDIA devices, through the driver's own library.
//!
//! ```text
//!  Nvidia (Backend) ── asks, until a deadline ──► work: the thread that owns the library
//!    │                                              └─ session: one opening of it, by open
//!    └─ MpsControl: daemons                              ├─ base, gpm, processes, events: what NVML is asked  (shell)
//!                                                        └─ convert, model, search, watch, trouble: the rest  (pure)
//! ```
//!
//! | values | source | where |
//! |---|---|---|
//! | SM activity and occupancy, FP32, tensor, memory bandwidth, PCIe, NVLink | [`MetricSource::NvmlGpm`] | Hopper and later |
//! | memory, energy, power, SM clock, throttles, busy fractions, PCIe where GPM has none | [`MetricSource::Nvml`] | all |
//!
//! What a device does not tell is `None`: its busy fractions with MIG on, or its SM activity before Hopper, where only
//! DCGM has it. The busy fractions never stand in for SM activity. A driver of branch R510 or later is needed.
//!
//! While the agent runs, its library holds the devices open: resetting one, turning MIG on or off, and reloading the
//! driver want the agent stopped.
//!
//! [`MetricSource::NvmlGpm`]: pillion_core::device::MetricSource::NvmlGpm
//! [`MetricSource::Nvml`]: pillion_core::device::MetricSource::Nvml

mod base;
mod compute_mode;
mod convert;
mod daemons;
mod events;
mod gpm;
mod model;
mod mps;
mod open;
mod processes;
mod search;
mod session;
mod trouble;
mod watch;
mod work;

pub use compute_mode::NvmlComputeModes;
pub use daemons::NodeDaemons;
pub use mps::{MpsControl, NoMps};
pub use search::SearchPauses;

use crate::worker::{Answer, Worker};
use crate::{Backend, DeviceError, DeviceStates, MpsSettings, MpsStatus};
use pillion_core::Fraction;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, Reading};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use work::Question;

/// How a node's NVIDIA devices are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvidiaSettings {
    /// The library; the driver's own `libnvidia-ml.so.1` if absent.
    pub library: Option<PathBuf>,
    /// How devices without MIG are shared: [`Mechanism::Mps`], or [`Mechanism::None`] beside [`NoMps`].
    pub mechanism: Mechanism,
    /// How long one call may take. A library that is late is asked again only once it has answered.
    pub deadline: Duration,
    /// How long a device that is gone is left alone before it is looked for again.
    pub search_pauses: SearchPauses,
}

impl Default for NvidiaSettings {
    fn default() -> Self {
        // Eight devices without GPM take 0.3 s for their PCIe rates.
        let deadline = Duration::from_secs(2);
        Self { library: None, mechanism: Mechanism::Mps, deadline, search_pauses: SearchPauses::default() }
    }
}

/// The NVIDIA devices of a node.
pub struct Nvidia {
    settings: NvidiaSettings,
    mps: Box<dyn MpsControl>,
    worker: Option<Worker<Question>>,
}

impl Nvidia {
    /// Nothing is loaded until the first call.
    pub fn new(settings: NvidiaSettings, mps: Box<dyn MpsControl>) -> Self {
        Self { settings, mps, worker: None }
    }

    fn ask<T>(&mut self, question: impl FnOnce(Answer<T>) -> Question) -> Result<T, DeviceError> {
        if !self.worker.as_ref().is_some_and(Worker::is_alive) {
            self.worker = Some(work::start(&self.settings)?);
        }
        self.worker.as_ref().expect("started above").ask(question)
    }
}

impl Backend for Nvidia {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        let devices = self.ask(Question::Devices)?;
        self.mps.found(&devices);
        Ok(devices)
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        self.ask(|answer| Question::Read(index, answer))
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.ask(|answer| Question::Processes(index, answer))
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        self.ask(Question::ReadAll)
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        // Before the first call there is nothing to tell; a library that is late tells the next time.
        let told = self.worker.as_ref().and_then(|worker| worker.ask(Question::Notices).ok());
        told.into_iter().flatten().chain(self.mps.notices()).collect()
    }

    fn start_mps(&mut self, index: u32, settings: &MpsSettings) -> Result<(), DeviceError> {
        self.mps.start_mps(index, settings)
    }

    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError> {
        self.mps.stop_mps(index)
    }

    fn mps(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError> {
        self.mps.mps(index)
    }

    fn terminate_mps_client(&mut self, index: u32, pid: u32) -> Result<(), DeviceError> {
        self.mps.terminate_mps_client(index, pid)
    }

    fn add_mps_partition(&mut self, index: u32, tenant: &str, cap: Fraction) -> Result<String, DeviceError> {
        self.mps.add_mps_partition(index, tenant, cap)
    }

    fn keep_mps_partitions(&mut self, index: u32, tenants: &BTreeSet<String>) -> Result<(), DeviceError> {
        self.mps.keep_mps_partitions(index, tenants)
    }

    fn ccs_mode(&mut self, _: u32) -> Result<Option<u8>, DeviceError> {
        Ok(None)
    }

    fn set_ccs_mode(&mut self, index: u32, _: u8) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported { index, reason: "an NVIDIA device has no CCS".to_owned() })
    }
}
