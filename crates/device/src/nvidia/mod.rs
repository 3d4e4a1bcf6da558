//! NVIDIA devices, through the driver's own library.
//!
//! ```text
//!  Nvidia (Backend) ── asks, until a deadline ──► thread: one a device, each in its session
//!    ├─ inventory: which devices there are             └─ library: what they share, opened by open
//!    ├─ daemons: MPS (crate::mps)                           ├─ describe: what each of them is                 (shell)
//!    └─ mig: what cuts devices, by threads of its own       │
//!                                                          ├─ read, gpm, mig, processes, events: NVML's answers (shell)
//!                                                          ├─ xid_lines: the processes that Xids name        (shell)
//!                                                          └─ convert, model, search, conditions, xids, trouble (pure)
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
//! While the agent runs, its library holds the devices open: resetting one, turning MIG on or off before Hopper, and reloading
//! the driver want the agent stopped.
//!
//! [`MetricSource::NvmlGpm`]: pillion_core::metric::MetricSource::NvmlGpm
//! [`MetricSource::Nvml`]: pillion_core::metric::MetricSource::Nvml

mod compute_mode;
mod conditions;
mod convert;
mod daemons;
mod describe;
mod events;
mod gpm;
mod inventory;
mod library;
mod links;
mod mig;
mod model;
mod open;
mod processes;
mod read;
mod search;
mod session;
mod settings;
mod thread;
mod trouble;
mod xid_lines;
mod xids;

pub use compute_mode::NvmlComputeModes;
pub use daemons::NodeDaemons;
pub use mig::{MigFiles, holders};
pub use search::SearchPauses;
pub use settings::NvidiaSettings;

use crate::worker::{Answer, Pending, Worker};
use crate::{Backend, DeviceError, DeviceStates, MigControl, MpsControl};
use library::Library;
use mig::MigWorker;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use thread::Question;

/// What one thread finds out while devices are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Finder {
    /// How many there are.
    Count,
    /// Which one is, by NVML's number.
    Device(u32),
    /// How they reach each other. A call about two devices waits for both, so no thread of a device makes it.
    Links,
}

/// The NVIDIA devices of a node.
pub struct Nvidia {
    settings: NvidiaSettings,
    /// Absent: MPS is turned off on this node.
    daemons: Option<NodeDaemons>,
    library: Arc<Library>,
    /// A device keeps its index for as long as we run.
    known: BTreeMap<u32, DeviceDescription>,
    /// One a device: a device that hangs keeps nobody else waiting.
    threads: BTreeMap<u32, Worker<Question>>,
    /// One a device that was cut, beside the other.
    mig_threads: BTreeMap<u32, MigWorker>,
    /// Between two searches only such as hang: they are asked no second question, and no second one is started beside them.
    finders: BTreeMap<Finder, Worker<Question>>,
    /// Whether it was found out how the devices reach each other, as far as NVML tells.
    has_links: bool,
    /// Why devices could not be described, by NVML's number, as it was logged.
    nameless: BTreeMap<u32, String>,
}

impl Nvidia {
    /// Nothing is loaded until the first call. `daemons`: `None` where devices are shared by time slices only.
    pub fn new(settings: NvidiaSettings, daemons: Option<NodeDaemons>) -> Self {
        let library = Library::new(settings.library.clone());
        let (known, threads) = (BTreeMap::new(), BTreeMap::new());
        Self {
            settings,
            daemons,
            library,
            known,
            threads,
            mig_threads: BTreeMap::new(),
            finders: BTreeMap::new(),
            has_links: false,
            nameless: BTreeMap::new(),
        }
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
                let new = thread::start(&self.settings, &self.library, Some(device.clone()))?;
                entry.insert_entry(new).into_mut()
            }
        };
        thread.begin(question)
    }

    fn ask<T>(&mut self, index: u32, question: impl FnOnce(Answer<T>) -> Question) -> Result<T, DeviceError> {
        self.begin(index, question)?.wait()
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
        self.find_links();
        let devices: Vec<_> = self.known.values().cloned().collect();
        if let Some(daemons) = &mut self.daemons {
            daemons.found(&devices);
        }
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
        let reported = asked.into_iter().flatten().filter_map(|pending| pending.wait().ok());
        reported.flatten().chain(self.daemons.iter_mut().flat_map(NodeDaemons::notices)).collect()
    }

    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        self.daemons.as_mut()?.control()
    }

    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        Some(self)
    }
}
