//! MIG as a state machine: which devices have it on, what instances there are, who is in them, and all that a driver refuses.
//! What is shared between the processes that load this library stands in a file (`state`); whose way to an instance is whose, in
//! files whose owners and openers are real (`node`).
//!
//! | refused | with |
//! |---|---|
//! | an instance where there is no room, or one too many | `INSUFFICIENT_RESOURCES` |
//! | a size or a place that there is not, a handle of what is gone | `INVALID_ARGUMENT` |
//! | a GPU instance with a compute instance in it, or with somebody in it, or somebody who was in it lately (`destroy_busy_ms`), or that is stuck (`destroy_stuck`) | `IN_USE` |
//! | a change of mode on Ampere | `RESET_REQUIRED`, and it waits for a reset |
//! | a change of mode with instances, or while another program has the device open | `IN_USE`, and it waits |
//! | anything of this, not root | `NO_PERMISSION` |

mod compute_instance;
mod device;
mod gpu_instance;
mod handle;
mod mode;
mod node;
mod state;
mod tables;

pub(crate) use device::put_uuid;
pub(crate) use handle::Key;

use crate::library::{Library, call, hang};
use crate::pointer::Outcome;
use handle::Kind;
use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE, nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t,
};
use pillion_core::{Clock as _, SystemClock};
use state::Device;
use std::ffi::c_uint;

/// The most instances that any of these devices can have.
const INSTANCES_MAX: c_uint = 7;

/// A call about an instance, by the name of the function.
fn call_instance(
    function: &str,
    kind: Kind,
    address: usize,
    body: impl FnOnce(&mut Library, usize) -> Outcome,
) -> nvmlReturn_t {
    hang(|library| library.place_of_instance(kind, address).ok());
    call(|library| {
        let place = library.place_of_instance(kind, address)?;
        library.check(place)?;
        library.check_function(function)?;
        body(library, place)
    })
}

/// "Requires privileged user."
fn privileged(library: &Library) -> Outcome {
    if library.control.not_root { Err(NO_PERMISSION) } else { Ok(()) }
}

/// A device with MIG on.
fn cut_up(library: &Library, place: usize) -> Outcome<Device> {
    let device = library.mig(place)?;
    if device.is_on() { Ok(device) } else { Err(NOT_SUPPORTED) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds since 1970")]
fn now_milliseconds() -> u64 {
    (SystemClock.now().seconds() * 1e3) as u64
}

/// Whether an instance, or a compute instance of it, may go: nobody is in it, nobody was lately, and it is not stuck.
fn check_unused(
    library: &Library,
    place: usize,
    device: &mut Device,
    (instance, compute): (usize, Option<usize>),
) -> Outcome {
    let table = library.table(place);
    let gi = device.instances[instance].id(table);
    let ci = compute.map(|number| device.instances[instance].compute[number].id);
    let is_occupied = !library.occupants(place, gi, ci).is_empty();
    let instance = &mut device.instances[instance];
    let now = now_milliseconds();
    if is_occupied {
        instance.occupied_at = Some(now);
    }
    let left_at = instance.occupied_at.map(|at| at + library.control.destroy_busy_ms);
    let index = library.index(place);
    let is_stuck =
        library.control.destroy_stuck.iter().any(|it| (it.index, it.start) == (index, instance.start));
    if is_occupied || is_stuck || left_at.is_some_and(|at| now < at) { Err(IN_USE) } else { Ok(()) }
}
