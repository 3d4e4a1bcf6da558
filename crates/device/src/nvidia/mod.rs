//! NVIDIA devices, through the driver's own library.
//!
//! ```text
//!  Nvidia (Backend) ── asks, until a deadline ──► work: a thread a device, each in its session
//!    │                                              └─ library: what they share, opened by open
//!    └─ MpsControl: daemons                              ├─ base, gpm, mig, processes, events: NVML's answers  (shell)
//!                                                        ├─ kernel_log: the processes that Xids name       (shell)
//!                                                        └─ convert, model, search, watch, xids, trouble   (pure)
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
//! [`MetricSource::NvmlGpm`]: pillion_core::metric::MetricSource::NvmlGpm
//! [`MetricSource::Nvml`]: pillion_core::metric::MetricSource::Nvml

mod base;
mod compute_mode;
mod convert;
mod daemons;
mod events;
mod gpm;
mod kernel_log;
mod library;
mod mig;
mod model;
mod mps;
mod open;
mod processes;
mod search;
mod session;
mod trouble;
mod watch;
mod work;
mod xids;

pub use compute_mode::NvmlComputeModes;
pub use daemons::NodeDaemons;
pub use mps::{MpsControl, NoMps};
pub use search::SearchPauses;

use crate::worker::{Answer, Pending, Worker};
use crate::{Backend, DeviceError, DeviceStates, MpsSettings, MpsStatus};
use library::Library;
use pillion_core::Fraction;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, Reading};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use work::Question;

/// Where Linux tells its log.
pub const KERNEL_LOG: &str = "/dev/kmsg";

/// How a node's NVIDIA devices are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvidiaSettings {
    /// The library; the driver's own `libnvidia-ml.so.1` if absent.
    pub library: Option<PathBuf>,
    /// The kernel's log, usually [`KERNEL_LOG`]: it names the processes that raised Xids. Absent: they are not asked for.
    pub kernel_log: Option<PathBuf>,
    /// How devices without MIG are shared: [`Mechanism::Mps`], or [`Mechanism::TimeSliced`] beside [`NoMps`].
    pub mechanism: Mechanism,
    /// How long one call about a device may take. A device that is late is asked again only once it has answered.
    pub deadline: Duration,
    /// How long a device that is gone is left alone before it is looked for again.
    pub search_pauses: SearchPauses,
}

impl Default for NvidiaSettings {
    fn default() -> Self {
        // Eight devices without GPM take 0.3 s for their PCIe rates.
        let deadline = Duration::from_secs(2);
        Self {
            library: None,
            kernel_log: None,
            mechanism: Mechanism::Mps,
            deadline,
            search_pauses: SearchPauses::default(),
        }
    }
}

/// The NVIDIA devices of a node.
pub struct Nvidia {
    settings: NvidiaSettings,
    mps: Box<dyn MpsControl>,
    library: Arc<Library>,
    /// A device keeps its index for as long as we run.
    known: BTreeMap<u32, DeviceDescription>,
    /// One a device: a device that hangs keeps nobody else waiting.
    threads: BTreeMap<u32, Worker<Question>>,
    /// Those that count the devices (`None`) and find out which each is, by NVML's number; between two searches only such as
    /// hang: they are asked no second question, and no second one is started beside them.
    finders: BTreeMap<Option<u32>, Worker<Question>>,
    /// Why devices could not be described, by NVML's number, as it was logged.
    nameless: BTreeMap<u32, String>,
}

impl Nvidia {
    /// Nothing is loaded until the first call.
    pub fn new(settings: NvidiaSettings, mps: Box<dyn MpsControl>) -> Self {
        let library = Library::new(settings.library.clone());
        let (known, threads) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, mps, library, known, threads, finders: BTreeMap::new(), nameless: BTreeMap::new() }
    }

    /// Begins to ask the thread of a device.
    fn begin<T>(
        &mut self,
        index: u32,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<Pending<T>, DeviceError> {
        if self.known.is_empty() {
            self.devices()?;
        }
        let device = self.known.get(&index).ok_or(DeviceError::NoSuchDevice { index })?;
        let thread = match self.threads.entry(index) {
            Entry::Occupied(entry) if entry.get().is_alive() => entry.into_mut(),
            entry => {
                let new = work::start(&self.settings, &self.library, Some(device.clone()))?;
                entry.insert_entry(new).into_mut()
            }
        };
        thread.begin(question)
    }

    fn ask<T>(&mut self, index: u32, question: impl FnOnce(Answer<T>) -> Question) -> Result<T, DeviceError> {
        self.begin(index, question)?.wait()
    }

    fn begin_to_find<T>(
        &mut self,
        place: Option<u32>,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<Pending<T>, DeviceError> {
        let finder = match self.finders.entry(place) {
            Entry::Occupied(entry) if entry.get().is_alive() => entry.into_mut(),
            entry => entry.insert_entry(work::start(&self.settings, &self.library, None)?).into_mut(),
        };
        finder.begin(question)
    }

    /// Finds out which devices there are, all at once; those that hang are waited for together.
    fn find(&mut self) -> Result<(), DeviceError> {
        let count = self.begin_to_find(None, Question::Count).and_then(Pending::wait)?;
        let asked: Vec<_> = (0..count)
            .map(|place| (place, self.begin_to_find(Some(place), |answer| Question::Describe(place, answer))))
            .collect();
        let mut failure = None;
        for (place, pending) in asked {
            match pending.and_then(Pending::wait) {
                Ok(description) => self.found(place, description),
                Err(error) => {
                    self.not_described(place, &error);
                    failure.get_or_insert(error);
                }
            }
        }
        failure.filter(|_| self.known.is_empty()).map_or(Ok(()), Err)
    }

    /// Whoever found a new device is its thread from now on: NVML counts anew after a device was lost, and who was known by
    /// an index keeps it.
    fn found(&mut self, place: u32, description: DeviceDescription) {
        self.nameless.remove(&place);
        let index = description.index;
        let is_known = self.known.values().any(|known| known.uuid == description.uuid);
        if is_known || self.known.contains_key(&index) {
            return;
        }
        self.known.insert(index, description);
        self.threads.extend(self.finders.remove(&Some(place)).map(|finder| (index, finder)));
    }

    /// Tells it once: it is asked for again and again.
    fn not_described(&mut self, place: u32, error: &DeviceError) {
        let why = pillion_core::report(error);
        // A thread that hangs says so in other words when it is asked again.
        let is_new = self.nameless.get(&place).is_none_or(|told| *told != why && !error.is_transient());
        if is_new {
            tracing::warn!(index = place, error = why, "device cannot be described");
            self.nameless.insert(place, why);
        }
    }
}

/// Whether the driver itself could not be asked, whatever the device.
fn is_of_all(error: &DeviceError) -> bool {
    matches!(error, DeviceError::NoLibrary { .. } | DeviceError::Unreachable { .. })
}

impl Backend for Nvidia {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        let found = self.find();
        self.finders.retain(|_, finder| finder.is_busy());
        found?;
        let devices: Vec<_> = self.known.values().cloned().collect();
        self.mps.found(&devices);
        Ok(devices)
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        self.ask(index, |answer| Question::Read(index, answer))
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.ask(index, |answer| Question::Processes(index, answer))
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        if self.known.is_empty() {
            self.devices()?;
        }
        let indexes: Vec<u32> = self.known.keys().copied().collect();
        // All at once: those that hang are waited for together.
        let asked: Vec<_> = indexes
            .into_iter()
            .map(|index| (index, self.begin(index, |answer| Question::State(index, answer))))
            .collect();
        let states: DeviceStates =
            asked.into_iter().map(|(index, pending)| (index, pending.and_then(Pending::wait))).collect();
        if !states.is_empty() && states.iter().all(|(_, state)| state.as_ref().is_err_and(is_of_all)) {
            let why = states.into_iter().find_map(|(_, state)| state.err());
            return why.map_or_else(|| Ok(Vec::new()), Err);
        }
        Ok(states)
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        // Before the first call there is nothing to tell; a thread that is late tells the next time.
        let asked: Vec<_> = self.threads.values().map(|thread| thread.begin(Question::Notices)).collect();
        let told = asked.into_iter().flatten().filter_map(|pending| pending.wait().ok());
        told.flatten().chain(self.mps.notices()).collect()
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
