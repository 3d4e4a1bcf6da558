//! A SPANK plugin of somebody else's: it does what pyxis and EAR do in `sbatch`, `srun` and `slurmstepd`. It registers an option of its own,
//! reads and sets variables of the job, connects to a socket of its own that nobody serves, and tells the controller something. Stamped
//! by the tool that stamps ours.
//!
//! Source: spank.h (Slurm 22.05 to 26.05), spank(8); what they do: `pyxis_spank.c` of NVIDIA/pyxis, `spank_plugin.c` of EAR.

#![expect(unsafe_code, reason = "plays a plugin in C")]

use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;

const SUCCESS: c_int = 0;
/// `S_CTX_REMOTE` and `S_CTX_ALLOCATOR` of spank.h.
const REMOTE: c_int = 2;
const ALLOCATOR: c_int = 3;

/// As Slurm calls it.
#[unsafe(export_name = "plugin_name")]
pub static PLUGIN_NAME: [u8; 10] = *b"neighbour\0";
/// What it is.
#[unsafe(export_name = "plugin_type")]
pub static PLUGIN_TYPE: [u8; 6] = *b"spank\0";

/// The number that Slurm compares, and the marker by which the tool finds it.
#[repr(C)]
#[derive(Debug)]
pub struct Stamp {
    number: u32,
    marker: [u8; 28],
}

/// Which Slurm it is for.
#[unsafe(export_name = "plugin_version")]
pub static PLUGIN_VERSION: Stamp = Stamp { number: 0x18_0b_00, marker: *b"<pillion spank plugin stamp>" };

/// `struct spank_option` of spank.h.
#[repr(C)]
struct SpankOption {
    name: *const c_char,
    arginfo: *const c_char,
    usage: *const c_char,
    has_arg: c_int,
    val: c_int,
    callback: Option<extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

unsafe extern "C" {
    fn spank_context() -> c_int;
    fn spank_option_register(spank: *mut c_void, option: *mut SpankOption) -> c_int;
    fn spank_option_getopt(spank: *mut c_void, option: *mut SpankOption, value: *mut *mut c_char) -> c_int;
    fn spank_setenv(spank: *mut c_void, name: *const c_char, value: *const c_char, overwrite: c_int)
    -> c_int;
    fn spank_job_control_setenv(
        spank: *mut c_void,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
}

extern "C" fn accept(_: c_int, _: *const c_char, _: c_int) -> c_int {
    SUCCESS
}

fn option() -> SpankOption {
    SpankOption {
        name: c"neighbour".as_ptr(),
        arginfo: c"WORD".as_ptr(),
        usage: c"of another plugin".as_ptr(),
        has_arg: 1,
        val: 7,
        callback: Some(accept),
    }
}

/// In every context, first of all.
///
/// # Safety
/// For Slurm to call, with its own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: *mut c_void, _: c_int, _: *const *const c_char) -> c_int {
    let mut option = option();
    // SAFETY: the handle is Slurm's own; it copies the option, whose strings are static.
    unsafe {
        spank_option_register(spank, &raw mut option);
        if spank_context() == ALLOCATOR {
            spank_job_control_setenv(spank, c"NEIGHBOUR_TOLD".as_ptr(), c"1".as_ptr(), 1);
        }
    }
    SUCCESS
}

/// In slurmstepd, as the user before the tasks are made: what was asked for, into the job's environment.
///
/// # Safety
/// For Slurm to call, with its own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_user_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // A server that is away, as of a monitor that is restarted.
    let _ = UnixStream::connect("/nowhere/neighbour.sock");
    let (mut option, mut value) = (option(), null_mut());
    // SAFETY: the handle is Slurm's own, and both pointers live through the call; the value is Slurm's C string.
    unsafe {
        if spank_option_getopt(spank, &raw mut option, &raw mut value) == SUCCESS && !value.is_null() {
            spank_setenv(spank, c"NEIGHBOUR".as_ptr(), CStr::from_ptr(value).as_ptr(), 1);
        }
    }
    SUCCESS
}

/// In the task, as its user.
///
/// # Safety
/// For Slurm to call, with its own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: the handle is Slurm's own, and the strings are static.
    unsafe {
        if spank_context() == REMOTE {
            spank_setenv(spank, c"NEIGHBOUR_TASK".as_ptr(), c"1".as_ptr(), 1);
        }
    }
    SUCCESS
}
