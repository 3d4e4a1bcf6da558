//! What GPUs were held for, in GPU-hours.

use crate::replay::Replay;
use serde::Serialize;

/// GPU-hours of jobs that used so much.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Band {
    /// Less than a quarter.
    pub below_25_percent: f64,
    /// A quarter to a half.
    pub from_25_to_50_percent: f64,
    /// More than a half.
    pub above_50_percent: f64,
    /// Nobody knows.
    pub unknown: f64,
}

impl Band {
    fn add(&mut self, part: Option<f64>, hours: f64) {
        let band = match part {
            None => &mut self.unknown,
            Some(part) if part < 0.25 => &mut self.below_25_percent,
            Some(part) if part <= 0.5 => &mut self.from_25_to_50_percent,
            Some(_) => &mut self.above_50_percent,
        };
        *band += hours;
    }
}

/// GPU-hours by how they were used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Waste {
    /// By the part of the time in which they were busy, else of the compute units in use.
    pub busy_gpu_hours: Band,
    /// By the part of their memory that was in use at most.
    pub memory_gpu_hours: Band,
    /// Of jobs that were never seen to use the GPU, neither its units nor its memory.
    pub held_without_process_gpu_hours: f64,
}

pub(super) fn waste(replay: &Replay) -> Waste {
    let mut waste = Waste::default();
    for replayed in &replay.jobs {
        let (job, usage) = (replay.of(*replayed), replay.of(*replayed).usage);
        let hours = job.gpu_hours();
        waste.busy_gpu_hours.add(usage.use_fraction().map(f64::from), hours);
        let whole = usage.memory_bytes_device.or_else(|| {
            let number = replayed.ran_on?;
            replay.gpu_memory.bytes(replay.accounting.gpu_types.text(number))
        });
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let filled =
            usage.memory_bytes_peak.zip(whole).map(|(peak, whole)| peak as f64 / whole.max(1) as f64);
        waste.memory_gpu_hours.add(filled, hours);
        if usage.memory_bytes_peak == Some(0) && usage.use_fraction().is_none_or(|part| part <= 0.0) {
            waste.held_without_process_gpu_hours += hours;
        }
    }
    waste
}
