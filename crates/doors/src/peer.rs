//! Whose a TCP connection from this machine is: the kernel lists each socket with its owner (proc(5), `/proc/net/tcp`).
//!
//! The client's socket is the row whose local end is our peer and whose remote end is we. Only an established one counts:
//! of a socket that nobody holds any more (`TIME_WAIT`, an orphan) the kernel shows uid 0, which would be root.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Column `st` of an established connection (`TCP_ESTABLISHED` of `include/net/tcp_states.h`).
const ESTABLISHED: &str = "01";

/// Both ends of a connection: theirs, and ours.
pub type Ends = (SocketAddr, SocketAddr);

/// The owner of the other end of a connection. `None`: the other end is not on this machine, or is gone.
pub fn owner(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    owners(&[(peer, local)]).pop().flatten()
}

/// The owners of the other ends of these connections, by one look.
pub(super) fn owners(connections: &[Ends]) -> Vec<Option<u32>> {
    if !connections.iter().any(is_local) {
        return vec![None; connections.len()];
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(Path::new(path)));
    let tables: String = tables.into_iter().flatten().collect();
    owners_in(&tables, connections.iter().map(|ends| Some(*ends).filter(is_local)))
}

fn is_local((peer, local): &Ends) -> bool {
    is_of_this_machine(peer.ip()) && is_of_this_machine(local.ip())
}

/// Whether an address is one that no other machine can have towards us.
pub fn is_of_this_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// For each connection the owner of the socket that stands in the tables with its peer's end as its own and ours as the other.
fn owners_in(tables: &str, connections: impl Iterator<Item = Option<Ends>>) -> Vec<Option<u32>> {
    let rows: HashMap<(End, End), u32> = tables.lines().filter_map(row).collect();
    let owners = connections.map(|ends| {
        let (peer, local) = ends?;
        let [peer, local] = [peer, local].map(|end| (end.ip().to_canonical(), end.port()));
        rows.get(&(peer, local)).copied()
    });
    owners.collect()
}

/// One end of a connection as it is compared: an IPv4 address is one however it is written.
type End = (IpAddr, u16);

/// A socket's own end, the other, and its owner; `None` for one that nobody holds, or that is not connected.
fn row(line: &str) -> Option<((End, End), u32)> {
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, own, other, state, _, _, _, uid, _, inode, ..] = columns[..] else { return None };
    let is_held = state == ESTABLISHED && inode != "0";
    Some(((end(own)?, end(other)?), uid.parse().ok().filter(|_| is_held)?))
}

/// `0100007F:1AA5`: words of the address as the machine stores them, and the port.
fn end(text: &str) -> Option<End> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(address, 0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(address, at * 8)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

fn word(address: &str, at: usize) -> Option<[u8; 4]> {
    Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn row(own: &str, other: &str, state: &str, uid: &str, inode: &str) -> String {
        format!(
            "   0: {own} {other} {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1 0000 20 4 30 10 -1\n"
        )
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// `127.0.0.1` and `::ffff:127.0.0.1` as this machine writes them.
    fn loopback() -> (String, String) {
        let [v4, prefix] =
            [[127, 0, 0, 1], [0, 0, 255, 255]].map(|bytes| format!("{:08X}", u32::from_ne_bytes(bytes)));
        let mapped = format!("0000000000000000{prefix}{v4}");
        (v4, mapped)
    }

    fn owner_in(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        owners_in(table, [Some((peer, local))].into_iter()).pop().flatten()
    }

    #[test]
    fn the_owner_is_that_of_the_clients_socket_and_of_no_other() {
        let (v4, mapped) = loopback();
        let (peer, local) = (address("127.0.0.1:40000"), address("127.0.0.1:6821"));
        let ours = row(&format!("{v4}:1AA5"), &format!("{v4}:9C40"), "01", "0", "1");
        let client = row(&format!("{v4}:9C40"), &format!("{v4}:1AA5"), "01", "1000", "77");
        let other = row(&format!("{v4}:9C41"), &format!("{v4}:1AA5"), "01", "1001", "78");
        let table = [HEAD, &ours, &other, &client].concat();
        assert_eq!(owner_in(&table, peer, local), Some(1000));
        assert_eq!(owner_in(&[HEAD, &ours, &other].concat(), peer, local), None);
        let client = row(&format!("{mapped}:9C40"), &format!("{mapped}:1AA5"), "01", "1002", "77");
        assert_eq!(owner_in(&[HEAD, &client].concat(), peer, local), Some(1002), "over a socket of IPv6");
    }

    #[test]
    fn a_socket_that_nobody_holds_is_not_roots() {
        let (v4, _) = loopback();
        let (peer, local) = (address("127.0.0.1:40000"), address("127.0.0.1:6821"));
        for (state, inode) in [("06", "0"), ("04", "0"), ("05", "9"), ("01", "0")] {
            let client = row(&format!("{v4}:9C40"), &format!("{v4}:1AA5"), state, "0", inode);
            assert_eq!(owner_in(&[HEAD, &client].concat(), peer, local), None, "{state} {inode}");
        }
        assert_eq!(owner_in("nonsense\nwithout columns\n", peer, local), None);
    }

    #[test]
    fn the_kernel_says_that_our_own_connection_is_ours() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(bind) else { continue };
            let local = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(local).unwrap();
            let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
            assert_eq!(owner(client.local_addr().unwrap(), local), Some(own), "{bind}");
        }
        assert_eq!(owner(address("192.0.2.1:40000"), address("127.0.0.1:6821")), None);
    }
}
