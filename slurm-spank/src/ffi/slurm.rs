//! Slurm's C interface (spank.h, identical from 22.05 to 26.05 in what is used here), both ways: the symbols that Slurm
//! looks for, and [`Spank`] over the functions that it has. Nothing is decided here; [`crate::hooks`] does that.
//!
//! Slurm's functions are looked up at run time in the program that loaded us. So the library links without Slurm, tests
//! run without it, and a function that a later Slurm drops is a function that is not there.

#![expect(unsafe_code, reason = "the C interface of SPANK")]

use crate::env;
use crate::hooks::{self, Recognised};
use crate::spank::{Context, Item, Level, Spank};
use crate::version::{SlurmVersion, VersionStamp};
use libc::{c_char, c_int, c_void};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

/// The version that an unstamped build carries.
const BUILT_FOR: SlurmVersion = match option_env!("PILLION_SLURM_VERSION") {
    None => SlurmVersion { major: 24, minor: 11 },
    Some(text) => SlurmVersion::parse(text).expect("PILLION_SLURM_VERSION must be written as 24.11"),
};

/// How Slurm names us: the first part of `_SLURM_SPANK_OPTION_pillion_colocate`, which `pillion.lua` reads.
#[unsafe(export_name = "plugin_name")]
pub static PLUGIN_NAME: [u8; 8] = *b"pillion\0";
/// What we are.
#[unsafe(export_name = "plugin_type")]
pub static PLUGIN_TYPE: [u8; 6] = *b"spank\0";
/// The Slurm that we are for; its first word is what Slurm compares.
#[unsafe(export_name = "plugin_version")]
pub static PLUGIN_VERSION: VersionStamp = VersionStamp::new(BUILT_FOR);

const SUCCESS: c_int = 0;
/// Any value but 0 makes the command refuse the option; this one is Slurm's own for a bad argument.
const BAD_OPTION: c_int = -1;

/// `struct spank_option` of spank.h, field by field.
#[repr(C)]
struct SpankOption {
    name: *const c_char,
    arginfo: *const c_char,
    usage: *const c_char,
    has_arg: c_int,
    val: c_int,
    callback: Option<extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

const USAGE: &CStr = c"share a GPU where it does not slow the job: yes (default), no, or a list of guest (where nobody else needs the GPU; started again where somebody does), \
max-slowdown=R (1 to 10, such as 1.15), profile=NAME, memory=SIZE (such as 8G), cap=PART (0.1, 0.2, .. 1: runs alone, to be measured), isolation=hard (a wall to other users), restart=yes (started again once, with more, after it ran out of GPU memory) or early (also before it runs out)";

impl SpankOption {
    /// `--colocate[=...]`: `has_arg` 2 is getopt's "optional argument".
    fn colocate() -> Self {
        Self {
            name: c"colocate".as_ptr(),
            arginfo: c"[yes|no|SETTINGS]".as_ptr(),
            usage: USAGE.as_ptr(),
            has_arg: 2,
            val: 0,
            callback: Some(check_colocate),
        }
    }
}

type Handle = *mut c_void;
type OptionRegister = unsafe extern "C" fn(Handle, *mut SpankOption) -> c_int;
type OptionGet = unsafe extern "C" fn(Handle, *mut SpankOption, *mut *mut c_char) -> c_int;
type GetContext = unsafe extern "C" fn() -> c_int;
type GetItem = unsafe extern "C" fn(Handle, c_int, ...) -> c_int;
type GetVariable = unsafe extern "C" fn(Handle, *const c_char, *mut c_char, c_int) -> c_int;
type SetVariable = unsafe extern "C" fn(Handle, *const c_char, *const c_char, c_int) -> c_int;
type UnsetVariable = unsafe extern "C" fn(Handle, *const c_char) -> c_int;
type Log = unsafe extern "C" fn(*const c_char, ...);

/// A function of the program that loaded us.
///
/// # Safety
/// `F` must be the type that spank.h declares for `name`.
unsafe fn slurm_function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: `name` ends in a NUL; RTLD_DEFAULT searches what the program has loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the address is not null, sizes agree, and the caller vouches for the type.
    Some(unsafe { std::mem::transmute_copy(&address) })
}

/// Slurm's handle, valid during one hook.
struct SlurmHandle(Handle);

impl Spank for SlurmHandle {
    fn context(&self) -> Context {
        // SAFETY: `enum spank_context spank_context(void)`.
        let Some(context) = (unsafe { slurm_function::<GetContext>(c"spank_context") }) else {
            return Context::Other;
        };
        // SAFETY: it takes nothing and may be called at any time.
        match unsafe { context() } {
            1 => Context::Local,
            2 => Context::Remote,
            3 => Context::Allocator,
            _ => Context::Other,
        }
    }

    fn register_option(&mut self) -> bool {
        // SAFETY: `spank_err_t spank_option_register(spank_t, struct spank_option *)`.
        let register = unsafe { slurm_function::<OptionRegister>(c"spank_option_register") };
        let mut option = SpankOption::colocate();
        // SAFETY: the handle is Slurm's own; Slurm copies the option, and its strings are static.
        register.is_some_and(|register| unsafe { register(self.0, &raw mut option) } == SUCCESS)
    }

    fn option(&mut self) -> Option<String> {
        // SAFETY: `spank_err_t spank_option_getopt(spank_t, struct spank_option *, char **)`.
        let get = unsafe { slurm_function::<OptionGet>(c"spank_option_getopt") }?;
        let mut option = SpankOption::colocate();
        let mut value = null_mut();
        // SAFETY: the handle is Slurm's own; both pointers live through the call.
        let rc = unsafe { get(self.0, &raw mut option, &raw mut value) };
        // SAFETY: where Slurm sets it, it is a C string that stays until the stack is destroyed.
        let text =
            (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned());
        (rc == SUCCESS).then(|| text.unwrap_or_default())
    }

    fn item(&mut self, item: Item) -> Option<u32> {
        // The numbers of `enum spank_item`; all of these are 32 bits wide (uid_t and gid_t too).
        let number = match item {
            Item::Uid => 0,
            Item::Gid => 1,
            Item::JobId => 2,
            Item::StepId => 3,
            Item::RestartCount => 29,
            Item::ArrayId => 30,
            Item::ArrayTaskId => 31,
        };
        // SAFETY: `spank_err_t spank_get_item(spank_t, spank_item_t, ...)`.
        let get = unsafe { slurm_function::<GetItem>(c"spank_get_item") }?;
        let mut value = 0_u32;
        // SAFETY: the handle is Slurm's own, and each item above takes one `uint32_t *`.
        let rc = unsafe { get(self.0, number, &raw mut value) };
        (rc == SUCCESS).then_some(value)
    }

    fn getenv(&mut self, name: &str) -> Option<String> {
        // SAFETY: `spank_err_t spank_getenv(spank_t, const char *, char *, int)`.
        let get = unsafe { slurm_function::<GetVariable>(c"spank_getenv") }?;
        let name = CString::new(name).ok()?;
        let mut buffer = [0_u8; env::VALUE_LENGTH_MAX];
        let length = c_int::try_from(buffer.len()).ok()?;
        // SAFETY: the handle is Slurm's own, the name ends in a NUL, and the buffer has the length given.
        let rc = unsafe { get(self.0, name.as_ptr(), buffer.as_mut_ptr().cast(), length) };
        let text = CStr::from_bytes_until_nul(&buffer).ok()?;
        (rc == SUCCESS).then(|| text.to_string_lossy().into_owned())
    }

    fn setenv(&mut self, name: &str, value: &str) -> bool {
        // SAFETY: `spank_err_t spank_setenv(spank_t, const char *, const char *, int)`.
        let set = unsafe { slurm_function::<SetVariable>(c"spank_setenv") };
        let (Some(set), Ok(name), Ok(value)) = (set, CString::new(name), CString::new(value)) else {
            return false;
        };
        // SAFETY: the handle is Slurm's own and copies both strings, which end in a NUL.
        unsafe { set(self.0, name.as_ptr(), value.as_ptr(), 1) == SUCCESS }
    }

    fn unsetenv(&mut self, name: &str) {
        // SAFETY: `spank_err_t spank_unsetenv(spank_t, const char *)`.
        let unset = unsafe { slurm_function::<UnsetVariable>(c"spank_unsetenv") };
        let (Some(unset), Ok(name)) = (unset, CString::new(name)) else { return };
        // SAFETY: the handle is Slurm's own and the name ends in a NUL.
        unsafe { unset(self.0, name.as_ptr()) };
    }

    fn process_variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn remove_process_variable(&mut self, name: &str) {
        // SAFETY: only `srun` calls this, in its first hook, before it has started a thread.
        unsafe { std::env::remove_var(name) };
    }

    fn process_arguments(&self) -> Vec<String> {
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    fn tell_controller(&mut self, name: &str, value: &str) {
        // SAFETY: `spank_err_t spank_job_control_setenv(spank_t, const char *, const char *, int)`.
        let set = unsafe { slurm_function::<SetVariable>(c"spank_job_control_setenv") };
        let (Some(set), Ok(name), Ok(value)) = (set, CString::new(name), CString::new(value)) else { return };
        // SAFETY: the handle is Slurm's own and copies both strings, which end in a NUL.
        unsafe { set(self.0, name.as_ptr(), value.as_ptr(), 1) };
    }

    fn log(&mut self, level: Level, line: &str) {
        match level {
            Level::Debug => slurm_log(c"slurm_debug", line),
            Level::Info => slurm_log(c"slurm_info", line),
        }
    }
}

/// Writes a line by one of Slurm's log functions.
fn slurm_log(function: &CStr, line: &str) {
    // SAFETY: every function named here is `void f(const char *format, ...)`.
    let log = unsafe { slurm_function::<Log>(function) };
    if let (Some(log), Ok(line)) = (log, CString::new(line)) {
        // SAFETY: the format takes one C string, which is given.
        unsafe { log(c"%s".as_ptr(), line.as_ptr()) };
    }
}

thread_local! {
    static INSIDE_A_HOOK: Cell<bool> = const { Cell::new(false) };
}

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Runs a hook. A panic inside ends here, without a word: a trace would land in the job's own output. The silence holds
/// for this thread during this call and no longer. Always success.
pub fn fail_open(hook: impl FnOnce()) -> c_int {
    // Neither takes memory of the heap: Slurm unloads us, and nobody would give it back.
    static PREVIOUS: OnceLock<PanicHook> = OnceLock::new();
    PREVIOUS.get_or_init(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(|panic| {
            if let Some(previous) = PREVIOUS.get().filter(|_| !INSIDE_A_HOOK.get()) {
                previous(panic);
            }
        }));
        previous
    });
    INSIDE_A_HOOK.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(hook));
    INSIDE_A_HOOK.set(false);
    if let Err(panic) = outcome {
        slurm_log(c"slurm_info", "pillion: a hook failed inside; the job goes on without it");
        // A payload whose own drop panics must not get out either.
        std::mem::forget(panic);
    }
    SUCCESS
}

/// Slurm's arguments from plugstack.conf; what is not UTF-8 is left out.
///
/// # Safety
/// `values` must point to `count` C strings that live as long as the result is used.
unsafe fn arguments<'a>(count: c_int, values: *const *const c_char) -> Vec<&'a str> {
    let count = usize::try_from(count).unwrap_or(0);
    if values.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller vouches for `count` pointers.
    let values = unsafe { std::slice::from_raw_parts(values, count) };
    // SAFETY: each pointer that is not null is a C string, says the caller.
    let texts = values.iter().filter(|value| !value.is_null()).map(|value| unsafe { CStr::from_ptr(*value) });
    texts.filter_map(|text| text.to_str().ok()).collect()
}

/// What the privileged hook found, for the user's hook in the same process (a forked child with one thread).
static RECOGNISED: Mutex<Option<Recognised>> = Mutex::new(None);

/// Slurm's hook in every context, first of all.
///
/// # Safety
/// For Slurm to call: with its own handle and argument vector, both valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: Handle, ac: c_int, av: *const *const c_char) -> c_int {
    // SAFETY: Slurm passes its own argument vector, which outlives the call.
    fail_open(|| hooks::init(&mut SlurmHandle(spank), &unsafe { arguments(ac, av) }))
}

/// Slurm's hook in the child that becomes the task, as root.
///
/// # Safety
/// For Slurm to call: with its own handle and argument vector, both valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init_privileged(
    spank: Handle,
    ac: c_int,
    av: *const *const c_char,
) -> c_int {
    fail_open(|| {
        // SAFETY: Slurm passes its own argument vector, which outlives the call.
        let found = hooks::task_init_privileged(&mut SlurmHandle(spank), &unsafe { arguments(ac, av) });
        if let Ok(mut recognised) = RECOGNISED.lock() {
            *recognised = found;
        }
    })
}

/// Slurm's hook in the same child, as the user, right before the task.
///
/// # Safety
/// For Slurm to call: with its own handle and argument vector, both valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(spank: Handle, ac: c_int, av: *const *const c_char) -> c_int {
    fail_open(|| {
        let recognised = RECOGNISED.lock().ok().and_then(|mut recognised| recognised.take());
        // SAFETY: Slurm passes its own argument vector, which outlives the call.
        hooks::task_init(&mut SlurmHandle(spank), &unsafe { arguments(ac, av) }, recognised);
    })
}

/// Slurm's question about a value of `--colocate`. Only at submit (`remote` 0) may it say no.
extern "C" fn check_colocate(_: c_int, value: *const c_char, remote: c_int) -> c_int {
    let refused = Cell::new(false);
    fail_open(|| {
        // SAFETY: Slurm passes null or the option's C string.
        let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes());
        if let (0, Err(error)) = (remote, env::check_option(value)) {
            slurm_log(c"slurm_error", &env::printable(&error.to_string()));
            refused.set(true);
        }
    });
    if refused.get() { BAD_OPTION } else { SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_slurm_around_every_hook_is_success() {
        // None of Slurm's functions is there to be found, and the handle is null.
        let arguments = [c"socket=/nowhere".as_ptr(), std::ptr::null(), c"\xff".as_ptr()];
        for (count, values) in [(0, std::ptr::null()), (3, arguments.as_ptr()), (-1, arguments.as_ptr())] {
            // SAFETY: a null handle is never used, because nothing that would use it is found; the vector is valid.
            let outcomes = unsafe {
                [
                    slurm_spank_init(null_mut(), count, values),
                    slurm_spank_task_init_privileged(null_mut(), count, values),
                    slurm_spank_task_init(null_mut(), count, values),
                ]
            };
            assert_eq!(outcomes, [SUCCESS; 3]);
        }
    }

    #[test]
    fn a_bad_value_is_refused_at_submit_and_nowhere_else() {
        let long = CString::new(vec![b'x'; 60_000]).unwrap();
        for bad in [c"maybe", c"memory=8", c"a\nb", c"\xff\xfe", &long] {
            assert_ne!(check_colocate(0, bad.as_ptr(), 0), SUCCESS, "{bad:?}");
            assert_eq!(check_colocate(0, bad.as_ptr(), 1), SUCCESS, "{bad:?} in slurmstepd");
        }
        for good in [c"", c"(null)", c"no", c"max-slowdown=1.15,memory=8G"] {
            assert_eq!(check_colocate(0, good.as_ptr(), 0), SUCCESS, "{good:?}");
        }
        assert_eq!(check_colocate(0, std::ptr::null(), 0), SUCCESS);
    }
}
