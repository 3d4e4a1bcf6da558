//! The driver process from outside: `Simulated` for the agent, `JobConnection` for a job's process.

use super::client::{AttachRequest, Progress, Tenant};
use super::driver::ClientError;
use super::meter::Counters;
use super::wire::{LINE_LENGTH_MAX, Reply, Request};
use crate::mps::ComputeMode;
use crate::{
    Backend, CcsControl, DeviceError, DeviceStates, MigControl, MpsControl, MpsPlace, MpsSettings, MpsStatus,
};
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceProcess, Reading};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the driver process's socket, for agents and jobs alike. `%n` stands for the node's name.
pub const SOCKET_VARIABLE: &str = "PILLION_SIMULATED_DEVICE";
/// Where the socket is if nobody says otherwise.
pub const SOCKET_DEFAULT: &str = "/run/pillion/simulated-device.sock";
/// How long the agent waits for one answer.
pub(super) const AGENT_DEADLINE: Duration = Duration::from_secs(1);
/// How long a job's process waits: losing the device ends the job, so it is patient on a busy machine.
const JOB_DEADLINE: Duration = Duration::from_secs(30);

/// Where the driver process of this node listens: `given` ([`SOCKET_VARIABLE`]) or the well-known place, with `%n`
/// replaced by the node's name.
pub fn socket_path(given: Option<&str>, node: Option<&str>) -> PathBuf {
    PathBuf::from(given.unwrap_or(SOCKET_DEFAULT).replace("%n", node.unwrap_or("localhost")))
}

/// One connection that is made when it is first needed, and again after an error.
#[derive(Debug)]
pub(super) struct Line {
    path: PathBuf,
    deadline: Duration,
    stream: Option<BufReader<UnixStream>>,
    answer: Vec<u8>,
}

impl Line {
    pub(super) fn new(path: PathBuf, deadline: Duration) -> Self {
        Self { path, deadline, stream: None, answer: Vec::new() }
    }

    fn connect(path: &Path, deadline: Duration) -> io::Result<BufReader<UnixStream>> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(deadline))?;
        stream.set_write_timeout(Some(deadline))?;
        Ok(BufReader::new(stream))
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<Reply, DeviceError> {
        // Taken out, and put back only after a whole answer: a connection in doubt is not used again.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => Self::connect(&self.path, self.deadline)
                .map_err(|source| DeviceError::Unreachable { path: self.path.clone(), source })?,
        };
        let no_answer = |source| DeviceError::NoAnswer { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(request).map_err(|error| garbled(&error))?;
        line.push(b'\n');
        stream.get_mut().write_all(&line).map_err(no_answer)?;
        self.answer.clear();
        (&mut stream).take(LINE_LENGTH_MAX).read_until(b'\n', &mut self.answer).map_err(no_answer)?;
        if self.answer.last() != Some(&b'\n') {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is not whole");
            return Err(DeviceError::NoAnswer { path: self.path.clone(), source });
        }
        let reply = serde_json::from_slice(&self.answer).map_err(|error| garbled(&error))?;
        self.stream = Some(stream);
        match reply {
            Reply::DeviceError(refusal) => Err(refusal.into()),
            Reply::Garbled(reason) => Err(DeviceError::Garbled { reason }),
            reply => Ok(reply),
        }
    }

    pub(super) fn done(&mut self, request: &Request) -> Result<(), DeviceError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => unexpected(&other),
        }
    }
}

fn garbled(error: &serde_json::Error) -> DeviceError {
    DeviceError::Garbled { reason: error.to_string() }
}

pub(super) fn unexpected<T>(reply: &Reply) -> Result<T, DeviceError> {
    Err(DeviceError::Garbled { reason: format!("this is no answer to the question: {reply:?}") })
}

/// The simulated devices of a node, through their driver process.
#[derive(Debug)]
pub struct Simulated {
    line: Line,
}

impl Simulated {
    /// Nothing is connected until the first call.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { line: Line::new(socket.into(), AGENT_DEADLINE) }
    }

    /// What the counters of one device show: integrals, for whoever plays a vendor's library on top of it.
    ///
    /// # Errors
    /// As [`Backend::read`].
    pub fn counters(&mut self, index: u32) -> Result<Counters, DeviceError> {
        match self.line.ask(&Request::Counters { index })? {
            Reply::Counters(counters) => Ok(counters),
            other => unexpected(&other),
        }
    }

    /// Who may open a device: for doubles of vendors' libraries.
    ///
    /// # Errors
    /// As [`Backend::read`].
    pub fn compute_mode(&mut self, index: u32) -> Result<ComputeMode, DeviceError> {
        match self.line.ask(&Request::ComputeMode { index })? {
            Reply::ComputeMode(mode) => Ok(mode),
            other => unexpected(&other),
        }
    }

    /// Sets it.
    ///
    /// # Errors
    /// As [`MpsControl::prepare`].
    pub fn set_compute_mode(&mut self, index: u32, mode: ComputeMode) -> Result<(), DeviceError> {
        self.done(&Request::SetComputeMode { index, mode })
    }

    /// How the processes on one device are treated: for tests of what was enforced.
    ///
    /// # Errors
    /// As [`Backend::read`].
    pub fn tenants(&mut self, index: u32) -> Result<Vec<Tenant>, DeviceError> {
        match self.line.ask(&Request::Tenants { index })? {
            Reply::Tenants(tenants) => Ok(tenants),
            other => unexpected(&other),
        }
    }

    /// Lets one MPS client of a device crash: for tests of what follows from it.
    ///
    /// # Errors
    /// As [`MpsControl::release`].
    pub fn fault_mps(&mut self, index: u32) -> Result<(), DeviceError> {
        self.done(&Request::FaultMps { place: MpsPlace::device(index) })
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<Reply, DeviceError> {
        self.line.ask(request)
    }

    pub(super) fn done(&mut self, request: &Request) -> Result<(), DeviceError> {
        self.line.done(request)
    }
}

impl Backend for Simulated {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        match self.line.ask(&Request::Describe)? {
            Reply::Devices(devices) => Ok(devices),
            other => unexpected(&other),
        }
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        match self.line.ask(&Request::Read { index })? {
            Reply::Reading(reading) => Ok(*reading),
            other => unexpected(&other),
        }
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        match self.line.ask(&Request::Processes { index })? {
            Reply::Processes(processes) => Ok(processes),
            other => unexpected(&other),
        }
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        match self.line.ask(&Request::ReadAll)? {
            Reply::States(states) => Ok(states
                .into_iter()
                .map(|(index, state)| (index, state.map_err(DeviceError::from)))
                .collect()),
            other => unexpected(&other),
        }
    }

    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        Some(self)
    }

    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        Some(self)
    }

    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        Some(self)
    }
}

impl MpsControl for Simulated {
    fn prepare(&mut self, place: &MpsPlace, settings: &MpsSettings) -> Result<(), DeviceError> {
        self.done(&Request::StartMps { place: place.clone(), settings: settings.clone() })
    }

    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        self.done(&Request::StopMps { place: place.clone() })
    }

    fn status(&mut self, place: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        match self.line.ask(&Request::Mps { place: place.clone() })? {
            Reply::Mps(status) => Ok(status),
            other => unexpected(&other),
        }
    }

    fn terminate_client(&mut self, place: &MpsPlace, pid: u32) -> Result<(), DeviceError> {
        self.done(&Request::TerminateMpsClient { place: place.clone(), pid })
    }

    fn instances(&mut self, index: u32) -> Result<Vec<DeviceUuid>, DeviceError> {
        match self.line.ask(&Request::MpsInstances { index })? {
            Reply::MpsInstances(instances) => Ok(instances),
            other => unexpected(&other),
        }
    }

    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError> {
        match self.line.ask(&Request::MpsSets)? {
            Reply::MpsSets(sets) => Ok(sets),
            other => unexpected(&other),
        }
    }
}

impl CcsControl for Simulated {
    fn prepare(&mut self, index: u32, mode: u8) -> Result<(), DeviceError> {
        self.done(&Request::SetCcsMode { index, mode })
    }

    fn status(&mut self, index: u32) -> Result<Option<u8>, DeviceError> {
        match self.line.ask(&Request::CcsMode { index })? {
            Reply::CcsMode(mode) => Ok(mode),
            other => unexpected(&other),
        }
    }
}

/// Why a job's process has no device.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The driver said no.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The driver did not answer.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A job's process on a device: it is there for as long as this value lives.
#[derive(Debug)]
pub struct JobConnection {
    line: Line,
}

impl JobConnection {
    /// Opens the device that the environment names.
    ///
    /// # Errors
    /// [`JobError::Client`] as a driver library would fail; [`JobError::Device`] if there is no driver.
    pub fn open(socket: impl Into<PathBuf>, request: AttachRequest) -> Result<Self, JobError> {
        let mut line = Line::new(socket.into(), JOB_DEADLINE);
        match line.ask(&Request::Attach { request })? {
            Reply::Done => Ok(Self { line }),
            Reply::ClientError(error) => Err(error.into()),
            other => unexpected(&other).map_err(JobError::Device),
        }
    }

    /// How far the work is.
    ///
    /// # Errors
    /// [`JobError::Device`] if the driver is gone, and the process's place with it.
    pub fn progress(&mut self) -> Result<Progress, JobError> {
        match self.line.ask(&Request::Progress)? {
            Reply::Progress(progress) => Ok(progress),
            other => unexpected(&other).map_err(JobError::Device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_named_by_the_variable_and_the_node() {
        assert_eq!(socket_path(None, None), Path::new(SOCKET_DEFAULT));
        assert_eq!(socket_path(Some("/c/%n/gpu.sock"), Some("n2")), Path::new("/c/n2/gpu.sock"));
    }

    #[test]
    fn no_driver_is_a_transient_error_that_names_the_socket() {
        let error = Simulated::new("/nowhere/at/all.sock").devices().unwrap_err();
        assert!(error.is_transient() && !error.is_gone());
        assert!(error.to_string().contains("/nowhere/at/all.sock"), "{error}");
    }
}
