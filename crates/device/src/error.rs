//! What a backend can fail with. One enum for all backends, so that the agent handles a vendor's library, a driver
//! process and a simulation alike.

use std::path::PathBuf;

/// Why a device could not be asked or changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No device has this index on the node.
    #[error("there is no device {index} on this node")]
    NoSuchDevice {
        /// The index asked for.
        index: u32,
    },
    /// The device was there and is not any more: fallen off the bus, or being reset.
    #[error("device {index} is gone: {reason}")]
    Gone {
        /// The device, by its index at the backend.
        index: u32,
        /// What the driver said.
        reason: String,
    },
    /// The device cannot do this at all: CCS on a GPU that has MPS, and the like.
    #[error("device {index} cannot do this: {reason}")]
    Unsupported {
        /// The device, by its index at the backend.
        index: u32,
        /// What it lacks.
        reason: String,
    },
    /// The driver refused, and will refuse again: not root, or a setting that is not allowed.
    #[error("the driver refused this on device {index}: {reason}")]
    Refused {
        /// The device, by its index at the backend.
        index: u32,
        /// What the driver said.
        reason: String,
    },
    /// Somebody is using what was to be changed; later it may work.
    #[error("device {index} is in use: {reason}")]
    Busy {
        /// The device, by its index at the backend.
        index: u32,
        /// Who or what holds it.
        reason: String,
    },
    /// The device, or this process's own way to it, is not ready for this; later it may be. Nobody's use of it is meant.
    #[error("device {index} is not ready: {reason}")]
    NotReady {
        /// The device, by its index at the backend.
        index: u32,
        /// What the driver said, or what is late.
        reason: String,
    },
    /// The vendor's library is not on this node, or is no such library.
    #[error("{library} cannot be loaded: {reason}")]
    NoLibrary {
        /// The library's file, as it was to be loaded.
        library: String,
        /// What the loader said.
        reason: String,
    },
    /// The driver process cannot be reached.
    #[error("cannot reach the driver at {}", path.display())]
    Unreachable {
        /// The socket at which it listens.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The driver process answered too late, or not whole.
    #[error("no answer from the driver at {}", path.display())]
    NoAnswer {
        /// The socket at which it listens.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The driver process answered something that is no answer to the question.
    #[error("cannot understand the driver's answer: {reason}")]
    Garbled {
        /// What was wrong with it.
        reason: String,
    },
    /// A metrics endpoint on this node gave no page.
    #[error("no metrics from {endpoint}: {reason}")]
    Endpoint {
        /// The URL of the endpoint.
        endpoint: String,
        /// What was wrong.
        reason: String,
    },
}

impl DeviceError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::NotReady { .. }
                | Self::Unreachable { .. }
                | Self::NoAnswer { .. }
                | Self::Endpoint { .. }
        )
    }

    /// Whether the device itself went away: its tenants are lost and nothing may be planned for it.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::NoSuchDevice { .. })
    }
}
