//! How far bounds can be trusted, as the report of the shadow has it: before the first pair of a canary and after the last. Pure.

use crate::format;
use pillion_api::ShadowResponse;
use serde::{Deserialize, Serialize};

/// What the scheduler tells operators of speeds that were foretold in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub speed_count: u32,
    /// As fast as their bounds said, or faster.
    pub above_bound_count: u32,
    /// By how much the way from an expected speed to its bound has to be stretched; absent: too few were measured to say, or no stretch
    /// would do.
    pub stretch_ratio: Option<f64>,
    /// What would have been saved in observed partitions at the least: by the bounds as they are, and by those that are stretched so.
    pub saved_gpu_hours_low_without: f64,
    pub saved_gpu_hours_low_with: Option<f64>,
}

/// What the report says; `None`: it says nothing of speeds, for none was measured or the caller is no operator.
pub fn of(response: &ShadowResponse) -> Option<Bound> {
    let known = response.calibration.as_ref()?;
    Some(Bound {
        speed_count: known.speed_count,
        above_bound_count: known.above_bound_count,
        stretch_ratio: known.stretch_ratio,
        saved_gpu_hours_low_without: response.saved_gpu_hours_low,
        saved_gpu_hours_low_with: known.saved_gpu_hours_low,
    })
}

/// In one sentence.
pub fn sentence(bound: &Bound) -> String {
    let Bound { speed_count, above_bound_count, stretch_ratio, .. } = bound;
    let count = usize::try_from(*speed_count).unwrap_or(usize::MAX);
    let said = format!("{above_bound_count} of {} at or above their bounds", format::counted(count, "speed"));
    match (stretch_ratio, bound.saved_gpu_hours_low_with) {
        (Some(stretch), Some(low)) => format!(
            "{said}; bounds {stretch:.2} times as far down, and {low:.2} GPU-hours saved (low), without that {:.2}",
            bound.saved_gpu_hours_low_without
        ),
        _ => format!(
            "{said}; no bounds can be set by them, and {:.2} GPU-hours saved (low)",
            bound.saved_gpu_hours_low_without
        ),
    }
}
