//! One process on a simulated device.

use super::driver::{Access, ClientError, Environment, PinnedLimit};
use super::limits::Limits;
use super::workload::Placed;
use pillion_core::UserId;
use serde::{Deserialize, Serialize};

/// Names a process on a machine, for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub(super) u64);

/// What a process asks of the device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttachRequest {
    /// A name of the catalogue.
    pub workload: String,
    /// A batch size of the catalogue.
    pub batch_size: Option<u32>,
    /// How long it is to run if alone; the catalogue's length otherwise.
    pub seconds: Option<f64>,
    /// Its greatest device memory; the catalogue's otherwise.
    pub memory_bytes: Option<u64>,
    /// In how many steps it comes to that, spread over all of its work: 1 to 1000. Otherwise in one, early on.
    #[serde(default)]
    pub memory_steps: Option<u32>,
    /// The variables that the driver reads.
    pub environment: Environment,
    /// Which of the devices that it sees it takes, by its own numbers. A process that uses several takes each by a request of its own.
    #[serde(default)]
    pub device: usize,
}

/// How far a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The driver holds it back: another user's MPS clients, or another CCS mode, are on the device.
    Waiting,
    /// Its kernels run on the device.
    Running,
    /// All done; the device has nothing more to do for it.
    Finished,
    /// Thrown off the device.
    Failed,
}

/// How far a process is, in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How far it is.
    pub phase: Phase,
    /// Why it failed.
    pub error: Option<ClientError>,
    /// Seconds that the work takes alone.
    pub nominal_seconds: f64,
    /// Of these, done.
    pub done_seconds: f64,
    /// Real seconds since it came, waiting included; no longer counted once it has ended.
    pub elapsed_seconds: f64,
    /// How fast it goes now, of its speed alone.
    pub speed_fraction: f64,
    /// Real seconds to its end if nothing changes.
    pub left_seconds: Option<f64>,
    /// The machine's time scale.
    pub time_scale: f64,
}

/// A process on a device as the device treats it: for tests of what was enforced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// In the driver's pid namespace.
    pub pid: u32,
    /// Whether it is a client of the device's MPS server.
    pub is_mps: bool,
    /// Of the device's compute units, the most that it may use: rounded to what the device can part.
    pub units_fraction_max: f64,
    /// Of the device's compute units, those that issue or wait for it now.
    pub units_fraction: f64,
    /// The most device memory that it may hold; nothing below the device's own if `None`.
    pub memory_bytes_max: Option<u64>,
    /// What it holds.
    pub memory_bytes: u64,
}

/// A process allocates its weights at once and the rest after this part of its work.
const GROWN_AFTER_FRACTION: f64 = 0.05;
/// What it allocates at once.
const MEMORY_AT_START_FRACTION: f64 = 0.6;

/// A process and its place.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) pid: u32,
    pub(super) uid: UserId,
    pub(super) index: u32,
    /// The GPU instance that it is in.
    pub(super) instance: Option<u32>,
    pub(super) access: Access,
    pub(super) placed: Placed,
    pub(super) nominal_seconds: f64,
    pub(super) done_seconds: f64,
    pub(super) attached_at: f64,
    pub(super) ended_at: Option<f64>,
    pub(super) phase: Phase,
    pub(super) error: Option<ClientError>,
    /// Asked for by the process, its context not counted.
    pub(super) memory_bytes_peak: u64,
    /// Held on the device, context included.
    pub(super) memory_bytes: u64,
    pub(super) context_bytes: u64,
    /// In how many steps its memory grows, and how many are done.
    pub(super) steps: u32,
    pub(super) steps_done: u32,
    /// Of its speed alone; what the device gives.
    pub(super) speed: f64,
    /// Of the device's units, those that issue or wait for it now.
    pub(super) units_fraction: f64,
    /// This run's own luck, 1 for none.
    pub(super) luck: f64,
    /// What the MPS server held it to when it came.
    pub(super) mps_limits: Limits,
}

impl Client {
    /// The next thing that will happen to it, in nominal seconds of its work.
    pub(super) fn next_mark_seconds(&self) -> f64 {
        let next = f64::from(self.steps_done + 1);
        let growth = match self.steps {
            1 => self.nominal_seconds * GROWN_AFTER_FRACTION,
            steps => self.nominal_seconds * next / f64::from(steps + 1),
        };
        if self.is_grown() { self.nominal_seconds } else { growth }
    }

    /// What it holds from the start, context included.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes"
    )]
    pub(super) fn memory_bytes_at_start(&self) -> u64 {
        self.context_bytes + (self.memory_bytes_peak as f64 * MEMORY_AT_START_FRACTION) as u64
    }

    pub(super) const fn is_grown(&self) -> bool {
        self.steps_done >= self.steps
    }

    /// What it holds after the next step, context included.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "far below 2^53 bytes"
    )]
    pub(super) fn memory_bytes_next(&self) -> u64 {
        let grown = self.context_bytes.saturating_add(self.memory_bytes_peak);
        if self.steps_done + 1 >= self.steps {
            return grown;
        }
        let start = self.memory_bytes_at_start();
        let part = f64::from(self.steps_done + 1) / f64::from(self.steps);
        start + (grown.saturating_sub(start) as f64 * part) as u64
    }

    /// The most memory of an MPS client: its own limit or its server's, whichever is less.
    pub(super) fn memory_bytes_max(&self) -> Option<u64> {
        let Access::Mps { memory_limit, .. } = self.access else { return None };
        match memory_limit {
            PinnedLimit::Dropped => None,
            PinnedLimit::Absent => self.mps_limits.memory_bytes,
            PinnedLimit::Bytes(own) => Some(self.mps_limits.memory_bytes.map_or(own, |all| all.min(own))),
        }
    }

    /// Ends it: its memory is free, its speed is none.
    pub(super) fn fail(&mut self, error: ClientError, now: f64) {
        self.phase = Phase::Failed;
        self.error = Some(error);
        self.memory_bytes = 0;
        self.speed = 0.0;
        self.units_fraction = 0.0;
        self.ended_at = Some(now);
    }

    /// Whether the driver knows it as present: past its start, and not thrown off.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Finished)
    }

    pub(super) fn is_mps(&self) -> bool {
        matches!(self.access, Access::Mps { .. })
    }

    pub(super) fn progress(&self, now: f64, time_scale: f64) -> Progress {
        let speed = self.speed * self.luck;
        let left_seconds =
            (speed > 0.0).then(|| (self.nominal_seconds - self.done_seconds) / (speed * time_scale));
        Progress {
            phase: self.phase,
            error: self.error.clone(),
            nominal_seconds: self.nominal_seconds,
            done_seconds: self.done_seconds,
            elapsed_seconds: self.ended_at.unwrap_or(now) - self.attached_at,
            speed_fraction: self.speed,
            left_seconds,
            time_scale,
        }
    }
}
