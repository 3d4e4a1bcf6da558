//! Doubles of `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server` on top of the simulated devices: the same files, the
//! same commands, the same printed forms and the same refusals as those of release 550, which `tests/hardware/vendor` runs
//! beside them. What takes a server that works has no real one beside it: it is as NVIDIA's document has it (MPS guide r550;
//! static partitions: of CUDA 13.1). What it does not have it does not know: whoever asks for more is told so.
//!
//! The daemon *is* the MPS daemon of its simulated device, over one connection: when it dies, so do its clients. Servers
//! are processes of the clients' user.
//!
//! `MPS_DOUBLE_WITHOUT_MULTIUSER=1` plays a release that does not know `-multiuser-server`, `MPS_DOUBLE_WITHOUT_PARTITIONS=1`
//! one before CUDA 13.1, and both play 550; with `=silent` it takes `-S` and has no partitions all the same.
//! `MPS_DOUBLE_DEAF_MS=N` plays a daemon that is so long in setting its device up before it listens, and
//! `MPS_DOUBLE_WITHOUT_PID_FILE=1` one that writes no pid file; `MPS_DOUBLE_INITIALIZING_MS=N` one whose servers are so long
//! in coming up, `MPS_DOUBLE_QUIT_MS=N` one that is so long in ending, and `MPS_DOUBLE_SERVER_STATUS=N` one whose servers
//! end at once by themselves with this exit status, as the real one's do where there is no driver.

pub mod commands;
pub mod control;
pub mod daemon;
mod files;
pub mod partitions;

use std::path::PathBuf;

/// The daemon's pipe directory, by its variable or NVIDIA's default.
pub fn pipe_directory() -> PathBuf {
    variable("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from)
}

/// A variable that is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where the driver process of the simulated devices listens.
pub fn driver_socket() -> PathBuf {
    let (given, node) = (variable("PILLION_SIMULATED_DEVICE"), variable("SLURMD_NODENAME"));
    pillion_device::simulated::socket_path(given.as_deref(), node.as_deref())
}

/// Whether the release that is played has `-multiuser-server`.
pub fn knows_multi_user() -> bool {
    variable("MPS_DOUBLE_WITHOUT_MULTIUSER").is_none()
}

/// Whether the release that is played has static partitions.
pub fn knows_partitions() -> bool {
    variable("MPS_DOUBLE_WITHOUT_PARTITIONS").is_none_or(|it| it == "silent")
}
