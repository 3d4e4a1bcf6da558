//! Holds each tenant to the memory of its share, where its daemon does not.

use super::Devices;
use crate::overuse::{Holding, limit_exceeded};
use crate::procfs::ProcessId;
use pillion_core::UnixTime;
use pillion_device::{DeviceError, MpsPlace};
use tracing::warn;

impl Devices {
    /// Ends a tenant that holds more of the device's memory than its share allows: what it has too much, its neighbour lacks.
    pub(super) fn hold_to_limit(&mut self, now: UnixTime, holding: &Holding) {
        let share = self.node.share(holding.start);
        let Some(share) = share else { return };
        let Some(limit_bytes) = limit_exceeded(holding, &share) else { return };
        let Ok(place) = self.mps_place(&share) else { return };
        let Holding { index, gres_type, start, memory_bytes, processes } = holding;
        warn!(%start, device = index, %gres_type, memory_bytes, limit_bytes, "over its memory limit; it is ended");
        // Not by how much: operators and neighbours read it.
        self.over_limit.insert(*start);
        let detail = format!("job {} held more of it than its share allows, and was ended", start.job_id);
        self.health.overused(now, *index, detail);
        for process in processes {
            self.end_client(&place, *process);
        }
    }

    /// In the clean way, which takes nobody else along. One that is no client of the daemon runs beside it, and is killed.
    fn end_client(&mut self, place: &MpsPlace, process: ProcessId) {
        let index = place.index;
        let terminated = self.backend.mps_on(index).and_then(|mps| mps.terminate_client(place, process.pid));
        let ended = match terminated {
            Err(DeviceError::Refused { .. }) => self.proc.kill(process).map_err(|error| error.to_string()),
            ended => ended.map_err(|error| pillion_core::report(&error)),
        };
        if let Err(error) = ended {
            warn!(device = index, pid = process.pid, error, "a process over its limit cannot be ended");
        }
    }
}
