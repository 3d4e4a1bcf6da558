//! One private world a run: its own mounts, processes, network, host name and users; when the command that it was made
//! for ends, however it ends, the kernel ends everything in it. Nothing is left on the machine.
//!
//! ```text
//!   pillion-testbed enter           outer: new namespaces, builds the root, waits; its death kills the inner one
//!     └─ pillion-testbed init       inner: process 1, mounts /proc, brings up loopback, reaps
//!          └─ CMD                   the tests, the demo, or a shell
//! ```
//!
//! The root is the machine's own or a cached Debian 13, read-only in both cases; `/run` and `/tmp` are empty and in
//! memory. It must not know what runs inside.

mod forward;
mod init;
mod join;
mod loopback;
mod root;
mod users;

pub use init::{InitOptions, init};
pub use join::{Up, down, find_up, join};
pub use root::{EnterOptions, enter};

use crate::error::{HarnessError, Result, io_error};
use crate::process::Identity;
use std::path::Path;

/// The folder of the testbed itself, inside.
pub const TESTBED_DIR: &str = "/run/testbed";
/// Where the programs that were built appear inside, readable for every user.
pub const BIN_DIR: &str = "/run/testbed/bin";
/// The host name inside; every Slurm daemon runs under it.
pub const HOST_NAME: &str = "controller";
/// Users that exist inside, besides those of the system.
pub const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];
/// How the outer process and process 1 appear in `/proc/PID/comm`, which holds 15 bytes.
const PROCESS_NAME: &str = "pillion-testbed";
/// Set in the environment inside.
const INSIDE_VARIABLE: &str = "PILLION_TESTBED";
/// Holds the ports that lead inside, with commas between them.
const FORWARDED_VARIABLE: &str = "PILLION_TESTBED_FORWARDED";

/// Whether this process runs inside a testbed. A variable may have come along from one, so process 1 is looked at as well.
pub fn is_inside() -> bool {
    let first = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    std::env::var_os(INSIDE_VARIABLE).is_some() && first.trim() == PROCESS_NAME
}

/// The ports of the machine's loopback that lead to the same ports in here, in the order in which they were asked for.
pub fn forwarded_ports() -> Vec<u16> {
    let text = std::env::var(FORWARDED_VARIABLE).unwrap_or_default();
    text.split(',').filter_map(|port| port.parse().ok()).collect()
}

/// The search path inside.
pub fn search_path() -> String {
    format!("{BIN_DIR}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// A user inside, by name.
///
/// # Errors
/// [`HarnessError::Refused`] where `/etc/passwd` has no such user.
pub fn identity_of(user: &str) -> Result<Identity> {
    let path = Path::new("/etc/passwd");
    let passwd = std::fs::read_to_string(path).map_err(io_error("read", path))?;
    users::find(&passwd, user).ok_or_else(|| {
        HarnessError::Refused(format!("there is no user '{user}'; the testbed has {}", USERS.join(", ")))
    })
}

/// The home folder of a user inside.
pub fn home_of(user: &str) -> String {
    format!("{TESTBED_DIR}/home/{user}")
}

/// What every command inside finds in its environment.
pub(crate) fn inside_environment(user: &str) -> Vec<(&'static str, String)> {
    vec![
        ("PATH", search_path()),
        ("HOME", home_of(user)),
        ("USER", user.to_owned()),
        ("LOGNAME", user.to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        (INSIDE_VARIABLE, "1".to_owned()),
    ]
}
