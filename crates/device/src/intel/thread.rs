//! One opening of Level Zero, with what is remembered between two samples: what each thread of the backend owns. It ends
//! with its thread. As in the parent: a call takes as long as the driver takes.

use super::calls::Failure;
use super::ccs::{self, Kernel, ModeFile};
use super::conditions::{Query, Watch};
use super::convert::{self, QUERY_COUNT, Sample, device_error, is_forbidden, is_lost};
use super::metrics::{self, Greatest, Streams};
use super::open::{self, Duty};
use super::process;
use super::session::{Session, Tile, Way};
use super::settings::Settings;
use crate::{DeviceError, DeviceState};
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, Reading};
use pillion_core::{Clock, GresType, UnixTime};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Counters are not looked at more often (Level Zero's advice): what was read last is said again.
const SAMPLE_SECONDS_MIN: f64 = 0.1;

/// What is remembered of a tile between two samples.
#[derive(Default)]
struct Remembered {
    sampled: Option<(UnixTime, Sample, Reading)>,
    watch: Watch,
    memory_bytes_per_second_max: Option<f64>,
}

/// What Level Zero found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) indexes: Vec<u32>,
}

/// How a tile's CCS mode is set.
enum CcsControl {
    /// By each process.
    Processes,
    /// By these files of this card.
    Files { card: PathBuf, files: Vec<ModeFile> },
}

/// Level Zero as one thread has it.
pub(super) struct Driver {
    settings: Settings,
    clock: Arc<dyn Clock>,
    duty: Duty,
    session: Option<Session>,
    memories: BTreeMap<u32, Remembered>,
    streams: Streams,
    notices: Vec<DeviceNotice>,
}

impl Driver {
    /// Loads nothing yet.
    pub(super) fn new(settings: Settings, clock: Arc<dyn Clock>, duty: Duty) -> Self {
        Self {
            settings,
            clock,
            duty,
            session: None,
            memories: BTreeMap::new(),
            streams: Streams::default(),
            notices: Vec::new(),
        }
    }

    /// Opens what is not open.
    fn open(&mut self) -> Result<&Session, DeviceError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.open_anew()?,
        };
        self.duty.way = Some(session.way);
        Ok(self.session.insert(session))
    }

    fn open_anew(&self) -> Result<Session, DeviceError> {
        let with_metrics = self.settings.bursts.is_some();
        let session = open::open(self.settings.library.as_deref(), with_metrics, self.duty)?;
        let (tiles, way) = (session.tiles.len(), session.way);
        let Some(index) = self.duty.only else {
            tracing::info!(tiles, ?way, "Level Zero is open");
            return Ok(session);
        };
        // It was found before. Nothing is kept of an opening that misses it: the next sample opens another.
        let missed = match session.tiles.first() {
            None => Some(DeviceError::Gone { index, reason: "Level Zero finds it no more".to_owned() }),
            Some(tile) => tile.parts.loss().map(|failure| device_error(index, failure)),
        };
        if let Some(error) = missed {
            session.calls.unload();
            return Err(error);
        }
        Ok(session)
    }

    /// Opens what is not open, and finds a tile.
    fn tile(&mut self, index: u32) -> Result<(&Session, Tile), DeviceError> {
        let session = self.open()?;
        Ok((session, session.tile(index)?.clone()))
    }

    /// Lets go of the library and of all that was opened by it.
    pub(super) fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.streams.end_all(&session.calls);
            session.calls.unload();
        }
        // Counters may begin anew.
        for memory in self.memories.values_mut() {
            memory.sampled = None;
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

    fn sample(&mut self, index: u32, now: UnixTime) -> Result<Reading, DeviceError> {
        let bursts = self.settings.bursts;
        let cache_bytes_per_second = self.settings.cache_bytes_per_second_max;
        let (session, tile) = self.tile(index)?;
        let sample = tile.parts.sample(&session.calls);
        let failures = sample.failures();
        if let Some(failure) = whole_failure(&failures) {
            self.memories.entry(index).or_default().sampled = None;
            if let Some(session) = &self.session {
                self.streams.end(&session.calls, index);
            }
            return Err(device_error(index, failure));
        }
        let memory = self.memories.entry(index).or_default();
        let before = memory.sampled.take().map(|(_, sample, _)| sample);
        let mut reading = convert::reading(before.as_ref(), &sample);
        self.notices.extend(memory.watch.changes(index, &sample));
        if let Some(most) = sample.bandwidth.as_deref().ok().and_then(convert::bandwidth_max) {
            memory.memory_bytes_per_second_max = Some(most);
        }
        let memory_bytes_per_second = memory.memory_bytes_per_second_max;
        if let (Some(bursts), Some(session)) = (bursts, &self.session) {
            let streamed = self.streams.sample(session, &tile, bursts, now);
            self.notices.extend(memory.watch.observe(index, Query::Stream, streamed.map(|_| ())));
            if let Ok(Some(means)) = &streamed {
                let greatest = Greatest { memory_bytes_per_second, cache_bytes_per_second };
                metrics::fill(&mut reading.metrics, means, greatest);
            }
        }
        // From the end of this sample to the beginning of the next: a slow driver reads its counters late.
        memory.sampled = Some((self.clock.now(), sample, reading.clone()));
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

    /// All tiles of this opening.
    pub(super) fn find(&mut self) -> Result<Found, DeviceError> {
        let session = self.open()?;
        Ok(Found { way: session.way, indexes: session.tiles.iter().map(|tile| tile.index).collect() })
    }

    /// What a tile is.
    pub(super) fn describe(&mut self, index: u32) -> Result<DeviceDescription, DeviceError> {
        let (session, tile) = self.tile(index)?;
        let card = session.card(&tile);
        let memory_bytes = tile.parts.memory_bytes(&session.calls);
        let mut description = DeviceDescription {
            index,
            uuid: convert::uuid(&card.uuid, tile.number, card.tile_count),
            model: card.model.clone(),
            memory_bytes: memory_bytes.map_err(|failure| device_error(index, failure))?,
            gres_type: GresType::new(format!("g{index}")),
            mechanism: Mechanism::TimeSliced,
            instances: None,
            geometry: None,
            links: BTreeMap::new(),
        };
        if self.ccs_control(index)?.is_some() {
            description.mechanism = Mechanism::Ccs;
        }
        Ok(description)
    }

    /// As `Backend::read_all`, of one device.
    pub(super) fn state(&mut self, index: u32) -> Result<DeviceState, DeviceError> {
        Ok(DeviceState { reading: self.read(index)?, processes: self.processes(index)? })
    }

    pub(super) fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        let now = self.clock.now();
        let sampled = self.memories.get(&index).and_then(|memory| memory.sampled.as_ref());
        match sampled {
            Some((at, _, reading)) if *at <= now && now.seconds_since(*at) < SAMPLE_SECONDS_MIN => {
                Ok(reading.clone())
            }
            _ => self.sample(index, now),
        }
    }

    pub(super) fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
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
                process::on_tile(&proc_root, seen.processId, Some(seen.memSize), &place, tile.number)
            })
            .collect())
    }

    /// What was told since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<DeviceNotice> {
        std::mem::take(&mut self.notices)
    }

    /// Takes back what nobody heard.
    pub(super) fn keep(&mut self, unreported: Vec<DeviceNotice>) {
        self.notices = unreported;
    }

    /// Under i915 always `None`: processes choose it, and nobody tells.
    pub(super) fn ccs_mode(&mut self, index: u32) -> Result<Option<u8>, DeviceError> {
        match self.ccs_control(index)? {
            Some(CcsControl::Files { files, .. }) => Ok(ccs::mode(&files)),
            Some(CcsControl::Processes) | None => Ok(None),
        }
    }

    /// The card and the files that setting a mode takes; none where nothing is to be written.
    fn files_to_set(
        &mut self,
        index: u32,
        mode: u8,
    ) -> Result<Option<(PathBuf, Vec<ModeFile>)>, DeviceError> {
        let Some(control) = self.ccs_control(index)? else {
            let reason = "it has no CCS modes".to_owned();
            return Err(DeviceError::Unsupported { index, reason });
        };
        ccs::check(index, mode)?;
        let CcsControl::Files { card, files } = control else { return Ok(None) };
        if ccs::mode(&files) == Some(mode) {
            return Ok(None);
        }
        let on_it = self.on_card(index)?;
        if !on_it.is_empty() {
            let reason =
                format!("xe changes the CCS mode of an idle card only; on it are processes {on_it:?}");
            return Err(DeviceError::Busy { index, reason });
        }
        Ok(Some((card, files)))
    }

    /// Whether setting a mode takes that this process lets go of the card.
    pub(super) fn must_close(&mut self, index: u32, mode: u8) -> Result<bool, DeviceError> {
        let to_set = self.files_to_set(index, mode)?;
        Ok(to_set.is_some_and(|(card, _)| !ccs::held_by_us(&self.settings.proc_root, &card).is_empty()))
    }

    /// As `CcsControl::prepare`. `others_let_go`: no other thread hangs with Level Zero open.
    pub(super) fn set_ccs_mode(
        &mut self,
        index: u32,
        mode: u8,
        others_let_go: bool,
    ) -> Result<(), DeviceError> {
        let Some((card, files)) = self.files_to_set(index, mode)? else { return Ok(()) };
        let proc_root = self.settings.proc_root.clone();
        ccs::set(
            index,
            &files,
            mode,
            || ccs::held_by_us(&proc_root, &card),
            || {
                self.close();
                others_let_go
            },
        )
    }
}

/// The failure of a sample that is one of the device: it is lost, or nothing of it may be read.
fn whole_failure(failures: &[Failure]) -> Option<Failure> {
    let lost = failures.iter().find(|failure| is_lost(**failure));
    let all_forbidden =
        failures.len() == QUERY_COUNT && failures.iter().all(|failure| is_forbidden(*failure));
    lost.or(failures.first().filter(|_| all_forbidden)).copied()
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}
