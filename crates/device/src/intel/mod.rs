//! Intel's data centre GPUs through Level Zero. A device is a tile, numbered over all cards in the driver's order.
//!
//! ```text
//!  Intel (Backend) ── asks, until a deadline ──► one thread a device, and one that finds them
//!     ├─ inventory: which tiles there are
//!     thread: one opening of Level Zero, and what is remembered between two samples
//!     ├─ session: Level Zero, opened: cards and their tiles
//!     ├─ open: opens it, by zesInit or by zeInit with ZES_ENABLE_SYSMAN=1
//!     ├─ read: counters of a tile ─► convert: two samples are a reading        (pure)
//!     ├─ conditions: which of them stopped or came back                      (pure)
//!     ├─ metrics: ComputeBasic in bursts, where a site asks for them
//!     ├─ process: who is on which tile of a card
//!     ├─ ccs: modes; xe's is a file that takes root
//!     └─ calls: all calls of the library                                     (unsafe)
//!  Told (Backend): the devices as XPU Manager names them, where Level Zero cannot be loaded
//! ```
//!
//! Level Zero has no deadline for its calls, and lets any thread call it (programmers' guide, "Multithreading and
//! Concurrency"). So each device has a thread of its own, and one whose counters hang hides no other: it is asked again once
//! its driver has answered. Opening Level Zero is another matter: it asks every card what it is, so a card that hangs in that
//! keeps whoever opens waiting, and devices that are not open yet are late with it. Nothing is loaded until the first call.
//! Knows nothing of jobs.

#![allow(clippy::wildcard_imports, reason = "the names of Level Zero are unmistakable, and many")]

mod calls;
mod ccs;
mod conditions;
mod convert;
mod inventory;
mod metrics;
mod open;
mod process;
mod read;
mod reported;
mod session;
mod settings;
mod thread;

pub use ccs::mode_paths;
pub use metrics::Bursts;
pub(crate) use reported::Reported;
pub use settings::Settings;

use crate::worker::{Answer, Pending, Worker};
use crate::{Backend, CcsControl, DeviceError, DeviceStates};
use open::{Duty, LIBRARIES};
use pillion_core::Clock;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Reading};
use session::Way;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use thread::Driver;

/// What a thread is asked.
type Question = Box<dyn FnOnce(&mut Driver) + Send>;

/// The Intel devices of a node.
pub struct Intel {
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// The devices that were found.
    known: BTreeMap<u32, DeviceDescription>,
    /// Those that cannot be described, which was logged.
    left_out: BTreeSet<u32>,
    way: Option<Way>,
    /// By device; that of none finds them.
    threads: BTreeMap<Option<u32>, Worker<Question>>,
}

impl Intel {
    /// Loads nothing yet. The first call that needs a device sets `ZE_FLAT_DEVICE_HIERARCHY` and its like in this
    /// process's environment, so it is to come before other threads look there by C's means.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let (known, left_out, threads) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { settings, clock, known, left_out, way: None, threads }
    }

    /// The thread of a device, or the one that finds them; started where it does not run.
    fn thread(&mut self, only: Option<u32>) -> Result<&Worker<Question>, DeviceError> {
        if !self.threads.get(&only).is_some_and(Worker::is_alive) {
            let (settings, clock) = (self.settings.clone(), Arc::clone(&self.clock));
            let duty = Duty { only, way: self.way };
            let library = self.settings.library.as_deref().unwrap_or(LIBRARIES[0]);
            let name = only.map_or("level-zero".to_owned(), |index| format!("level-zero-{index}"));
            let thread = Worker::start(
                &name,
                PathBuf::from(library),
                self.settings.deadline,
                move |asked: &std::sync::mpsc::Receiver<Question>| {
                    let mut driver = Driver::new(settings, clock, duty);
                    while let Ok(question) = asked.recv() {
                        question(&mut driver);
                    }
                },
            )?;
            self.threads.insert(only, thread);
        }
        Ok(&self.threads[&only])
    }

    /// Asks the thread of one device, without waiting for the answer.
    fn begin<T: Send + 'static>(
        &mut self,
        index: u32,
        question: impl FnOnce(&mut Driver) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<Pending<T>, DeviceError> {
        self.thread(Some(index))?.begin(|answer| boxed(answer, question))
    }

    /// Asks the thread of one device, if there is such a device.
    fn ask<T: Send + 'static>(
        &mut self,
        index: u32,
        question: impl FnOnce(&mut Driver) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        self.find(index)?;
        self.begin(index, question)?.wait()
    }

    /// Lets every thread but that of one device close Level Zero: a library is unloaded when nobody has it open. Whether
    /// all did: one that is late keeps it loaded.
    fn close_others(&mut self, index: u32) -> bool {
        let others = self.threads.iter().filter(|(only, _)| **only != Some(index));
        let closing: Vec<_> = others.map(|(_, thread)| (thread, thread.begin(closes))).collect();
        // All are waited for. A thread that failed has closed it.
        closing.into_iter().fold(true, |all, (thread, pending)| {
            let is_closed = pending.and_then(Pending::wait).is_ok() || !thread.is_alive();
            all && is_closed
        })
    }
}

/// A question that closes Level Zero.
fn closes(answer: Answer<()>) -> Question {
    boxed(answer, |driver| {
        driver.close();
        Ok(())
    })
}

/// What comes too late is of no use.
fn boxed<T: Send + 'static>(
    answer: Answer<T>,
    question: impl FnOnce(&mut Driver) -> Result<T, DeviceError> + Send + 'static,
) -> Question {
    Box::new(move |driver| drop(answer.give(question(driver))))
}

/// But for notices: each is told once.
fn take_notices(answer: Answer<Vec<DeviceNotice>>) -> Question {
    Box::new(move |driver| {
        if let Err(Ok(unreported)) = answer.give(Ok(driver.take_notices())) {
            driver.keep(unreported);
        }
    })
}

impl Backend for Intel {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        self.list()
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        self.ask(index, move |driver| driver.read(index))
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.ask(index, move |driver| driver.processes(index))
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        if self.known.is_empty() {
            self.devices()?;
        }
        let indexes: Vec<u32> = self.known.keys().copied().collect();
        // All at once: those that hang are waited for together.
        let asked: Vec<_> = indexes
            .into_iter()
            .map(|index| (index, self.begin(index, move |driver| driver.state(index))))
            .collect();
        Ok(asked.into_iter().map(|(index, pending)| (index, pending.and_then(Pending::wait))).collect())
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        // A thread that is late tells the next time.
        let asked: Vec<_> = self.threads.values().map(|thread| thread.begin(take_notices)).collect();
        asked.into_iter().flatten().filter_map(|pending| pending.wait().ok()).flatten().collect()
    }

    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        Some(self)
    }
}

impl CcsControl for Intel {
    fn prepare(&mut self, index: u32, mode: u8) -> Result<(), DeviceError> {
        let must_close = self.ask(index, move |driver| driver.must_close(index, mode))?;
        let others_let_go = !must_close || self.close_others(index);
        self.ask(index, move |driver| driver.set_ccs_mode(index, mode, others_let_go))
    }

    /// Under i915 always `None`: processes choose it, and nobody tells.
    fn status(&mut self, index: u32) -> Result<Option<u8>, DeviceError> {
        self.ask(index, move |driver| driver.ccs_mode(index))
    }
}
