//! Opens Level Zero and finds the tiles: which way of two, in which environment, and what a card consists of.
//!
//! With `zesInit` system management stands by itself, opens a card's file only for as long as a call takes and serves
//! every kernel driver. A loader without it (Debian 12's) has the legacy way: `ZES_ENABLE_SYSMAN=1` before `zeInit`, whose
//! handles serve both. Never both in one process (Level Zero programmers' guide, `SYSMAN.md`, "Initialization").

#![expect(unsafe_code, reason = "sets variables of the environment that the driver reads")]

use super::calls::{Answer, Calls, Failure};
use super::convert::{self, device_error};
use super::read::Parts;
use super::session::{Card, Session, Tile, Way};
use crate::DeviceError;
use level_zero_sys::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the loader is looked for unless the site says otherwise.
pub(super) const LIBRARIES: [&str; 2] = ["libze_loader.so.1", "libze_loader.so"];
/// Whether anybody has tried to open Level Zero. What it takes from the environment is written at the first try only: the
/// agent asks for its devices before it does anything else, and may ask in vain for as long as it runs.
static WAS_TRIED: AtomicBool = AtomicBool::new(false);
const VENDOR_INTEL: u32 = 0x8086;

/// What the legacy way wants in the environment.
const SYSMAN: &str = "ZES_ENABLE_SYSMAN";
/// Why a loader is not used: others read the environment by now, in which it wants [`SYSMAN`].
const TOO_LATE: &str =
    "it came after the agent, and is of a release that is used only by an agent that starts after it";

/// What one thread is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Duty {
    /// The one tile that it is asked about; all of them if none.
    pub(super) only: Option<u32>,
    /// The way that this process went to open Level Zero; none yet if it is to find out.
    pub(super) way: Option<Way>,
}

/// Opens `library`, or the system's loader, and finds the tiles. `with_metrics`: the metric streamer will be used.
/// Where the way is known already, and only then, several threads may be here at once: the environment stays as it is.
///
/// # Errors
/// [`DeviceError::NoLibrary`] where there is no loader or no driver; else what the driver said.
pub(super) fn open(library: Option<&str>, with_metrics: bool, duty: Duty) -> Result<Session, DeviceError> {
    set("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE");
    // The agent sees all cards, whatever the shell that started it saw.
    unset("ZE_AFFINITY_MASK");
    if with_metrics {
        set("ZET_ENABLE_METRICS", "1");
    }
    let is_first = !WAS_TRIED.swap(true, Ordering::Relaxed);
    let calls = load(library)?;
    if !is_first && duty.way.is_none() && !calls.has_sysman_init() && !is_set(SYSMAN) {
        return Err(DeviceError::NoLibrary { library: name_of(library), reason: TOO_LATE.to_owned() });
    }
    let way = init(&calls, duty.way, is_first).map_err(|failure| not_opened(library, failure))?;
    let handles = cards(&calls, way).map_err(|failure| device_error(0, failure))?;
    let cards = describe(&calls, handles)?;
    let tiles = find_tiles(&calls, &cards, duty.only);
    Ok(Session { calls, way, cards, tiles })
}

fn find_tiles(calls: &Calls, cards: &[Card], only: Option<u32>) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (of, card) in cards.iter().enumerate() {
        for number in 0..card.tile_count {
            let index = card.first_index + number;
            if only.is_none_or(|only| only == index) {
                let parts = Parts::find(calls, card.handle, number, card.tile_count);
                tiles.push(Tile { index, number, card: of, parts });
            }
        }
    }
    tiles
}

fn load(library: Option<&str>) -> Result<Calls, DeviceError> {
    let names = library.map_or(LIBRARIES.to_vec(), |one| vec![one]);
    let mut reason = String::new();
    for name in &names {
        match Calls::load(name) {
            Ok(calls) => return Ok(calls),
            Err(error) if reason.is_empty() => reason = error,
            Err(_) => {}
        }
    }
    Err(DeviceError::NoLibrary { library: names[0].to_owned(), reason })
}

fn name_of(library: Option<&str>) -> String {
    library.unwrap_or(LIBRARIES[0]).to_owned()
}

fn not_opened(library: Option<&str>, failure: Failure) -> DeviceError {
    match failure.result {
        ZE_RESULT_ERROR_UNINITIALIZED | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE => {
            // Which call said so depends on the way that was tried last: with its name it would be told twice.
            let words = convert::words(failure);
            let said = words.split_once(": ").map_or(words.as_str(), |(_, said)| said);
            let reason = format!("it has no driver to offer ({said})");
            DeviceError::NoLibrary { library: name_of(library), reason }
        }
        _ => device_error(0, failure),
    }
}

/// Initialises by the way that is known, or finds one. A loader that knows `zesInit`, above a driver that does not, leaves
/// nothing initialised, so that the legacy way is still open.
fn init(calls: &Calls, known: Option<Way>, is_first: bool) -> Answer<Way> {
    match known {
        Some(Way::Modern) => return calls.init_sysman().map(|()| Way::Modern),
        Some(Way::Legacy) => return calls.init_core().map(|()| Way::Legacy),
        None => {}
    }
    let has_sysman_init = calls.has_sysman_init();
    if has_sysman_init {
        if is_first {
            unset(SYSMAN);
        }
        match calls.init_sysman() {
            Ok(()) => return Ok(Way::Modern),
            Err(Failure {
                result: ZE_RESULT_ERROR_UNINITIALIZED | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                ..
            }) if is_first => {}
            Err(failure) => return Err(failure),
        }
    }
    if is_first {
        set(SYSMAN, "1");
    }
    let legacy = calls.init_core().map(|()| Way::Legacy);
    if legacy.is_err() && has_sysman_init {
        // Whatever comes later goes the other way, which this would be in.
        unset(SYSMAN);
    }
    legacy
}

/// The handles of all cards, in the driver's order.
fn cards(calls: &Calls, way: Way) -> Answer<Vec<zes_device_handle_t>> {
    let mut all = Vec::new();
    match way {
        Way::Modern => {
            for driver in calls.sysman_drivers()? {
                all.extend(calls.sysman_devices(driver)?);
            }
        }
        Way::Legacy => {
            for driver in calls.core_drivers()? {
                // A handle of the one kind is one of the other in the legacy way.
                let devices = calls.core_devices(driver)?.into_iter();
                all.extend(devices.map(|device| zes_device_handle_t(device.0)));
            }
        }
    }
    Ok(all)
}

/// Whether it is a card of Intel's: the GPU in a processor is none.
fn is_ours(properties: &zes_device_properties_t) -> bool {
    let core = &properties.core;
    core.type_ == ZE_DEVICE_TYPE_GPU
        && core.vendorId == VENDOR_INTEL
        && core.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED == 0
}

/// A card that names no tiles is one itself.
fn tile_count(properties: &zes_device_properties_t) -> u32 {
    properties.numSubdevices.max(1)
}

/// What each card is. One that does not answer counts as many tiles as the first that does, so that the others keep
/// their numbers, and has none itself.
fn describe(calls: &Calls, handles: Vec<zes_device_handle_t>) -> Result<Vec<Card>, DeviceError> {
    let answers: Vec<Answer<zes_device_properties_t>> =
        handles.iter().map(|handle| calls.card_properties(*handle)).collect();
    let common = answers.iter().flatten().filter(|answer| is_ours(answer)).map(tile_count).next();
    let (mut cards, mut first_index) = (Vec::new(), 0);
    for (handle, answer) in handles.into_iter().zip(answers) {
        match answer {
            Ok(properties) if is_ours(&properties) => {
                let pci = calls.pci_properties(handle).map(|pci| convert::pci_address(pci.address));
                let core = &properties.core;
                cards.push(Card {
                    handle,
                    tile_count: tile_count(&properties),
                    first_index,
                    model: convert::model(&convert::text(&core.name), core.deviceId),
                    uuid: core.uuid,
                    pci_address: pci.unwrap_or_default(),
                });
                first_index += tile_count(&properties);
            }
            Ok(_) => {}
            Err(failure) => {
                let error = device_error(first_index, failure);
                let Some(common) = common else { return Err(error) };
                tracing::warn!(device = first_index, error = %error, "a card is left out");
                first_index += common;
            }
        }
    }
    Ok(cards)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|now| now == "1")
}

/// Writes only what is not so yet: opened anew, nothing is written while others read.
fn set(name: &str, value: &str) {
    if std::env::var_os(name).is_none_or(|now| now != value) {
        // SAFETY: Rust's own readers and writers of the environment take a lock. C code that reads it without one is this
        // driver, which no other thread calls before the first opening has succeeded; and name resolution, which the agent
        // begins after the first try. Nothing is left to write after either.
        unsafe { std::env::set_var(name, value) };
    }
}

fn unset(name: &str) {
    if std::env::var_os(name).is_some() {
        // SAFETY: as in `set`.
        unsafe { std::env::remove_var(name) };
    }
}
