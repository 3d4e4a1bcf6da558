//! `libmunge`, opened at run time (it is installed wherever Slurm is, and nowhere else), and the eight functions of it that are
//! used (`munge(3)`, `munge_ctx(3)`). Each call has a context of its own, so threads share nothing.

#![expect(unsafe_code, reason = "calls a C library")]

use super::credential::{Decoded, Munge, MungeError, TTL_SECONDS};
use libloading::os::unix::Library as Opened;
use pillion_core::UnixTime;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// As every distribution names it.
const LIBRARY: &str = "libmunge.so.2";

/// `munge_err_t` of munge.h.
const SUCCESS: c_int = 0;
const BAD_CREDENTIALS: std::ops::RangeInclusive<c_int> = 8..=14;
const CRED_EXPIRED: c_int = 15;
const CRED_REWOUND: c_int = 16;
const CRED_REPLAYED: c_int = 17;
const CRED_UNAUTHORIZED: c_int = 18;
/// Values of `munge_opt_t` in munge.h.
const OPT_TTL: c_int = 4;
const OPT_ENCODE_TIME: c_int = 6;
const OPT_DECODE_TIME: c_int = 7;
const OPT_SOCKET: c_int = 8;
const OPT_UID_RESTRICTION: c_int = 9;

type Ctx = *mut c_void;
type EncodeFn = unsafe extern "C" fn(*mut *mut c_char, Ctx, *const c_void, c_int) -> c_int;
type DecodeFn = unsafe extern "C" fn(
    *const c_char,
    Ctx,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;
type StrerrorFn = unsafe extern "C" fn(c_int) -> *const c_char;
type CtxCreateFn = unsafe extern "C" fn() -> Ctx;
type CtxDestroyFn = unsafe extern "C" fn(Ctx);
type CtxStrerrorFn = unsafe extern "C" fn(Ctx) -> *const c_char;
type CtxGetFn = unsafe extern "C" fn(Ctx, c_int, ...) -> c_int;
type CtxSetFn = unsafe extern "C" fn(Ctx, c_int, ...) -> c_int;

/// The functions, and the library that they are in: never closed, so that they stay where they are.
#[derive(Clone, Copy)]
struct Calls {
    encode: EncodeFn,
    decode: DecodeFn,
    strerror: StrerrorFn,
    ctx_create: CtxCreateFn,
    ctx_destroy: CtxDestroyFn,
    ctx_strerror: CtxStrerrorFn,
    ctx_get: CtxGetFn,
    ctx_set: CtxSetFn,
}

impl Calls {
    fn open() -> Result<Self, libloading::Error> {
        // SAFETY: libmunge runs no code of its own when it is loaded.
        let library = unsafe { Opened::new(LIBRARY) }?;
        // SAFETY: the types are those of munge.h (0.5.x, soname 2).
        let calls = unsafe {
            Self {
                encode: *library.get::<EncodeFn>(b"munge_encode\0")?,
                decode: *library.get::<DecodeFn>(b"munge_decode\0")?,
                strerror: *library.get::<StrerrorFn>(b"munge_strerror\0")?,
                ctx_create: *library.get::<CtxCreateFn>(b"munge_ctx_create\0")?,
                ctx_destroy: *library.get::<CtxDestroyFn>(b"munge_ctx_destroy\0")?,
                ctx_strerror: *library.get::<CtxStrerrorFn>(b"munge_ctx_strerror\0")?,
                ctx_get: *library.get::<CtxGetFn>(b"munge_ctx_get\0")?,
                ctx_set: *library.get::<CtxSetFn>(b"munge_ctx_set\0")?,
            }
        };
        std::mem::forget(library);
        Ok(calls)
    }
}

/// MUNGE through its library and the munged behind a socket.
pub struct Library {
    socket: PathBuf,
    /// Once it could be opened.
    calls: Mutex<Option<Calls>>,
}

/// A context, freed with this.
struct Context {
    calls: Calls,
    raw: Ctx,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it came from `munge_ctx_create` and is freed once.
        unsafe { (self.calls.ctx_destroy)(self.raw) };
    }
}

impl Context {
    fn new(calls: Calls, socket: &Path) -> Result<Self, MungeError> {
        let path = CString::new(socket.as_os_str().as_bytes())
            .map_err(|_| MungeError::Unavailable("auth.munge_socket is no path".to_owned()))?;
        // SAFETY: it takes nothing; null is handled below.
        let raw = unsafe { (calls.ctx_create)() };
        if raw.is_null() {
            return Err(MungeError::Unavailable("MUNGE has no memory".to_owned()));
        }
        let context = Self { calls, raw };
        // SAFETY: this option takes a C string, which is copied (munge_ctx(3)).
        let status = unsafe { (calls.ctx_set)(raw, OPT_SOCKET, path.as_ptr()) };
        context.checked(status).map(|()| context)
    }

    fn checked(&self, status: c_int) -> Result<(), MungeError> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(status)) }
    }

    /// What a failed call means.
    fn error(&self, status: c_int) -> MungeError {
        match status {
            CRED_EXPIRED | CRED_REWOUND => {
                MungeError::Clock { made_at: self.time(OPT_ENCODE_TIME), read_at: self.time(OPT_DECODE_TIME) }
            }
            CRED_REPLAYED => MungeError::Replayed,
            CRED_UNAUTHORIZED => MungeError::NotForUs,
            status if BAD_CREDENTIALS.contains(&status) => MungeError::Bad(self.sentence(status)),
            _ => MungeError::Unavailable(format!("MUNGE does not answer: {}", self.sentence(status))),
        }
    }

    fn time(&self, option: c_int) -> UnixTime {
        let mut seconds: libc::time_t = 0;
        // SAFETY: both options write one `time_t` (munge_ctx(3)).
        let status = unsafe { (self.calls.ctx_get)(self.raw, option, &raw mut seconds) };
        UnixTime::from_epoch(if status == SUCCESS { u64::try_from(seconds).unwrap_or(0) } else { 0 })
    }

    /// What the library says of the last call, else of the status.
    fn sentence(&self, status: c_int) -> String {
        // SAFETY: both return null or a C string that lives as long as the context, or for ever; it is copied at once.
        let texts = unsafe { [(self.calls.ctx_strerror)(self.raw), (self.calls.strerror)(status)] };
        let said = texts.into_iter().find(|text| !text.is_null());
        // SAFETY: as above.
        said.map_or_else(String::new, |text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl Library {
    /// Asks the munged behind this socket. Nothing is opened before the first call.
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket, calls: Mutex::new(None) }
    }

    fn context(&self) -> Result<Context, MungeError> {
        let mut known = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = match *known {
            Some(calls) => calls,
            None => Calls::open().map_err(|error| {
                MungeError::Unavailable(format!(
                    "{LIBRARY} cannot be opened ({error}); install MUNGE's library"
                ))
            })?,
        };
        *known = Some(calls);
        drop(known);
        Context::new(calls, &self.socket)
    }
}

impl Munge for Library {
    fn encode(&self, payload: &str, reader: u32) -> Result<String, MungeError> {
        let context = self.context()?;
        let calls = context.calls;
        let length =
            c_int::try_from(payload.len()).map_err(|_| MungeError::Bad("it is too long".to_owned()))?;
        let ttl = c_int::try_from(TTL_SECONDS).unwrap_or(0);
        // SAFETY: the first option takes an int, the second a `uid_t` (munge_ctx(3)).
        let set = unsafe {
            [
                (calls.ctx_set)(context.raw, OPT_TTL, ttl),
                (calls.ctx_set)(context.raw, OPT_UID_RESTRICTION, reader),
            ]
        };
        set.into_iter().try_for_each(|status| context.checked(status))?;
        let mut made: *mut c_char = ptr::null_mut();
        // SAFETY: the payload is `length` bytes long; `made` is written with null or a string that is ours to free.
        let status = unsafe { (calls.encode)(&raw mut made, context.raw, payload.as_ptr().cast(), length) };
        let made = Allocated(made.cast());
        context.checked(status)?;
        if made.0.is_null() {
            return Err(MungeError::Unavailable("MUNGE gave no credential".to_owned()));
        }
        // SAFETY: a credential is a C string.
        let text = unsafe { CStr::from_ptr(made.0.cast::<c_char>()) };
        text.to_str().map(str::to_owned).map_err(|_| MungeError::Unavailable("MUNGE gave no text".to_owned()))
    }

    fn decode(&self, credential: &str) -> Result<Decoded, MungeError> {
        let credential =
            CString::new(credential).map_err(|_| MungeError::Bad("it holds a zero byte".to_owned()))?;
        let context = self.context()?;
        let mut payload: *mut c_void = ptr::null_mut();
        let (mut length, mut uid, mut gid): (c_int, libc::uid_t, libc::gid_t) = (0, u32::MAX, u32::MAX);
        // SAFETY: each is a place to write one value of its type; `payload` is null or ours to free, also after an error.
        let status = unsafe {
            (context.calls.decode)(
                credential.as_ptr(),
                context.raw,
                &raw mut payload,
                &raw mut length,
                &raw mut uid,
                &raw mut gid,
            )
        };
        let payload = Allocated(payload);
        context.checked(status)?;
        let length = usize::try_from(length).unwrap_or(0);
        // SAFETY: after a success the buffer holds `length` bytes.
        let bytes = (!payload.0.is_null())
            .then(|| unsafe { std::slice::from_raw_parts(payload.0.cast::<u8>(), length) }.to_vec());
        Ok(Decoded { payload: bytes.unwrap_or_default(), uid })
    }
}

/// What the library allocated; freed with this.
struct Allocated(*mut c_void);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: it is null or came from the C library's malloc, and is freed once.
        unsafe { libc::free(self.0) };
    }
}
