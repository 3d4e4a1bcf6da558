//! The calls of the C library that a deadline on a Unix socket needs and the standard library has not, and the user that
//! we act as.

#![expect(unsafe_code, reason = "the C interface of Unix sockets")]

use libc::{c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The user that this process acts as.
pub fn effective_uid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Connects to a Unix socket without waiting: a full backlog is [`io::ErrorKind::WouldBlock`]. The stream stays
/// non-blocking and is closed on exec.
///
/// # Errors
/// Those of socket(2) and connect(2), and `InvalidInput` for a path that is too long.
pub fn connect_nonblocking(path: &Path) -> io::Result<UnixStream> {
    // SAFETY: all zeroes is a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = c_char::from_ne_bytes([*byte]);
    }
    // SAFETY: no pointers are passed.
    let fd = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open, and nobody else's.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    // SAFETY: the address is a whole `sockaddr_un` of the length given.
    match unsafe { libc::connect(fd, (&raw const address).cast(), length) } {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The user of the process at the other end.
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of_val(&peer)).map_err(io::Error::other)?;
    let fd = socket.as_raw_fd();
    // SAFETY: the descriptor is open, and the buffer is a `ucred` of the length given.
    let rc = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    if rc == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Sends what fits now. A peer that has hung up is an error, never the signal SIGPIPE, which would end the task.
///
/// # Errors
/// Those of send(2).
pub fn send_quietly(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is open, and the buffer has the length given.
    let count = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Waits until the socket can be read, or `limit` has passed.
///
/// # Errors
/// Those of poll(2), save an interruption.
pub fn wait_readable(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    wait(socket, libc::POLLIN, limit)
}

/// Waits until the socket can be written, or `limit` has passed.
///
/// # Errors
/// Those of poll(2), save an interruption.
pub fn wait_writable(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    wait(socket, libc::POLLOUT, limit)
}

fn wait(socket: BorrowedFd<'_>, events: libc::c_short, limit: Duration) -> io::Result<()> {
    // Rounded up, or the last part of a millisecond would be spent in a busy loop.
    let milliseconds = c_int::try_from(limit.as_millis().saturating_add(1)).unwrap_or(c_int::MAX);
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one `pollfd` is passed, and the count says so.
    if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
