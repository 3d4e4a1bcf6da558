//! What callers pass: pointers to write to, buffers with a length, structures that carry their version.

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as VERSION_MISMATCH,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT, nvmlReturn_t,
};
use std::ffi::{c_char, c_uint};

/// How a call ends: well, or with an NVML error.
pub(crate) type Outcome<T = ()> = Result<T, nvmlReturn_t>;

/// Writes a result where the caller wants it.
pub(crate) fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null; that it points to a place for a `T` is the caller's part of the C contract.
    unsafe { to.write(value) };
    Ok(())
}

/// A structure or a number that the caller has filled in.
pub(crate) fn get<'a, T>(from: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: that it points to a `T` of its own, for the time of the call, is the caller's part of the C contract.
    unsafe { from.as_mut() }.ok_or(INVALID_ARGUMENT)
}

/// Writes a C string into a buffer of `length` bytes.
pub(crate) fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Outcome {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's buffer holds `length` bytes, which is more than the text has.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// The two-call protocol: with too little room the caller is told how much there must be. A null buffer has none.
pub(crate) fn put_list<T>(to: *mut T, count: *mut c_uint, entries: Vec<T>) -> Outcome {
    let count = get(count)?;
    let room = if to.is_null() { 0 } else { *count };
    let needed = c_uint::try_from(entries.len()).map_err(|_| INVALID_ARGUMENT)?;
    *count = needed;
    if needed > room {
        return Err(INSUFFICIENT_SIZE);
    }
    for (place, entry) in entries.into_iter().enumerate() {
        // SAFETY: the caller's buffer holds `room` entries, which are at least these.
        unsafe { to.add(place).write(entry) };
    }
    Ok(())
}

/// `NVML_STRUCT_VERSION`: the size of the structure, and its version in the highest byte.
pub(crate) fn check_sized_version<T>(version: c_uint, number: c_uint) -> Outcome {
    let size = c_uint::try_from(size_of::<T>()).map_err(|_| INVALID_ARGUMENT)?;
    check_version(version, size | number << 24)
}

/// A structure that carries its version alone.
pub(crate) fn check_version(version: c_uint, expected: c_uint) -> Outcome {
    if version == expected { Ok(()) } else { Err(VERSION_MISMATCH) }
}
