//! Brings up `lo` in a new network namespace, where it is down, and gives it an address besides 127.0.0.1: the C library
//! tells Slurm that a host with loopback addresses only has no IPv4 at all (`AI_ADDRCONFIG`). No program is needed.

use crate::error::{HarnessError, Result, system_error};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// `RTM_NEWLINK`, `RTM_NEWADDR`, `NLM_F_REQUEST | NLM_F_ACK`, `NLM_F_CREATE`, `NLMSG_ERROR`, `IFF_UP`, `AF_INET` and
/// `IFA_LOCAL` of the kernel's headers.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const REQUEST_AND_ACK: u16 = 5;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
const UP: u32 = 1;
const INET: u8 = 2;
const LOCAL: u16 = 2;
/// `lo` is the first interface of every network namespace.
const LOOPBACK_INDEX: u32 = 1;
/// An address that is nobody's (RFC 5737).
const ADDRESS: [u8; 4] = [192, 0, 2, 1];

/// Brings up `lo`.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn bring_up() -> Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(system_error("talk to the kernel about the network"))?;
    ask(&socket, &link_up())?;
    ask(&socket, &address())
}

fn ask(socket: &OwnedFd, message: &[u8]) -> Result<()> {
    let what = || system_error("set up the loopback interface");
    send(socket, message, SendFlags::empty()).map_err(what())?;
    let mut answer = [0_u8; 512];
    let (length, _) = recv(socket, &mut answer, RecvFlags::empty()).map_err(what())?;
    // struct nlmsghdr (16 bytes), then struct nlmsgerr, which begins with 0 or a negative errno.
    let (Some(kind), Some(errno)) = (answer[..length].get(4..6), answer[..length].get(16..20)) else {
        return Err(HarnessError::Refused(
            "the kernel's answer about the loopback interface is too short".into(),
        ));
    };
    let errno = i32::from_ne_bytes([errno[0], errno[1], errno[2], errno[3]]);
    if u16::from_ne_bytes([kind[0], kind[1]]) == ERROR && errno == 0 {
        Ok(())
    } else {
        Err(HarnessError::Refused(format!(
            "the kernel does not set up the loopback interface (errno {})",
            -errno
        )))
    }
}

/// `struct nlmsghdr` and `struct ifinfomsg`: set the flag "up" of `lo`.
fn link_up() -> Vec<u8> {
    let mut body = vec![0; 4]; // family, padding, type
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    body.extend(UP.to_ne_bytes()); // flags
    body.extend(UP.to_ne_bytes()); // which of them change
    message(NEW_LINK, REQUEST_AND_ACK, &body)
}

/// `struct nlmsghdr`, `struct ifaddrmsg` and one attribute: add [`ADDRESS`] to `lo`.
fn address() -> Vec<u8> {
    let mut body = vec![INET, 32, 0, 0]; // family, prefix length, flags, scope
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    body.extend(8_u16.to_ne_bytes()); // length of the attribute
    body.extend(LOCAL.to_ne_bytes());
    body.extend(ADDRESS);
    message(NEW_ADDRESS, REQUEST_AND_ACK | CREATE, &body)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).expect("a few bytes");
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]); // sequence number, sender
    bytes.extend(body);
    bytes
}
