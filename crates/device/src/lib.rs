//! Devices: what they are and what they do just now, behind one trait ([`Backend`]), and how each mechanism of sharing is set
//! up on them, behind a trait of its own ([`mechanism`]).
//!
//! This is the only module, besides `slurm-spank`, that may call a vendor's library. It knows nothing of Slurm's queue,
//! of decisions, of profiles or of the network: the agent asks it once a second and carries the answers on.
//!
//! The simulated devices are a production backend like any other: a driver process plays driver and hardware of all
//! GPUs of a node, so that jobs and their contention survive the agent's death as they do on real hardware.

mod error;
pub mod exporter;
pub mod intel;
pub mod kernel_log;
/// How each mechanism of sharing is set up on a node's devices: a trait a mechanism, each in its file, with `prepare`, `release`
/// and `status`. A backend gives out those that its devices have, and answers for no other.
pub mod mechanism {
    pub mod ccs;
    pub mod mig;
    pub mod mps;
}
pub mod mps;
pub mod nvidia;
pub mod simulated;
mod worker;

pub use error::DeviceError;
pub use mechanism::ccs::CcsControl;
pub use mechanism::mig::MigControl;
pub use mechanism::mps::{MpsControl, MpsPlace, MpsSettings, MpsState, MpsStatus};

use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, Reading};
use serde::{Deserialize, Serialize};

/// One device at one moment: what it did, and who is on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// What the device did.
    pub reading: Reading,
    /// Who is on it, and with how much memory.
    pub processes: Vec<DeviceProcess>,
}

/// The devices of a node by ascending index, each with its state or with what kept it from telling.
pub type DeviceStates = Vec<(u32, Result<DeviceState, DeviceError>)>;

/// All devices of one node, of one vendor: it lists them, reads them and tells what drivers told. How they are shared is the
/// business of what it gives out for each mechanism that they have.
///
/// Synchronous: the agent calls it once a second from one blocking task. Every call is bounded in time (a driver
/// process is given up after a second), and none panics on what a driver says.
pub trait Backend: Send {
    /// The devices of this node, by ascending index.
    ///
    /// # Errors
    /// If the driver cannot be asked at all.
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError>;

    /// What one device did since the last reading, and does now.
    ///
    /// # Errors
    /// [`DeviceError::NoSuchDevice`], [`DeviceError::Gone`], or what kept the driver from answering.
    fn read(&mut self, index: u32) -> Result<Reading, DeviceError>;

    /// The processes on one device.
    ///
    /// # Errors
    /// As [`Backend::read`].
    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError>;

    /// Reads all devices at once, by ascending index: the agent's call a second. A device that fails says so in its
    /// own place, and hides nothing of the others.
    ///
    /// # Errors
    /// If no device could be asked.
    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        let indexes: Vec<u32> = self.devices()?.into_iter().map(|device| device.index).collect();
        Ok(indexes
            .into_iter()
            .map(|index| {
                let state = self
                    .read(index)
                    .and_then(|reading| Ok(DeviceState { reading, processes: self.processes(index)? }));
                (index, state)
            })
            .collect())
    }

    /// What drivers and daemons told unasked since the last call: faults, and metrics that stopped or came back.
    fn notices(&mut self) -> Vec<DeviceNotice> {
        Vec::new()
    }

    /// What sets up MPS on its devices; `None`: they have none here.
    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        None
    }

    /// What sets up the CCS modes of its devices; `None`: they have none here.
    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        None
    }

    /// What cuts its devices by MIG; `None`: nothing does here.
    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        None
    }
}

impl dyn Backend + '_ {
    /// MPS for one device.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where there is none.
    pub fn mps_on(&mut self, index: u32) -> Result<&mut dyn MpsControl, DeviceError> {
        self.mps().ok_or_else(|| lacks(index, Mechanism::Mps))
    }

    /// CCS modes for one device.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where there are none.
    pub fn ccs_on(&mut self, index: u32) -> Result<&mut dyn CcsControl, DeviceError> {
        self.ccs().ok_or_else(|| lacks(index, Mechanism::Ccs))
    }

    /// MIG for one device.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where nothing cuts it.
    pub fn mig_on(&mut self, index: u32) -> Result<&mut dyn MigControl, DeviceError> {
        self.mig().ok_or_else(|| lacks(index, Mechanism::Mig))
    }
}

fn lacks(index: u32, mechanism: Mechanism) -> DeviceError {
    DeviceError::Unsupported {
        index,
        reason: format!("its tenants cannot share it by {mechanism} on this node"),
    }
}
