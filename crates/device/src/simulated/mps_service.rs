//! A process that plays the MPS control daemon of one device, of one instance or of several devices: for a double of NVIDIA's own. The
//! daemon is there for as long as this value lives, and takes its clients along.

use super::remote::{AGENT_DEADLINE, Line, unexpected};
use super::wire::{Reply, Request};
use crate::{DeviceError, MpsPlace, MpsSettings, MpsStatus};
use pillion_core::Fraction;
use std::path::PathBuf;

/// The MPS control daemon of one place.
#[derive(Debug)]
pub struct MpsService {
    line: Line,
    place: MpsPlace,
}

impl MpsService {
    /// Becomes the daemon of this place, as root.
    ///
    /// # Errors
    /// As `MpsControl::prepare`; [`DeviceError::Busy`] if it has a daemon.
    pub fn open(
        socket: impl Into<PathBuf>,
        place: MpsPlace,
        settings: MpsSettings,
    ) -> Result<Self, DeviceError> {
        let mut line = Line::new(socket.into(), AGENT_DEADLINE);
        line.done(&Request::ServeMps { place: place.clone(), settings })?;
        Ok(Self { line, place })
    }

    /// Its clients, and whose they are; `None` if the driver has no such daemon any more.
    ///
    /// # Errors
    /// As `Backend::read`.
    pub fn status(&mut self) -> Result<Option<MpsStatus>, DeviceError> {
        match self.line.ask(&Request::Mps { place: self.place.clone() })? {
            Reply::Mps(status) => Ok(status),
            other => unexpected(&other),
        }
    }

    /// Holds the clients of the next server to these limits; of memory each device in the daemon's order has its own.
    ///
    /// # Errors
    /// As [`MpsService::status`].
    pub fn set_defaults(
        &mut self,
        cap: Option<Fraction>,
        memory_limits_bytes: Vec<Option<u64>>,
    ) -> Result<(), DeviceError> {
        self.line.done(&Request::SetMpsDefaults { cap, memory_limits_bytes })
    }

    /// Holds the next clients of the server that runs to these limits.
    ///
    /// # Errors
    /// As [`MpsService::status`].
    pub fn set_server_limits(
        &mut self,
        cap: Option<Fraction>,
        memory_limits_bytes: Vec<Option<u64>>,
    ) -> Result<(), DeviceError> {
        self.line.done(&Request::SetMpsServerLimits { cap, memory_limits_bytes })
    }

    /// The server process has died, and ends its clients with it.
    ///
    /// # Errors
    /// As [`MpsService::status`].
    pub fn server_died(&mut self) -> Result<(), DeviceError> {
        self.line.done(&Request::MpsServerDied)
    }

    /// Ends one client.
    ///
    /// # Errors
    /// As `MpsControl::terminate_client`.
    pub fn terminate(&mut self, pid: u32) -> Result<(), DeviceError> {
        self.line.done(&Request::TerminateMpsClient { place: self.place.clone(), pid })
    }

    /// Leaves the device, which is then without a daemon.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while it has clients.
    pub fn stop(&mut self) -> Result<(), DeviceError> {
        self.line.done(&Request::StopMps { place: self.place.clone() })
    }
}
