//! Stands in for Level Zero in tests, over the simulated devices of a `pillion-simulated-device`.
//!
//! One library with two faces. Named in `ZE_ENABLE_ALT_DRIVERS` it is a *driver* below the system's real loader, which
//! asks it for its tables (`tables`): the legacy way. Opened itself it is a *loader* of a newer specification, which
//! exports `zesInit` and all the rest by name: the modern way. Both lead to the same functions, and a process can go one
//! way only.
//!
//! Strict where the real ones may be: what is null, uninitialised, of the wrong type, asked for too often or beyond a
//! list's count is refused. It knows what the device model's counters say (`model`) and nothing of Pillion's backend.
//! Faults come from a file that each call reads anew (`faults`).

#![expect(unsafe_code, reason = "exports C functions, and reads and writes what their callers point at")]
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    clippy::not_unsafe_ptr_arg_deref,
    reason = "names and signatures are those of the specification, whose callers vouch for their pointers"
)]

mod core;
mod faults;
mod metrics;
mod model;
mod state;
mod sysman;
mod tables;

pub use faults::{FAULTS_VARIABLE, Faults};

use level_zero_sys::*;
use state::{HANGS, Refusal, State, with_state};
use std::time::Duration;

/// How often a call that hangs looks whether it still does.
const HANG_PAUSE: Duration = Duration::from_millis(5);

/// Runs a function of the specification: not while its fault is on, never out of it by a panic. A call that hangs keeps
/// nobody else waiting.
fn call(name: &str, mut body: impl FnMut(&mut State) -> Result<(), Refusal>) -> ze_result_t {
    let run = || {
        if let Some(result) = faults::now().answers.get(name) {
            return *result;
        }
        loop {
            match with_state(&mut body) {
                Ok(()) => return ZE_RESULT_SUCCESS,
                Err(HANGS) => std::thread::sleep(HANG_PAUSE),
                Err(refusal) => return refusal.0,
            }
        }
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(ZE_RESULT_ERROR_UNKNOWN)
}

/// Writes what a caller asked for.
fn put<T>(place: *mut T, value: T) -> Result<(), Refusal> {
    if place.is_null() {
        return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads what a caller points at.
fn take<T: Copy>(place: *const T) -> Result<T, Refusal> {
    if place.is_null() {
        return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
    }
    // SAFETY: as in `put`.
    Ok(unsafe { place.read() })
}

/// The protocol of lists: a count of 0 asks how many there are; otherwise as many as fit are written, and a count that is
/// too large is put right.
fn give<T: Copy>(count: *mut u32, place: *mut T, all: &[T]) -> Result<usize, Refusal> {
    let room = take(count)? as usize;
    let length = u32::try_from(all.len()).map_err(|_| Refusal(ZE_RESULT_ERROR_UNKNOWN))?;
    if room == 0 {
        put(count, length)?;
        return Ok(all.len());
    }
    if place.is_null() {
        return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
    }
    for (offset, item) in all.iter().take(room).enumerate() {
        // SAFETY: the caller vouches for room for `count` items.
        unsafe { place.add(offset).write(*item) };
    }
    if room > all.len() {
        put(count, length)?;
    }
    Ok(room)
}

/// Fills in an extensible structure, if it names its own type and extends nothing.
macro_rules! fill {
    ($place:ident: $type:ident, $change:expr) => {{
        let mut value = $crate::take($place.cast_const())?;
        if value.stype != $type::new().stype || !value.pNext.is_null() {
            return Err($crate::state::Refusal(ZE_RESULT_ERROR_INVALID_ARGUMENT));
        }
        let change: &mut dyn FnMut(&mut $type) = &mut $change;
        change(&mut value);
        $crate::put($place, value)
    }};
}
pub(crate) use fill;

/// Copies a text into the room for a C string.
fn write_text(room: &mut [std::ffi::c_char], text: &str) {
    for (place, byte) in room.iter_mut().zip(text.bytes().chain([0])) {
        *place = std::ffi::c_char::try_from(byte).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn a_list_is_asked_for_twice() {
        let all = [7_u32, 8, 9];
        let mut room = [0_u32; 4];
        let mut ask = |count: u32| {
            let mut count = count;
            let given = give(&raw mut count, room.as_mut_ptr(), &all);
            (given, count, room)
        };
        assert_eq!(ask(0), (Ok(3), 3, [0; 4]), "a count of 0 is a question");
        assert_eq!(ask(2), (Ok(2), 2, [7, 8, 0, 0]));
        assert_eq!(ask(4), (Ok(4), 3, [7, 8, 9, 0]), "too large a count is put right");
        let null = Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
        assert_eq!(give(ptr::null_mut(), room.as_mut_ptr(), &all), null);
        let mut count = 3;
        assert_eq!(give(&raw mut count, ptr::null_mut(), &all), null);
    }

    #[test]
    fn nothing_answers_before_it_is_initialised_and_no_handle_is_made_up() {
        let mut count = 0;
        assert_eq!(core::zeDriverGet(&raw mut count, ptr::null_mut()), ZE_RESULT_ERROR_UNINITIALIZED);
        assert_eq!(sysman::zesDriverGet(&raw mut count, ptr::null_mut()), ZE_RESULT_ERROR_UNINITIALIZED);
        let mut counter = zes_power_energy_counter_t::new();
        let made_up = zes_pwr_handle_t(ptr::without_provenance_mut(0x1234));
        let answer = sysman::zesPowerGetEnergyCounter(made_up, &raw mut counter);
        assert_eq!(answer, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }

    #[test]
    fn a_structure_names_its_own_type() {
        let fill = |place: *mut zes_mem_state_t| fill!(place: zes_mem_state_t, |room| room.size = 5);
        let mut right = zes_mem_state_t::new();
        assert_eq!(fill(&raw mut right), Ok(()));
        assert_eq!(right.size, 5);
        let mut wrong = zes_mem_state_t { stype: 1, ..zes_mem_state_t::new() };
        assert_eq!(fill(&raw mut wrong), Err(Refusal(ZE_RESULT_ERROR_INVALID_ARGUMENT)));
        assert_eq!(fill(ptr::null_mut()), Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER)));
    }

    #[test]
    fn a_counter_answers_no_sooner_than_it_should_be_asked() {
        let mut state = State::default();
        let power = state::Object::Power { card: 0, tile: None };
        assert_eq!(state.spaced(power), Ok(()));
        assert_eq!(state.spaced(power), Err(Refusal(ZE_RESULT_ERROR_NOT_AVAILABLE)));
        assert_eq!(state.spaced(state::Object::Power { card: 1, tile: None }), Ok(()));
    }
}
