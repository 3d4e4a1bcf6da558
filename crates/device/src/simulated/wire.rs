//! What the driver process and its users say to each other: one JSON line each way, over a Unix socket. Never leaves the
//! node, and both ends are always of one version.

use super::client::{AttachRequest, Progress, Tenant};
use super::driver::ClientError;
use super::meter::Counters;
use crate::mechanism::mig::{Access, Holder, Instance, Layout};
use crate::mps::ComputeMode;
use crate::{DeviceError, DeviceState, MpsPlace, MpsSettings, MpsStatus};
use pillion_core::device::{DeviceDescription, DeviceProcess, Reading};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::{DeviceUuid, Fraction};
use serde::{Deserialize, Serialize};

/// The longest line that either side reads.
pub(super) const LINE_LENGTH_MAX: u64 = 256 * 1024;

/// What a user of the driver process asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request {
    Describe,
    ReadAll,
    Read {
        index: u32,
    },
    Processes {
        index: u32,
    },
    StartMps {
        place: MpsPlace,
        settings: MpsSettings,
    },
    StopMps {
        place: MpsPlace,
    },
    Mps {
        place: MpsPlace,
    },
    /// The instances of a device that have a daemon.
    MpsInstances {
        index: u32,
    },
    /// The sets of devices that have one.
    MpsSets,
    TerminateMpsClient {
        place: MpsPlace,
        pid: u32,
    },
    /// This connection becomes the MPS control daemon of a place, until it closes.
    ServeMps {
        place: MpsPlace,
        settings: MpsSettings,
    },
    /// What this connection's daemon holds the clients of its next server to.
    SetMpsDefaults {
        cap: Option<Fraction>,
        memory_limits_bytes: Vec<Option<u64>>,
    },
    /// What the server of this connection's daemon holds its next clients to.
    SetMpsServerLimits {
        cap: Option<Fraction>,
        memory_limits_bytes: Vec<Option<u64>>,
    },
    /// The server of this connection's daemon has died.
    MpsServerDied,
    /// One client of a device's server crashes.
    FaultMps {
        place: MpsPlace,
    },
    CcsMode {
        index: u32,
    },
    SetCcsMode {
        index: u32,
        mode: u8,
    },
    MigGeometry {
        index: u32,
    },
    MigNeedsReset {
        index: u32,
    },
    MigLayout {
        index: u32,
    },
    MakeInstance {
        index: u32,
        slot: Slot,
    },
    DestroyInstance {
        index: u32,
        id: u32,
    },
    SetMigMode {
        index: u32,
        is_on: bool,
    },
    /// Who may open an instance.
    GiveInstance {
        index: u32,
        id: u32,
        to: Access,
    },
    MigHolders {
        index: u32,
    },
    /// This connection keeps a device open without being on it, until it closes: as monitors do.
    Hold {
        index: u32,
    },
    /// Who may open a device: for doubles of vendors' libraries.
    ComputeMode {
        index: u32,
    },
    SetComputeMode {
        index: u32,
        mode: ComputeMode,
    },
    /// The integrals themselves: for doubles of vendors' libraries.
    Counters {
        index: u32,
    },
    /// How the processes on a device are treated: for tests.
    Tenants {
        index: u32,
    },
    /// This connection becomes a process on a device, until it closes.
    Attach {
        request: AttachRequest,
    },
    /// How far this connection's process is.
    Progress,
}

/// What the driver process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "snake_case")]
pub(super) enum Reply {
    Done,
    Devices(Vec<DeviceDescription>),
    States(Vec<(u32, Result<DeviceState, Refusal>)>),
    Reading(Box<Reading>),
    Processes(Vec<DeviceProcess>),
    Mps(Option<MpsStatus>),
    MpsInstances(Vec<DeviceUuid>),
    MpsSets(Vec<MpsPlace>),
    CcsMode(Option<u8>),
    MigGeometry(Geometry),
    MigNeedsReset(bool),
    MigLayout(Layout),
    Instance(Instance),
    Holders(Vec<Holder>),
    ComputeMode(ComputeMode),
    Counters(Counters),
    Tenants(Vec<Tenant>),
    Progress(Progress),
    DeviceError(Refusal),
    ClientError(ClientError),
    Garbled(String),
}

/// A device error on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Refusal {
    kind: Kind,
    index: u32,
    reason: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    NoSuchDevice,
    Gone,
    Unsupported,
    Refused,
    Busy,
    NotReady,
    Garbled,
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        let (kind, index, reason) = match error {
            DeviceError::NoSuchDevice { index } => (Kind::NoSuchDevice, index, String::new()),
            DeviceError::Gone { index, reason } => (Kind::Gone, index, reason),
            DeviceError::Unsupported { index, reason } => (Kind::Unsupported, index, reason),
            DeviceError::Refused { index, reason } => (Kind::Refused, index, reason),
            DeviceError::Busy { index, reason } => (Kind::Busy, index, reason),
            DeviceError::NotReady { index, reason } => (Kind::NotReady, index, reason),
            // A machine has no driver below it that could be out of reach.
            other @ (DeviceError::Unreachable { .. }
            | DeviceError::NoAnswer { .. }
            | DeviceError::NoLibrary { .. }
            | DeviceError::Garbled { .. }
            | DeviceError::Endpoint { .. }) => (Kind::Garbled, 0, other.to_string()),
        };
        Self { kind, index, reason }
    }
}

impl From<Refusal> for DeviceError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, index, reason } = refusal;
        match kind {
            Kind::NoSuchDevice => Self::NoSuchDevice { index },
            Kind::Gone => Self::Gone { index, reason },
            Kind::Unsupported => Self::Unsupported { index, reason },
            Kind::Refused => Self::Refused { index, reason },
            Kind::Busy => Self::Busy { index, reason },
            Kind::NotReady => Self::NotReady { index, reason },
            Kind::Garbled => Self::Garbled { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_error_survives_the_way() {
        let reason = || "r".to_owned();
        for error in [
            DeviceError::NoSuchDevice { index: 3 },
            DeviceError::Gone { index: 3, reason: reason() },
            DeviceError::Unsupported { index: 3, reason: reason() },
            DeviceError::Refused { index: 3, reason: reason() },
            DeviceError::Busy { index: 3, reason: reason() },
            DeviceError::NotReady { index: 3, reason: reason() },
        ] {
            let (text, transient, gone) = (error.to_string(), error.is_transient(), error.is_gone());
            let line = serde_json::to_string(&Reply::DeviceError(error.into())).unwrap();
            let Ok(Reply::DeviceError(refusal)) = serde_json::from_str(&line) else { panic!("{line}") };
            let back = DeviceError::from(refusal);
            assert_eq!((back.to_string(), back.is_transient(), back.is_gone()), (text, transient, gone));
        }
    }
}
