//! What a process has initialised and holds. Every object is known by the handle that was given out for it.

use crate::faults;
use level_zero_sys::*;
use pillion_device::simulated::{Counters, SOCKET_VARIABLE, Simulated};
use pillion_device::{Backend as _, DeviceError};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer that is no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) ze_result_t);

/// No answer at all, yet: of no value that the specification knows.
pub(crate) const HANGS: Refusal = Refusal(ze_result_t::MAX);

/// Tiles of one card.
pub(crate) const TILES: u32 = 2;
/// A counter that is read again sooner does not answer; a little below the 100 ms that the documents ask for.
const SPACING: Duration = Duration::from_millis(90);

/// One tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TileId {
    pub(crate) card: u32,
    pub(crate) tile: u32,
}

impl TileId {
    /// Its number over all cards.
    pub(crate) fn index(self) -> u32 {
        self.card * TILES + self.tile
    }
}

impl Object {
    /// The tile whose counter it is.
    fn counted(self) -> Option<TileId> {
        match self {
            Self::Power { card, tile } => tile.map(|tile| TileId { card, tile }),
            Self::Memory(tile) | Self::Engine(tile, _) | Self::Frequency(tile, _) => Some(tile),
            _ => None,
        }
    }
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    CoreDriver,
    SysmanDriver,
    /// As the core gives it.
    CoreCard(u32),
    /// As `zesDeviceGet` gives it.
    SysmanCard(u32),
    CoreTile(TileId),
    Power {
        card: u32,
        tile: Option<u32>,
    },
    Memory(TileId),
    Engine(TileId, u32),
    Frequency(TileId, u32),
    Context(u32),
    Group(TileId, u32),
    Metric(TileId, u32, u32),
    Stream(u32),
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) tile: TileId,
    pub(crate) period_seconds: f64,
    pub(crate) last: Counters,
    pub(crate) pending: Vec<crate::metrics::Report>,
}

/// What this process has initialised and holds.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each was initialised, or not, by itself")]
pub(crate) struct State {
    pub(crate) has_core: bool,
    pub(crate) has_legacy_sysman: bool,
    pub(crate) has_modern_sysman: bool,
    pub(crate) has_metrics: bool,
    objects: BTreeMap<usize, Object>,
    read_at: BTreeMap<Object, Instant>,
    pub(crate) contexts: BTreeSet<u32>,
    pub(crate) next_number: u32,
    pub(crate) active: BTreeMap<TileId, u32>,
    pub(crate) streams: BTreeMap<u32, Stream>,
    devices: Option<Simulated>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Runs `body` on this process's state.
pub(crate) fn with_state<T>(body: impl FnOnce(&mut State) -> T) -> T {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    body(state.get_or_insert_default())
}

impl State {
    /// The handle of an object, the same each time.
    pub(crate) fn handle(&mut self, object: Object) -> *mut c_void {
        if let Some((address, _)) = self.objects.iter().find(|(_, known)| **known == object) {
            return std::ptr::without_provenance_mut(*address);
        }
        // Real memory, in case a loader looks into what a driver's handles point at.
        let place = Box::leak(Box::new([0_u64; 8])).as_mut_ptr().cast::<c_void>();
        self.objects.insert(place.addr(), object);
        place
    }

    /// What a handle stands for.
    pub(crate) fn object(&self, handle: *mut c_void) -> Result<Object, Refusal> {
        let known = self.objects.get(&handle.addr()).copied();
        known.ok_or(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE))
    }

    /// A handle that is no more.
    pub(crate) fn forget(&mut self, handle: *mut c_void) {
        self.objects.remove(&handle.addr());
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// The card of a sysman handle: one of the core is one only in the legacy way.
    pub(crate) fn card(&self, handle: *mut c_void) -> Result<u32, Refusal> {
        match self.object(handle)? {
            Object::SysmanCard(card) if self.has_modern_sysman => Ok(card),
            Object::CoreCard(card) if self.has_legacy_sysman => Ok(card),
            Object::CoreCard(_) | Object::SysmanCard(_) => Err(Refusal(ZE_RESULT_ERROR_UNINITIALIZED)),
            _ => Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
        }
    }

    /// The tile of a core handle: only a card's parts are tiles.
    pub(crate) fn core_tile(&self, handle: *mut c_void) -> Result<TileId, Refusal> {
        match self.object(handle)? {
            Object::CoreTile(tile) => Ok(tile),
            _ => Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
        }
    }

    /// Refuses a counter that was read a moment ago.
    pub(crate) fn spaced(&mut self, object: Object) -> Result<(), Refusal> {
        object.counted().map_or(Ok(()), answers)?;
        let now = now();
        match self.read_at.insert(object, now) {
            Some(before) if now - before < SPACING => Err(Refusal(ZE_RESULT_ERROR_NOT_AVAILABLE)),
            _ => Ok(()),
        }
    }

    /// The simulated devices.
    pub(crate) fn devices(&mut self) -> Result<&mut Simulated, Refusal> {
        if self.devices.is_none() {
            let socket = std::env::var_os(SOCKET_VARIABLE).ok_or(Refusal(ZE_RESULT_ERROR_UNINITIALIZED))?;
            self.devices = Some(Simulated::new(socket));
        }
        self.devices.as_mut().ok_or(Refusal(ZE_RESULT_ERROR_UNINITIALIZED))
    }

    /// How many cards there are.
    pub(crate) fn card_count(&mut self) -> Result<u32, Refusal> {
        let devices = self.devices()?.devices().map_err(|error| refusal(&error))?;
        u32::try_from(devices.len()).map(|count| count / TILES).map_err(|_| Refusal(ZE_RESULT_ERROR_UNKNOWN))
    }

    /// What the counters of a tile show.
    pub(crate) fn counters(&mut self, tile: TileId) -> Result<Counters, Refusal> {
        answers(tile)?;
        if faults::now().lost.contains(&tile.index()) {
            return Err(Refusal(ZE_RESULT_ERROR_DEVICE_LOST));
        }
        self.devices()?.counters(tile.index()).map_err(|error| refusal(&error))
    }
}

/// Whether a tile's counters answer now.
fn answers(tile: TileId) -> Result<(), Refusal> {
    if faults::now().hanging.contains(&tile.index()) { Err(HANGS) } else { Ok(()) }
}

/// What the model says, in the words of the specification.
pub(crate) fn refusal(error: &DeviceError) -> Refusal {
    Refusal(match error {
        DeviceError::Gone { .. } => ZE_RESULT_ERROR_DEVICE_LOST,
        DeviceError::NoSuchDevice { .. } => ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        _ => ZE_RESULT_ERROR_UNKNOWN,
    })
}

#[expect(clippy::disallowed_methods, reason = "a driver has the machine's clock")]
fn now() -> Instant {
    Instant::now()
}
