//! The state of the library between calls, and what every call goes through.

use crate::control::Control;
use crate::mig::Key;
use crate::model::{Model, find};
use crate::pointer::Outcome;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED as DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST as GPU_IS_LOST,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
    nvmlReturn_enum_NVML_ERROR_UNINITIALIZED as UNINITIALIZED, nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN,
    nvmlReturn_enum_NVML_SUCCESS as SUCCESS, nvmlReturn_t,
};
use pillion_core::device::DeviceDescription;
use pillion_device::simulated::{Counters, Simulated, Totals};
use pillion_device::{Backend as _, DeviceError};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The variable that switches every call but MPS's own enumeration off.
const MPS_ENUMERATION: &str = "NVML_MPS_DEVICE_ENUMERATION";
/// The address of the first device's handle; those of the others follow. Nothing stands there.
const HANDLES: usize = 0x6e76_0000;
/// From one handle to the next.
const HANDLE_STEP: usize = 0x40;

/// A device and what the library remembers of it.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) description: DeviceDescription,
    pub(crate) model: Model,
    /// When its last GPM sample was taken.
    pub(crate) sampled_at: Option<Instant>,
    /// What it had done when the utilisation window began, and at the last turn of the window.
    pub(crate) window: (Totals, Totals),
}

/// An event set.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// The event types that each device tells to it.
    pub(crate) registered: BTreeMap<u32, u64>,
    /// How much of the log of Xids it has seen.
    pub(crate) seen_count: usize,
}

/// A GPM sample that is allocated: whose it is, and what the device had done then.
pub(crate) type Sample = Option<(u32, Totals)>;

/// The library while it is initialised.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) control: Control,
    pub(crate) link: Simulated,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) samples: BTreeMap<usize, Sample>,
    pub(crate) sets: BTreeMap<usize, Set>,
    pub(crate) mps_races: u32,
    /// What the handles of instances are of, in their order.
    pub(crate) instance_handles: Vec<Key>,
    /// How many times it was initialised, less how many times it was shut down.
    init_count: usize,
    next_handle: usize,
}

static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);

fn library() -> MutexGuard<'static, Option<Library>> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing may unwind into C.
pub(crate) fn guarded(body: impl FnOnce() -> Outcome) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

/// One look into the library, with the control file as it is now.
pub(crate) fn with_library<T>(body: impl FnOnce(&mut Library) -> Outcome<T>) -> Outcome<T> {
    let mut held = library();
    let library = held.as_mut().ok_or(UNINITIALIZED)?;
    if std::env::var_os(MPS_ENUMERATION).is_some_and(|value| value == "1") {
        return Err(NOT_SUPPORTED);
    }
    library.control = Control::read()?;
    body(library)
}

/// A call about the library as a whole.
pub(crate) fn call(body: impl FnOnce(&mut Library) -> Outcome) -> nvmlReturn_t {
    guarded(|| with_library(body))
}

/// A call about one device, by the name of the function.
pub(crate) fn call_device(
    function: &str,
    handle: nvmlDevice_t,
    body: impl FnOnce(&mut Library, usize) -> Outcome,
) -> nvmlReturn_t {
    hang(|_| place_of(handle));
    call(|library| {
        let place = library.place(handle)?;
        library.check_function(function)?;
        body(library, place)
    })
}

/// A call about two devices: one that hangs or is gone keeps the call from the other as well.
pub(crate) fn call_pair(
    function: &str,
    handles: [nvmlDevice_t; 2],
    body: impl FnOnce(&mut Library, [usize; 2]) -> Outcome,
) -> nvmlReturn_t {
    hang(|_| place_of(handles[1]));
    call_device(function, handles[0], |library, one| {
        let other = library.place(handles[1])?;
        if one == other { Err(INVALID_ARGUMENT) } else { body(library, [one, other]) }
    })
}

/// Stays away for as long as the device hangs that the call is about. Meanwhile others may use the library.
pub(crate) fn hang(place: impl Fn(&Library) -> Option<usize>) {
    let is_hung = |library: &mut Library| {
        let index = place(library).and_then(|place| library.gpus.get(place)).map(|gpu| gpu.description.index);
        Ok(index.is_some_and(|index| library.control.hung.contains(&index)))
    };
    while with_library(is_hung).unwrap_or(false) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The place of the device with this handle, if it can be one.
fn place_of(handle: nvmlDevice_t) -> Option<usize> {
    let offset = handle.addr().checked_sub(HANDLES)?;
    offset.is_multiple_of(HANDLE_STEP).then_some(offset / HANDLE_STEP)
}

/// Initialises the library, or counts one more user of it.
pub(crate) fn init() -> nvmlReturn_t {
    guarded(|| {
        let control = Control::read()?;
        if control.no_permission {
            return Err(NO_PERMISSION);
        }
        let mut held = library();
        if let Some(library) = held.as_mut() {
            library.init_count += 1;
            return Ok(());
        }
        let mut link = Simulated::new(control.socket());
        let mut gpus = Vec::new();
        for description in link.devices().map_err(|_| DRIVER_NOT_LOADED)? {
            let played = control.models.get(gpus.len()).unwrap_or(&description.model);
            let Some(model) = find(played) else { continue };
            let totals = link.counters(description.index).map(|it| it.totals).unwrap_or_default();
            gpus.push(Gpu { description, model, sampled_at: None, window: (totals, totals) });
        }
        let library = held.insert(Library {
            control,
            link,
            gpus,
            samples: BTreeMap::new(),
            sets: BTreeMap::new(),
            mps_races: 0,
            instance_handles: Vec::new(),
            init_count: 1,
            next_handle: 0x1000,
        });
        library.make_files()
    })
}

/// Takes one user off; the last one's takes everything with it.
pub(crate) fn shutdown() -> nvmlReturn_t {
    guarded(|| {
        let mut held = library();
        let library = held.as_mut().ok_or(UNINITIALIZED)?;
        library.init_count -= 1;
        if library.init_count == 0 {
            *held = None;
        }
        Ok(())
    })
}

impl Library {
    /// The handle of the device at a place.
    pub(crate) fn handle(place: usize) -> nvmlDevice_t {
        ptr::without_provenance_mut(HANDLES + place * HANDLE_STEP)
    }

    /// The place of the device with this handle, if we may ask it.
    fn place(&self, handle: nvmlDevice_t) -> Outcome<usize> {
        let place = place_of(handle).filter(|place| *place < self.gpus.len()).ok_or(INVALID_ARGUMENT)?;
        self.check(place)?;
        Ok(place)
    }

    /// Whether the device at a place can be asked.
    pub(crate) fn check(&self, place: usize) -> Outcome {
        std::thread::sleep(Duration::from_millis(self.control.hang_milliseconds));
        if self.control.no_permission {
            return Err(NO_PERMISSION);
        }
        if self.control.lost.contains(&self.index(place)) {
            return Err(GPU_IS_LOST);
        }
        Ok(())
    }

    /// The simulation's number of the device at a place.
    pub(crate) fn index(&self, place: usize) -> u32 {
        self.gpus[place].description.index
    }

    /// Whether a function may be called, by its name.
    pub(crate) fn check_function(&self, function: &str) -> Outcome {
        if !self.control.supports(function) {
            return Err(NOT_SUPPORTED);
        }
        let is_refused = self.control.not_permitted.iter().any(|it| it == function);
        if is_refused { Err(NO_PERMISSION) } else { Ok(()) }
    }

    /// The number of the file of the device at a place.
    pub(crate) fn minor_number(&self, place: usize) -> u32 {
        self.control.minor_numbers.get(place).copied().unwrap_or(self.index(place))
    }

    /// Which model the device at a place is.
    pub(crate) fn model_name(&self, place: usize) -> &str {
        let played = self.control.models.get(place);
        played.map_or(self.gpus[place].description.model.as_str(), String::as_str)
    }

    /// What the device at a place shows.
    pub(crate) fn counters(&mut self, place: usize) -> Outcome<Counters> {
        let index = self.index(place);
        self.link.counters(index).map_err(|error| code(&error))
    }

    /// A handle of something that is allocated here.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.next_handle += 8;
        self.next_handle
    }
}

/// What NVML says where the simulated driver fails.
pub(crate) fn code(error: &DeviceError) -> nvmlReturn_t {
    if error.is_gone() { GPU_IS_LOST } else { DRIVER_NOT_LOADED }
}
