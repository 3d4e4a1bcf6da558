//! Intel's data centre GPUs through Level Zero. A device is a tile, numbered over all cards in the driver's order.
//!
//! ```text
//!  Intel (Backend) ─► open: zesInit, or zeInit with ZES_ENABLE_SYSMAN=1; cards and their tiles
//!     ├─ sysman: counters of a tile ─► convert: two looks are a reading      (pure)
//!     ├─ metrics: ComputeBasic in bursts, where a site asks for them
//!     ├─ process: who is on which tile of a card
//!     ├─ ccs: modes; xe's is a file that takes root
//!     └─ calls: all calls of the library                                     (unsafe)
//! ```
//!
//! Knows nothing of jobs. Nothing is loaded until the first call. A call into the driver takes as long as the driver
//! takes: Level Zero has no deadline for them.

#![allow(clippy::wildcard_imports, reason = "the names of Level Zero are unmistakable, and many")]

mod calls;
mod ccs;
mod convert;
mod metrics;
mod open;
mod process;
mod sysman;
mod watch;

pub use metrics::Bursts;

use crate::{Backend, DeviceError, MpsSettings, MpsStatus};
use calls::Failure;
use ccs::{Kernel, ModeFile};
use convert::{Look, QUERY_COUNT, device_error, is_forbidden, is_lost};
use metrics::{Greatest, Streams};
use open::{Session, Tile};
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, Reading};
use pillion_core::{Clock, GresType, UnixTime};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use watch::{Query, Watch};

/// Counters are not looked at more often (Level Zero's advice): what was read last is said again.
const LOOK_SECONDS_MIN: f64 = 0.1;

/// What a site may say of its Intel devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The Level Zero loader; where the system finds it if absent.
    pub library: Option<String>,
    /// When the metric streamer runs; never if absent.
    pub bursts: Option<Bursts>,
    /// The greatest rate of one tile's last-level cache, which no driver tells; without it there is no
    /// `cache_bandwidth_fraction`.
    pub cache_bytes_per_second_max: Option<f64>,
    /// Where sysfs is.
    pub sysfs_root: PathBuf,
    /// Where procfs is.
    pub proc_root: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            library: None,
            bursts: None,
            cache_bytes_per_second_max: None,
            sysfs_root: PathBuf::from("/sys"),
            proc_root: PathBuf::from("/proc"),
        }
    }
}

/// What is remembered of a tile between two looks.
#[derive(Default)]
struct Remembered {
    looked: Option<(UnixTime, Look, Reading)>,
    watch: Watch,
    memory_bytes_per_second_max: Option<f64>,
}

/// The Intel devices of a node.
pub struct Intel {
    settings: Settings,
    clock: Arc<dyn Clock>,
    session: Option<Session>,
    memories: BTreeMap<u32, Remembered>,
    streams: Streams,
    notices: Vec<DeviceNotice>,
}

impl Intel {
    /// Loads nothing yet. The first call that needs a device sets `ZE_FLAT_DEVICE_HIERARCHY` and its like in this
    /// process's environment, so it is to come before other threads look there by C's means.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            session: None,
            memories: BTreeMap::new(),
            streams: Streams::default(),
            notices: Vec::new(),
        }
    }

    /// Opens what is not open.
    fn open(&mut self) -> Result<(), DeviceError> {
        if self.session.is_none() {
            let session = Session::open(self.settings.library.as_deref(), self.settings.bursts.is_some())?;
            let way = if session.is_modern { "zesInit" } else { "ZES_ENABLE_SYSMAN" };
            tracing::info!(devices = session.tiles.len(), way, "Level Zero is open");
            self.session = Some(session);
        }
        Ok(())
    }

    /// Opens what is not open, and finds a tile.
    fn tile(&mut self, index: u32) -> Result<(&Session, Tile), DeviceError> {
        self.open()?;
        // Opened just now.
        let session = self.session.as_ref().ok_or(DeviceError::NoSuchDevice { index })?;
        Ok((session, session.tile(index)?.clone()))
    }

    /// Lets go of the library and of all that was opened by it.
    fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.streams.end_all(&session.calls);
            session.calls.unload();
        }
        // Counters may begin anew.
        for memory in self.memories.values_mut() {
            memory.looked = None;
        }
    }

    fn describe(&self, session: &Session, tile: &Tile) -> DeviceDescription {
        let card = session.card(tile);
        DeviceDescription {
            index: tile.index,
            uuid: convert::uuid(&card.uuid, tile.number, card.tile_count),
            model: card.model.clone(),
            memory_bytes: tile.memory_bytes,
            gres_type: GresType::new(format!("g{}", tile.index)),
            mechanism: match self.ccs(session, tile) {
                Some(_) => Mechanism::Ccs,
                None => Mechanism::None,
            },
        }
    }

    /// How the tile's CCS mode is set; `None` if it has but one engine.
    fn ccs(&self, session: &Session, tile: &Tile) -> Option<CcsControl> {
        let card = session.card(tile);
        match ccs::kernel(&self.settings.sysfs_root, &card.pci_address)? {
            // Of those that i915 drives only the Max has more than one engine that processes may choose.
            Kernel::I915 => card.model.starts_with("max-").then_some(CcsControl::Processes),
            Kernel::Xe(path) => {
                let files = ccs::mode_files(&path, tile.number);
                (!files.is_empty()).then_some(CcsControl::Files { card: path, files })
            }
        }
    }

    fn look(&mut self, index: u32, now: UnixTime) -> Result<Reading, DeviceError> {
        let bursts = self.settings.bursts;
        let cache_bytes_per_second = self.settings.cache_bytes_per_second_max;
        let (session, tile) = self.tile(index)?;
        let look = tile.parts.look(&session.calls);
        let failures = look.failures();
        if let Some(failure) = whole_failure(&failures) {
            self.memories.entry(index).or_default().looked = None;
            if let Some(session) = &self.session {
                self.streams.end(&session.calls, index);
            }
            return Err(device_error(index, failure));
        }
        let memory = self.memories.entry(index).or_default();
        let before = memory.looked.take().map(|(_, look, _)| look);
        let mut reading = convert::reading(before.as_ref(), &look);
        self.notices.extend(memory.watch.look(index, &look));
        if let Some(most) = look.bandwidth.as_deref().ok().and_then(convert::bandwidth_max) {
            memory.memory_bytes_per_second_max = Some(most);
        }
        let memory_bytes_per_second = memory.memory_bytes_per_second_max;
        if let (Some(bursts), Some(session)) = (bursts, &self.session) {
            let streamed = self.streams.look(session, &tile, bursts, now);
            self.notices.extend(memory.watch.observe(index, Query::Stream, streamed.map(|_| ())));
            if let Ok(Some(means)) = &streamed {
                let greatest = Greatest { memory_bytes_per_second, cache_bytes_per_second };
                metrics::fill(&mut reading, means, greatest);
            }
        }
        // From the end of this look to the beginning of the next: a slow driver reads its counters late.
        memory.looked = Some((self.clock.now(), look, reading.clone()));
        Ok(reading)
    }

    /// The processes of others on the tile's whole card.
    fn on_card(&mut self, index: u32) -> Result<Vec<u32>, DeviceError> {
        let (session, tile) = self.tile(index)?;
        let answer = session.calls.processes(session.card(&tile).handle);
        let all = answer.map_err(|failure| device_error(index, failure))?;
        let pids = all.into_iter().map(|process| process.processId);
        Ok(pids.filter(|pid| *pid != std::process::id()).collect())
    }

    /// How the CCS mode of a device is set.
    fn ccs_control(&mut self, index: u32) -> Result<Option<CcsControl>, DeviceError> {
        self.tile(index)?;
        let session = self.session.as_ref();
        Ok(session.and_then(|session| self.ccs(session, session.tile(index).ok()?)))
    }

    fn no_mps<T>(&mut self, index: u32) -> Result<T, DeviceError> {
        self.tile(index)?;
        let reason = "MPS is NVIDIA's; this is an Intel device".to_owned();
        Err(DeviceError::Unsupported { index, reason })
    }
}

/// How a tile's CCS mode is set.
enum CcsControl {
    /// By each process.
    Processes,
    /// By these files of this card.
    Files { card: PathBuf, files: Vec<ModeFile> },
}

/// The failure of a look that is one of the device: it is lost, or nothing of it may be read.
fn whole_failure(failures: &[Failure]) -> Option<Failure> {
    let lost = failures.iter().find(|failure| is_lost(**failure));
    let all_forbidden =
        failures.len() == QUERY_COUNT && failures.iter().all(|failure| is_forbidden(*failure));
    lost.or(failures.first().filter(|_| all_forbidden)).copied()
}

impl Drop for Intel {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backend for Intel {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        self.open()?;
        let session = self.session.iter();
        Ok(session
            .flat_map(|session| session.tiles.iter().map(|tile| self.describe(session, tile)))
            .collect())
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        let now = self.clock.now();
        let looked = self.memories.get(&index).and_then(|memory| memory.looked.as_ref());
        match looked {
            Some((at, _, reading)) if *at <= now && now.seconds_since(*at) < LOOK_SECONDS_MIN => {
                Ok(reading.clone())
            }
            _ => self.look(index, now),
        }
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        let proc_root = self.settings.proc_root.clone();
        let (session, tile) = self.tile(index)?;
        let card = session.card(&tile);
        let on_card = session.calls.processes(card.handle).map_err(|failure| device_error(index, failure))?;
        let place = process::Place {
            pci_address: &card.pci_address,
            card: u32::try_from(tile.card).unwrap_or(u32::MAX),
            first_index: card.first_index,
            tile_count: card.tile_count,
        };
        let here = on_card.into_iter().filter(|process| process.processId != std::process::id());
        Ok(here
            .filter_map(|seen| {
                process::on_tile(&proc_root, seen.processId, seen.memSize, &place, tile.number)
            })
            .collect())
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        std::mem::take(&mut self.notices)
    }

    fn start_mps(&mut self, index: u32, _settings: &MpsSettings) -> Result<(), DeviceError> {
        self.no_mps(index)
    }

    fn stop_mps(&mut self, index: u32) -> Result<(), DeviceError> {
        self.no_mps(index)
    }

    fn mps(&mut self, index: u32) -> Result<Option<MpsStatus>, DeviceError> {
        self.tile(index).map(|_| None)
    }

    fn terminate_mps_client(&mut self, index: u32, _pid: u32) -> Result<(), DeviceError> {
        self.no_mps(index)
    }

    /// Under i915 always `None`: processes choose it, and nobody tells.
    fn ccs_mode(&mut self, index: u32) -> Result<Option<u8>, DeviceError> {
        match self.ccs_control(index)? {
            Some(CcsControl::Files { files, .. }) => Ok(ccs::mode(&files)),
            Some(CcsControl::Processes) | None => Ok(None),
        }
    }

    fn set_ccs_mode(&mut self, index: u32, mode: u8) -> Result<(), DeviceError> {
        let Some(control) = self.ccs_control(index)? else {
            let reason = "it has no CCS modes".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        };
        ccs::check(index, mode)?;
        let CcsControl::Files { card, files } = control else { return Ok(()) };
        if ccs::mode(&files) == Some(mode) {
            return Ok(());
        }
        let on_it = self.on_card(index)?;
        if !on_it.is_empty() {
            let reason =
                format!("xe changes the CCS mode of an idle card only; on it are processes {on_it:?}");
            return Err(DeviceError::Busy { index, reason });
        }
        let proc_root = self.settings.proc_root.clone();
        let held = || ccs::held_by_us(&proc_root, &card);
        ccs::set(index, &files, mode, held, || self.close())
    }
}
